"""The SQLite engine among processes and threads: contention, kills, forks, interrupts, closing."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import quorumlock
from quorumlock import AcquireTimeout, Jitter
from quorumlock.core.requests import Acquire, Look, Release
from quorumlock.core.votes import Cause
from tests.support.forkserver import ForkServer
from tests.support.waiting import eventually_async

from .sqlite_clocks import Forward, forward
from .test_sqlite import TTL_MS, File, Make, file, granted, make, open_files, refused

__all__ = ["file", "forward", "make"]  # fixtures
pytestmark = pytest.mark.real_time(1)

BRISK = Jitter(0.002)


def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[quorumlock.Locker]:
    with quorumlock.connect(url(tmp_path / "locks.db"), retry=BRISK) as locks:
        yield locks


PRELUDE = "import quorumlock\nfrom quorumlock import Jitter\n"


class Process:
    """A process that runs a program, and says one line when it is ready."""

    def __init__(self, server: ForkServer, program: str) -> None:
        self._forked = server.start(PRELUDE + program)
        self.pid = self._forked.pid

    def line(self) -> str:
        return self._forked.output.readline().strip()

    def go(self) -> None:
        self._forked.input.write("go\n")
        self._forked.input.flush()

    def kill(self) -> None:
        self._forked.signal(signal.SIGKILL)
        self._forked.wait()
        self._forked.close()

    def end(self) -> str:
        """What else it said; fails if it failed."""
        said = self._forked.output.read()
        assert self._forked.wait() == 0
        return said


Start = Callable[[str], Process]


@pytest.fixture
def start(fork_server: ForkServer) -> Iterator[Start]:
    """Processes that do not outlive the test."""
    started: list[Process] = []

    def one(program: str) -> Process:
        started.append(Process(fork_server, program))
        return started[-1]

    yield one
    for process in started:
        process.kill()


WORK = """
import sys
counter, turns = {counter!r}, {turns}
with quorumlock.connect({url!r}, retry=Jitter(0.002)) as locks:
    lock = locks.lock("counter", keep=False)
    for _ in range(turns):
        with lock as lease:
            with open(counter) as stream:
                seen = stream.read().split()
            with open(counter, "w") as stream:
                stream.write(f"{{int(seen[0]) + 1}} {{lease.fence}} {{' '.join(seen[1:])}}")
"""
"""Raises a number in a file, which takes a while: read, write anew. The fences that did so stay, newest first."""


def counted(counter: Path) -> tuple[int, list[int]]:
    total, *fences = (int(word) for word in counter.read_text().split())
    return total, fences[::-1]


def test_processes_lose_no_update_and_their_fences_grow(tmp_path: Path) -> None:
    """Interpreters of their own, and no forked ones."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    program = PRELUDE + WORK.format(counter=str(counter), turns=60, url=url(tmp_path / "locks.db"))
    workers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    total, fences = counted(counter)
    assert total == 240
    assert fences == sorted(set(fences))
    assert len(fences) == 240


def test_threads_of_one_locker_exclude_one_another(locks: quorumlock.Locker) -> None:
    lock = locks.lock("a", keep=False)
    inside = 0
    fences: list[int] = []

    def work(_: int) -> None:
        nonlocal inside
        for _ in range(25):
            with lock as lease:
                inside += 1
                assert inside == 1
                fences.append(lease.fence)
                time.sleep(0)
                inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert len(fences) == 150
    assert fences == sorted(set(fences))


def test_processes_that_make_the_file_at_the_same_time(tmp_path: Path, start: Start) -> None:
    program = (
        "import sys; print('ready', flush=True); sys.stdin.readline()\n"
        f"with quorumlock.connect({url(tmp_path / 'locks.db')!r}) as locks:\n"
        "    print(locks.lock('name-{}', keep=False).acquire().fence)"
    )
    starters = [start(program.format(n)) for n in range(4)]
    assert [one.line() for one in starters] == ["ready"] * 4
    for one in starters:
        one.go()
    fences = [int(one.end()) for one in starters]
    assert len(set(fences)) == 4
    assert max(fences) - min(fences) == 3, "one of them made it, and none made it again"


def test_engines_of_many_threads_that_make_the_file_at_the_same_time(tmp_path: Path, make: Make) -> None:
    """The same, closer together."""
    with ThreadPoolExecutor(6) as pool:
        for turn in range(20):
            files = [make(tmp_path / f"{turn}.db") for _ in range(6)]
            barrier = threading.Barrier(6)

            def work(n: int, files: list[File] = files, barrier: threading.Barrier = barrier) -> int:
                barrier.wait(10)
                return granted(files[n].acquire(f"name-{n}"))

            fences = sorted(pool.map(work, range(6)))
            assert fences == list(range(fences[0], fences[0] + 6))
            for file in files:
                file.engine.close()


def test_asyncio_runs_on_it_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorumlock.connect_async(url(tmp_path / "locks.db"), retry=BRISK) as locks:
            lock = locks.lock("a", keep=False)
            inside = 0

            async def work() -> None:
                nonlocal inside
                for _ in range(5):
                    async with lock as lease:
                        inside += 1
                        assert inside == 1
                        await asyncio.sleep(0)
                        inside -= 1
                        await lease.extend()

            await asyncio.gather(*(work() for _ in range(8)))
            waiting = asyncio.create_task(lock.acquire())
            async with await locks.lock("b", keep=False).acquire():
                await waiting
            task = asyncio.create_task(locks.lock("a", keep=False, fair=True).acquire())

            async def asked() -> bool:
                return bool((await locks.inspect("a")).waiters)

            assert await eventually_async(asked)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await (await waiting).release()
            assert not await lock.locked()

    asyncio.run(main())


