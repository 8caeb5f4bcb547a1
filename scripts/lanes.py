"""Runs the tests in four lanes at a time: most of them wait for servers and clocks, and the machine would be idle.

Three use servers and clocks, and share the machine alike: who is nice to others is kept from running for longer
than a test can forgive, and so are all if there are more. The last only computes, and gives way. With arguments
there is one lane, and pytest gets them.

`--beside COMMAND`, first of all: that, too, at the same time. If it fails, everything ends.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

TESTS = Path(__file__).parent.parent / "tests"


class Lane(NamedTuple):
    """Some folders. Whatever is new goes to the lane without any, the first."""

    niceness: int
    folders: frozenset[str]


LANES = (
    Lane(0, frozenset()),
    Lane(0, frozenset({"contract", "web"})),
    Lane(0, frozenset({"docs", "engines", "guards", "journal", "observing", "operating"})),
    Lane(19, frozenset({"core", "lab", "lab_stories", "sim", "specs", "style", "unit"})),
)


def arguments_of(lane: Lane) -> list[str]:
    """For pytest."""
    there = {path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py"))}
    folders = lane.folders & there if lane.folders else there.difference(*(one.folders for one in LANES))
    return [f"tests/{name}" for name in sorted(folders)]


def pytest(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


@contextmanager
def started(command: list[str], niceness: int, said: IO[bytes] | None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command, and ends it if it has not ended by then."""
    errors = None if said is None else subprocess.STDOUT
    process = subprocess.Popen(command, stdout=said, stderr=errors, preexec_fn=lambda: os.nice(niceness))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # it ends its servers
            process.wait()


def main(arguments: list[str]) -> int:
    beside: list[str] = []
    if arguments[:1] == ["--beside"]:
        beside, arguments = shlex.split(arguments[1]), arguments[2:]
    commands = [(pytest(*arguments), 0)]
    if not arguments:
        commands = [
            (pytest(*(["-q"] if number else []), *arguments_of(lane)), lane.niceness)
            for number, lane in enumerate(LANES)
        ]
    if beside:
        commands.append((beside, 10))
    for number, (command, _) in enumerate(commands):
        print(f"{'beside it, told at the end' if number else 'here'}: {shlex.join(command)}", flush=True)
    with ExitStack() as stack:
        told = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in commands[1:])]
        with ExitStack() as running:
            processes = [
                running.enter_context(started(command, niceness, said))
                for (command, niceness), said in zip(commands, told, strict=True)
            ]
            while any(process.poll() is None for process in processes):
                if beside and processes[-1].poll():
                    break
                time.sleep(0.2)
        for said in told:
            if said is not None:
                said.seek(0)
                sys.stdout.flush()
                sys.stdout.buffer.write(said.read())
        return max((process.returncode for process in processes), key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
