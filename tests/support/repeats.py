"""A pytest plugin: a failure while the machine stood still is no verdict.

A test in which real time counts says how long a stall it forgives: `@pytest.mark.real_time(0.1)` (0.1 s is the
least, and what the bare mark means). If such a test fails and a longer stall was measured while it ran
(`stalls.py`), it runs again: alone, in a process and with servers of its own, at most twice. Any other failure is a
failure at once. The closing lines count the tests that were repeated, and name them.

Processes of pytest that share a folder (`QUORUMLOCK_RUN`) start no test while one of them repeats one.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.support.stalls import Stall, StallMeter

RUN = "QUORUMLOCK_RUN"
"""Names the folder that the processes of one run share."""
VERDICT = "QUORUMLOCK_VERDICT"
"""Set in a process that repeats one test: the file to which it writes its stall, if it fails during one."""
LEAST_FORGIVEN = 0.1
TIMES = 2
"""How often a test is repeated at most."""


class Repeated(NamedTuple):
    """A test that failed during a stall, and what became of it."""

    test: str
    stall: Stall
    times: int
    passed: bool

    def __str__(self) -> str:
        again = f"run again {'once' if self.times == 1 else 'twice'}: {'passed' if self.passed else 'FAILED'}"
        return f"{self.test}: a stall of {self.stall.seconds * 1000:.0f} ms ({self.stall.where}), {again}"


def forgiven(item: pytest.Item) -> float | None:
    """The longest stall during which a failure of this test counts; None: it counts during any."""
    mark = item.get_closest_marker("real_time")
    if mark is None:
        return None
    seconds = float(mark.args[0]) if mark.args else LEAST_FORGIVEN
    if seconds < LEAST_FORGIVEN:
        raise pytest.UsageError(f"{item.nodeid}: real_time({seconds:g}) is less than {LEAST_FORGIVEN:g}")
    return seconds


class Turnstile:
    """Lets processes run their tests side by side, or one of them alone.

    A process passes the gate before each test; one that repeats a test keeps the gate closed, so that it does not
    wait for longer than the tests that have begun.
    """

    def __init__(self, folder: Path) -> None:
        self._gate = os.open(folder / "gate", os.O_RDWR | os.O_CREAT)
        self._track = os.open(folder / "track", os.O_RDWR | os.O_CREAT)

    @contextmanager
    def side_by_side(self) -> Iterator[None]:
        with _locked(self._gate, fcntl.LOCK_EX):
            fcntl.flock(self._track, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._track, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with _locked(self._gate, fcntl.LOCK_EX), _locked(self._track, fcntl.LOCK_EX):
            yield


@contextmanager
def _locked(file: int, how: int) -> Iterator[None]:
    fcntl.flock(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


class Repeats:
    """The plugin."""

    def __init__(self, rootpath: Path) -> None:
        self._rootpath = rootpath
        self._own = tempfile.TemporaryDirectory(prefix="ql-stalls-")
        self._folder = Path(self._own.name)
        self._verdict = os.environ.pop(VERDICT, None)
        run = Path(os.environ.pop(RUN, self._folder))  # what a test starts is no part of the run
        self._turnstile = Turnstile(run)
        self._log = run / "repeated"
        self._meter = StallMeter(self._folder)
        self.repeated: list[Repeated] = []

    def pytest_collection_finish(self) -> None:
        self._meter.started()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Runs a test and judges it."""
        seconds = forgiven(item)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        with nullcontext() if self._verdict else self._turnstile.side_by_side():
            started_at = time.monotonic()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            ended_at = time.monotonic()
        if seconds is not None and any(report.failed for report in reports):
            stall = self._meter.longest(started_at, ended_at)
            if stall is not None and stall.seconds > seconds:
                self._judge_again(item, reports, stall)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def longest(self, started_at: float, ended_at: float) -> Stall | None:
        """The longest stall between two instants, for a test that judges what ran before it."""
        return self._meter.longest(started_at, ended_at)

    def _judge_again(self, item: pytest.Item, reports: Sequence[pytest.TestReport], stall: Stall) -> None:
        """This failure is no verdict."""
        if self._verdict:
            Path(self._verdict).write_text(f"{stall.seconds}")  # who repeats this test decides
            return
        with self._turnstile.alone():
            result, times = self._repeat(item.nodeid)
        passed = result.returncode == 0
        self.repeated.append(Repeated(item.nodeid, stall, times, passed))
        with self._log.open("a") as log:
            log.write(f"{self.repeated[-1]}\n")
        if passed:
            for report in reports:
                report.outcome = "passed"
                report.longrepr = None
        else:
            output = result.stdout.decode(errors="replace")
            next(report for report in reports if report.failed).sections.append((f"run again, {times}", output))

    def _repeat(self, test: str) -> tuple[subprocess.CompletedProcess[bytes], int]:
        """The result that counts, and which run it was of."""
        for times in range(1, TIMES + 1):
            verdict = self._folder / f"verdict-{len(self.repeated)}-{times}"
            result = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
                cwd=self._rootpath,
                env=os.environ | {VERDICT: str(verdict)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if result.returncode == 0 or not verdict.exists():
                break
        return result, times

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.repeated:
            terminalreporter.section("repeated because of a stall")
            for repeated in self.repeated:
                terminalreporter.write_line(str(repeated))
        terminalreporter.write_line(f"{len(self.repeated)} repeated because of a stall")

    def pytest_unconfigure(self) -> None:
        self._meter.close()
        self._own.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "real_time(seconds): real time counts; a failure during a longer stall of the machine is no verdict",
    )
    if not config.option.collectonly:
        config.pluginmanager.register(Repeats(config.rootpath), "repeats")
