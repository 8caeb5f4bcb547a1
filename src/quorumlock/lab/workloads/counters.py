"""A counter behind a guard: read, work, write one more. Lost updates are what locks are for."""

from __future__ import annotations

from typing import ClassVar

from ...core.effects import Sleep, Steps
from ...errors import StaleFence
from ..client import SimLease
from .base import Worker


class GuardedCounter(Worker):
    """Shows its fence with every write, and looks at its lease before; but the guard first hears of it then.

    So a write that is late may come between another's reading and its writing: such updates are counted, not
    promised against.
    """

    enters: ClassVar[bool] = False
    prone_to = ("late-write", "client-pause")

    def work(self, lease: SimLease) -> Steps[None]:
        ledger = self.town.ledger(lease.resource)
        for _ in range(self.chance.choice((1, 1, 2))):
            yield Sleep(0.001)
            try:
                if self.enters:
                    ledger.enter(lease.fence)
                    yield Sleep(0.001 * self.chance.random())
                read = ledger.read()
            except StaleFence:
                return
            if not (yield from self.stay(lease, self.time_to_stay())):
                return
            late = self.town.late_writes if self.chance.random() < 0.3 else 0.0
            delay = 0.001 + late * self.chance.random()
            sent = ledger.write_later(self.name, lease.fence, read, delay, entered=self.enters)
            if not (yield from sent):
                return  # refused, or nobody can tell


class FencedCounter(GuardedCounter):
    """Enters the guard before it reads: from then on whoever held the lock before is refused."""

    enters = True
