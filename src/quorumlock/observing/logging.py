"""Events as log records of `quorumlock.events`: routine at DEBUG, so that a normal log shows trouble alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import events
from ..events import Event

if TYPE_CHECKING:
    from .. import AsyncLocker, Locker

LEVELS: dict[type[Event], int] = {
    events.Waiting: logging.DEBUG,
    events.GivenUp: logging.INFO,
    events.Acquired: logging.DEBUG,
    events.Confirmed: logging.DEBUG,
    events.Extended: logging.DEBUG,
    events.Released: logging.DEBUG,
    events.Healed: logging.INFO,
    events.NodeUp: logging.INFO,
    events.ReleaseRepeated: logging.INFO,
    events.RenewalFailed: logging.WARNING,
    events.ReleasedLate: logging.WARNING,
    events.Broken: logging.WARNING,
    events.NodeDown: logging.WARNING,
    events.NodeQuarantined: logging.WARNING,
    events.Lost: logging.ERROR,
    events.FenceRefused: logging.ERROR,
}
"""What is not in it is logged at INFO."""

_SAYS: dict[type[Any], Callable[[Any], tuple[object, ...]]] = {
    events.Waiting: lambda e: ("%r is waited for: %s", e.name, _holder(e)),
    events.GivenUp: lambda e: ("%r was not acquired (%s) after %.3f s", e.name, e.why, e.waited),
    events.Acquired: lambda e: ("%r acquired with fence %d after %.3f s", e.name, e.fence, e.waited),
    events.Confirmed: lambda e: ("%r: %d nodes were raised to fence %d", e.name, e.nodes, e.fence),
    events.Extended: lambda e: ("%r (fence %d) renewed for %g s", e.name, e.fence, e.ttl),
    events.RenewalFailed: lambda e: (
        "%r (fence %d) was not renewed, and is valid for %.3f s more: %s", e.name, e.fence, e.remaining, e.why,
    ),
    events.Healed: lambda e: ("%r (fence %d) was given again to %s", e.name, e.fence, ", ".join(e.nodes)),
    events.Lost: lambda e: ("%r (fence %d) lost after %.3f s: %s", e.name, e.fence, e.held, e.reason.value),
    events.Released: lambda e: ("%r (fence %d) released after %.3f s%s", e.name, e.fence, e.held, _sure(e)),
    events.ReleasedLate: lambda e: (
        "%r (fence %d) released late, after %.3f s: it was over (%s)%s",
        e.name, e.fence, e.held, "its validity had ended" if e.reason is None else e.reason.value, _sure(e),
    ),
    events.ReleaseRepeated: lambda e: (
        "%r (fence %d): its release was sent again, and %s after %.3f s", e.name, e.fence,
        "a majority has confirmed it" if e.confirmed else "is still not confirmed", e.after,
    ),
    events.Broken: lambda e: ("%r was forced open by %s", e.name, e.by),
    events.FenceRefused: lambda e: (
        "%r: a guard refused fence %d, having seen %d: a holder of the past wrote", e.resource, e.fence, e.seen,
    ),
    events.NodeDown: lambda e: ("node %s does not answer: %s", e.node, e.cause),
    events.NodeUp: lambda e: ("node %s answers again", e.node),
    events.NodeQuarantined: lambda e: ("node %s grants nothing for %.1f s", e.node, e.seconds),
}  # fmt: skip


def _holder(event: events.Waiting) -> str:
    if event.remaining is None:
        return "nobody can tell for how long"
    whose = "" if event.fence is None else f" by fence {event.fence}"
    return f"held{whose} for {event.remaining:.3f} s, unless renewed; {event.ahead} ahead"


def _sure(event: events.Released) -> str:
    return "" if event.confirmed else "; no majority has confirmed it, and the rest ends by its ttl"


def log_events(
    locks: Locker | AsyncLocker,
    logger: logging.Logger | None = None,
    level: int = logging.DEBUG,
) -> Callable[[], None]:
    """Logs every event of a Locker that has this `level` or a higher one; what is returned ends that.

    To `quorumlock.events` by default. The event itself is in `record.quorumlock`, for formatters of your own.
    """
    told = logging.getLogger("quorumlock.events") if logger is None else logger

    def hear(event: Event) -> None:
        kind = type(event)
        of = LEVELS.get(kind, logging.INFO)
        if of >= level and told.isEnabledFor(of):
            message, *values = _SAYS[kind](event) if kind in _SAYS else ("%r", event)
            told.log(of, message, *values, extra={"quorumlock": event})

    return locks.subscribe(hear)
