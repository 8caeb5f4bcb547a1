"""The demo: five nodes, three workers that share one lock, and things that go wrong.

The workers are processes. Each adds 1 to a counter, a row in SQLite, by reading it, working, and writing it back:
what two of them do at the same time is lost, and shows in the end as a difference. Then

- a node is killed: the others are a majority, and nobody waits for the dead one;
- a worker is stopped in mid-work until its lease is over and somebody else has the lock. When it wakes, it
  writes without looking. The row has seen a newer fence, and refuses the write.

`python -m quorumlock.lab.demo DATABASE` is one worker; it takes orders from its standard input.
"""

from __future__ import annotations

import json
import os
import queue
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import quorumlock

from .demo_screen import Screen, Story, new_screen
from .servers import Servers, kinds

NODES = 5
WORKERS = 3
TTL = 1.0
MAX_TTL = 2.0
WORK = 0.003
AT_MOST = 10.0
"""How long the demo waits for something that must happen."""


class Failure(Exception):
    """Something that the demo shows did not happen."""


def demo(*, plain: bool = False, seconds: float = 3.0) -> int:
    """Shows it, each part for some seconds; gives the exit code: 0 only if nothing was lost."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorumlock-")))
        nodes = stack.enter_context(_nodes())
        story = Story([node.port for node in nodes.servers], WORKERS)
        screen = stack.enter_context(new_screen(story, plain))
        try:
            _play(nodes, folder, story, screen, seconds)
        except Failure as failure:
            story.failure = str(failure)
    screen.close()
    return 0 if story.is_well() else 1


@contextmanager
def _nodes() -> Iterator[Servers]:
    servers = Servers(NODES, next(iter(kinds()), "valkey"))
    try:
        try:
            servers.__enter__()
        except RuntimeError as error:
            raise quorumlock.EngineError(str(error)) from None  # a server that did not come up
        yield servers
    finally:
        servers.__exit__(None, None, None)  # also when only some of them came up


def _play(nodes: Servers, folder: Path, story: Story, screen: Screen, seconds: float) -> None:
    counter = folder / "counter.sqlite"
    _create(counter)
    with quorumlock.connect(nodes.urls, max_ttl=MAX_TTL) as locks:
        locks.init_fleet()
    screen.news(f"{NODES} nodes are up, and the fleet is initialised")

    with _crew(nodes.urls, counter, folder, story, screen) as crew:
        crew.until(lambda: all(worker.increments for worker in story.workers), "an increment by each worker")
        screen.news(f"{WORKERS} workers add to one counter, each under the lock")
        crew.watch(seconds)

        nodes[2].kill()
        story.node_died(2)
        screen.news("node 3 is killed (SIGKILL): 4 of 5 go on")
        crew.watch(seconds)

        _stop_one(crew, story, screen, seconds)
        crew.watch(seconds / 2)
    story.settle(_read(counter))


def _stop_one(crew: Crew, story: Story, screen: Screen, seconds: float) -> None:
    """A worker is stopped with the lock in its hands, and wakes when it is somebody else's."""
    worker, member = story.workers[1], crew.members[1]
    member.order("dawdle")
    crew.until(lambda: worker.state == "dawdles", "a worker that holds the lock")
    member.process.send_signal(signal.SIGSTOP)
    worker.state = "stopped"
    screen.news(f"worker 2 is stopped holding the lock (SIGSTOP), {_short(worker.fence)}")
    crew.until(lambda: story.fence > worker.fence, "a new holder after the ttl")
    screen.news(
        f"its lease of {TTL:g} s is over: worker {story.holder} has the lock, fence …{story.fence % 10**6:06}"
    )
    crew.watch(seconds / 3)
    member.process.send_signal(signal.SIGCONT)
    screen.news("worker 2 wakes up and writes, as if nothing had happened")
    crew.until(lambda: worker.told > 0, "the news that the lease is lost")
    if worker.refused:
        screen.news("the row has seen a newer fence: write refused, worker 2 told")


def _short(fence: int) -> str:
    return f"fence …{fence % 10**6:06}"


