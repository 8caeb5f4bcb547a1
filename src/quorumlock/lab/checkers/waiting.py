"""Waiting is bounded: nobody waits for long once faults have stopped, nor is a fair waiter overtaken for ever.

How long depends on how many are in front. Without any fault they are told at once; after faults, subscriptions may
still be dead although nobody was told, and a waiter is as late as its poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..workloads.base import Wait
from .base import Checker

if TYPE_CHECKING:
    from ..town import Town

AHEAD_CALM = 0.15
"""Seconds for each who is in front, in a town without faults: they stay for a twentieth of a second at the most."""
AHEAD = 0.5
POLL = 4.0
OVERTAKEN_MOST = 2
"""How often one who is fair may have it while another one who is fair waits: once, and once as it came."""
GRACE = 1.0


class Waiting(Checker):
    name = "waiting"
    rests_on = frozenset({"mixed"})

    def __init__(self, town: Town) -> None:
        super().__init__(town)
        self._waiting: list[Wait] = []
        self._passed: dict[int, dict[str, int]] = {}
        """For each who waits, how often others had it meanwhile."""

    def waits(self, wait: Wait) -> None:
        self._waiting.append(wait)

    def waited(self, wait: Wait) -> None:
        self._waiting.remove(wait)
        passed = self._passed.pop(id(wait), {})
        if wait.obtained and wait.fair and not wait.shared and not self.town.faulty:
            self._count(wait, passed)
        self._look(wait)

    def stuck(self) -> None:
        for wait in self._waiting:
            self._look(wait)

    def _count(self, wait: Wait, passed: dict[str, int]) -> None:
        for who, times in passed.items():
            if times > OVERTAKEN_MOST:
                self.complain(f"{wait.who} waited for {wait.line}, and {who} had it {times} times meanwhile")
        for other in self._waiting:
            if other.line == wait.line and other.fair:
                had = self._passed.setdefault(id(other), {})
                had[wait.who] = had.get(wait.who, 0) + 1

    def _look(self, wait: Wait) -> None:
        town = self.town
        if town.calm_at is None:
            return
        waited = town.world.now - max(wait.since, town.calm_at)
        if town.faulty:
            most = town.allowed() + town.crowd * AHEAD + POLL
        else:
            most = town.crowd * AHEAD_CALM + GRACE + (town.ttl if town.forgets else 0.0)
        if wait.timeout is not None:
            most = min(most, wait.timeout + GRACE)
        if waited > most:
            state = "still waits" if wait.obtained is None else "waited"
            self.complain(f"{wait.who} {state} for {wait.line} after {waited:.1f} s; {most:.1f} s are the most")
