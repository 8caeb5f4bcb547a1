"""Runs the tests that must find a canary out, each canary in a process of its own.

One template process imports everything and collects the hazard tests once. It forks a few workers, each with
servers of its own, and a worker forks a child for each canary: only the child breaks the library, runs the tests
that the canary names, and ends. Starting pytest eighty times would cost a minute of imports and collecting alone.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from quorumlock.lab.servers import Servers, kinds
from tests.support import waiting

from . import canaries, late

ROOT = Path(__file__).parents[2]
HANDS = 6
"""Most of a flight is waiting: so many at a time, if nothing else is under way."""
ALLOWED = 60
"""Seconds for one test of a canary."""
FLIGHT = 100
"""Seconds for all tests of a canary."""
PATIENCE = 3.0
"""How long a test waits here for what comes at once, or never: with most canaries it never does."""
UNBROKEN = "nothing is broken: "
"""Followed by tests, separated by spaces: they are run in the same way, on the library as it is."""


@dataclass
class Flight:
    """What became of the tests of one canary."""

    status: int
    outcomes: list[dict[str, Any]]
    """One for each phase of each test: test, when, outcome, error, text."""
    output: str = field(repr=False)
    started_at: float
    ended_at: float


class Aviary:
    """`with Aviary() as aviary: aviary.fly("name").result()`: a few at a time."""

    def __init__(self, hands: int = HANDS) -> None:
        self._queue: queue.SimpleQueue[tuple[str, Future[Flight]] | None] = queue.SimpleQueue()
        pairs = [socket.socketpair() for _ in range(hands)]
        numbers = [theirs.fileno() for _, theirs in pairs]
        self._template = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, *map(str, numbers)], cwd=ROOT, pass_fds=numbers,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        for _, theirs in pairs:
            theirs.close()
        self._threads = [threading.Thread(target=self._serve, args=(ours,), daemon=True) for ours, _ in pairs]
        for thread in self._threads:
            thread.start()

    def fly(self, name: str) -> Future[Flight]:
        flight: Future[Flight] = Future()
        self._queue.put((name, flight))
        return flight

    def _serve(self, worker: socket.socket) -> None:
        with worker, worker.makefile("rw") as talk:
            while (todo := self._queue.get()) is not None:
                name, flight = todo
                started_at = time.monotonic()
                try:
                    print(name, file=talk, flush=True)
                    result = json.loads(talk.readline())
                    flight.set_result(Flight(**result, started_at=started_at, ended_at=time.monotonic()))
                except Exception as error:
                    flight.set_exception(error)

    def __enter__(self) -> Aviary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        output, _ = self._template.communicate()
        assert self._template.returncode == 0, output


class Template:
    """A pytest plugin that collects, and lets workers run selections of what was collected."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def pytest_configure(self, config: pytest.Config) -> None:
        # Its plugin is blocked: a canary that fails during a stall has failed, and would be repeated unbroken.
        config.addinivalue_line("markers", "real_time(seconds): see tests/support/repeats.py")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.collect()
        gc.freeze()  # what the children share need not be looked through by each of them
        workers = [self._fork_worker(session, number) for number in self._numbers]
        for number in self._numbers:
            os.close(number)
        for pid in workers:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == 0, f"a worker ended with {status}"
        return True

    def _fork_worker(self, session: pytest.Session, number: int) -> int:
        pid = os.fork()
        if pid == 0:
            with _ends_with_its_block():
                for other in set(self._numbers) - {number}:
                    os.close(other)
                _work(session, socket.socket(fileno=number))
        return pid


@contextmanager
def _ends_with_its_block() -> Iterator[None]:
    """This process ends here, whatever happens: it is a fork, and what its parent was about is not its concern."""
    status = 99
    try:
        yield
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _work(session: pytest.Session, owner: socket.socket) -> None:
    """A worker: names come in, flights go out, until there is nobody left who asks."""
    with owner, owner.makefile("rw") as talk, Servers(5, kinds()[0]) as servers:
        canaries.lent_servers = servers
        for line in talk:
            with tempfile.TemporaryDirectory() as folder:
                report, output = Path(folder) / "report", Path(folder) / "output"
                status = _in_a_child(session, line.rstrip("\n"), report, output, owner)
                outcomes = [json.loads(one) for one in report.read_text().splitlines()] if report.exists() else []
                text = output.read_text(errors="replace")[-6000:]
                print(json.dumps({"status": status, "outcomes": outcomes, "output": text}), file=talk, flush=True)


def _in_a_child(session: pytest.Session, name: str, report: Path, output: Path, owner: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        with _ends_with_its_block():
            os.setpgid(0, 0)
            os.close(owner.fileno())
            written = os.open(output, os.O_CREAT | os.O_WRONLY)
            os.dup2(written, 1)
            os.dup2(written, 2)
            session.config.option.canary_report = str(report)
            _run(session, name)
    watchdog = threading.Timer(FLIGHT, os.killpg, (pid, signal.SIGKILL))  # a broken library may hang for good
    watchdog.start()
    status = os.waitpid(pid, 0)[1]
    watchdog.cancel()
    watchdog.join()
    return os.waitstatus_to_exitcode(status)


def _run(session: pytest.Session, name: str) -> None:
    """Breaks the library, and runs the tests that must find out."""
    if name.startswith(UNBROKEN):
        bird = canaries.Canary("", "", tuple(name.removeprefix(UNBROKEN).split()))
    else:
        bird = canaries.CANARIES[name]
        canaries.apply(name)
    for wait in (waiting.eventually, waiting.eventually_async):
        wait.__defaults__ = (PATIENCE,)
    late.LEFT_WITHIN = PATIENCE / 5
    items = [item for item in session.items if bird.concerns(item)]
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def main() -> None:
    """The template process."""
    import redis.asyncio
    import redis.sentinel  # noqa: F401 - imported here, and not by each child

    files = sorted({f"tests/hazards/{file}" for bird in canaries.load().values() for file in bird.files()})
    blocked = [
        f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "anyio", "tests.support.repeats")
    ]
    # A test that fails drops its lease, and is seen to do so by whichever test comes next.
    quiet = ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    options = ["-q", "-s", "--tb=native", f"--timeout={ALLOWED}", *blocked, *quiet]
    sys.exit(pytest.main([*options, *files], plugins=[Template([int(number) for number in sys.argv[1:]])]))


if __name__ == "__main__":
    main()
