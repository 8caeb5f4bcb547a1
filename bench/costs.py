"""What a pair costs the server, and what `import quorumlock` costs its user."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Any

from quorumlock.lab.servers import Server

from . import floors, ours, start
from .crew import Worker
from .machine import cores, cpu_us, pin
from .report import TIMES, Verdict

PAIRS = 1500

_FOREIGN = """
import sys
before = set(sys.modules)
import quorumlock
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names) - {"quorumlock"}))
"""


def server_cost(staff: dict[str, Worker], key: str, server: Server, rounds: int) -> dict[str, list[float]]:
    """µs of server CPU per pair, for the same number of pairs of each subject, alternated."""
    subjects = [name for name in (ours.NAME, floors.OWN, floors.PLAIN) if name in staff]
    spent: dict[str, list[float]] = {name: [] for name in subjects}
    pin(server.pid, cores()[0])
    for _ in range(rounds):
        for name in subjects:
            before = cpu_us([server])
            run = staff[name].run(key, 0, PAIRS)
            spent[name].append((cpu_us([server]) - before) / run.pairs)
    return spent


def import_cost(runs: int) -> dict[str, Any]:
    """ms of `import quorumlock` beyond the bare interpreter, alternated; and what it imports of others."""
    took = start.alternated({name: start.CASES[name] for name in (start.BARE, start.IMPORT)}, runs)
    bare, full = ([one.wall for one in samples] for samples in took.values())
    told = subprocess.run([sys.executable, "-c", _FOREIGN], check=True, capture_output=True, text=True).stdout
    return {"bare_ms": bare, "with_ms": full, "beyond_ms": median(full) - median(bare), "foreign": told.split()}


def verdicts(cost: dict[str, list[float]], imports: dict[str, Any]) -> list[Verdict]:
    found = []
    if ours.NAME in cost and floors.PLAIN in cost:
        mine, plain = cost[ours.NAME], cost[floors.PLAIN]
        what = f"server CPU, N=1 ({median(mine):.0f} µs): {TIMES} plain SET + delete ({median(plain):.0f} µs)"
        share = median(a / b for a, b in zip(mine, plain, strict=True))
        found.append(Verdict(what, share, 2.5, 1.8))
    found.append(Verdict("import quorumlock, ms beyond the bare interpreter", imports["beyond_ms"], 25.0))
    foreign = imports["foreign"]
    named = f" ({', '.join(foreign)})" if foreign else ""
    found.append(Verdict(f"third-party modules imported by it{named}", float(len(foreign)), 0.0))
    return found
