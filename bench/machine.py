"""This machine: what it is, which cores there are, and who runs on which."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from quorumlock.lab.servers import BINARIES, Server

FIRST = -15
"""The nice value of everything that is measured: what else runs on this machine should not be in the figures."""


def describe(kind: str) -> dict[str, str]:
    """What the figures depend on."""
    words = [f"{package} {_version(package)}" for package in ("quorumlock", "redis", "hiredis")]
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}; {', '.join(words)}",
        "server": _server_version(kind),
        "machine": f"{_cpu()}, {len(cores())} cores usable; {platform.system()} {platform.release()}; "
        f"load {os.getloadavg()[0]:.1f} before",
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _server_version(kind: str) -> str:
    told = subprocess.run([str(BINARIES[kind]()), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\S+)", told)
    return f"{kind} {found.group(1) if found else '(unknown version)'}"


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.machine()


@cache
def cores() -> list[int]:
    """The cores that we may use, the one with the least to do first."""
    usable = os.sched_getaffinity(0)
    before = _idle()
    time.sleep(0.3)
    after = _idle()
    return sorted(usable, key=lambda core: before[core] - after[core])


def _idle() -> dict[int, int]:
    """For each core, how long it has been idle, in ticks."""
    told = re.findall(r"^cpu(\d+) \d+ \d+ \d+ (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)
    return {int(core): int(ticks) for core, ticks in told}


def placements() -> dict[str, tuple[int, int]]:
    """For each placement the client's core and the servers'. With one core there is nothing to cross."""
    first, *others = cores()
    same = {"same": (first, first)}
    return same | {"cross": (first, others[0])} if others else same


def pin(pid: int, core: int) -> None:
    """Puts a process on one core, with all of its threads; in front of others there, where that is allowed."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})
        try:
            os.setpriority(os.PRIO_PROCESS, int(task.name), FIRST)
        except PermissionError:
            pass  # only root may: the figures are then as noisy as the machine is


@contextmanager
def quietly() -> Iterator[None]:
    """This process, and what it starts meanwhile, on the quietest core in front of others."""
    affinity, priority = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    pin(os.getpid(), cores()[0])
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)
        if os.getpriority(os.PRIO_PROCESS, 0) != priority:
            os.setpriority(os.PRIO_PROCESS, 0, priority)


def cpu_us(servers: Sequence[Server]) -> float:
    """The CPU time that the servers have used so far, in µs: to the nanosecond, and without asking them."""
    tasks = (task for server in servers for task in Path(f"/proc/{server.pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def cpu_of(pids: Sequence[int]) -> float:
    """The same for any processes, with threads that have ended: some peers start one for everything they ask.

    Every process has a clock for that, whose number Linux makes of its id (as clock_getcpuclockid(3) does).
    """
    return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in pids) / 1000
