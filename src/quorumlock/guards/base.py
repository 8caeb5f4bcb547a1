"""What every guard asks of a lease: the resource it is for, and a fence that can be one.

Rules of all guards:

1. The mark of a resource is the highest fence it has seen. It only rises.
2. `enter` raises the mark, before its holder reads anything: whoever held the lock before is refused from then on.
3. A write is accepted iff its fence is not below the mark, and raises the mark; both happen in one atomic step with
   the write itself.
4. A guard believes the fence alone. Whether the lease still stands is not asked: the answer could be too late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError, StaleFence
from ..events import Bus, Event, FenceRefused

MAX_FENCE = 2**53
"""The largest number that JSON, JavaScript, Lua and floating point all keep exactly."""


class Fenced(Protocol):
    """A lease, or a `Claim`."""

    @property
    def resource(self) -> str: ...

    @property
    def fence(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """Resource and fence without the lease: what a service is sent, and hands to its own guard."""

    resource: str
    fence: int

    def __post_init__(self) -> None:
        claim(self)


def claim(lease: Fenced, longest: int | None = None) -> tuple[str, int]:
    """Resource and fence of a lease; raises ConfigurationError where a guard could not rely on them.

    `longest` is how many characters of the resource the guard can store.
    """
    resource, fence = getattr(lease, "resource", None), getattr(lease, "fence", None)
    if not isinstance(resource, str) or not resource:
        raise ConfigurationError(f"a guard needs a lease; {type(lease).__name__} does not name a resource")
    if len(getattr(lease, "fences", ())) > 1:
        raise ConfigurationError(
            f"the lease of {resource!r} is of several locks, each with its own fence: give the guard "
            "Claim(name, fence) for each of lease.fences"
        )
    if fence is None:
        raise ConfigurationError(f"the lease of {resource!r} has no fence: no guard can tell it from an older one")
    if not isinstance(fence, int) or isinstance(fence, bool):
        raise ConfigurationError(f"the fence of {resource!r} is to be an integer, not {type(fence).__name__}")
    if not 0 < fence <= MAX_FENCE:
        raise ConfigurationError(f"the fence of {resource!r} is to be between 1 and 2**53, not {fence}")
    if longest is not None and len(resource) > longest:
        raise ConfigurationError(
            f"the resource {resource[:40]!r}… has {len(resource)} characters; this guard stores {longest}"
        )
    return resource, fence


_bus = Bus()


def subscribe(callback: Callable[[Event], object]) -> Callable[[], None]:
    """Calls `callback` with a FenceRefused for every `Claim` that a guard of this process refuses.

    What is returned ends that. It is for services; of a lease that is refused, subscribers of its Locker are told.
    """
    return _bus.subscribe(callback)


def refused(lease: Fenced, stale: StaleFence) -> StaleFence:
    """Tells whoever listens that a guard refuses; gives the error to raise."""
    tell = getattr(lease, "_refused", None)
    if tell is not None:
        tell(stale)
    elif _bus.listening:
        _bus.emit(FenceRefused(lease.resource, lease.resource, stale.fence, stale.seen))
    return stale
