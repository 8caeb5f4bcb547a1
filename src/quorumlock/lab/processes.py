"""Which process it is that has a number: numbers are given again, times of starting are not."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROC = Path("/proc")


def started_at(pid: int) -> str:
    """When a process was started, in words that never change; empty if there is none, or it has ended."""
    if pid <= 1:
        return ""
    return _of_linux(pid) if _linux() else _of_ps(pid)


def works_in(pid: int, folder: Path) -> bool:
    """Is that its working directory? On a system that does not tell, there is no doubt of it."""
    try:
        return not _linux() or (PROC / str(pid) / "cwd").samefile(folder)
    except OSError:
        return False


def _linux() -> bool:
    return (PROC / "self" / "stat").exists()


def _of_linux(pid: int) -> str:
    try:
        words = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return ""
    state, ticks = words[0], words[19]
    return "" if state in "ZX" else f"{boot}:{ticks}"  # a zombie has ended, and waits to be buried


def _of_ps(pid: int) -> str:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = done.stdout.strip().partition(" ")
    return "" if done.returncode or state.startswith("Z") else " ".join(started.split())
