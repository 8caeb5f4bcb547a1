"""Runs `.ci/run` in fresh clones of HEAD, again and again, and prints a table of what came of it: `make ci-runs`.

Quiet runs have the machine for themselves. Rough ones share it with two busy processes, and all of their own
processes are frozen about every 3 s (`freezer.py`). A row is printed when a run has ended; logs stay in `--logs`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROJECT = Path(__file__).parent.parent
BUSY = 2
HEAD = (
    "| run | conditions | commit | result | minutes | CPU, user + system | repeated because of a stall |\n"
    "|---:|---|---|---|---:|---:|---|"
)


@contextmanager
def busy() -> Iterator[None]:
    """A process that never sleeps."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def environment() -> dict[str, str]:
    """That of a new shell: what `make ci-runs` was called with is not for the `make test` of the clone."""
    ours = ("ARGS", "PYTHON", "VENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours} | {"CI": "true"}


def clone(folder: Path) -> str:
    """A fresh clone of HEAD; returns its commit."""
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(folder)], check=True)
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return found.stdout.strip()


def run(number: int, rough: bool, logs: Path) -> str:
    """One run, as a row of the table."""
    command = ["bash", ".ci/run"]
    with tempfile.TemporaryDirectory(prefix="ql-ci-") as folder, ExitStack() as stack:
        commit = clone(Path(folder) / "main")
        if rough:
            command = [sys.executable, str(Path(__file__).with_name("freezer.py")), "--", *command]
            for _ in range(BUSY):
                stack.enter_context(busy())
        log = logs / f"run-{number}-{'rough' if rough else 'quiet'}.log"
        started_at = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.run(
                command,
                cwd=Path(folder) / "main",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return row(number, rough, commit, process.returncode, time.monotonic() - started_at, log.read_text())


def row(number: int, rough: bool, commit: str, code: int, seconds: float, log: str) -> str:
    """What the closing lines of a run say."""
    conditions = "busy, frozen" if rough else "quiet"
    tests = re.findall(r"^tests: (\d+ passed, \d+ failed)", log, re.M)
    cpu = re.findall(r"CPU (\d+) s user, (\d+) s system", log)
    names = re.findall(r"^  tests/(\S+): a stall of (\d+) ms", log, re.M)
    count = re.findall(r"^repeated because of a stall: (\d+)", log, re.M)
    repeated = f"{count[-1] if count else '?'}" + "".join(f"; {name} ({stall} ms)" for name, stall in names)
    result = f"{'passed' if code == 0 else 'FAILED'}{f' ({tests[-1]})' if tests else ''}"
    used = " + ".join(cpu[-1]) + " s" if cpu else "?"
    return f"| {number} | {conditions} | {commit} | {result} | {seconds / 60:.1f} | {used} | {repeated} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="ci_runs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quiet", type=int, default=6, help="runs on a machine with nothing else to do")
    parser.add_argument("--rough", type=int, default=6, help="runs beside busy processes, frozen now and then")
    parser.add_argument("--first", type=int, default=1, help="number of the first run")
    parser.add_argument("--logs", type=Path, default=None, help="where logs go (default: a new temporary folder)")
    options = parser.parse_args(arguments)
    logs = options.logs or Path(tempfile.mkdtemp(prefix="ql-ci-logs-"))
    logs.mkdir(parents=True, exist_ok=True)
    print(f"logs: {logs}\n{HEAD}", flush=True)
    rows = []
    for index in range(options.quiet + options.rough):
        rows.append(run(options.first + index, index >= options.quiet, logs))
        print(rows[-1], flush=True)
    return int(any("FAILED" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
