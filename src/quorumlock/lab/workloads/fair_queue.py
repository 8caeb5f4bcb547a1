"""A crowd that stands in line: nobody overtakes."""

from __future__ import annotations

from ...core.effects import Steps
from ..client import SimLease
from .base import Worker


class FairQueue(Worker):
    """Waits for its turn as long as it takes, and stays for a short time."""

    each = 2
    fair = True

    def obtain(self, line: str, *, timeout: float | None = -1.0) -> Steps[SimLease | None]:
        if timeout == -1.0:
            timeout = self.chance.choice((None, None, None, 2.0))
        return (yield from super().obtain(line, timeout=timeout))

    def time_to_stay(self) -> float:
        longest = 0.05 if self.town.calm_at is not None else 0.4
        return longest * self.chance.random()
