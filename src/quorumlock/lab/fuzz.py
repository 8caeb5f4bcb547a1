"""Many seeds, one after another or in several processes, and what they came to."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from .run import Options, Verdict, simulate

CHUNK = 20
"""Seeds that a process runs before it tells of them."""
CALM = "(none)"


@dataclass(slots=True)
class Row:
    """One line of the summary: runs of one kind."""

    seeds: int = 0
    granted: int = 0
    renewed: int = 0
    lost: int = 0
    refused: int = 0
    excused: int = 0
    failed: int = 0

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.granted += verdict.counts.get("granted", 0)
        self.renewed += verdict.counts.get("renewed", 0)
        self.lost += verdict.counts.get("lost", 0)
        self.refused += verdict.counts.get("refused", 0)
        self.excused += len(verdict.violations) - len(verdict.wrong)
        self.failed += verdict.failed

    def merge(self, other: Row) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Failure:
    """A seed that did not do as was promised."""

    seed: int
    workload: str
    what: str


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    workloads: dict[str, Row] = field(default_factory=dict)
    faults: dict[str, Row] = field(default_factory=dict)
    excused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each checker was answered with each assumption that was broken."""
    writes: Counter[str] = field(default_factory=Counter)
    """Accepted by guarded resources, and how many undid another one, by workload."""
    failures: list[Failure] = field(default_factory=list)
    simulated: float = 0.0
    events: int = 0

    @property
    def seeds(self) -> int:
        return sum(row.seeds for row in self.workloads.values())

    def add(self, verdict: Verdict) -> None:
        self.workloads.setdefault(verdict.workload, Row()).add(verdict)
        for fault in verdict.faults or (CALM,):
            self.faults.setdefault(fault, Row()).add(verdict)
        for violation in verdict.violations:
            if violation.excuse is not None:
                self.excused[violation.checker, violation.excuse] += 1
        for what in ("writes", "overwritten"):
            self.writes[f"{verdict.workload} {what}"] += verdict.counts.get(what, 0)
        if verdict.failed:
            self.failures.append(Failure(verdict.seed, verdict.workload, told(verdict)))
        self.simulated += verdict.seconds
        self.events += verdict.events

    def merge(self, other: Summary) -> None:
        for mine, theirs in ((self.workloads, other.workloads), (self.faults, other.faults)):
            for name, row in theirs.items():
                mine.setdefault(name, Row()).merge(row)
        self.excused += other.excused
        self.writes += other.writes
        self.failures += other.failures
        self.simulated += other.simulated
        self.events += other.events


def told(verdict: Verdict) -> str:
    """The first thing that went wrong, in a line."""
    if verdict.crash:
        return f"crash: {verdict.crash.strip().splitlines()[-1]}"
    first = verdict.wrong[0]
    return f"{first.checker}: {first.text}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nodes that restart a thousand times are warned of a thousand times."""
    logger = logging.getLogger("quorumlock")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def run_some(start: int, count: int, options: Options) -> Summary:
    """So many seeds in this process."""
    summary = Summary()
    with quiet():
        for seed in range(start, start + count):
            summary.add(simulate(seed, options))
    return summary


def fuzz(
    start: int, seeds: int, options: Options, jobs: int = 1, report: Callable[[Summary], None] = lambda _: None
) -> Summary:
    """All seeds; `report` is called now and then with what there is so far."""
    summary = Summary()
    for part in _parts(start, seeds, options, jobs):
        summary.merge(part)
        report(summary)
    summary.failures.sort(key=lambda failure: failure.seed)
    return summary


def _parts(start: int, seeds: int, options: Options, jobs: int) -> Iterator[Summary]:
    chunks = [(at, min(CHUNK, start + seeds - at), options) for at in range(start, start + seeds, CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield run_some(*chunk)
        return
    with ProcessPoolExecutor(jobs) as pool:
        pending = {pool.submit(run_some, *chunk) for chunk in chunks}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


class Bar:
    """Progress, on a terminal."""

    WIDTH = 30

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._began = time.monotonic()
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def show(self, summary: Summary) -> None:
        if self._shown:
            done = summary.seeds
            full = self.WIDTH * done // self._seeds
            bar = "#" * full + "." * (self.WIDTH - full)
            rate = done / max(self.seconds, 1e-9)
            failed = f", {len(summary.failures)} failed" if summary.failures else ""
            sys.stderr.write(f"\r[{bar}] {done}/{self._seeds} seeds, {rate:.1f} a second{failed} ")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
