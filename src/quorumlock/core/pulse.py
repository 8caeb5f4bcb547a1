"""Feeling the pulse of a fleet: how long each node takes to answer, and which do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .effects import Round, Route, Steps
from .fleet import Fleet
from .requests import Look
from .votes import UNABLE, Answer, Cause, Tally

NAME = "ql:pulse"
"""No lock has that name: nodes look for it, and change nothing."""


class Pulse(NamedTuple):
    """What one node answered, and after how many seconds; None: it did not."""

    node: str
    latency: float | None
    cause: Cause

    @property
    def able(self) -> bool:
        """Could it have decided on a lock?"""
        return self.cause not in UNABLE


class Timed(Tally):
    """Knows when each vote was cast. Everybody is waited for: nobody's answer lies unread."""

    def __init__(self, nodes: tuple[str, ...], clock: Callable[[], float]) -> None:
        super().__init__(nodes, len(nodes), any_answer=True, patient=True)
        self.came_at: list[float | None] = [None] * len(nodes)
        self._clock = clock

    def cast(self, node: int, answer: Answer) -> None:
        if self.came_at[node] is None:
            self.came_at[node] = self._clock()
        super().cast(node, answer)


UNHEARD = frozenset({Cause.SILENT, Cause.UNREACHABLE, Cause.DENIED, Cause.DISCONNECTED, Cause.LEFT_OUT})


def feel(fleet: Fleet) -> Steps[list[Pulse]]:
    """Asks every node twice: the first time may have to connect, the second is timed."""
    route = Route()
    warming = Timed(fleet.nodes, fleet.clock)
    yield Round(fleet.to_all(Look(NAME)), warming, fleet.node_timeout, route, everyone=True)
    tally, asked_at = Timed(fleet.nodes, fleet.clock), fleet.clock()
    yield Round(fleet.to_all(Look(NAME)), tally, fleet.node_timeout, route, everyone=True)
    pulses = []
    for node, (answer, came_at) in enumerate(zip(tally.answers, tally.came_at, strict=True)):
        cause = Cause.SILENT if answer is None else answer.cause
        latency = None if came_at is None or cause in UNHEARD else came_at - asked_at
        pulses.append(Pulse(fleet.nodes[node], latency, cause))
    return pulses
