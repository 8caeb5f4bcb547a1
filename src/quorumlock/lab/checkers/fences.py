"""Fences are unique, and grow from holder to holder; those who only read have that of the last who wrote.

A lease comes after another if its attempt began when the other was there already. No clock of a client or of a node
enters into this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...core.requests import READER
from ..client import SimLease
from .base import Checker

if TYPE_CHECKING:
    from ..town import Town


class Given(NamedTuple):
    at: float
    fence: int
    who: str
    shared: bool


class Fences(Checker):
    name = "fences"
    rests_on = frozenset({"fences", "unguarded", "mixed"})

    def __init__(self, town: Town) -> None:
        super().__init__(town)
        self._given: dict[str, list[Given]] = {}

    def granted(self, lease: SimLease, since: float) -> None:
        shared = lease.token.startswith(READER)
        for resource, fence in lease.fences.items():
            given = self._given.setdefault(resource, [])
            for earlier in given:
                if fence == earlier.fence and not shared and not earlier.shared:
                    self.complain(f"{resource}: {lease.held_by} and {earlier.who} have the same fence {fence}")
                elif earlier.at < since and fence < earlier.fence + (not shared):
                    told = f"{resource}: {lease.held_by} came after {earlier.who}"
                    self.complain(f"{told}, but its fence is {fence}, not above {earlier.fence}")
            given.append(Given(self.town.world.now, fence, lease.held_by, shared))
