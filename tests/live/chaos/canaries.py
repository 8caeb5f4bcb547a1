"""Deliberately broken clients, chosen by the environment: the judge of a chaos run must catch each of them.

| canary | what is broken | must be caught as |
|---|---|---|
| `two-of-five` | two nodes of five pass for a majority | overlap |
| `deaf` | believes in its lease for three ttl, and does not renew it | overlap |
| `late` | gives the lock back, and works on for a while | overlap |
| `forgetful` | no quarantine: nodes that lost their memory vote at once | overlap |
| `backward` | fences fall | fence does not grow |
| `unguarded` | writes past the guard | lost update |
"""

from __future__ import annotations

import os
from typing import Any

import quorumlock

VARIABLE = "CHAOS_CANARY"
CAUGHT_AS = {
    "two-of-five": "overlap",
    "deaf": "overlap",
    "late": "overlap",
    "forgetful": "overlap",
    "backward": "fence does not grow",
    "unguarded": "lost update",
}


def chosen() -> str:
    return os.environ.get(VARIABLE, "")


def options() -> dict[str, Any]:
    """For `connect`."""
    if chosen() == "two-of-five":
        _lower_the_majority()
    return {"quarantine": False} if chosen() == "forgetful" else {}


def until(honest: float, lease: quorumlock.Lease) -> float:
    return honest + 2 * lease.ttl if chosen() == "deaf" else honest


def fence(honest: int) -> int:
    return 2**53 - honest if chosen() == "backward" else honest


def _lower_the_majority() -> None:
    from quorumlock.core.fleet import Fleet

    def two(fleet: Fleet) -> None:
        fleet.majority = 2

    setattr(Fleet, "__post_init__", two)  # noqa: B010 - a type checker would rightly object
