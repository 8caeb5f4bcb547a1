"""Candidates of whom one leads, until it resigns or is lost."""

from __future__ import annotations

from ...core.effects import Steps
from ...core.family import Lead
from ...core.redlock import Kind
from ..client import SimLease
from .base import Worker


class Election(Worker):
    """Stands for election again and again, and leads for a while; its lease is always renewed."""

    lines = ("leader",)
    fair = True

    def kind(self, line: str) -> Kind:
        return Lead()

    def obtain(self, line: str, *, timeout: float | None = None) -> Steps[SimLease | None]:
        return (yield from super().obtain(line, timeout=timeout))

    def time_to_stay(self) -> float:
        longest = 0.05 if self.town.calm_at is not None else 1.5 * self.town.ttl
        return longest * self.chance.random()
