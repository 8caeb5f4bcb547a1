"""`bench keep`: 1 to 100,000 kept leases: what each costs, and what acquires beside them notice.

A process takes the leases and holds them for longer than their `ttl`, so that each is renewed three times or more.
Meanwhile it goes on acquiring and releasing another lock. Client and servers have a core each.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, Any

from quorumlock.lab.servers import Server, Servers

from . import ours
from .keep_worker import PREFIX
from .machine import cpu_us, pin, placements
from .report import Verdict, print_verdicts

MODES = ("sync", "async")
BYTES_BUDGET, BYTES_STRETCH = 2.0, 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    ttl: float
    seconds: float
    rows: tuple[tuple[int, int], ...]
    """Leases, nodes."""


QUICK = Plan(ttl=6.0, seconds=8.0, rows=((1, 1), (1_000, 1), (10_000, 1)))
FULL = Plan(ttl=30.0, seconds=40.0, rows=((1, 1), (1_000, 1), (10_000, 1), (100_000, 1), (10_000, 5)))


def run(kind: str, *, quick: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    client_core, server_core = placements().get("cross") or placements()["same"]
    found: dict[str, dict[str, Any]] = {}
    for mode in MODES:
        for count, nodes in plan.rows:
            print(f"\r{mode}, {count:,} leases, {nodes} nodes ", end="", file=sys.stderr, flush=True)
            with Servers(nodes, kind) as servers:
                for server in servers.servers:
                    pin(server.pid, server_core)
                found[f"{mode}, {count:,} on {nodes}"] = _measure(mode, count, plan, servers.servers, client_core)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    _print(plan, found)
    verdicts = _verdicts(plan, found)
    print_verdicts(verdicts)
    return {"keep": found, "budgets": [verdict.raw() for verdict in verdicts]}


def _measure(mode: str, count: int, plan: Plan, servers: list[Server], core: int) -> dict[str, Any]:
    urls = [server.url for server in servers]
    ours.initialise(urls, max(plan.ttl, 60.0), PREFIX)
    arguments = [mode, str(count), str(plan.ttl), str(plan.seconds), *urls]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.keep_worker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            pin(worker.pid, core)
            _line(worker.stdout)
            renewed, spent = _renewed(servers[0]), cpu_us(servers)
            worker.stdin.write("go\n")
            worker.stdin.flush()
            figures = _line(worker.stdout)
            figures["renewals"] = (_renewed(servers[0]) - renewed) / plan.seconds
            figures["server_share"] = (cpu_us(servers) - spent) / 1e6 / plan.seconds
        finally:
            worker.kill()
    return figures


def _line(stream: IO[str]) -> dict[str, Any]:
    line = stream.readline()
    if not line:
        raise SystemExit("the process that held the leases has failed")
    told: dict[str, Any] = json.loads(line)
    return told


def _renewed(server: Server) -> int:
    """How many leases the server was asked to renew: the renewal script asks PTTL once for each."""
    found = re.search(rb"cmdstat_pttl:calls=(\d+)", server.command("INFO", "commandstats"))
    return int(found.group(1)) if found else 0


def _print(plan: Plan, found: dict[str, dict[str, Any]]) -> None:
    print(f"\nkept leases, ttl {plan.ttl:g} s, held for {plan.seconds:g} s; pairs beside them in µs")
    heads = ("bytes", "threads", "tasks", "renewed/s", "client", "server", "p50", "alone", "p99", "alone", "lost")
    print(f"{'':22}" + "".join(f"{head:>10}" if head == "renewed/s" else f"{head:>8}" for head in heads))
    for name, one in found.items():
        many = one["bytes"] if int(name.split()[1].replace(",", "")) >= 1000 else None
        print(
            f"{name:22}{'-' if many is None else f'{many:.0f}':>8}{one['threads']:>8}{one['tasks']:>8}"
            f"{one['renewals']:>10.1f}{one['share']:>8.1%}{one['server_share']:>8.1%}"
            f"{one['beside']['p50']:>8.0f}{one['alone']['p50']:>8.0f}"
            f"{one['beside']['p99']:>8.0f}{one['alone']['p99']:>8.0f}{one['lost']:>8}"
        )
    print("bytes: of memory for each lease; client, server: of one core; alone: before any lease was kept")


def _verdicts(plan: Plan, found: dict[str, dict[str, Any]]) -> list[Verdict]:
    verdicts = []
    for name, one in found.items():
        count = int(name.split()[1].replace(",", ""))
        if count >= 1000:
            verdicts.append(Verdict(f"{name}: kB for each lease", one["bytes"] / 1000, BYTES_BUDGET, BYTES_STRETCH))
        verdicts.append(Verdict(f"{name}: threads and tasks", one["threads"] + one["tasks"], 1))
        verdicts.append(Verdict(f"{name}: leases lost", one["lost"], 0))
    return verdicts
