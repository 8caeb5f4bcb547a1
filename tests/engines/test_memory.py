"""`memory://`: time that passes by hand, locks that are forced open, and the normal API all around."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

import quorumlock
from quorumlock import (
    AcquireTimeout,
    AsyncLease,
    AsyncLocker,
    ConfigurationError,
    EngineError,
    Jitter,
    Lease,
    LeaseLost,
    LossReason,
)
from quorumlock.engines.base import Engine, Store
from quorumlock.engines.memory import MemoryEngine
from quorumlock.events import Event, Extended, Lost
from tests.live.tools import Stopwatch
from tests.support.waiting import eventually, eventually_async, forever

pytestmark = pytest.mark.real_time(0.3)
BOTH_WAYS = pytest.mark.parametrize("keep", [True, False], ids=["kept", "not-kept"])


def memory(engine: Engine) -> MemoryEngine:
    """The engine of a Locker, with what only this one can do."""
    assert isinstance(engine, MemoryEngine)
    return engine


@pytest.fixture(params=["memory://", "memory://?nodes=3"])
def locks(request: pytest.FixtureRequest) -> Iterator[quorumlock.Locker]:
    with quorumlock.connect(request.param, retry=Jitter(0.01)) as locks:
        yield locks


def connect_async() -> AsyncLocker:
    return quorumlock.connect_async("memory://?nodes=3", retry=Jitter(0.01))


def test_it_is_a_store_that_never_blocks(locks: quorumlock.Locker) -> None:
    engine = memory(locks.engine)
    assert isinstance(engine, Store)
    assert not engine.blocking
    assert len(engine.nodes) == len(engine.labels) == len(engine.servers)


def test_the_normal_api_runs_on_it(locks: quorumlock.Locker) -> None:
    with locks.lock("orders:42") as lease:
        assert lease.fence > 0
        assert locks.lock("orders:42").try_acquire() is None
        assert locks.lock("orders:42").locked()
        assert [server.get("orders:42") for server in memory(locks.engine).servers] == [lease.token.encode()] * len(
            memory(locks.engine).servers
        )
    with locks.lock("orders:42") as again:
        assert again.fence > lease.fence
    assert not locks.lock("orders:42").locked()


@BOTH_WAYS
def test_a_jump_past_the_end_loses_the_lease_before_it_returns(locks: quorumlock.Locker, keep: bool) -> None:
    told: list[Lease] = []
    lease = locks.lock("a", keep=keep, on_lost=told.append).acquire()
    lost = lease.lost
    memory(locks.engine).clock.advance(9)
    lease.check()
    memory(locks.engine).clock.advance(10.5)
    assert lost.is_set()
    assert told == [lease]
    with pytest.raises(LeaseLost) as gone:
        lease.check()
    assert gone.value.reason is LossReason.EXPIRED
    new = locks.lock("a").try_acquire()
    assert new is not None
    assert new.fence > lease.fence
    lease.release()
    new.check()
    new.release()
    assert told == [lease]


@BOTH_WAYS
def test_a_jump_cancels_the_body_of_an_async_block(keep: bool) -> None:
    async def main() -> None:
        locks = connect_async()
        told: list[AsyncLease] = []
        reached = False

        async def body() -> None:
            nonlocal reached
            async with locks.lock("a", keep=keep, on_lost=told.append) as lease:
                inside.set()
                await forever()
                reached = lease.held

        inside = asyncio.Event()
        task = asyncio.create_task(body())
        await inside.wait()
        memory(locks.engine).clock.advance(11)
        assert len(told) == 1, "told at once, in the same loop"
        with pytest.raises(LeaseLost) as gone:
            await asyncio.wait_for(task, 2)
        assert gone.value.reason is LossReason.EXPIRED
        assert not reached
        await locks.aclose()

    asyncio.run(main())


def test_a_small_jump_leads_to_a_renewal(locks: quorumlock.Locker) -> None:
    story: list[Event] = []
    locks.subscribe(story.append)
    lease = locks.lock("a").acquire()
    with Stopwatch() as took:
        for _ in range(5):
            memory(locks.engine).clock.advance(6)
            assert eventually(lambda: lease.remaining() > 9)
    assert took.seconds < 2, "the keeper is woken: it does not find out by the way, once a second"
    assert eventually(lambda: sum(isinstance(event, Extended) for event in story) >= 5)  # told after it is so
    assert not any(isinstance(event, Lost) for event in story)
    lease.release()


def test_a_small_jump_leads_to_a_renewal_in_asyncio() -> None:
    async def main() -> None:
        locks = connect_async()
        lease = await locks.lock("a").acquire()

        with Stopwatch() as took:
            for _ in range(5):
                memory(locks.engine).clock.advance(6)
                assert await eventually_async(lambda: lease.remaining() > 9)
        assert took.seconds < 2, "the keeper is woken: it does not find out by the way, once a second"
        await lease.release()
        await locks.aclose()

    asyncio.run(main())


def test_what_is_not_kept_is_not_renewed(locks: quorumlock.Locker) -> None:
    story: list[Event] = []
    locks.subscribe(story.append)
    kept, lease = locks.lock("kept").acquire(), locks.lock("a", keep=False).acquire()
    memory(locks.engine).clock.advance(6)
    assert eventually(lambda: any(isinstance(event, Extended) for event in story))  # told after it is so
    assert kept.remaining() > 9
    assert 3 < lease.remaining() < 4
    assert [event.name for event in story if isinstance(event, Extended)] == ["kept"]
    kept.release()
    lease.release()


def test_a_hold_ends_at_max_hold(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a", max_hold=15).acquire()
    for _ in range(2):
        memory(locks.engine).clock.advance(6)
        assert eventually(lambda: lease.remaining() > 9)
    memory(locks.engine).clock.advance(6)
    assert not eventually(lambda: lease.remaining() > 5, within=0.1)
    memory(locks.engine).clock.advance(6)
    with pytest.raises(LeaseLost) as gone:
        lease.check()
    assert gone.value.reason is LossReason.MAX_HOLD
    lease.release()


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan"), float("inf"), "1", None, True])
def test_time_does_not_run_backwards(locks: quorumlock.Locker, seconds: object) -> None:
    clock = memory(locks.engine).clock
    before = clock()
    with pytest.raises(ConfigurationError, match="seconds="):
        clock.advance(cast(float, seconds))
    assert clock() - before < 1
    clock.advance(0)
    clock.advance(100)
    assert 100 <= clock() - before < 101


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_waiter_notices_a_jump(locks: quorumlock.Locker) -> None:
    """Also where its own process has the lock, and where others of it wait before."""
    lease = locks.lock("a", ttl=30, keep=False).acquire()
    got: list[object] = []

    def wait() -> None:
        try:
            got.append(locks.lock("a").acquire(timeout=5))
        except AcquireTimeout as error:
            got.append(error)

    waiters = [in_thread(wait) for _ in range(3)]
    assert eventually(lambda: len(locks._runner.room._lines.get("a", ())) == 2)
    with Stopwatch() as took:
        memory(locks.engine).clock.advance(6)
        for waiter in waiters:
            waiter.join(5)
    assert took.seconds < 2
    assert [type(one) for one in got] == [AcquireTimeout] * 3
    got.clear()
    waiter = in_thread(lambda: got.append(locks.lock("a").acquire(timeout=500)))
    assert eventually(lambda: "a" in locks._runner.room._contenders)
    memory(locks.engine).clock.advance(30)
    waiter.join(5)
    assert isinstance(got[0], Lease)
    assert lease.lost.is_set()
    got[0].release()


@BOTH_WAYS
def test_a_lock_forced_open_is_lost_at_once(locks: quorumlock.Locker, keep: bool) -> None:
    told: list[Lease] = []

    def body() -> None:
        with locks.lock("a", keep=keep, on_lost=told.append) as lease:
            memory(locks.engine).force_lose("a")
            assert told == [lease]
            assert lease.lost.is_set()
            assert lease.remaining() == 0
            new.append(locks.lock("a").acquire(timeout=0))

    new: list[Lease] = []
    with pytest.raises(LeaseLost) as gone:
        body()
    assert gone.value.reason is LossReason.BROKEN
    new[0].check()
    assert all(server.get("a") == new[0].token.encode() for server in memory(locks.engine).servers)
    new[0].release()


def test_a_lock_forced_open_by_another_thread_is_lost_by_its_holder(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a").acquire()
    in_thread(lambda: memory(locks.engine).force_lose("a")).join(5)
    assert lease.lost.is_set()
    lease.release()


@pytest.mark.parametrize("from_thread", [False, True], ids=["same-loop", "another-thread"])
def test_a_lock_forced_open_cancels_the_body_of_an_async_block(from_thread: bool) -> None:
    async def main() -> None:
        locks = connect_async()
        engine = memory(locks.engine)
        leases: list[AsyncLease] = []

        async def body() -> None:
            async with locks.lock("a") as lease:
                leases.append(lease)
                inside.set()
                await forever()

        inside = asyncio.Event()
        task = asyncio.create_task(body())
        await inside.wait()
        lost = leases[0].lost
        if from_thread:
            await asyncio.to_thread(engine.force_lose, "a")
        else:
            engine.force_lose("a")
            assert lost.is_set(), "told at once, in the same loop"
        with pytest.raises(LeaseLost) as gone:
            await asyncio.wait_for(task, 2)
        assert gone.value.reason is LossReason.BROKEN
        assert lost.is_set()
        await locks.aclose()

    asyncio.run(main())


def test_forcing_open_what_nobody_holds_is_quiet(locks: quorumlock.Locker) -> None:
    other = locks.lock("b").acquire()
    memory(locks.engine).force_lose("a")
    other.check()
    other.release()


@pytest.mark.parametrize("name", ["", "a*", "ql:x", "a\n", 7])
def test_a_name_that_no_lock_has_cannot_be_forced_open(locks: quorumlock.Locker, name: object) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        memory(locks.engine).force_lose(cast(str, name))


@pytest.fixture
def hectic() -> Iterator[None]:
    """Threads are switched as often as can be."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hectic")
