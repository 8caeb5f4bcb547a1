"""A keeper that nothing disturbs: cancellations, loggers, task factories; and leases after their Locker closed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import quorumlock
from quorumlock import EngineError, LeaseClosed, LeaseLost, LossReason
from quorumlock.core.effects import Round
from quorumlock.lab.servers import Servers
from quorumlock.process import Process
from tests.support.waiting import eventually, eventually_async, forever

from .tools import Renewals

TTL = 10.0
STEP = 0.4 * TTL
"""After so long a lease is due; four such steps are more than its ttl."""


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://") as locks:
        yield locks


async def outlives_its_ttl(locks: quorumlock.AsyncLocker, renewals: Renewals, lease: quorumlock.AsyncLease) -> bool:
    """Time passes, and the lease is renewed each time."""
    for times in range(1, 5):
        locks.engine.clock.advance(STEP)
        if not await eventually_async(lambda times=times: renewals.of(lease.name) >= times):  # type: ignore[misc]
            return False
    return lease.held


def test_a_task_of_the_keeper_that_is_cancelled_before_it_began() -> None:
    """As a program does that cancels all tasks when it tidies up."""

    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            renewals = Renewals(locks)
            lease = await locks.lock("a", ttl=TTL).acquire()
            cancelled = 0

            def cancel_new_tasks(
                loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any]
            ) -> asyncio.Task[Any]:
                nonlocal cancelled
                task = asyncio.Task(coro, loop=loop)
                if cancelled < 2:
                    cancelled += 1
                    task.cancel()
                return task

            asyncio.get_running_loop().set_task_factory(cancel_new_tasks)  # type: ignore[arg-type]
            assert await outlives_its_ttl(locks, renewals, lease)
            assert cancelled == 2
            await lease.release()

    asyncio.run(main())


def test_a_task_factory_that_refuses_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            renewals = Renewals(locks)
            lease = await locks.lock("a", ttl=TTL).acquire()
            refused = 0

            def refuse(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
                nonlocal refused
                if refused < 2:
                    refused += 1
                    coro.close()
                    raise TypeError("not in the mood")
                return asyncio.Task(coro, loop=loop)

            asyncio.get_running_loop().set_task_factory(refuse)  # type: ignore[arg-type]
            assert await outlives_its_ttl(locks, renewals, lease)
            assert refused == 2
            await lease.release()

    asyncio.run(main())
    assert "not in the mood" in caplog.text


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python before 3.12 has no eager tasks")
def test_tasks_that_begin_at_once() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with quorumlock.connect_async("memory://") as locks:
            await (await locks.lock("short", ttl=TTL).acquire()).release()
            renewals = Renewals(locks)
            lease = await locks.lock("a", ttl=TTL).acquire()
            assert await outlives_its_ttl(locks, renewals, lease)
            await lease.release()

    asyncio.run(main())


def test_a_complaint_that_cannot_be_written_does_not_end_renewal(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error was closed, or the disk of the log is full."""
    lease = locks.lock("a", ttl=TTL).acquire()
    perform = locks.engine.perform
    failures: list[Round] = []

    def fail_once(round_: Round) -> None:
        if not failures:
            failures.append(round_)
            raise EngineError("a disk")
        perform(round_)

    def mute(*_: object, **__: object) -> None:
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(logging.getLogger("quorumlock"), "handle", mute)
    monkeypatch.setattr(locks.engine, "perform", fail_once)
    renewals = Renewals(locks)
    for times in range(1, 5):
        locks.engine.clock.advance(STEP)
        assert eventually(lambda times=times: renewals.of("a") >= times)  # type: ignore[misc]
    assert failures
    lease.check()
    lease.release()


def test_the_end_of_a_lease_is_told_although_its_locker_was_closed() -> None:
    told: list[str] = []
    locks = quorumlock.connect("memory://")
    lease = locks.lock("a", ttl=TTL, on_lost=lambda lease: told.append(lease.name)).acquire()
    locks.close()
    lease.check()
    locks.engine.clock.advance(TTL)
    assert lease.lost.wait(10)
    assert eventually(lambda: told == ["a"])
    assert eventually(lambda: "quorumlock-keeper" not in {thread.name for thread in threading.enumerate()})
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert lost.value.reason is LossReason.EXPIRED