class Member:
    """One worker process; what it says goes into the common queue."""

    def __init__(self, number: int, urls: list[str], counter: Path, errors: Path, heard: queue.Queue[Any]) -> None:
        self.number = number
        self._errors = errors
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quorumlock.lab.demo", str(counter)],
                env=os.environ | {"QUORUMLOCK_URL": ",".join(urls)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self._reader = threading.Thread(target=self._read, args=(heard,), daemon=True)
        self._reader.start()

    def _read(self, heard: queue.Queue[Any]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            heard.put((self.number, json.loads(line)))

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def check(self) -> None:
        """Raises Failure if the process is gone."""
        if self.process.poll() is not None:
            why = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
            raise Failure(f"worker {self.number + 1} ended by itself: {''.join(why) or 'without a word'}")

    def end(self) -> None:
        """Lets it finish what it does; its orders end with its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> None:
        try:
            self.process.wait(AT_MOST)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Crew:
    """The workers, and what they tell."""

    def __init__(self, members: list[Member], heard: queue.Queue[Any], story: Story, screen: Screen) -> None:
        self.members = members
        self._heard = heard
        self._story = story
        self._screen = screen

    def watch(self, seconds: float) -> None:
        """Looks on for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look()

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Looks on until something has happened."""
        end = time.monotonic() + AT_MOST
        while not happened():
            if time.monotonic() > end:
                raise Failure(f"waited {AT_MOST:g} s in vain for {what}")
            self._look()

    def _look(self) -> None:
        for member in self.members:
            member.check()
        self.listen(0.05)
        self._screen.refresh()

    def listen(self, seconds: float) -> None:
        """Takes in what was said, waiting for the first word at most that long."""
        try:
            number, said = self._heard.get(timeout=seconds)
            while True:
                self._story.heard(number, **said)
                number, said = self._heard.get_nowait()
        except queue.Empty:
            pass  # nothing more to hear


@contextmanager
def _crew(urls: list[str], counter: Path, folder: Path, story: Story, screen: Screen) -> Iterator[Crew]:
    heard: queue.Queue[Any] = queue.Queue()
    members = [Member(i, urls, counter, folder / f"worker-{i}.log", heard) for i in range(WORKERS)]
    crew = Crew(members, heard, story, screen)
    try:
        yield crew
    finally:
        for member in members:
            member.process.send_signal(signal.SIGCONT)
            member.end()
        for member in members:
            member.wait()
        crew.listen(0)


# The counter: one row that remembers the highest fence it was written with.


def _create(counter: Path) -> None:
    with _open(counter) as rows:
        rows.execute("PRAGMA journal_mode = WAL")
        rows.execute("CREATE TABLE counter (value INTEGER NOT NULL, fence INTEGER NOT NULL)")
        rows.execute("INSERT INTO counter VALUES (0, 0)")


def _read(counter: Path) -> int:
    with _open(counter) as rows:
        return int(rows.execute("SELECT value FROM counter").fetchone()[0])


class _open:  # noqa: N801 - reads like the built-in
    """A connection that closes; sqlite3's own context manager only commits."""

    def __init__(self, counter: Path) -> None:
        self._rows = sqlite3.connect(counter, timeout=10, isolation_level=None)

    def __enter__(self) -> sqlite3.Connection:
        return self._rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._rows.close()


# What a worker process does.


def work(counter: Path) -> None:
    """Adds to the counter under the lock until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then ends its workers
    with _open(counter) as rows, quorumlock.connect(max_ttl=MAX_TTL) as locks:
        lock = locks.lock("demo:counter", ttl=TTL)
        lock.locked()  # connects, so that the first latency is a latency
        while (order := _order()) is not None:
            asked_at = time.perf_counter()
            lease = lock.try_acquire()
            took = time.perf_counter() - asked_at
            if lease is not None:
                try:
                    with lease:
                        _increment(rows, lease, took, dawdle=order == "dawdle")
                except quorumlock.LeaseLost as lost:
                    _say(did="lost", reason=lost.reason.value)
            elif order:
                _pending.append(order)
            time.sleep(random.uniform(0.002, 0.02))


def _increment(rows: sqlite3.Connection, lease: quorumlock.Lease, took: float, *, dawdle: bool) -> None:
    (value,) = rows.execute("SELECT value FROM counter").fetchone()
    time.sleep(WORK)
    if dawdle:
        _say(did="dawdle", fence=lease.fence)
        time.sleep(TTL / 2)
    # No lease.check() here, on purpose: a process may be stopped between a check and a write just as well.
    # It is the fence in the statement itself that protects the row.
    written = rows.execute(
        "UPDATE counter SET value = ?, fence = ? WHERE fence <= ?", (value + 1, lease.fence, lease.fence)
    ).rowcount
    _say(did="increment" if written else "refused", fence=lease.fence, took=took)


_pending: list[str] = []


def _order() -> str | None:
    """The next order, "" for none, None when there will be no more."""
    if _pending:
        return _pending.pop()
    if not select.select([sys.stdin], [], [], 0)[0]:
        return ""
    return sys.stdin.readline().strip() or None


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
