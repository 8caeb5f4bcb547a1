"""What a node can be asked. Each is plain data; an engine knows how to say it to its nodes."""

from __future__ import annotations

from typing import NamedTuple


class Join(NamedTuple):
    """Make sure that the node knows my fleet, and I the node."""


class Acquire(NamedTuple):
    """Set the lock if it is free, and raise the fence; `candidate_us` is the client's wall clock."""

    name: str
    token: str
    ttl_ms: int
    candidate_us: int


class Confirm(NamedTuple):
    """Raise the fence from what was `granted` to `fence`, if the lock is still mine."""

    name: str
    token: str
    granted: int
    fence: int


class Extend(NamedTuple):
    """Renew the lock if it is still mine."""

    name: str
    token: str
    ttl_ms: int
    fence: int


class Heal(NamedTuple):
    """Store the lock again on a node that has forgotten it."""

    name: str
    token: str
    ttl_ms: int
    fence: int


class Release(NamedTuple):
    """Delete the lock if it is still mine."""

    name: str
    token: str


class Break(NamedTuple):
    """Delete the lock whoever holds it, and raise the fence."""

    name: str


class Look(NamedTuple):
    """Is it free?"""

    name: str


class Survey(NamedTuple):
    """Has the node a marker? Changes nothing."""


class Initialise(NamedTuple):
    """Write the marker of a new fleet: ready at once, or with `force` over whatever is there."""

    force: bool


Request = Join | Acquire | Confirm | Extend | Heal | Release | Break | Look | Survey | Initialise
