"""Commands under `quorumlock run`, as processes that a test can watch and hurt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import eventually

SOON = 15.0


@contextmanager
def running(*arguments: str, url: str, command: str = "run", name: str = "job") -> Iterator[subprocess.Popen[str]]:
    """`quorumlock run job …`, ended with the block."""
    wrapper = subprocess.Popen(
        [sys.executable, "-m", "quorumlock", command, name, *arguments],
        env=os.environ | {"QUORUMLOCK_URL": url},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield wrapper
    finally:
        with suppress(ProcessLookupError):
            wrapper.send_signal(signal.SIGCONT)
            wrapper.kill()
        wrapper.communicate()


def pids(path: Path, count: int) -> list[int]:
    """Process numbers that a job has written to a file, one a line."""

    def all_there() -> bool:
        return path.exists() and path.read_text().count("\n") >= count

    assert eventually(all_there), f"the job did not start {count} processes"
    return [int(line) for line in path.read_text().split()]


FAMILY = """
import os, signal, sys, time
deaf = sys.argv[2] == "deaf"
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    if deaf:
        signal.signal(number, signal.SIG_IGN)
for generation in range(3):
    with open(sys.argv[1], "a") as told:
        told.write(f"{os.getpid()}\\n")
    if generation == 2 or os.fork():
        break
time.sleep(120)
"""


def family(told: Path, how: str = "deaf") -> list[str]:
    """A job with a child and a grandchild, which do not end by themselves; "deaf": nor when asked to."""
    return ["--", sys.executable, "-c", FAMILY, str(told), how]
