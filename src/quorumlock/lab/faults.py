"""What goes wrong in a town: faults of many kinds, of which each seed draws a few, each with its own strength.

A fault is a number of strokes, planned before the run: when, what, and in words. A stroke can be left out without
changing the others, which is how a story is shrunk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import strokes

if TYPE_CHECKING:
    from .town import Shape, Town


@dataclass(frozen=True, slots=True)
class Stroke:
    """One thing that goes wrong. `at` counts from the beginning of the storm."""

    number: int
    at: float
    fault: str
    words: str
    act: Callable[[Town], None]

    def __str__(self) -> str:
        return f"{self.number}: {self.at:.3f} s {self.words}"


@dataclass
class Draw:
    """What a fault draws its strokes from."""

    chance: random.Random
    strength: float
    """From just above 0 to 1."""
    shape: Shape

    def times(self, most: int) -> list[float]:
        """When it strikes: once, or up to so many times."""
        count = 1 + int(self.strength * most * self.chance.random())
        return sorted(self.chance.random() * self.shape.storm for _ in range(count))

    def node(self) -> int:
        return self.chance.randrange(self.shape.nodes)

    def nodes(self) -> list[int]:
        """Some of them: one, or several, or all."""
        count = 1 + int(self.chance.random() * self.strength * self.shape.nodes)
        return sorted(self.chance.sample(range(self.shape.nodes), min(count, self.shape.nodes)))

    def client(self) -> int:
        return self.chance.randrange(self.shape.clients)

    def seconds(self, most: float) -> float:
        """Up to `most`, if it is strong."""
        return most * self.strength * self.chance.random()

    def sign(self) -> int:
        return self.chance.choice((-1, 1))


Planned = Iterator[tuple[float, str, Callable[["Town"], None]]]
FAULTS: dict[str, Callable[[Draw], Planned]] = {
    "delay": strokes.delay,
    "lost-request": strokes.lost_request,
    "lost-answer": strokes.lost_answer,
    "half-open": strokes.half_open,
    "reordering": strokes.reordering,
    "duplication": strokes.duplication,
    "partition": strokes.partition,
    "one-way-partition": strokes.one_way_partition,
    "client-pause": strokes.client_pause,
    "node-pause": strokes.node_pause,
    "client-clock": strokes.client_clock,
    "node-clock": strokes.node_clock,
    "drift-within": strokes.drift_within,
    "drift-beyond": strokes.drift_beyond,
    "crash-with-memory": strokes.crash_with_memory,
    "crash-without": strokes.crash_without,
    "last-second-lost": strokes.last_second_lost,
    "old-disk": strokes.old_disk,
    "rolling-restart": strokes.rolling_restart,
    "operator-del": strokes.operator_del,
    "operator-break": strokes.operator_break,
    "mixed-fleet": strokes.mixed_fleet,
    "late-write": strokes.late_write,
}
BREAKING = frozenset({"node-clock", "drift-beyond", "operator-del", "operator-break"})
"""Those that break an assumption whenever they strike. They are drawn less often: they excuse what comes after."""


def drawn(seed: int, prone_to: tuple[str, ...] = ()) -> dict[str, float]:
    """The faults of a seed, each with its strength; one seed in twelve has none. Some towns are prone to some."""
    chance = random.Random(f"{seed}/faults")
    if chance.random() < 1 / 12:
        return {}
    likely = chance.choice((0.08, 0.2, 0.35))
    picked = {
        name: 0.05 + 0.95 * chance.random()
        for name in FAULTS
        if chance.random() < (0.5 if name in prone_to else likely * (0.25 if name in BREAKING else 1.0))
    }
    return picked or {
        chance.choice([name for name in FAULTS if name not in BREAKING]): 0.05 + 0.95 * chance.random()
    }


def plan(seed: int, shape: Shape, faults: dict[str, float]) -> list[Stroke]:
    """All strokes of a run, in order."""
    found = []
    for name, strength in faults.items():
        draw = Draw(random.Random(f"{seed}/{name}"), strength, shape)
        found += [(at, name, words, act) for at, words, act in FAULTS[name](draw)]
    found.sort(key=lambda one: one[0])
    return [Stroke(number, at, name, words, act) for number, (at, name, words, act) in enumerate(found)]
