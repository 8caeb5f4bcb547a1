"""Two permits for many."""

from __future__ import annotations

from ...core.family import AnyOf
from ...core.redlock import Kind
from .base import Worker

PERMITS = 2


class Semaphore(Worker):
    """Takes a permit, whichever is free."""

    lines = ("pool",)
    each = 2

    def kind(self, line: str) -> Kind:
        return AnyOf(line, PERMITS)
