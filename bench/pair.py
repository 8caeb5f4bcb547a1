"""`bench pair`: one acquire + release, against the floors and the peers, in two placements."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quorumlock.lab.servers import Server, Servers

from . import costs, floors, ours, peers
from .crew import Crew, Failed, Run, Worker, ratio, raw, typical
from .envs import NotInstalled, python_of, versions
from .machine import pin, placements
from .report import TIMES, Verdict, print_missing, print_pairs, print_verdicts

MODES = ("sync", "async")
SIZES = (1, 5)
TTL = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    seconds: float
    cost_rounds: int
    imports: int


QUICK = Plan(rounds=7, seconds=0.05, cost_rounds=3, imports=15)
FULL = Plan(rounds=25, seconds=0.12, cost_rounds=9, imports=40)
LEAST_PAIRS = 25
WARM_EACH = 5
WARM_FIRST = 100

BUDGETS = (
    # group, placement, against what, budget, stretch
    ("sync N=1", "same", floors.OWN, 1.6, 1.3),
    ("sync N=1", "same", "redis-py Lock", 0.6, 0.45),
    ("sync N=5", "same", floors.OWN, 1.5, 1.25),
    ("sync N=5", "same", "best peer", 0.7, 0.5),
    ("sync N=5", "cross", "best peer", 0.35, 0.25),
    ("async N=1", "same", floors.OWN, 1.8, 1.4),
    ("async N=1", "same", "best peer", 0.5, None),
    ("async N=5", "same", floors.OWN, 1.6, 1.4),
    ("async N=5", "same", "best peer", 0.5, None),
)


@dataclass(slots=True)
class Group:
    """Subjects that are compared with each other: one mode, one number of nodes."""

    mode: str
    size: int
    servers: list[Server]
    staff: dict[str, Worker] = field(default_factory=dict)
    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    """By placement, then by subject."""
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.mode} N={self.size}"

    def best_peer(self, placement: str) -> str | None:
        found = {name: typical(runs) for name, runs in self.runs[placement].items() if name in peers.PACKAGES}
        return min(found, key=lambda name: found[name], default=None)

    def drop(self, subject: str, why: str) -> None:
        """A subject that failed is named with its reason, and has no figures."""
        self.missing[subject] = why
        self.staff.pop(subject, None)
        for runs in self.runs.values():
            runs.pop(subject, None)


def run(kind: str, *, quick: bool, with_peers: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    pythons, missing, installed = _environments(with_peers)
    for name, told in installed.items():
        print(f"{name}: {told}")
    with Servers(1 + max(SIZES), kind) as servers, Crew() as crew:
        alone, fleet = servers.servers[:1], servers.servers[1:]
        groups = _groups(crew, pythons, missing, {1: alone, 5: fleet})
        for turn in range(plan.rounds):
            _round(groups, servers.servers, plan, turn)
            print(f"\rround {turn + 1} of {plan.rounds} ", end="", file=sys.stderr, flush=True)
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
        cost = costs.server_cost(groups[0].staff, f"{groups[0].name}", alone[0], plan.cost_rounds)
    imports = costs.import_cost(plan.imports)
    for group in groups:
        print_pairs(group.name, group.runs, floors.OWN, group.best_peer)
    print_missing({(group.name, name): why for group in groups for name, why in group.missing.items()})
    verdicts = [*_verdicts(groups), *costs.verdicts(cost, imports)]
    print_verdicts(verdicts)
    return {
        "peers": installed,
        "pairs": {
            group.name: {
                place: {name: raw(runs) for name, runs in found.items()} for place, found in group.runs.items()
            }
            for group in groups
        },
        "missing": {group.name: group.missing for group in groups},
        "server_cost_us": cost,
        "import": imports,
        "budgets": [verdict.raw() for verdict in verdicts],
    }


def _environments(with_peers: bool) -> tuple[dict[str, Path], dict[str, str], dict[str, str]]:
    """For each peer its Python, or why it has none; and what is installed there."""
    pythons: dict[str, Path] = {}
    missing: dict[str, str] = {}
    installed: dict[str, str] = {}
    for name, packages in peers.PACKAGES.items():
        if not with_peers:
            missing[name] = "left out by --no-peers"
            continue
        try:
            pythons[name] = python_of(packages)
            installed[name] = versions(pythons[name], packages)
        except NotInstalled as why:
            pythons.pop(name, None)
            missing[name] = f"cannot be installed: {why}"
    return pythons, missing, installed


def _groups(
    crew: Crew, pythons: dict[str, Path], missing: dict[str, str], fleets: dict[int, list[Server]]
) -> list[Group]:
    """Starts a worker for each subject and mode, and opens what they are to measure."""
    workers = {(mode, ours.NAME): crew.hire("bench.ours") for mode in MODES}
    workers |= {(mode, floor): crew.hire("bench.floors") for mode in MODES for floor in (floors.OWN, floors.PLAIN)}
    workers |= {
        (mode, name): crew.hire("bench.peers", python) for mode in MODES for name, python in pythons.items()
    }
    for worker in workers.values():
        worker.pin(placements()["same"][0])
    groups = []
    for mode in MODES:
        for size, servers in fleets.items():
            urls = [server.url for server in servers]
            if mode == MODES[0]:
                ours.initialise(urls, TTL)
            group = Group(mode, size, servers, runs={place: {} for place in placements()})
            group.missing = {name: why for name, why in missing.items() if size == 1 or name not in peers.SINGLE}
            for (of_mode, name), worker in workers.items():
                if of_mode == mode and (size == 1 or name not in peers.SINGLE):
                    _open(group, name, worker, urls)
            groups.append(group)
    return groups


def _open(group: Group, name: str, worker: Worker, urls: list[str]) -> None:
    try:
        worker.open(group.name, name, group.mode, urls, TTL)
        worker.run(group.name, 0, WARM_FIRST)
    except Failed as why:
        group.drop(name, str(why))
    else:
        group.staff[name] = worker


def _round(groups: list[Group], servers: list[Server], plan: Plan, turn: int) -> None:
    """Every subject once in every placement; in another order each time."""
    for place, (_, core) in placements().items():
        for server in servers:
            pin(server.pid, core)
        for group in groups:
            names = list(group.staff)
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                try:
                    run = group.staff[name].run(group.name, plan.seconds, LEAST_PAIRS, WARM_EACH, group.servers)
                except Failed as why:
                    group.drop(name, str(why))
                else:
                    group.runs[place].setdefault(name, []).append(run)


def _verdicts(groups: list[Group]) -> list[Verdict]:
    verdicts = []
    by_name = {group.name: group for group in groups}
    for name, place, against, allowed, stretch in BUDGETS:
        group = by_name[name]
        found = group.runs.get(place, {})
        base = group.best_peer(place) if against == "best peer" and found else against
        what = f"{name}, {place}: {TIMES} {against}" + (f" ({base})" if base and base != against else "")
        verdict = Verdict(what, None, allowed, stretch)
        if ours.NAME in found and base in found:
            mine, theirs = found[ours.NAME], found[base]
            verdict = replace(verdict, measured=ratio(mine, theirs))
            if place == "same":
                verdict = replace(verdict, cpu=ratio(mine, theirs, "cpu"))
            if base != floors.OWN:
                verdict = replace(verdict, floor=ratio(found[floors.OWN], theirs))
        verdicts.append(verdict)
    return verdicts
