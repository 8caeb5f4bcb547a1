"""A long wait is seen, and many short ones are not taken for one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import alive
from tests.support.stalls import StallMeter, longest_wait
from tests.support.waiting import eventually

BUSY = "import os\nos.sched_setaffinity(0, {%d})\n%s\nwhile True: pass\n"
LAST = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[StallMeter]:
    meter = StallMeter(tmp_path)
    meter.started()
    yield meter
    meter.close()


@pytest.mark.parametrize(
    ("delay", "waits", "elapsed", "longest"),
    [
        (0.3, 1, 0.05, 0.3),  # one wait, which began before the last sample
        (0.3, 2, 0.05, 0.25),  # the second took 50 ms at most
        (0.05, 50, 0.05, 0.001),  # fifty short ones
        (0.05, 2, 0.05, 0.025),
        (2.0, 1000, 2.0, 0.002),  # two seconds in all, which is no stall
        (0.0, 0, 0.05, 0.0),
    ],
)
def test_the_longest_wait_is_never_a_sum(delay: float, waits: int, elapsed: float, longest: float) -> None:
    assert longest_wait(delay, waits, elapsed) == pytest.approx(longest)


def test_a_machine_that_stands_still_is_seen(meter: StallMeter) -> None:
    """The meter itself is stopped, as everything is when a host stalls."""
    since = time.monotonic()
    os.kill(meter._process.pid, signal.SIGSTOP)
    eventually(lambda: False, 0.4)
    os.kill(meter._process.pid, signal.SIGCONT)
    stall = meter.longest(since, time.monotonic())
    assert stall is not None
    assert stall.seconds > 0.25
    assert stall.where == "clock"


def test_a_process_that_gets_no_processor_is_seen(meter: StallMeter) -> None:
    """It runs only while nobody else wants to, on a processor that somebody else wants all the time."""
    core = min(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", BUSY % (core, "")])
    starved = subprocess.Popen([sys.executable, "-c", BUSY % (core, LAST)])
    try:
        since = time.monotonic()

        def seen() -> bool:
            return any(
                stall.where == f"process {starved.pid}" and stall.seconds >= 0.1
                for stall in meter._between(since, time.monotonic())
            )

        assert eventually(seen, 30)
    finally:
        for process in (busy, starved):
            process.kill()
            process.wait()


def test_the_meter_ends_with_the_process_that_it_watches(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tests.support.stalls import StallMeter\n"
        "print(StallMeter(Path(sys.argv[1]))._process.pid, flush=True)\nos._exit(0)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, check=True)
    pid = int(result.stdout)
    assert eventually(lambda: not alive(pid))