def test_threads_never_overlap(locks: quorumlock.Locker) -> None:
    counter = 0
    fences: list[int] = []

    def work() -> None:
        nonlocal counter
        for _ in range(10):
            with locks.lock("a", timeout=60) as lease:
                before = counter
                time.sleep(0.0005)
                counter = before + 1
                fences.append(lease.fence)

    threads = [in_thread(work) for _ in range(8)]
    for thread in threads:
        thread.join(60)
    assert counter == 80
    assert fences == sorted(set(fences))


def test_a_closed_locker_is_closed(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a").acquire()
    locks.close()
    with pytest.raises(ConfigurationError, match="closed"):
        locks.lock("b").try_acquire()
    memory(locks.engine).clock.advance(11)
    with pytest.raises(LeaseLost):
        lease.check()
    memory(locks.engine).force_lose("a")


def test_a_jump_starts_no_thread_for_a_locker_without_leases(locks: quorumlock.Locker) -> None:
    before = set(threading.enumerate())
    memory(locks.engine).clock.advance(1)
    assert set(threading.enumerate()) <= before
    locks.close()
    memory(locks.engine).clock.advance(1)
    assert set(threading.enumerate()) <= before


def test_an_interrupt_leaves_nothing_behind(locks: quorumlock.Locker) -> None:
    """It strikes while the last node answers: the others have granted, and are told that it is over."""
    last = memory(locks.engine).servers[-1]
    locks.lock("a").acquire().release()
    original, struck = last.execute, 0

    def strike(command: list[bytes], client_id: int = 0) -> object:
        nonlocal struck
        reply = original(command, client_id)
        if not struck:
            struck = 1
            raise KeyboardInterrupt
        return reply

    last.execute = strike  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        locks.lock("a").try_acquire()
    assert struck
    assert not any(server.get("a") for server in memory(locks.engine).servers)
    with locks.lock("a", timeout=0) as lease:
        lease.extend()


def test_who_asks_in_the_middle_of_a_request_is_told_so_and_does_not_hang(locks: quorumlock.Locker) -> None:
    """As a signal handler or a destructor might, which run in the midst of anything."""
    server = memory(locks.engine).servers[0]
    original = server.clock
    nested: list[None] = []

    def tick() -> float:
        if not nested:
            nested.append(None)
            with pytest.raises(EngineError, match="not executed"):
                locks.lock("b").try_acquire()
        return original()

    server.clock = tick
    with locks.lock("a") as lease:
        lease.check()
    assert nested
    with locks.lock("b", timeout=0) as other:
        other.check()


def test_a_lease_that_was_dropped_is_not_told_anything(locks: quorumlock.Locker) -> None:
    told: list[str] = []
    locks.lock("a", keep=False, on_lost=lambda lease: told.append(lease.name)).acquire()
    gc.collect()
    memory(locks.engine).clock.advance(11)
    memory(locks.engine).force_lose("a")
    assert told == []
