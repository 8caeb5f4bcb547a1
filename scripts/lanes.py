"""Runs the tests in two lanes: those of real servers and real time, and beside them those that only compute.

Two lanes with servers would take the machine from one another, and nodes that must answer in time would not. The
second lane is nice to the first. With arguments there is one lane, and pytest gets them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"
COMPUTING = {
    "core",
    "docs",
    "engines",
    "guards",
    "journal",
    "lab",
    "lab_stories",
    "operating",
    "sim",
    "specs",
    "style",
    "unit",
    "web",
}
"""Folders whose tests do not mind if the machine is busy; whatever is new goes to the other lane."""


def lanes() -> tuple[list[str], list[str]]:
    """Every folder of tests, in one of two lanes."""
    folders = sorted(path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py")))
    return (
        [f"tests/{name}" for name in folders if name not in COMPUTING],
        [f"tests/{name}" for name in folders if name in COMPUTING],
    )


def pytest(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


def main(arguments: list[str]) -> int:
    if arguments:
        return subprocess.run(pytest(*arguments), check=False).returncode
    serving, computing = lanes()
    print(f"in one lane {' '.join(serving)}; beside it {' '.join(computing)}, told at the end", flush=True)
    with tempfile.TemporaryFile() as said:
        beside = subprocess.Popen(
            pytest("-q", *computing), stdout=said, stderr=subprocess.STDOUT, preexec_fn=lambda: os.nice(10)
        )
        try:
            failed = subprocess.run(pytest(*serving), check=False).returncode
            failed = beside.wait() or failed
        finally:
            if beside.poll() is None:
                beside.send_signal(signal.SIGINT)  # it ends its servers
                beside.wait()
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
