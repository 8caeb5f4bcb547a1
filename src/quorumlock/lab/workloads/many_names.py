"""Several names, taken alone or two at a time."""

from __future__ import annotations

from ...core.effects import Steps
from ...core.family import AllOf
from ...core.redlock import ALONE, Kind
from ..client import SimLease
from .base import Worker

SEVERAL = "several"


class ManyNames(Worker):
    """Takes one of four names, or two of them at once."""

    lines = ("a", "b", "c")
    each = 2

    def turn(self) -> Steps[None]:
        line = SEVERAL if self.chance.random() < 0.3 else self.chance.choice(self.lines)
        lease: SimLease | None = yield from self.obtain(line)
        if lease is not None:
            yield from self.work(lease)
            yield from self.give_back(lease)

    def kind(self, line: str) -> Kind:
        return AllOf(tuple(self.chance.sample(self.lines, 2))) if line == SEVERAL else ALONE
