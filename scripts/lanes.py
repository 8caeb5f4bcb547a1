"""Runs the tests in lanes that take equally long: one more than there are cores, since most tests wait.

The files of tests, in their order, are cut into lanes by the seconds that each took when it was last measured (see
`timings.py`). Neighbours stay together, so that few lanes start the same servers. With arguments there is one
lane, and pytest gets them.

`--beside COMMAND` runs that, too, at the same time; if it fails, everything ends. `--profile` prints which folders,
files, tests and fixtures took how long, and writes down the seconds of files for the next run.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scripts import timings

PROJECT = Path(__file__).parent.parent
UNKNOWN = 1.0
"""Seconds that a file is taken to need if it was never measured."""
SHOWN_EVERY = 15.0


class Running(NamedTuple):
    """A command that runs, and where its output goes; None: here."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path | None

    @property
    def text(self) -> str:
        return "" if self.output is None else self.output.read_text(errors="replace")

    @property
    def percent(self) -> str:
        """How many of its tests pytest has run."""
        if self.process.poll() is not None:
            return "ended"
        found: list[str] = re.findall(r"\[ *(\d+%)\]", self.text)
        return found[-1] if found else "0%"


def files() -> list[str]:
    """All files of tests, in their order."""
    return sorted(str(path.relative_to(PROJECT)) for path in (PROJECT / "tests").rglob("test_*.py"))


def lanes(count: int, names: Sequence[str], seconds: dict[str, float]) -> list[list[str]]:
    """The files, cut into so many lanes of about the same length."""
    costs = [seconds.get(name, UNKNOWN) for name in names]
    cut: list[list[str]] = [[] for _ in range(count)]
    before = 0.0
    for name, cost in zip(names, costs, strict=True):
        cut[int((before + cost / 2) / sum(costs) * count)].append(name)
        before += cost
    return [lane for lane in cut if lane]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(
    name: str,
    command: list[str],
    *,
    output: Path | None = None,
    niceness: int = 0,
    env: dict[str, str] | None = None,
) -> Running:
    print(f"{name}: {shlex.join(command)}"[:160], flush=True)
    with open(output or os.devnull, "wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file if output else None,
            stderr=subprocess.STDOUT if output else None,
            env=os.environ | (env or {}),
            preexec_fn=lambda: os.nice(niceness),
        )
    return Running(name, process, output)


def wait(running: Sequence[Running]) -> None:
    """Until all have ended, or what runs beside the tests has failed; shows how far they are."""
    started_at = shown_at = time.monotonic()
    while any(one.process.poll() is None for one in running):
        if any(one.name == "beside" and one.process.poll() for one in running):
            return
        time.sleep(0.2)
        if len(running) > 1 and time.monotonic() - shown_at > SHOWN_EVERY:
            shown_at = time.monotonic()
            state = ", ".join(f"{one.name} {one.percent}" for one in running)
            print(f"{shown_at - started_at:4.0f} s: {state}", flush=True)


def end(running: Sequence[Running]) -> None:
    """Interrupts what has not ended by itself, so that it ends its servers."""
    for one in running:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGINT)
    for one in running:
        one.process.wait()


def show(one: Running) -> None:
    """What it printed, but for its dots."""
    lines = [line for line in one.text.splitlines() if not re.search(r"^[.sxEF]+ *\[ *\d+%\]$", line)]
    print(f"\n{one.name}:", *lines, sep="\n", flush=True)


def closing(text: str) -> str:
    """The line in which pytest counts its tests."""
    return next((line for line in reversed(text.splitlines()) if re.search(r" in \d+\.\d+s", line)), "")


def close(running: Sequence[Running], folder: Path, seconds: float) -> None:
    """The closing lines of a run in lanes."""

    def count(word: str) -> int:
        return sum(int(number) for one in running for number in re.findall(rf"(\d+) {word}", closing(one.text)))

    log = folder / "repeated"
    repeated = log.read_text().splitlines() if log.exists() else []
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\nrepeated because of a stall: {len(repeated)}", *repeated, sep="\n  ")
    cpu = f"CPU {used.ru_utime:.0f} s user, {used.ru_stime:.0f} s system"
    print(f"{seconds // 60:.0f} min {seconds % 60:.0f} s, {cpu}")
    failed = count("failed") + count("error")
    print(f"tests: {count('passed')} passed, {failed} failed, {count('skipped')} skipped", flush=True)


def run(options: argparse.Namespace, arguments: list[str], folder: Path) -> int:
    started_at = time.monotonic()
    pytest = [sys.executable, "-m", "pytest"]
    env = {"QUORUMLOCK_RUN": str(folder)} | ({"QUORUMLOCK_PROFILE": str(folder)} if options.profile else {})
    running: list[Running] = []
    try:
        if arguments:
            running.append(start("pytest", [*pytest, *arguments], env=env))
        else:
            for number, lane in enumerate(lanes(cores() + 1, files(), timings.measured()), 1):
                output = folder / f"lane-{number}"
                running.append(start(f"lane {number}", [*pytest, "-q", *lane], output=output, env=env))
        if options.beside:
            running.append(start("beside", shlex.split(options.beside), output=folder / "beside", niceness=10))
        wait(running)
    finally:
        end(running)
    for one in running:
        if one.output is not None:
            show(one)
    if options.profile:
        rows = timings.read(folder)
        timings.show(rows)
        timings.note(rows)
    if not arguments:
        close(running, folder, time.monotonic() - started_at)
    return max((one.process.returncode for one in running), key=abs)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--beside", default="")
    parser.add_argument("--profile", action="store_true")
    options, others = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ql-lanes-") as folder:
        return run(options, others, Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
