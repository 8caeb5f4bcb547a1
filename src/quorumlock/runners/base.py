"""What the runners share: advancing a procedure, and keeping an eye on the nodes."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

from ..core.effects import Effect, Steps
from ..engines.base import WireEngine
from ..events import Bus, NodeDown, NodeUp

T = TypeVar("T")


def advance(steps: Steps[T], error: BaseException | None) -> Effect:
    """The next effect; raises StopIteration with the result. `error` is what performing the last one met."""
    return next(steps) if error is None else steps.throw(error)


def ended(steps: Steps[T]) -> bool:
    """Has the procedure returned or raised? Only then may what it raised leave the runner."""
    return inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED


def reason(error: Exception) -> str:
    """Why a connection could not be made, without the address, which is said anyway."""
    text = str(error) or type(error).__name__
    return re.sub(r"^Error -?\d+ connecting to \S+ ", "", text)[:160].rstrip(".")


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
            self._bus.emit(NodeDown(self._labels[node], cause))

    def answered(self, node: int) -> None:
        if node in self.failing:
            self.failing.discard(node)
            if self.healths[node].answered() and self._bus.listening:
                self._bus.emit(NodeUp(self._labels[node]))
