"""What the runners share: advancing a procedure, and keeping an eye on the nodes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..core.effects import Effect, Steps
from ..core.health import FIRST_PROBE, LAST_PROBE
from ..core.votes import Answer, Cause, unknown
from ..engines.base import WireEngine
from ..events import Bus, NodeDown, NodeUp

T = TypeVar("T")

REFUSED_FOR = 30.0


def advance(steps: Steps[T], error: BaseException | None) -> Effect:
    """The next effect; raises StopIteration with the result. `error` is what performing the last one met."""
    return next(steps) if error is None else steps.throw(error)


def ended(steps: Steps[T]) -> bool:
    """Has the procedure returned or raised? Only then may what it raised leave the runner."""
    return inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED


def abandon(steps: Steps[T], error: BaseException) -> None:
    """Ends a procedure for which nothing can be done any more: whatever it asks for meets this error."""
    while not ended(steps):
        with suppress(StopIteration, type(error)):
            steps.throw(error)


def reason(error: Exception) -> str:
    """Why a connection could not be made, without the address, which is said anyway."""
    text = str(error) or type(error).__name__
    if found := re.match(r"Error (\d+) connecting to \S+ Connect call failed", text):
        return os.strerror(int(found[1]))  # asyncio only says the address once more
    return re.sub(r"^Error -?\d+ connecting to \S+ ", "", text)[:160].rstrip(".")


def not_made(error: Exception) -> Answer:
    """The vote of a node to which a connection could not be made."""
    return unknown(Cause.DENIED if isinstance(error, PermissionError) else Cause.UNREACHABLE, reason(error))


class Watch:
    """Tells the news about nodes: down when they first fail, up when they answer again."""

    def __init__(self, engine: WireEngine, bus: Bus) -> None:
        self.healths = [node.health for node in engine.nodes]
        self._labels = engine.labels
        self._clock = engine.clock
        self._bus = bus
        self.failing: set[int] = set()
        """Nodes that have not answered since they last failed."""

    def failed(self, node: int, cause: str) -> None:
        self.failing.add(node)
        if self.healths[node].failed(self._clock(), cause) and self._bus.listening:
            self._bus.report(NodeDown(self._labels[node], cause))

    def answered(self, node: int) -> None:
        if node in self.failing:
            self.failing.discard(node)
            if self.healths[node].answered() and self._bus.listening:
                self._bus.report(NodeUp(self._labels[node]))


class Settled:
    """For each node: is a subscription worth a try, and when?"""

    def __init__(self, count: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = [0] * count
        self._again_at = [0.0] * count

    def failed(self, node: int) -> None:
        self._failures[node] += 1
        pause = min(LAST_PROBE, FIRST_PROBE * 2.0 ** min(self._failures[node] - 1, 10))
        self._again_at[node] = self._clock() + pause

    def refused(self, node: int) -> None:
        """The server does not let us: an operator has to change that."""
        self._failures[node] += 1
        self._again_at[node] = self._clock() + REFUSED_FOR

    def succeeded(self, node: int) -> None:
        self._failures[node] = 0

    def due(self, node: int, now: float) -> bool:
        return now >= self._again_at[node]

    def hope(self, node: int, now: float) -> bool:
        """May it be heard soon? A node that has just failed may not."""
        return self._failures[node] == 0 or now >= self._again_at[node] + LAST_PROBE

    def wait(self, node: int, now: float) -> float:
        return max(0.001, self._again_at[node] - now)
