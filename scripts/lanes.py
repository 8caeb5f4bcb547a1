"""Runs the tests in three lanes at a time: most of them wait for servers and clocks, and the machine would be idle.

The first is for real time: nodes that must answer soon, faults at the right moment. The others are nice to it: one
of tests that use servers and are patient, and one of those that only compute. With arguments there is one lane, and
pytest gets them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

TESTS = Path(__file__).parent.parent / "tests"
PATIENT = {"contract", "journal", "observing", "operating", "web"}
COMPUTING = {"core", "docs", "engines", "guards", "lab", "lab_stories", "sim", "specs", "style", "unit"}
"""Folders whose tests do not mind if the machine is busy; whatever is new goes to the first lane."""


def lanes() -> tuple[list[str], list[str], list[str]]:
    """Every folder of tests, in one of three lanes."""
    folders = {path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py"))}
    lane = (folders - PATIENT - COMPUTING, folders & PATIENT, folders & COMPUTING)
    return tuple([f"tests/{name}" for name in sorted(names)] for names in lane)  # type: ignore[return-value]


def pytest(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


@contextmanager
def beside(folders: list[str], niceness: int, said: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the tests of some folders, and ends them if they have not ended by then."""
    lane = subprocess.Popen(
        pytest("-q", *folders), stdout=said, stderr=subprocess.STDOUT, preexec_fn=lambda: os.nice(niceness)
    )
    try:
        yield lane
    finally:
        if lane.poll() is None:
            lane.send_signal(signal.SIGINT)  # it ends its servers
            lane.wait()


def main(arguments: list[str]) -> int:
    if arguments:
        return subprocess.run(pytest(*arguments), check=False).returncode
    real_time, patient, computing = lanes()
    print(f"here {' '.join(real_time)}; beside it, told at the end: {' '.join(patient + computing)}", flush=True)
    with tempfile.TemporaryFile() as heard, tempfile.TemporaryFile() as computed:
        with beside(patient, 5, heard) as second, beside(computing, 10, computed) as third:
            codes = [subprocess.run(pytest(*real_time), check=False).returncode, second.wait(), third.wait()]
        for said in (heard, computed):
            said.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(said.read())
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
