"""What workloads share: a worker that waits for a lock, works under it, and gives it back."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.effects import Sleep, Steps
from ...core.redlock import ALONE, Kind
from ...errors import ConfigurationError, LeaseLost, NotAcquired
from ..client import SimLease, SimLocker

if TYPE_CHECKING:
    from ..town import Town


@dataclass(slots=True)
class Wait:
    """Somebody waits for a lock."""

    who: str
    line: str
    fair: bool
    since: float
    timeout: float | None
    shared: bool = False
    """Would it share the lock with others?"""
    obtained: bool | None = None
    """None: it still waits."""


class Worker:
    """One task of a client, over and over until the town closes."""

    lines: ClassVar[tuple[str, ...]] = ("x",)
    """What is waited for; after the faults somebody must get each of them."""
    fair: ClassVar[bool] = False
    each: ClassVar[int] = 1
    """Workers per client."""

    prone_to: ClassVar[tuple[str, ...]] = ()
    """Faults that matter most here, and are drawn more often."""

    def __init__(self, town: Town, locker: SimLocker, name: str) -> None:
        self.town = town
        self.locker = locker
        self.name = name
        self.chance = random.Random(f"{town.seed}/{name}")

    # What kinds of workers differ in.

    def turn(self) -> Steps[None]:
        """One piece of work, begun and ended."""
        lease = yield from self.obtain(self.chance.choice(self.lines))
        if lease is not None:
            yield from self.work(lease)
            yield from self.give_back(lease)

    def work(self, lease: SimLease) -> Steps[None]:
        yield from self.stay(lease, self.time_to_stay())

    def kind(self, line: str) -> Kind:
        """As what a line is asked for."""
        return ALONE

    # What they have in common.

    def live(self) -> Steps[None]:
        while not self.town.closing:
            yield Sleep(self.chance.random() * (0.25 if self.town.calm_at else 0.6))
            yield from self.turn()

    def visit(self, line: str) -> Steps[None]:
        """After the faults: insists on having it once."""
        while (lease := (yield from self.obtain(line, timeout=None))) is None:
            yield Sleep(0.05)
        yield from self.give_back(lease)

    def obtain(self, line: str, *, timeout: float | None = -1.0) -> Steps[SimLease | None]:
        if timeout == -1.0:
            timeout = self.chance.choice((None, None, 3.0, 1.0, 0.0))
        keep = self.chance.random() < 0.7
        world, town = self.town.world, self.town
        kind = self.kind(line)
        lock = self.locker.lock(line, ttl=town.ttl, timeout=timeout, keep=keep, fair=self.fair, kind=kind)
        wait = Wait(self.name, line, self.fair, world.now, timeout, kind.word == "read")
        town.tell("waits", wait)
        town.ambush(self.locker._runner, "asks for")
        try:
            lease = yield from lock.acquire(self.name)
        except NotAcquired as error:
            town.counts["refused"] += 1
            town.log.add(self.name, f"does not get {line}: {type(error).__name__}")
            wait.obtained = False
            town.waited(wait)
            return None
        except ConfigurationError:
            if not town.strays:
                raise
            town.log.add(self.name, "is refused: it does not fit the fleet")
            wait.obtained = False
            town.waited(wait)
            yield Sleep(0.2)
            return None
        wait.obtained = True
        town.waited(wait)
        clock = self.locker._runner.clock
        town.granted(lease, world.now - (clock() - lease._grant.since) / clock.rate)
        return lease

    def time_to_stay(self) -> float:
        if self.town.calm_at is not None:
            return 0.05 * self.chance.random()
        return self.chance.choice((0.01, 0.2, self.town.ttl / 2, 2 * self.town.ttl)) * self.chance.random()

    def stay(self, lease: SimLease, seconds: float) -> Steps[bool]:
        """Works for so long, looking at the lease now and then; False: it is lost."""
        until = self.town.world.now + seconds
        while True:
            if not self.trusts(lease):
                return False
            left = until - self.town.world.now
            if self.town.calm_at is not None:
                left = min(left, 0.05)
                until = self.town.world.now + left
            if left <= 0:
                return True
            yield Sleep(min(left, 0.1 + 0.4 * self.chance.random()))
            if lease._options.keep or lease.remaining() > self.town.ttl / 2:
                continue
            try:
                yield from lease.extend(self.town.ttl * self.chance.choice((1.0, 1.0, 0.75)))
            except LeaseLost:
                return False

    def trusts(self, lease: SimLease) -> bool:
        """Does `check()` say that it is still ours?"""
        try:
            lease.check()
        except LeaseLost:
            return False
        self.town.tell("trusted", lease)
        return True

    def give_back(self, lease: SimLease) -> Steps[None]:
        if not lease._options.keep and not self.town.calm_at and self.chance.random() < 0.1:
            self.town.log.add(self.name, f"forgets {lease.resource}")
            self.town.forgets = True
            lease._drop()  # as if its process had died: it ends by its ttl
            lease._given_up()
            return
        yield from lease.release()
