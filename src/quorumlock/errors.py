"""Every error the library raises, in one tree.

    LockError
    ├── NotAcquired (.tally, .may_linger)       the lock was not obtained
    │   ├── LockHeld                            busy: somebody holds it
    │   ├── AcquireTimeout (TimeoutError)       busy: somebody held it until my patience ended
    │   └── NoQuorum (ConnectionError)          broken: no majority of nodes is able to decide
    ├── LeaseError
    │   ├── LeaseLost (.reason)                 I held it, and do not any more
    │   └── LeaseClosed (RuntimeError)          my bug: used after release()
    ├── StaleFence (.fence, .seen)              a resource has seen a newer holder
    ├── VersionConflict                         a cell was changed by somebody else
    ├── EngineError (.node)                     broken: a store failed
    │   ├── EngineTimeout
    │   └── EngineProtocolError
    ├── ConfigurationError (ValueError)         my bug: a parameter or a deployment is wrong
    └── Unsupported                             my bug: this engine or version cannot do that

`busy`, `broken` and `my bug` is the distinction a caller acts on: wait, alarm, or repair.
All errors pickle.
"""

from __future__ import annotations

import enum

TYPE_CHECKING = False  # as in typing, which is not worth importing for it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .core.votes import Tally

__all__ = [
    "AcquireTimeout",
    "ConfigurationError",
    "EngineError",
    "EngineProtocolError",
    "EngineTimeout",
    "LeaseClosed",
    "LeaseError",
    "LeaseLost",
    "LockError",
    "LockHeld",
    "LossReason",
    "NoQuorum",
    "NotAcquired",
    "StaleFence",
    "Unsupported",
    "VersionConflict",
]


class LossReason(enum.Enum):
    """Why a lease is gone."""

    EXPIRED = "expired"
    TAKEN = "taken"
    BROKEN = "broken"
    UNREACHABLE = "unreachable"
    SESSION_ENDED = "session ended"
    MAX_HOLD = "max_hold reached"
    OWNER_GONE = "owner gone"
    FORKED = "forked"


def _rebuild(cls: type[LockError], args: tuple[Any, ...], state: dict[str, Any]) -> LockError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class LockError(Exception):
    """Base of everything this library raises."""

    def __reduce__(
        self,
    ) -> tuple[Callable[..., LockError], tuple[type[LockError], tuple[Any, ...], dict[str, Any]]]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class NotAcquired(LockError):
    """The lock was not obtained. `tally` holds the votes of the last round.

    `may_linger` is true when a node may still name our token for up to one ttl, because its answer
    to the request, or to the release that undid it, never came.
    """

    def __init__(self, message: str, tally: Tally | None = None, may_linger: bool = False) -> None:
        super().__init__(message)
        self.tally = tally
        self.may_linger = may_linger


class LockHeld(NotAcquired):
    """Somebody holds it, and no waiting was asked for."""


class AcquireTimeout(NotAcquired, TimeoutError):
    """Somebody held it for as long as we were ready to wait."""


class NoQuorum(NotAcquired, ConnectionError):
    """Too many nodes are silent, failing or in quarantine for a majority to decide."""


class LeaseError(LockError):
    """Something about a lease that was once obtained."""


class LeaseLost(LeaseError):
    """The lease is gone although it was not released; `reason` says why."""

    def __init__(self, message: str, reason: LossReason) -> None:
        super().__init__(message)
        self.reason = reason


class LeaseClosed(LeaseError, RuntimeError):
    """The lease was used after its release."""


class StaleFence(LockError):
    """A resource refused `fence` because it has already `seen` a newer one."""

    def __init__(self, message: str, fence: int, seen: int) -> None:
        super().__init__(message)
        self.fence = fence
        self.seen = seen


class VersionConflict(LockError):
    """A cell was changed since it was read."""


class EngineError(LockError):
    """A store failed; `node` says which."""

    def __init__(self, message: str, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class EngineTimeout(EngineError):
    """A store did not answer in time."""


class EngineProtocolError(EngineError):
    """A store answered something that is not its protocol."""


class ConfigurationError(LockError, ValueError):
    """A parameter, a URL or a deployment is wrong; nothing was locked."""


class Unsupported(LockError):
    """This engine, or this version, cannot do that."""