def test_nothing_is_asked_any_more_when_close_has_returned(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of the keeper's that is under way would join a node that was emptied after close()."""
    perform = locks.engine.perform
    begun, under_way = threading.Event(), threading.Semaphore(0)

    def slowly(round_: Round) -> None:
        begun.set()
        threading.Event().wait(0.3)
        perform(round_)
        under_way.release()

    lease = locks.lock("a", ttl=TTL).acquire()
    monkeypatch.setattr(locks.engine, "perform", slowly)
    locks.engine.clock.advance(STEP)
    assert begun.wait(10)
    locks.close()
    assert under_way.acquire(blocking=False), "close() has returned, and a renewal goes on"
    locks.engine.clock.advance(TTL)
    assert lease.lost.wait(10)


def test_the_body_is_cancelled_although_its_locker_was_closed() -> None:
    async def main() -> None:
        locks = quorumlock.connect_async("memory://")
        async with await locks.lock("a", ttl=TTL).acquire():
            await locks.aclose()
            locks.engine.clock.advance(TTL)
            await forever()

    with pytest.raises(LeaseLost):
        asyncio.run(main())


def test_a_block_is_not_entered_with_a_lease_that_is_over(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a").acquire()
    locks.engine.force_lose("a")
    with pytest.raises(LeaseLost), lease:
        pytest.fail("the body ran with a lost lease")
    lease = locks.lock("a").acquire()
    lease.release()
    with pytest.raises(LeaseClosed), lease:
        pytest.fail("the body ran with a released lease")


def test_a_block_is_not_entered_with_a_lease_that_is_over_on_asyncio() -> None:
    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            lease = await locks.lock("a").acquire()
            locks.engine.force_lose("a")
            with pytest.raises(LeaseLost):
                async with lease:
                    pytest.fail("the body ran with a lost lease")
            lease = await locks.lock("a").acquire()
            await lease.release()
            with pytest.raises(LeaseClosed):
                async with lease:
                    pytest.fail("the body ran with a released lease")

    asyncio.run(main())


def in_another_thread(call: Callable[[], object]) -> list[BaseException]:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return raised


def test_a_block_may_be_left_in_another_thread(locks: quorumlock.Locker) -> None:
    """As frameworks do that run both halves of a generator in a pool."""
    lock = locks.lock("a")
    lock.__enter__()
    assert in_another_thread(lambda: lock.__exit__(None, None, None)) == []
    assert not lock.locked()


def test_whose_block_it_is_must_be_clear() -> None:
    with quorumlock.connect("memory://") as locks:
        lock = locks.lock("a")
        with pytest.raises(RuntimeError, match="left where it was not entered"):
            lock.__exit__(None, None, None)


def test_a_finaliser_may_release_while_a_lease_is_being_changed(locks: quorumlock.Locker) -> None:
    """The collector, or a signal handler, runs it in the middle of another lease's few guarded lines."""
    lease = locks.lock("a").acquire()

    def finalise() -> None:
        with Process.mutex:
            lease.release()

    assert in_another_thread(finalise) == []
    assert not locks.lock("a").locked()


@pytest.mark.live
@pytest.mark.real_time
def test_what_follows_a_round_that_timed_out_travels_behind_it(
    make_servers: Callable[..., Servers], connect: Callable[..., quorumlock.Locker]
) -> None:
    """Over another connection it might be executed first: a release before the extension that it follows."""
    servers = make_servers(3)
    locks = connect(servers, max_ttl=20.0, node_timeout=0.05)
    lease = locks.lock("a", ttl=10, keep=False).acquire()
    lease._grant.route.taken = None  # all nodes have answered the acquire, or will not matter here
    servers[1].pause()
    servers[2].pause()
    thread = threading.Thread(target=lease.extend, args=[12.0])
    thread.start()
    try:
        assert eventually(lambda: lease._grant.extensions > 1), "the first round has timed out"
        assert lease._grant.route.taken is not None
    finally:
        servers[1].resume()
        servers[2].resume()
        thread.join(10)
    lease.release()


def test_an_async_lease_that_is_lost_inside_its_own_task_ends_the_block() -> None:
    async def hold(locks: quorumlock.AsyncLocker) -> None:
        async with locks.lock("a"):
            locks.engine.force_lose("a")
            await forever()

    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            with pytest.raises(LeaseLost):
                await hold(locks)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    asyncio.run(main())
