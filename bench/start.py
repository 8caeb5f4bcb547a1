"""`bench start`: how long commands take from start to end, against the bare interpreter."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from .machine import quietly
from .report import Verdict, print_verdicts

BARE, IMPORT, VERSION, RUN = "python -c pass", "import quorumlock", "quorumlock --version", "quorumlock run … true"
CASES = {
    BARE: ("-c", "pass"),
    IMPORT: ("-c", "import quorumlock"),
    VERSION: ("-m", "quorumlock", "--version"),
    RUN: ("-m", "quorumlock", "run", "job", "--", "true"),
}


class Took(NamedTuple):
    """One run, in ms; `cpu` with that of its children."""

    wall: float
    cpu: float


def alternated(cases: Mapping[str, Sequence[str]], runs: int) -> dict[str, list[Took]]:
    """Python with these arguments, each so often."""
    took: dict[str, list[Took]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory(prefix="quorumlock-") as folder, quietly():
        # Compiled once, as an installed package is: whether this checkout may keep byte code is not the question.
        environment = {
            **os.environ, "PYTHONPYCACHEPREFIX": folder, "QUORUMLOCK_URL": f"sqlite:///{folder}/locks.db"
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(runs + 1):
            for name, arguments in cases.items():
                found = _once(arguments, environment)
                if turn:  # the first one compiles
                    took[name].append(found)
    return took


def _once(arguments: Sequence[str], environment: Mapping[str, str]) -> Took:
    cpu, wall = _cpu_of_children(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    return Took((time.perf_counter() - wall) * 1000, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def run(*, quick: bool) -> dict[str, Any]:
    took = alternated(CASES, 10 if quick else 30)
    for name, found in took.items():
        wall, cpu = (median(column) for column in zip(*found, strict=True))
        print(f"{name:<24} {wall:6.1f} ms, {cpu:6.1f} ms of CPU; at best {min(found).wall:.1f} ms")
    bare, version, ran = (median(one.cpu for one in took[name]) for name in (BARE, VERSION, RUN))
    print_verdicts(
        [
            Verdict(f"{VERSION}, ms of CPU beyond the bare interpreter", version - bare, 60.0),
            Verdict(f"{RUN} on SQLite, ms of CPU beyond it", ran - bare, 150.0),
        ]
    )
    return {"took": took}
