"""When faults stop, every lock is obtained again: within three ttl, and a quarantine if a node had restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..workloads.base import Wait
from .base import Checker

if TYPE_CHECKING:
    from ..town import Town


class Progress(Checker):
    name = "progress"
    rests_on = frozenset({"mixed"})

    def __init__(self, town: Town) -> None:
        super().__init__(town)
        self._first: dict[str, float] = {}

    def waited(self, wait: Wait) -> None:
        if wait.obtained and self.town.calm_at is not None:
            self._first.setdefault(wait.line, self.town.world.now - self.town.calm_at)

    def stuck(self) -> None:
        for line in self.town.lines:
            took = self._first.get(line)
            if took is None or took > self.town.allowed():
                told = "not at all" if took is None else f"after {took:.1f} s"
                self.complain(
                    f"{line} was obtained {told} since faults have stopped; {self.town.allowed():.1f} s are allowed"
                )