# Killed.


def test_what_a_killed_process_held_ends_by_its_ttl(
    tmp_path: Path, forward: Forward, locks: quorumlock.Locker, start: Start
) -> None:
    holder = start(
        f"import time; locks = quorumlock.connect({url(tmp_path / 'locks.db')!r})\n"
        "print(locks.lock('a', ttl=20, keep=False).acquire().fence, flush=True); time.sleep(60)"
    )
    fence = int(holder.line())
    holder.kill()
    assert locks.lock("a", keep=False).try_acquire() is None
    forward.advance(20)
    lease = locks.lock("a", keep=False).try_acquire()
    assert lease is not None
    assert lease.fence == fence + 1
    lease.release()


def test_a_process_killed_in_a_transaction_hinders_nobody(make: Make, start: Start) -> None:
    one = make()
    fence = granted(one.acquire("held"))
    writer = start(
        "import time\n"
        f"locks = quorumlock.connect({url(one.path)!r}); locks.lock('b', keep=False).locked()\n"
        "cursor = locks.engine._session._cursor\n"
        "cursor.execute('BEGIN IMMEDIATE'); cursor.execute('DELETE FROM leases')\n"
        "cursor.execute('UPDATE meta SET fence = fence + 5'); print('in it', flush=True); time.sleep(60)"
    )
    assert writer.line() == "in it"
    refused(one.acquire("held", "other"), Cause.HELD)
    killer = threading.Timer(0.1, writer.kill)
    started_at = time.perf_counter()
    killer.start()
    try:
        assert granted(one.acquire()) == fence + 1
    finally:
        killer.join()
    assert time.perf_counter() - started_at >= 0.1, "it was in it until it was killed"
    assert one.row("held") is not None


def test_processes_killed_anywhere_leave_a_sound_file(tmp_path: Path, start: Start) -> None:
    path, told = tmp_path / "locks.db", tmp_path / "told"
    program = (
        f"import os; told = os.open({str(told)!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)\n"
        f"with quorumlock.connect({url(path)!r}, retry=Jitter(0.001)) as locks:\n"
        "    lock = locks.lock('a', ttl=0.05, keep=False)\n"
        "    for turn in range(10**9):\n"
        "        lease = lock.acquire(); os.write(told, b'%d\\n' % lease.fence); lease.release()\n"
        "        turn or print('ready', flush=True)"
    )
    last = 0
    for _ in range(3):
        both = [start(program) for _ in range(2)]
        assert [one.line() for one in both] == ["ready"] * 2
        time.sleep(random.uniform(0, 0.05))
        for one in both:
            one.kill()
        fences = [int(line) for line in told.read_text().split()]
        told.unlink()
        assert len(set(fences)) == len(fences) >= 2
        assert min(fences) > last
        last = max(fences)
    with quorumlock.connect(url(path), retry=BRISK) as locks:
        assert locks.lock("a", keep=False).acquire(timeout=5).fence > last
    assert File(path).sql("PRAGMA integrity_check") == [("ok",)]


# Closed.


def test_closing_closes_everything_and_a_late_request_opens_only_for_itself(file: File) -> None:
    file.acquire()
    file.engine.close()
    file.engine.close()
    assert open_files(file.path) == []
    refused(file.acquire(token="other"), Cause.HELD)
    granted(file.ask(Release("a", "mine")))
    assert open_files(file.path) == []


def test_closing_while_other_threads_lock(tmp_path: Path) -> None:
    for _ in range(15):
        file = File(tmp_path / "locks.db")
        stop = threading.Event()

        def work(who: int, file: File = file, stop: threading.Event = stop) -> None:
            for n in itertools.count():
                granted(file.ask(Acquire(f"name-{who}", f"token-{n}", TTL_MS, 0)))
                granted(file.ask(Release(f"name-{who}", f"token-{n}")))
                if stop.is_set():
                    return

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work, who) for who in range(4)]
            time.sleep(random.uniform(0.005, 0.015))
            file.engine.close()
            stop.set()
            for one in working:
                one.result(10)
        assert open_files(file.path) == []


def test_a_locker_that_is_closed_says_so(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a", keep=False).acquire()
    locks.close()
    with pytest.raises(quorumlock.ConfigurationError, match="closed"):
        locks.lock("a", keep=False).acquire()
    del lease


def test_an_engine_that_nobody_closed_does_no_harm(tmp_path: Path, make: Make, start: Start) -> None:
    """A process may end without it."""
    program = f"quorumlock.connect({url(tmp_path / 'x.db')!r}).lock('a', keep=False).acquire(); print('ok')"
    assert start(program).end().strip() == "ok"
    refused(make(tmp_path / "x.db").ask(Look("a")), Cause.HELD)


def test_waiting_is_polling_and_ends_soon_after_a_release(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a", keep=False).acquire()
    started_at = time.perf_counter()
    threading.Timer(0.05, lease.release).start()
    locks.lock("a", keep=False).acquire(timeout=20).release()
    assert time.perf_counter() - started_at >= 0.05
    locks.lock("a", keep=False).acquire()
    with pytest.raises(AcquireTimeout, match="this process has it"):
        locks.lock("a", keep=False).acquire(timeout=0.03)


def test_leases_of_many_names_do_not_hinder_one_another(locks: quorumlock.Locker) -> None:
    held: Sequence[quorumlock.Lease] = [locks.lock(f"name-{n}", keep=False).acquire() for n in range(100)]
    fences = [lease.fence for lease in held]
    assert fences == sorted(set(fences))
    for lease in held:
        lease.release()
