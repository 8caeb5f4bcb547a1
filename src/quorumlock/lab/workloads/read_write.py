"""A document that many may read, or one may write."""

from __future__ import annotations

from ...core.effects import Steps
from ...core.family import Read, Write
from ...core.redlock import Kind
from ...errors import LeaseLost
from ..client import SimLease, SimLock
from .base import Worker


class ReadWrite(Worker):
    """Reads twice as often as it writes; now and then goes on reading what it wrote."""

    lines = ("doc",)
    each = 2
    fair = True

    def kind(self, line: str) -> Kind:
        return Write() if self.chance.random() < 1 / 3 else Read()

    def turn(self) -> Steps[None]:
        lease = yield from self.obtain(self.lines[0])
        if lease is None:
            return
        stayed = yield from self.stay(lease, self.time_to_stay())
        if stayed and lease._grant.exclusive and self.chance.random() < 0.3:
            try:
                lease = yield from self.share(lease)
            except LeaseLost:
                return
            yield from self.stay(lease, self.time_to_stay())
        yield from self.give_back(lease)

    def share(self, lease: SimLease) -> Steps[SimLease]:
        since = self.town.world.now
        lock = SimLock(self.locker, lease.name, lease._options, Read())
        shared = yield from lock.downgrade(lease)
        self.town.granted(shared, since)
        return shared
