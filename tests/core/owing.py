"""A client that owes releases, and the world in which it sends them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from quorumlock.core.effects import Route
from quorumlock.core.owed import (
    Owed,
    repeat,
)
from quorumlock.core.redlock import release
from quorumlock.core.requests import Release
from quorumlock.core.votes import Tally

from .driver import (
    Performer,
    World,
    asked,
)

TTL = 10.0
MINE = Release("job", "mine")


class Client:
    """A client, what it owes, and what it was told of the outcome."""

    def __init__(self, nodes: int = 3) -> None:
        self.world = World(nodes)
        fleet = self.world.fleet
        self.owed = Owed(fleet.clock, fleet.random, fleet.node_timeout, nullcontext())
        self.woken: list[bool] = []
        fleet.owe = lambda debt: self.woken.append(self.owed.add(debt))
        self.told: list[tuple[bool, Any]] = []

    def release(self, *performers: Performer, request: Release = MINE) -> Tally:
        steps = release(
            self.world.fleet, "job", "mine", TTL, Route(), request=request,
            on_outcome=lambda confirmed, after: self.told.append((confirmed, after)),
        )  # fmt: skip
        tally = self.world.run(steps, performers)
        self.world.effects.clear()
        return tally

    def owes_for(self) -> float:
        """Seconds until the only debt is over."""
        (debt,) = self.owed.all()
        return debt.until - self.world.now

    def sleep(self) -> float:
        """Until something is due; how long that was."""
        before = self.world.now
        self.world.now = max(before, self.owed.wake_at)
        self.sweep()
        return self.world.now - before

    def sweep(self) -> None:
        for tell in self.owed.sweep():
            tell()

    def repeat(self, *performers: Performer) -> list[dict[int, object]]:
        """What is sent again, with these answers."""
        self.world.effects.clear()
        self.world.run(repeat(self.world.fleet, self.owed), performers)
        self.sweep()
        return [dict(asked(round_)) for round_ in self.world.rounds]
