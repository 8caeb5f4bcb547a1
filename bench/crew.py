"""The parent's side of the workers: child processes that open subjects and time them when told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, TypeVar

from quorumlock.lab.servers import Server

from .envs import ROOT
from .machine import cpu_us, pin

# asyncio reads into 256 KiB of fresh memory each time. Whether glibc gives that back to the kernel after each read,
# and pays for the pages again, hangs on what else lies in the heap: luck that adds 70 µs to a pair, or does not.
STEADY_HEAP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 27)}


ChildT = TypeVar("ChildT", bound="Child")


class Failed(Exception):
    """What a worker had to say instead of a figure."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one subject, in µs."""

    p50: float
    p99: float
    worst: float
    pairs: int
    cpu: float
    """Per pair: of the client, and of the servers where they were counted in."""


class Child:
    """One child process: `python -m PROGRAM MODULE`, which is asked and answers in lines of JSON."""

    program = ""

    def __init__(self, module: str, python: Path | str = sys.executable) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [str(python), "-m", self.program, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            cwd=ROOT,
            env=os.environ | STEADY_HEAP,
        )

    @property
    def forks(self) -> list[int]:
        """The processes that it has forked."""
        pid = self._process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def pin(self, core: int) -> None:
        pin(self._process.pid, core)

    def ask(self, **ask: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(ask) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            self._said.seek(0)
            told = self._said.read().decode(errors="replace").splitlines()
            raise Failed(told[-1] if told else "its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self) -> None:
        """A worker ends when its stdin does; one that hangs is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it has ended already
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()


class Worker(Child):
    """Times pairs."""

    program = "bench.worker"

    def open(self, key: str, subject: str, mode: str, urls: list[str], ttl: float) -> None:
        self.ask(do="open", key=key, subject=subject, mode=mode, urls=urls, ttl=ttl)

    def run(self, key: str, seconds: float, pairs: int = 1, warm: int = 0, servers: Sequence[Server] = ()) -> Run:
        before = cpu_us(servers)
        run = Run(**self.ask(do="run", key=key, seconds=seconds, pairs=pairs, warm=warm))
        return replace(run, cpu=run.cpu + (cpu_us(servers) - before) / (run.pairs + warm))


class Crew:
    """All workers of a benchmark; ended together."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def hire(self, module: str, python: Path | str = sys.executable) -> Worker:
        return self.add(Worker(module, python))

    def add(self, child: ChildT) -> ChildT:
        self._stack.callback(child.close)
        return child

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


def typical(runs: Iterable[Run], what: str = "p50") -> float:
    """The median over rounds."""
    return float(median(getattr(run, what) for run in runs))


def ratio(runs: list[Run], base: list[Run], what: str = "p50") -> float:
    """The median over rounds of what was measured in the same round: noise that lasts for both cancels out."""
    return float(median(getattr(a, what) / getattr(b, what) for a, b in zip(runs, base, strict=True)))


def raw(runs: list[Run]) -> list[dict[str, float]]:
    return [asdict(run) for run in runs]
