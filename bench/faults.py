"""`bench faults`: pairs with 1 and 2 of 5 nodes hung or dead, against a healthy fleet in the same minute.

Two fleets of five, one of which stays healthy: runs on the two alternate, so that both see the same noise.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

from quorumlock.lab.servers import Server, Servers

from . import ours
from .crew import Crew, Run, Worker, ratio, raw, typical
from .machine import pin, placements
from .report import TIMES, Verdict, print_rows, print_verdicts

MODES = ("sync", "async")
NODES = 5
TTL = 1.0
"""Also the fleet's `max_ttl`: a restarted node grants nothing for that long."""

P50_BUDGET, P50_STRETCH = 1.3, 1.1
P99_BUDGET = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    injections: int
    rounds: int
    seconds: float


QUICK = Plan(injections=1, rounds=5, seconds=0.15)
FULL = Plan(injections=3, rounds=6, seconds=0.3)
LEAST_PAIRS = 100


@dataclass(slots=True)
class Outcome:
    """One fault in one mode. `first` is the pair that meets the fault: it alone may pay for it."""

    first: list[Run] = field(default_factory=list)
    healthy: list[Run] = field(default_factory=list)
    faulty: list[Run] = field(default_factory=list)
    recovered: list[Run] = field(default_factory=list)
    unharmed: list[Run] = field(default_factory=list)
    """The healthy fleet, while the other one is measured as recovered."""


FAULTS = {"1 hung": (1, "pause"), "2 hung": (2, "pause"), "1 dead": (1, "kill"), "2 dead": (2, "kill")}


def run(kind: str, *, quick: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    client_core, server_core = placements().get("cross") or placements()["same"]
    with Servers(NODES, kind) as healthy, Servers(NODES, kind) as faulty, Crew() as crew:
        for server in healthy.servers + faulty.servers:
            pin(server.pid, server_core)
        workers = {mode: crew.hire("bench.ours") for mode in MODES}
        for key, servers in (("healthy", healthy), ("faulty", faulty)):
            ours.initialise(servers.urls, TTL)
            for mode, worker in workers.items():
                worker.pin(client_core)
                worker.open(key, ours.NAME, mode, servers.urls, TTL)
                worker.run(key, 0.2, LEAST_PAIRS)
        outcomes = {(mode, fault): Outcome() for mode in MODES for fault in FAULTS}
        for injection in range(plan.injections):
            for fault, (count, _) in FAULTS.items():
                print(f"\r{fault}, {injection + 1} of {plan.injections} ", end="", file=sys.stderr, flush=True)
                victims = [faulty[(injection + i) % NODES] for i in range(count)]
                _inject(fault, victims, workers, {mode: outcomes[mode, fault] for mode in MODES}, plan, server_core)
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    columns = ("p50", "p99", "worst", "first", "p50 well", "p99 well", "recovered")
    title = "µs, two cores, N=5" if len(placements()) > 1 else "µs, one core, N=5"
    print_rows(title, columns, {f"{mode}, {fault}": _row(one) for (mode, fault), one in outcomes.items()})
    print(
        "well: the healthy fleet in the same rounds; first: the pair that met the fault; worst: of all pairs after"
    )
    print("it; recovered: p50 against the healthy fleet after the nodes are back and out of quarantine")
    verdicts = _verdicts(outcomes)
    print_verdicts(verdicts)
    return {
        "faults": {
            f"{mode}, {fault}": {what: raw(getattr(outcome, what)) for what in Outcome.__slots__}
            for (mode, fault), outcome in outcomes.items()
        },
        "budgets": [verdict.raw() for verdict in verdicts],
    }


def _inject(
    fault: str,
    victims: list[Server],
    workers: dict[str, Worker],
    outcomes: dict[str, Outcome],
    plan: Plan,
    server_core: int,
) -> None:
    """Breaks, measures, repairs, and measures again."""
    for victim in victims:
        getattr(victim, FAULTS[fault][1])()
    for mode, worker in workers.items():
        outcomes[mode].first.append(worker.run("faulty", 0))
        for _ in range(plan.rounds):
            outcomes[mode].healthy.append(worker.run("healthy", plan.seconds, LEAST_PAIRS))
            outcomes[mode].faulty.append(worker.run("faulty", plan.seconds, LEAST_PAIRS))
    for victim in victims:
        _repair(victim, FAULTS[fault][1], server_core)
    for worker in workers.values():
        worker.run("faulty", 0.6)  # long enough for a probe to find out that the nodes are back
    time.sleep(TTL + 0.2)
    for mode, worker in workers.items():
        outcomes[mode].recovered.append(worker.run("faulty", plan.seconds, LEAST_PAIRS))
        outcomes[mode].unharmed.append(worker.run("healthy", plan.seconds, LEAST_PAIRS))


def _repair(victim: Server, how: str, core: int) -> None:
    if how == "pause":
        victim.resume()
    else:
        victim.start()
        pin(victim.pid, core)


def _row(outcome: Outcome) -> tuple[float, ...]:
    faulty, healthy = outcome.faulty, outcome.healthy
    return (
        typical(faulty),
        typical(faulty, "p99"),
        max(run.worst for run in faulty),
        max(run.worst for run in outcome.first),
        typical(healthy),
        typical(healthy, "p99"),
        ratio(outcome.recovered, outcome.unharmed),
    )


def _verdicts(outcomes: dict[tuple[str, str], Outcome]) -> list[Verdict]:
    verdicts = []
    for (mode, fault), outcome in outcomes.items():
        p50, p99 = (ratio(outcome.faulty, outcome.healthy, what) for what in ("p50", "p99"))
        verdicts.append(Verdict(f"{mode}, {fault}: p50 {TIMES} healthy", p50, P50_BUDGET, P50_STRETCH))
        verdicts.append(Verdict(f"{mode}, {fault}: p99 {TIMES} healthy p99", p99, P99_BUDGET))
    return verdicts
