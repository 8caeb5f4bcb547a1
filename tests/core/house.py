"""A world with a keeper in it, and leases that remember what they were told."""

from __future__ import annotations

from quorumlock.core.effects import Route
from quorumlock.core.keeper import Roster, tend
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import Extension
from quorumlock.core.requests import Extend
from quorumlock.core.votes import Tally
from quorumlock.errors import LossReason

from .driver import World, only


class Lease:
    """A lease, as a keeper sees it, which remembers what it was told."""

    def __init__(self, grant: Grant, *, keep: bool = True) -> None:
        self.grant = grant
        self.keep = keep
        self.fate = LossReason.EXPIRED
        self.due_at = grant.valid_until - (grant.ttl * 2 / 3 if keep else 0)
        self.told: list[Extension | LossReason] = []
        self.failures: list[Tally | Exception | None] = []

    def renewable(self, now: float) -> bool:
        return self.keep

    def renewed(self, extension: Extension) -> None:
        self.fate = LossReason.EXPIRED
        self.told.append(extension)

    def doubt(self) -> None:
        self.fate = LossReason.UNREACHABLE

    def failed(self, tally: Tally | None, error: Exception | None = None) -> None:
        self.failures.append(error if tally is None else tally)

    def expire(self) -> None:
        self.lost(self.fate)

    def lost(self, reason: LossReason) -> None:
        self.told.append(reason)
        self.grant.over = True


class House:
    """A world of three nodes, and a keeper in it."""

    def __init__(self, *, random: float = 0.0) -> None:
        self.world = World(3, random=random)
        self.roster = Roster(self.world.fleet.clock, self.world.fleet.random)
        self.count = 0

    def lease(self, *, ttl: float = 9.0, keep: bool = True) -> Lease:
        """A lease that was acquired this instant, of a fleet without drift."""
        self.count += 1
        name = str(self.count)
        grant = Grant(name, name, 1, ttl, self.world.now + ttl, self.world.fleet.tally(), Route())
        lease = Lease(grant, keep=keep)
        self.roster.add(lease)
        return lease

    def tend(self, *performers: object) -> list[int]:
        """Lets the keeper do what is due; the size of each message."""
        self.roster.rise()
        self.world.effects.clear()
        self.world.run(tend(self.world.fleet, self.roster), performers)  # type: ignore[arg-type]
        self.roster.settle()
        return [
            len(only(one, Extend)[0].leases) for one in self.world.rounds if isinstance(one.requests[0], Extend)
        ]
