"""Lets canaries fly: for each, pytest on the tests that must find it out, in a process of its own.

A few helper processes have imported everything there is to import, and fork a child for each canary: starting
pytest eighty times would cost a minute of imports alone.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
HANDS = 3
"""Most of a flight is waiting: so many at a time, if nothing else is under way."""
ALLOWED = 60
"""Seconds for one test of a canary."""
FLIGHT = 100
"""Seconds for all tests of a canary."""


@dataclass
class Flight:
    """What became of the tests of one canary."""

    status: int
    outcomes: list[dict[str, Any]]
    """One for each phase of each test: test, when, outcome, error, text."""
    output: str = field(repr=False)


class Aviary:
    """`with Aviary() as aviary: aviary.fly("name").result()`: a few at a time."""

    def __init__(self, hands: int = HANDS) -> None:
        self._queue: queue.SimpleQueue[tuple[str, Future[Flight]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(hands)]
        for thread in self._threads:
            thread.start()

    def fly(self, name: str) -> Future[Flight]:
        flight: Future[Flight] = Future()
        self._queue.put((name, flight))
        return flight

    def _serve(self) -> None:
        command = [sys.executable, "-m", __spec__.name]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as helper:
            assert helper.stdin is not None
            assert helper.stdout is not None
            while (todo := self._queue.get()) is not None:
                name, flight = todo
                try:
                    print(name, file=helper.stdin, flush=True)
                    flight.set_result(Flight(**json.loads(helper.stdout.readline())))
                except Exception as error:
                    flight.set_exception(error)
            helper.stdin.close()

    def __enter__(self) -> Aviary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


def main() -> None:
    """A helper: names come in, flights go out."""
    import asyncio  # noqa: F401
    import unittest.mock  # noqa: F401

    import pytest  # noqa: F401
    import redis.asyncio
    import redis.sentinel  # noqa: F401

    from . import canaries

    known = canaries.load()
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            report, output = Path(folder) / "report", Path(folder) / "output"
            status = _in_a_child(known[line.strip()], report, output)
            outcomes = [json.loads(one) for one in report.read_text().splitlines()] if report.exists() else []
            flight = {"status": status, "outcomes": outcomes, "output": output.read_text(errors="replace")[-6000:]}
            print(json.dumps(flight), flush=True)


def _in_a_child(bird: Any, report: Path, output: Path) -> int:
    import pytest

    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            os.setpgid(0, 0)
            written = os.open(output, os.O_CREAT | os.O_WRONLY)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(written, 1)
            os.dup2(written, 2)
            files = [f"tests/hazards/{file}" for file in bird.files()]
            options = [
                "-q",
                "--tb=short",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:hypothesispytest",
                f"--timeout={ALLOWED}",
            ]
            status = pytest.main([*files, *options, "--canary", bird.name, "--canary-report", str(report)])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(status))
    watchdog = threading.Timer(FLIGHT, os.killpg, (pid, signal.SIGKILL))  # a broken library may hang for good
    watchdog.start()
    status = os.waitpid(pid, 0)[1]
    watchdog.cancel()
    watchdog.join()
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
