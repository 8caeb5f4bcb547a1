"""The SQLite engine: locks that are fair, and locks that stay closed, as their users see them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import quorumlock
from quorumlock import AcquireTimeout, Jitter, LockHeld
from quorumlock.clocks import boot_time
from quorumlock.core.requests import Acquire, Break, Extend, Join, Look, Release
from quorumlock.core.votes import Cause
from quorumlock.engines.sqlite import tickets
from tests.support.waiting import eventually

from .sqlite_clocks import Clock, Forward, clock, forward
from .test_sqlite import TTL_MS, File, Make, file, granted, kept, make, refused
from .test_sqlite_processes import Process, Start, start, url

__all__ = ["clock", "file", "forward", "make", "start"]  # fixtures
pytestmark = pytest.mark.real_time(0.3)

BOUND = 2.0
"""For how long, as promised, a head that does not take a free lock keeps it from the others."""
LASTS_MS = 800
"""The same for processes that wait for it to be over."""
SLACK = 8.0
"""What a loaded machine may add. A ticket that lived for its whole patience, 30 s, would not be within it."""
MANY = 20 if os.environ.get("QUORUMLOCK_LONG") else 8


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[quorumlock.Locker]:
    with quorumlock.connect(url(tmp_path / "locks.db")) as locks:
        yield locks


def waiting(file: File) -> int:
    """How many tickets are in the file, and good."""
    now_ms = int(boot_time() * 1000)
    ((count,),) = file.sql("SELECT count(*) FROM tickets WHERE expires_ms > ?", now_ms)
    return int(count)


def until_waiting(file: File, count: int) -> None:
    assert eventually(lambda: waiting(file) == count), f"{count} wait"


# Threads and tasks.


def test_threads_get_it_in_the_order_in_which_they_came(file: File, locks: quorumlock.Locker) -> None:
    lock = locks.lock("a", ttl=30, keep=False, fair=True)
    order: list[int] = []
    fences: list[int] = []

    def work(n: int) -> None:
        with lock as lease:
            order.append(n)
            fences.append(lease.fence)

    held = lock.acquire()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for n, thread in enumerate(threads):
        thread.start()
        until_waiting(file, n + 1)
    held.release()
    for thread in threads:
        thread.join(30)
    assert order == list(range(8))
    assert fences == sorted(set(fences))
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)]


def test_tasks_get_it_in_the_order_in_which_they_came(file: File) -> None:
    order: list[int] = []

    async def main() -> None:
        async with quorumlock.connect_async(url(file.path)) as locks:
            lock = locks.lock("a", ttl=30, keep=False, fair=True)

            async def work(n: int) -> None:
                async with lock:
                    order.append(n)

            held = await lock.acquire()
            tasks = []
            for n in range(8):
                tasks.append(asyncio.create_task(work(n)))
                await asyncio.to_thread(until_waiting, file, n + 1)
            given_up, *rest = tasks
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert waiting(file) == 7, "who is cancelled takes its ticket along"
            await held.release()
            await asyncio.gather(*rest)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert order == list(range(1, 8))
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)]


def test_who_gives_up_takes_its_ticket_along(file: File, locks: quorumlock.Locker) -> None:
    lock = locks.lock("a", ttl=30, keep=False, fair=True)
    with lock:
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)
        with pytest.raises(LockHeld):
            lock.acquire(timeout=0)
        assert lock.try_acquire() is None
        assert file.sql("SELECT count(*) FROM tickets") == [(0,)]
    with lock.acquire(timeout=0):
        pass
    lease = lock.try_acquire()
    assert lease is not None
    lease.release()


def test_who_asks_seldom_keeps_its_place(file: File, locks: quorumlock.Locker) -> None:
    order: list[str] = []

    def work(who: str, locks: quorumlock.Locker) -> None:
        with locks.lock("a", ttl=30, keep=False, fair=True):
            order.append(who)

    held = locks.lock("a", ttl=60, keep=False).acquire()
    with quorumlock.connect(url(file.path), retry=Jitter(20.0)) as seldom:
        first = threading.Thread(target=work, args=("seldom", seldom))
        second = threading.Thread(target=work, args=("often", locks))
        first.start()
        until_waiting(file, 1)
        end_ms = first_end_ms(file)
        second.start()
        until_waiting(file, 2)
        for _ in range(2):
            before_ms = end_ms
            assert eventually(lambda: first_end_ms(file) > before_ms)  # noqa: B023 - it is called here only
            end_ms = first_end_ms(file)
            assert end_ms - tickets.LASTS_MS < before_ms, "it was shown again when it had died"
        held.release()
        first.join()
        second.join()
    assert order == ["seldom", "often"]


def first_end_ms(file: File) -> int:
    """Until when the first ticket is good."""
    ((expires_ms,),) = file.sql("SELECT expires_ms FROM tickets ORDER BY order_us LIMIT 1")
    return int(expires_ms)


# Processes.

TURNS = """
import os, sys, time
from quorumlock.core.requests import Acquire

