"""Tables for people: aligned, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .crew import Run, ratio, typical

NAME_WIDTH = 35
TIMES = "\u00d7"
PLACES = {"same": "same core (µs)", "cross": "two cores (µs)"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A budget, and what was measured."""

    what: str
    measured: float | None
    allowed: float | None
    """None where there is nothing but a stretch."""
    stretch: float | None = None
    cpu: float | None = None
    """The same ratio of CPU time, client and servers together: what is left of it when the machine is busy."""
    floor: float | None = None
    """What the floor itself would have scored: no client can do better."""
    at_least: bool = False
    """Is more better?"""

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        reached = self.stretch is not None and self._within(self.stretch)
        if self.allowed is None:
            return "stretch met" if reached else "stretch not met"
        if not self._within(self.allowed):
            return "MISSED"
        return "met, stretch" if reached else "met"

    def _within(self, limit: float) -> bool:
        assert self.measured is not None
        return self.measured >= limit if self.at_least else self.measured <= limit

    def shown(self, limit: float | None) -> str:
        return "" if limit is None else f"{'≥' if self.at_least else '≤'} {limit:g}"

    def raw(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.word}


def print_pairs(
    title: str,
    runs: dict[str, dict[str, list[Run]]],
    floor: str,
    best_peer: Callable[[str], str | None],
) -> None:
    """One group: a row for each subject, fastest first, and columns for each placement."""
    print(f"\n{title:{NAME_WIDTH}}" + "".join(f"{PLACES[place]:>{_width(place)}}" for place in runs))
    heads = (f"{'p50':>6}{'p99':>7}{TIMES + ' floor':>8}{TIMES + ' peer':>7}" for _ in runs)
    print(" " * NAME_WIDTH + f"{'cpu':>6}".join(heads))
    first = next(iter(runs.values()))
    for name in sorted(first, key=lambda name: typical(first[name])):
        cells = (_cells(place, found, name, floor, best_peer(place)) for place, found in runs.items())
        print(f"{name:{NAME_WIDTH}}" + "".join(cells))


def _width(place: str) -> int:
    return 34 if place == "same" else 28


def _cells(place: str, found: dict[str, list[Run]], name: str, floor: str, peer: str | None) -> str:
    mine = found[name]
    cells = f"{typical(mine):>6.0f}{typical(mine, 'p99'):>7.0f}"
    for base, width in ((floor, 8), (peer, 7)):
        cells += f"{ratio(mine, found[base]):>{width}.2f}" if base in found else f"{'-':>{width}}"
    return cells + (f"{typical(mine, 'cpu'):>6.0f}" if place == "same" else "")


def print_rows(title: str, columns: tuple[str, ...], rows: dict[str, tuple[float, ...]]) -> None:
    """A plain table of figures."""
    print(f"\n{title:{NAME_WIDTH - 14}}" + "".join(f"{column:>11}" for column in columns))
    for name, figures in rows.items():
        cells = (f"{figure:>11.0f}" if figure >= 20 else f"{figure:>11.2f}" for figure in figures)
        print(f"{name:{NAME_WIDTH - 14}}" + "".join(cells))


def print_missing(missing: dict[tuple[str, str], str]) -> None:
    for (group, name), why in missing.items():
        print(f"not measured, {group}: {name} ({why})")


def print_verdicts(verdicts: list[Verdict]) -> None:
    """What was measured, what it is in CPU time, what the floor scores in its place, and what is allowed."""
    width = max(len(verdict.what) for verdict in verdicts)
    with_more = any(verdict.cpu is not None for verdict in verdicts)
    more = f"{'by CPU':>8}{'floor':>7}" if with_more else ""
    print(f"\n{'budgets':{width}}{'measured':>9}{more}{'budget':>8}{'stretch':>9}")
    for one in verdicts:
        cells = [(9, one.measured), *([(8, one.cpu), (7, one.floor)] if with_more else [])]
        figures = "".join(f"{'' if figure is None else f'{figure:.2f}':>{size}}" for size, figure in cells)
        print(f"{one.what:{width}}{figures}{one.shown(one.allowed):>8}{one.shown(one.stretch):>9}  {one.word}")
