"""`bench handover`: from a release until the next holder runs, for those who want one lock.

Two questions, each a contest of its own:

1. How many owner changes per second, if everybody comes back at once? A change is a holder that differs from the
   one before: acquisitions would flatter who takes the lock again before others have noticed that it was free.
2. How long after a release has somebody else the lock, if the holder keeps it for some ms, so that all others
   have settled down to wait? Turns that the same holder takes in between are waited for, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from statistics import mean, median
from typing import Any

from quorumlock.lab.servers import Server, Servers

from . import contest_ours, contest_peers, ours
from .contest import Host, Result, hold_contest, hosts, initialise, progress, subjects
from .crew import Crew, Failed
from .machine import pin, placements
from .report import PLACES, TIMES, Verdict, print_missing, print_verdicts

SIZES = (1, 5)
BUSY = (("threads", 10), ("tasks", 10), ("processes", 4), ("processes", 10))
BUDGETED = (("threads", 10), ("processes", 4))
WAITERS = (2, 10, 100)
STYLES = ("threads", "tasks", "processes")
HOLD = 0.005
LEAST_SHARE = 0.5
"""Of the mean: nobody should get less."""
COMMANDS_MOST = 12.0
NAME_WIDTH = 22


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    seconds: float
    latency_rounds: int
    latency_seconds: float


QUICK = Plan(rounds=1, seconds=0.6, latency_rounds=1, latency_seconds=0.8)
FULL = Plan(rounds=7, seconds=2.0, latency_rounds=5, latency_seconds=2.0)


@dataclass(slots=True)
class Group:
    """Subjects that are compared with each other, in one placement."""

    size: int
    style: str
    count: int
    place: str
    results: dict[str, list[Result]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"N={self.size}, {self.count} {self.style}"

    def base(self) -> str | None:
        """The peer to be compared with: the one that blocks, and among Redlocks the best."""
        if self.size == 1:
            return contest_peers.BLOCKING if contest_peers.BLOCKING in self.results else None
        found = {name: _rate(results) for name, results in self.results.items() if name in contest_peers.SIZES}
        return max(found, key=lambda name: found[name], default=None)

    def ratio(self, base: str | None) -> float | None:
        """Our owner changes against another's, in the same rounds."""
        return self.ratio_of(ours.NAME, base)

    def ratio_of(self, name: str, base: str | None) -> float | None:
        """A peer that saw no change in a round is compared by all rounds together."""
        if base is None or base not in self.results or name not in self.results:
            return None
        mine, theirs = self.results[name], self.results[base]
        if all(one.changes for one in theirs):
            return float(median(a.rate / b.rate for a, b in zip(mine, theirs, strict=True)))
        changes = mean(one.rate for one in theirs)
        return mean(one.rate for one in mine) / changes if changes else None

    def by_cpu(self, base: str | None) -> float | None:
        """The same if time were CPU time: how many changes of ours the other's CPU time for one would pay for."""
        if base is None or base not in self.results or ours.NAME not in self.results:
            return None
        ratio = _cpu(self.results[base]) / _cpu(self.results[ours.NAME])
        return ratio if isfinite(ratio) else None


