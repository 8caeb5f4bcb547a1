"""One seed from beginning to end: a storm of faults, then calm; what was seen, and whether it was as promised."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.waiting import TICKET_LASTS
from .checkers.base import Violation
from .faults import Stroke, drawn, plan
from .town import MAX_TTL, Shape, Town
from .workloads import WORKLOADS

MOMENT = 1.0
"""Seconds in which what was given back arrives."""
CALM = 2.0
"""Seconds for which a town without faults is watched at least, after its storm of nothing."""
AFTER_CALM = 5.0


class Options(NamedTuple):
    """What to run beside the seed."""

    workload: str | None = None
    """None: the seed decides."""
    fault: str | None = None
    """Only this one, with the strength it has for the seed."""
    keep: tuple[int, ...] | None = None
    """Only these strokes, by their number."""


@dataclass(slots=True)
class Verdict:
    """What became of a seed."""

    seed: int
    workload: str
    shape: Shape
    faults: dict[str, float]
    strokes: list[Stroke]
    violations: list[Violation] = field(default_factory=list)
    crash: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    """Assumptions that did not hold."""
    digest: str = ""
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Of simulated time."""
    events: int = 0

    @property
    def wrong(self) -> list[Violation]:
        """What nothing excuses."""
        return [one for one in self.violations if one.excuse is None]

    @property
    def failed(self) -> bool:
        return bool(self.crash or self.wrong)


def workload_of(seed: int) -> str:
    return list(WORKLOADS)[seed % len(WORKLOADS)]


def simulate(seed: int, options: Options = Options()) -> Verdict:  # noqa: B008
    """Runs one seed. Never raises for what the simulated code does: that is part of the verdict."""
    workload = options.workload or workload_of(seed)
    shape, faults = Shape.draw(seed), drawn(seed, WORKLOADS[workload].prone_to)
    if options.fault is not None:
        faults = {options.fault: faults.get(options.fault, 0.05 + (seed % 97) / 100)}
    strokes = plan(seed, shape, faults)
    if options.keep is not None:
        strokes = [stroke for stroke in strokes if stroke.number in options.keep]
    verdict = Verdict(seed, workload, shape, faults, strokes)
    town = Town(seed, shape, WORKLOADS[workload])
    try:
        _live(town, strokes)
    except Exception:
        verdict.crash = traceback.format_exc()
    _tell(verdict, town)
    for runner in town.runners:
        for procedure in list(runner.procedures):
            procedure.abandon()
    return verdict


def _live(town: Town, strokes: list[Stroke]) -> None:
    town.start()
    _storm(town, strokes)
    _calm(town)
    _end(town)


def _storm(town: Town, strokes: list[Stroke]) -> None:
    """Everybody works, and things go wrong."""
    begun_at = town.world.now
    for stroke in strokes:
        town.world.call_at(begun_at + stroke.at, lambda stroke=stroke: _strike(town, stroke))  # type: ignore[misc]
    for index, locker in enumerate(town.lockers):
        for number in range(town.workload.each):
            town.employ(locker, f"c{index}.{number}")
    town.go(town.shape.storm)


def _strike(town: Town, stroke: Stroke) -> None:
    if town.calm_at is None:
        town.faulty = True
        town.log.add("fault", stroke.words)
        stroke.act(town)


def _calm(town: Town) -> None:
    """Nothing goes wrong any more: every lock is to be obtained once, and everybody to come to an end."""
    town.log.add("town", "faults stop")
    town.calm()
    visits = [
        locker._runner.spawn(town.workload(town, locker, f"visitor.{line}").visit(line))
        for line, locker in zip(town.lines, town.lockers * len(town.lines), strict=False)
    ]
    town.procedures += visits
    if not town.faulty:
        town.go(CALM)
    patience = town.allowed() + town.crowd + AFTER_CALM
    town.go(patience, lambda: all(visit.done for visit in visits))
    town.closing = True
    town.go(patience, lambda: all(one.done for one in town.procedures))
    town.tell("stuck")
    _raise(town)


def _end(town: Town) -> None:
    """Everything was given back: what is left is too much."""
    for procedure in town.procedures:
        if not procedure.done:  # it was complained of; a procedure that was started is never closed
            procedure.throw(KeyboardInterrupt())
    town.go(MOMENT)
    town.tell("left")
    town.go(MAX_TTL + town.stepped_back + town.echoes)
    town.tell("expired")
    town.go(2 * TICKET_LASTS + MOMENT + town.stepped_back)
    town.tell("forgotten")


def _raise(town: Town) -> None:
    """What went wrong in a worker or a keeper, without anybody's having foreseen it."""
    for error in [*(one.error for one in town.procedures), *town.errors]:
        if error is not None:
            raise error


def _tell(verdict: Verdict, town: Town) -> None:
    verdict.violations = town.violations
    verdict.counts = town.counts
    verdict.broken = tuple(town.broken)
    verdict.lines = town.log.lines
    verdict.digest = town.digest()
    verdict.seconds, verdict.events = town.world.now, town.world.count
