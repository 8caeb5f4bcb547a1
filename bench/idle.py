"""`bench idle`: 50 who wait for a lock that stays held: what do they make the servers do?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from quorumlock.lab.servers import Server, Servers

from . import ours
from .contest import Host, executed, hosts, initialise, new_name, progress, subjects, watched
from .crew import Crew, Failed
from .machine import pin, placements
from .report import Verdict, print_missing, print_verdicts

SIZES = (1, 5)
STYLES = ("threads", "tasks", "processes")
WAITERS = 50
HOLDER_TTL = 600.0
"""So long that the holder is not renewed meanwhile: what is counted are those who wait."""
BUDGET, STRETCH = 10.0, 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    settle: float
    seconds: float


QUICK = Plan(settle=3.0, seconds=8.0)
FULL = Plan(settle=15.0, seconds=60.0)


@dataclass(frozen=True, slots=True)
class Found:
    """Per second and node."""

    counted: float
    """By the servers themselves, on average of all nodes."""
    sent: float
    """To the first node, by clients."""
    called: float
    """On the first node, by scripts."""
    errors: int
    entered: int
    """How many got the lock although it was held."""

    @property
    def executed(self) -> float:
        return self.sent + self.called


def run(kind: str, *, quick: bool, with_peers: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    client_core, server_core = placements().get("cross") or placements()["same"]
    found: dict[tuple[int, str, str], Found] = {}
    failed: dict[tuple[str, str], str] = {}
    with Servers(1 + max(SIZES), kind) as servers, Crew() as crew:
        fleets = {1: servers.servers[:1], 5: servers.servers[1:]}
        for fleet in fleets.values():
            initialise([server.url for server in fleet])
            for server in fleet:
                pin(server.pid, server_core)
        staff, installed, missing = hosts(crew, with_peers, client_core)
        others, _, _ = hosts(crew, with_peers, client_core)
        for name, told in installed.items():
            print(f"{name}: {told}", flush=True)
        for size, style in ((size, style) for size in SIZES for style in STYLES):
            for name in subjects(size, style):
                # The baton has no holder that would stay; the floor blocks as python-redis-lock does.
                if name not in staff or ":" in name:
                    continue
                progress(f"N={size}, {WAITERS} {style}, {name}")
                try:
                    found[size, style, name] = _measure(name, style, fleets[size], staff[name], others[name], plan)
                except Failed as why:
                    failed[f"N={size}, {style}", name] = str(why)
        progress("")
        print("\r", end="", flush=True)
    _print(plan, found)
    print_missing({("all", name): why for name, why in missing.items()})
    print_missing(failed)
    verdicts = [
        Verdict(f"N={size}, {WAITERS} {style}: commands/s per node, {what}", figure, BUDGET, STRETCH)
        for (size, style, name), one in found.items()
        if name == ours.NAME
        for what, figure in (("sent", one.sent), ("executed, inside scripts too", one.executed))
    ]
    print_verdicts(verdicts)
    return {
        "peers": installed,
        "idle": [
            {"nodes": size, "style": style, "subject": name, **asdict(one)}
            for (size, style, name), one in found.items()
        ],
        "budgets": [verdict.raw() for verdict in verdicts],
    }


def _measure(
    subject: str, style: str, servers: Sequence[Server], waiting: Host, holding: Host, plan: Plan
) -> Found:
    urls, name = [server.url for server in servers], new_name()
    # Only to take it and keep it; its style is that of those who wait, since some peers know just one.
    holding.start(subject, "tasks" if style == "tasks" else "threads", 1, urls, name, HOLDER_TTL, HOLDER_TTL)
    try:
        time.sleep(1.0)
        waiting.start(subject, style, WAITERS, urls, name, 0.0)
        try:
            time.sleep(plan.settle)
            # Nobody is in a hurry here: every command is watched, and what the server counts must be the same.
            before, began = executed(servers), time.monotonic()
            sent, called = watched(servers[0], plan.seconds)
            counted, seconds = executed(servers) - before, time.monotonic() - began
        finally:
            turns, errors = waiting.stop()
    finally:
        holding.stop()
    # Counted, too: for each node the question before, and for the first one MONITOR and the question after.
    rate = (counted - len(servers) - 1) / seconds / len(servers)
    return Found(rate, sent / seconds, called / seconds, len(errors), sum(map(len, turns)) // 2)


def _print(plan: Plan, found: dict[tuple[int, str, str], Found]) -> None:
    print(f"\n{WAITERS} wait for a lock that is held; commands/s per node, over {plan.seconds:g} s")
    print(f"{'':42}{'sent':>10}{'all':>10}{'counted':>10}{'errors':>8}")
    for (size, style, name), one in found.items():
        figures = f"{one.sent:>10.1f}{one.executed:>10.1f}{one.counted:>10.1f}{one.errors:>8}"
        print(f"{f'N={size}, {style}':16} {name:25}{figures}")
        if one.entered:
            print(f"  {one.entered} TURNS although it was held")
    print("sent: by clients; all: those that scripts call among them; counted: the same by the servers' own count")
