"""Which boot of which machine this is, and whose boot clock a process reads.

Two questions, two answers. *Has memory been lost?* A kernel that started again may have lost what was written
last: `machine` changes then. *Does the number 5000 mean the same instant to both of us?* Only to processes that
read the same boot clock: `clock` changes with the kernel, and from one time namespace to another, too.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from typing import NamedTuple

from ...clocks import boot_time

PROC = "/proc"


class Boot(NamedTuple):
    """`known` is false where the system does not tell, and the ids are this process's own.

    That is safe, and slow: to such a process every other one lives on another machine. It waits out their leases
    for `max_ttl` where they end without a release, and skips fences whenever another one was granted before it.
    """

    machine: str
    clock: str
    known: bool


def now_ms() -> int:
    return int(boot_time() * 1000)


def ends_ms(ttl_ms: int) -> int:
    """Rounded up: a lease must not end in the file before it ends for its holder."""
    return math.ceil(boot_time() * 1000) + ttl_ms


def this_boot() -> Boot:
    """Read anew for every connection: a forked child may live in another time namespace."""
    machine = _linux() if sys.platform == "linux" else _macos() if sys.platform == "darwin" else ""
    if not machine:
        return Boot(_nobody_else(), _nobody_else(), False)
    offsets = _time_offsets()
    if offsets is None:
        return Boot(machine, _nobody_else(), True)
    return Boot(machine, machine + offsets, True)


def _linux() -> str:
    return _read(f"{PROC}/sys/kernel/random/boot_id")


@functools.cache
def _macos() -> str:
    """Its clock has no namespaces, so that what the kernel says holds for the process and its children."""
    import subprocess

    command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""  # it does not tell


def _time_offsets() -> str | None:
    """How far this time namespace's clocks are from the kernel's; None where that cannot be known."""
    lines = [line.split() for line in _read(f"{PROC}/self/timens_offsets").splitlines()]
    if all(number == "0" for _, *numbers in lines for number in numbers):
        moved = ""  # also where there are no time namespaces, and no such file
    else:
        moved = "".join(f"+{'/'.join(words)}" for words in lines)
    # The file tells of the namespace that children are born into. A process that has just made one for them is
    # not in it itself, and its own offsets are told nowhere.
    own, childrens = (_link(f"{PROC}/self/ns/{name}") for name in ("time", "time_for_children"))
    return moved if own == childrens else None


@functools.cache
def _nobody_else() -> str:
    return f"process-{os.urandom(16).hex()}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""  # not this system, or hidden from us


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # a kernel without time namespaces