log = os.open({log!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
with quorumlock.connect({url!r}) as locks:
    perform, shown = locks.engine.perform, []

    def spy(round_):
        asked_at = time.monotonic()
        perform(round_)
        request = round_.requests[0]
        if isinstance(request, Acquire):
            shown.append((asked_at, time.monotonic()))
            if round_.tally.won:
                gap = max(then - since for (since, _), (_, then) in zip(shown, shown[1:])) if shown[1:] else 0
                os.write(log, f"{n} {{request.ticket.order_us}} {{shown[0][1]}} {{asked_at}} {{gap}}\\n".encode())
                shown.clear()

    locks.engine.perform = spy
    lock = locks.lock("a", ttl=30, keep=False, fair=True)
    print("ready", flush=True); sys.stdin.readline()
    for _ in range({turns}):
        lock.acquire().release()
"""
"""Writes down, while it has the lock, which ticket it had, and when."""


class Turn(NamedTuple):
    who: float
    order_us: float
    stored_at: float
    """When its ticket was in the file, at the latest."""
    asked_at: float
    """When it asked for what it was granted."""
    gap: float
    """The longest time for which its ticket was not shown."""


STEPS = """
import sys
from quorumlock.engines.sqlite import tickets
tickets.LASTS_MS = {lasts_ms}
with quorumlock.connect({url!r}) as locks:
    lock = locks.lock("a", ttl=30, keep=False, fair=True)
    print("ready", flush=True); sys.stdin.readline()
    with lock:
        print("has it", flush=True); sys.stdin.readline()
"""
"""Asks when it is told to, and gives the lock back when it is told to."""


def in_turn(file: File, processes: list[Process]) -> None:
    """Lets them come, one after the other."""
    assert [one.line() for one in processes] == ["ready"] * len(processes)
    for n, one in enumerate(processes):
        one.go()
        until_waiting(file, n + 1)


def test_processes_take_turns_and_none_is_overtaken(
    file: File, locks: quorumlock.Locker, start: Start, tmp_path: Path
) -> None:
    log, count, turns = tmp_path / "log", MANY, 3
    held = locks.lock("a", ttl=60, keep=False).acquire()
    workers = [start(TURNS.format(log=str(log), url=url(file.path), turns=turns, n=n)) for n in range(count)]
    in_turn(file, workers)
    held.release()
    for worker in workers:
        worker.end()
    had = [Turn(*map(float, line.split())) for line in log.read_text().splitlines()]
    assert len(had) == count * turns
    # A process that had no processor for so long may have been passed over, and rightly so.
    prompt = [turn for turn in had if turn.gap < 0.7 * BOUND]
    assert len(prompt) > len(had) / 2
    for later, turn in enumerate(had):
        waited = [one for one in had[later + 1 :] if one in prompt and one.stored_at < turn.asked_at]
        assert all(one.order_us > turn.order_us for one in waited), f"{turn} overtook one of {waited}"
    if prompt == had:
        assert [turn.who for turn in had[:count]] == list(range(count))
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)]


def test_a_head_that_was_killed_delays_the_others_for_a_bounded_time(
    file: File, make: Make, locks: quorumlock.Locker, start: Start
) -> None:
    held = locks.lock("a", ttl=60, keep=False).acquire()
    first, second, third = (start(STEPS.format(url=url(file.path), lasts_ms=LASTS_MS)) for _ in range(3))
    in_turn(file, [first, second, third])
    first.kill()
    second.kill()  # they age at the same time
    killed_at = time.monotonic()
    held.release()
    assert third.line() == "has it"
    assert time.monotonic() - killed_at < LASTS_MS / 1000 + SLACK
    third.go()
    third.end()
    assert file.sql("SELECT count(*) FROM tickets") >= [(1,)]
    make().ask(Join())
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)], "what they left behind is pruned"


def test_a_head_that_is_stopped_is_passed_over_and_has_its_place_again_when_it_goes_on(
    file: File, locks: quorumlock.Locker, start: Start
) -> None:
    held = locks.lock("a", ttl=60, keep=False).acquire()
    first, second, third = (start(STEPS.format(url=url(file.path), lasts_ms=LASTS_MS)) for _ in range(3))
    in_turn(file, [first, second, third])
    with stopped(first):
        stopped_at = time.monotonic()
        held.release()
        assert second.line() == "has it"
        assert time.monotonic() - stopped_at < LASTS_MS / 1000 + SLACK
        until_waiting(file, 1)
    until_waiting(file, 2)  # the first again
    second.go()
    assert first.line() == "has it", "before those who came later"
    first.go()
    assert third.line() == "has it"
    third.go()
    for one in (first, second, third):
        one.end()


class stopped:  # noqa: N801 - reads as a word: with stopped(…)
    """A process that does not run meanwhile."""

    def __init__(self, process: Process) -> None:
        self._pid = process.pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self._pid}/stat")
        assert eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


# Closed after a release.


def test_a_lock_that_is_to_stay_closed_is_nobodys(file: File, clock: Clock) -> None:
    fence = granted(file.acquire(ttl_ms=500))
    granted(file.ask(Release("a", "mine", True, stay_ms=TTL_MS)))
    for request in (Acquire("a", "other", TTL_MS, 0), Acquire("a", "mine", TTL_MS, 0), Look("a")):
        answer = refused(file.ask(request), Cause.HELD)
        assert (answer.wait_ms, answer.fence) == (TTL_MS, fence)
    refused(file.ask(Extend((kept(),))), Cause.HELD)
    refused(file.ask(Release("a", "mine", True)), Cause.HELD)
    refused(file.ask(Release("a", "mine", True, stay_ms=20)), Cause.HELD)
    granted(file.ask(Break("a")))
    assert granted(file.acquire(token="other")) > fence


def test_it_stays_closed_for_so_long_and_no_longer(make: Make, clock: Clock) -> None:
    one, other = make(), make()
    granted(one.acquire())
    granted(one.ask(Release("a", "mine", True, stay_ms=60)))
    clock.advance(59)
    refused(other.acquire(token="other"), Cause.HELD)
    clock.advance(1)
    granted(other.acquire(token="other"))


def test_what_is_over_or_anothers_is_not_closed(file: File, clock: Clock) -> None:
    file.acquire(ttl_ms=10)
    clock.advance(10)
    file.ask(Release("a", "mine", True, stay_ms=TTL_MS))
    granted(file.acquire(token="other"))
    refused(file.ask(Release("a", "mine", True, stay_ms=60_000)), Cause.HELD)
    granted(file.ask(Release("a", "other", True)))
    refused(file.ask(Release("a", "other", True, stay_ms=TTL_MS)), Cause.ABSENT)
    granted(file.acquire())


@pytest.mark.parametrize("fair", [False, True], ids=["plain", "fair"])
def test_at_least(file: File, forward: Forward, locks: quorumlock.Locker, fair: bool) -> None:
    lock = locks.lock("a", ttl=30, keep=False, at_least=10, fair=fair)
    with lock:
        pass
    forward.advance(5)
    assert lock.locked()
    assert lock.try_acquire() is None
    forward.advance(5)
    with quorumlock.connect(url(file.path)) as others, others.lock("a", keep=False, fair=fair, timeout=0):
        pass
    lease = lock.acquire(timeout=0)
    forward.advance(10)
    lease.release()
    assert not lock.locked(), "it was held for long enough"


# Closed after an expiry.


def test_lock_delay_is_for_what_expired_and_not_for_what_was_released(
    file: File, forward: Forward, locks: quorumlock.Locker
) -> None:
    lock = locks.lock("a", ttl=10, lock_delay=20, keep=False)
    with quorumlock.connect(url(file.path)) as others:
        other = others.lock("a", ttl=30, keep=False)
        lease = lock.acquire()
        assert lease.remaining() <= 10
        forward.advance(10)
        assert not lease.held, "its ttl is over"
        assert other.try_acquire() is None
        forward.advance(15)
        assert other.try_acquire() is None
        forward.advance(5)
        other.acquire(timeout=0).release()
        lock.acquire().release()
        lease_of_other = other.try_acquire()
        assert lease_of_other is not None
        lease_of_other.release()