def run(kind: str, *, quick: bool, with_peers: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    with Servers(1 + max(SIZES), kind) as servers, Crew() as crew:
        fleets = {1: servers.servers[:1], 5: servers.servers[1:]}
        for fleet in fleets.values():
            initialise([server.url for server in fleet])
        staff, installed, missing = hosts(crew, with_peers, placements()["same"][0])
        for name, told in installed.items():
            print(f"{name}: {told}", flush=True)
        busy = [Group(*who, place) for place in placements() for who in _sized(BUSY)]
        place = "cross" if "cross" in placements() else "same"
        calm = [Group(size, style, 1 + n, place) for size in SIZES for style in STYLES for n in WAITERS]
        for turn in range(plan.rounds):
            _round(busy, staff, fleets, plan.seconds, 0.0, turn, f"changes, round {turn + 1} of {plan.rounds}")
        for turn in range(plan.latency_rounds):
            said = f"latency, round {turn + 1} of {plan.latency_rounds}"
            _round(calm, staff, fleets, plan.latency_seconds, HOLD, turn, said)
        progress("")
        print("\r", end="", flush=True)
    _print_changes(busy)
    _print_latency(calm)
    print_missing({("all", name): why for name, why in missing.items()})
    print_missing(
        {(f"{one.name}, {one.place}", name): why for one in busy + calm for name, why in one.missing.items()}
    )
    _print_troubles(busy + calm)
    verdicts = _verdicts(busy)
    print_verdicts(verdicts)
    return {
        "peers": installed,
        "missing": missing,
        "changes": [_raw(group) for group in busy],
        "latency": [_raw(group) for group in calm],
        "budgets": [verdict.raw() for verdict in verdicts],
    }


def _sized(styles: tuple[tuple[str, int], ...]) -> list[tuple[int, str, int]]:
    return [(size, style, count) for size in SIZES for style, count in styles]


def _round(
    groups: list[Group],
    staff: dict[str, Host],
    fleets: dict[int, list[Server]],
    seconds: float,
    hold: float,
    turn: int,
    said: str,
) -> None:
    """Every subject once in every group; in another order each time."""
    for group in groups:
        for server in fleets[group.size]:
            pin(server.pid, placements()[group.place][1])
        names = [name for name in subjects(group.size, group.style) if name in staff and name not in group.missing]
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            progress(f"{said}: {group.name}, {group.place}, {name}")
            try:
                result = hold_contest(
                    staff[name], name, group.style, group.count, fleets[group.size], _warm(group), seconds, hold
                )
            except Failed as why:
                group.missing[name] = str(why)
                group.results.pop(name, None)
            else:
                group.results.setdefault(name, []).append(result)


def _warm(group: Group) -> float:
    """Until everybody is connected and waits: a process has more to do for that than a thread."""
    return 0.3 + group.count * (0.02 if group.style == "processes" else 0.01)


def _middle(results: list[Result], figure: Callable[[Result], float]) -> float:
    """The median over rounds."""
    return float(median(figure(one) for one in results))


def _rate(results: list[Result]) -> float:
    return _middle(results, lambda one: one.rate)


def _sent(results: list[Result]) -> float:
    return _middle(results, lambda one: one.each(one.commands * one.sent))


def _executed(results: list[Result]) -> float:
    return _middle(results, lambda one: one.each(one.commands))


def _cpu(results: list[Result]) -> float:
    return _middle(results, lambda one: one.each(one.cpu))


def _least(results: list[Result]) -> float:
    """Of all rounds together: in a short one, a contender of a hundred has few turns by chance."""
    turns = [sum(one) for one in zip(*(result.turns for result in results), strict=True)]
    return min(turns) / mean(turns) if any(turns) else 0.0


def _quantile(results: list[Result], share: float) -> float:
    """In µs, of all rounds together: slow peers have few changes in each."""
    found = sorted(one for result in results for one in result.latencies)
    return found[round((len(found) - 1) * share)] if found else float("nan")


def _cell(figure: float | None, width: int) -> str:
    if figure is None or not isfinite(figure):
        return f"{'-':>{width}}"
    return f"{figure:>{width}.0f}" if figure >= 20 else f"{figure:>{width}.2f}"


def _print_changes(groups: list[Group]) -> None:
    heads = f"{'per s':>7}{TIMES + ' peer':>7}{'sent':>6}{'all':>6}{'least':>6}{'cpu':>7}"
    places = {place: PLACES[place].partition(" (")[0] for place in placements()}
    for size, style, count in _sized(BUSY):
        found = [one for one in groups if (one.size, one.style, one.count) == (size, style, count)]
        print(f"\n{found[0].name:{NAME_WIDTH}}" + "".join(f"{places[one.place]:>{len(heads)}}" for one in found))
        print(" " * NAME_WIDTH + heads * len(found))
        first = found[0].results
        for name in sorted(first, key=lambda name: -_rate(first[name])):
            print(f"{name:{NAME_WIDTH}}" + "".join(_change_cells(one, name) for one in found))
    print(
        f"\nper s: changes of owner; {TIMES} peer: against python-redis-lock, or the best Redlock (N=5); sent, all:"
    )
    print("commands per change on all nodes, sent by clients, and executed, those that scripts call among them;")
    print("least: turns of the least lucky against the mean; cpu: µs of clients and servers together, per change")


def _change_cells(group: Group, name: str) -> str:
    results = group.results.get(name)
    if not results:
        return f"{'-':>7}" * 2 + f"{'-':>6}" * 3 + f"{'-':>7}"
    ratio = group.ratio_of(name, group.base())
    figures = "".join(_cell(one, 6) for one in (_sent(results), _executed(results), _least(results)))
    return f"{_rate(results):>7.0f}{_cell(ratio, 7)}{figures}{_cell(_cpu(results), 7)}"


def _print_latency(groups: list[Group]) -> None:
    where = "two cores" if "cross" in placements() else "one core"
    print(
        f"\nfrom a release until somebody else has the lock, ms, {where}; held for {HOLD * 1000:g} ms; p50, p99 for"
    )
    print(f"{'':{NAME_WIDTH + 14}}" + "".join(f"{f'{n} waiters':>18}" for n in WAITERS))
    for size in SIZES:
        for style in STYLES:
            found = [one for one in groups if (one.size, one.style) == (size, style)]
            for name in subjects(size, style):
                if not any(name in one.results for one in found):
                    continue
                cells = ""
                for one in found:
                    results = one.results.get(name, [])
                    for share, width in ((0.5, 10), (0.99, 8)):
                        value = _quantile(results, share) / 1000
                        cells += f"{value:>{width}.2f}" if isfinite(value) else f"{'-':>{width}}"
                print(f"{f'N={size}, {style}':14} {name:{NAME_WIDTH}}{cells}")


def _print_troubles(groups: list[Group]) -> None:
    """What should not have happened, whoever it happened to."""
    for group in groups:
        for name, results in group.results.items():
            where = f"{group.name}, {group.place}: {name}"
            if overlaps := sum(one.overlaps for one in results):
                print(f"TWO HOLDERS AT ONCE, {overlaps} times, {where}")
            errors = [error for one in results for error in one.errors]
            if errors:
                print(f"{len(errors)} errors, {where}: {errors[0][:150]}")
            if not any(one.changes for one in results):
                print(f"no change of owner, {where}")


def _verdicts(groups: list[Group]) -> list[Verdict]:
    verdicts = []
    for group in groups:
        mine = group.results.get(ours.NAME, [])
        where = f"{group.name}, {group.place}"
        base = group.base()
        if (group.style, group.count) in BUDGETED:
            ratio = group.ratio(base)
            cpu = group.by_cpu(base) if group.place == "same" else None
            if group.size == 1:
                best = group.ratio_of(contest_ours.FLOOR, base)
                what = f"{where}: {TIMES} {contest_peers.BLOCKING}"
                verdicts.append(Verdict(what, ratio, 1.0, cpu=cpu, floor=best, at_least=True))
                floor = group.ratio(contest_ours.FLOOR)
                verdicts.append(Verdict(f"{where}: {TIMES} {contest_ours.FLOOR}", floor, None, 0.8, at_least=True))
                for what, figure in (("sent", _sent), ("executed, inside scripts too", _executed)):
                    told = figure(mine) if mine else None
                    verdicts.append(Verdict(f"{where}: commands per change, {what}", told, COMMANDS_MOST))
            else:
                verdicts.append(
                    Verdict(f"{where}: {TIMES} best Redlock ({base})", ratio, 20.0, cpu=cpu, at_least=True)
                )
                rate = _rate(mine) if mine else None
                verdicts.append(Verdict(f"{where}: changes/s", rate, None, 1000.0, at_least=True))
        if group.style == "processes" or group.size == 5:
            told = _least(mine) if mine else None
            verdicts.append(Verdict(f"{where}: least lucky, of the mean", told, LEAST_SHARE, at_least=True))
    return verdicts


def _raw(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "place": group.place,
        "subjects": {name: [one.raw() for one in results] for name, results in group.results.items()},
        "missing": group.missing,
    }
