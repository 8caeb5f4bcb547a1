"""The loss of a lease: told by every means there is, in time, once, and to nobody who was not concerned."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import AsyncLease, AsyncLocker, LeaseLost, LossReason, events
from quorumlock.lab.servers import Server, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, eventually_async, forever

from . import programs
from .driven import TTL, ClockAhead, DrivenSide
from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]


def reason_of(lease: Any) -> LossReason:
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    return lost.value.reason


def test_a_loss_is_told_by_all_means_and_once(driven: DrivenSide) -> None:
    """Found by the keeper alone: nobody asks the lease."""

    async def main() -> None:
        async with driven.locker() as locks:
            told: list[events.Event] = []
            called: list[str] = []
            locks.subscribe(told.append)
            taken, broken = [
                await locks.lock(name, ttl=TTL, on_lost=lambda lease: called.append(lease.name)).acquire()
                for name in ("taken", "broken")
            ]
            other = await locks.lock("other", ttl=TTL).acquire()
            flags = [taken.lost, broken.lost]
            driven.steal("taken")
            async with driven.locker() as operator:
                await operator.break_("broken")
            await driven.a_third_later(other)
            assert await eventually_async(lambda: all(flag.is_set() for flag in flags))
            assert await eventually_async(lambda: sorted(called) == ["broken", "taken"])
            assert (reason_of(taken), reason_of(broken)) == (LossReason.TAKEN, LossReason.BROKEN)
            for lease in (taken, broken):
                assert not lease.held
                assert lease.remaining() == 0
                with pytest.raises(LeaseLost):
                    await lease.extend()
                await lease.release()
            await driven.a_third_later(other)
            await driven.a_third_later(other)

            def lost() -> list[Any]:
                return [(event.name, event.reason) for event in told if isinstance(event, events.Lost)]

            both = [("broken", LossReason.BROKEN), ("taken", LossReason.TAKEN)]
            assert await eventually_async(lambda: sorted(lost(), key=str) == both)
            assert sorted(called) == ["broken", "taken"], "told more than once"
            other.check()
            await other.release()
            assert not driven.lock_keys() - {"taken"}

    asyncio.run(main())


def test_a_callback_may_block_or_fail(driven: DrivenSide, caplog: pytest.LogCaptureFixture) -> None:
    """Others are renewed meanwhile. (In an event loop nothing may block: there it only fails.)"""

    async def main() -> None:
        ended = threading.Event()

        def on_lost(lease: object) -> None:
            if driven.threads:
                ended.wait(30)
            raise ZeroDivisionError("a bug of the user's")

        async with driven.locker() as locks:
            doomed = await locks.lock("doomed", ttl=TTL, on_lost=on_lost).acquire()
            other = await locks.lock("other", ttl=TTL).acquire()
            lost = doomed.lost
            driven.steal("doomed")
            driven.clock.advance(TTL / 3)
            assert await eventually_async(lost.is_set)
            try:
                for _ in range(4):
                    await driven.a_third_later(other)
                other.check()
                await other.release()
            finally:
                ended.set()
            assert await eventually_async(lambda: "on_lost of 'doomed' failed" in caplog.text)

    asyncio.run(main())


def test_a_callback_may_end_everything(driven: DrivenSide) -> None:
    """It releases the lease, and closes the Locker whose keeper has told it: nothing waits for itself."""

    async def main() -> None:
        closed = threading.Event()

        async with driven.locker() as locks:

            async def close(lease: AsyncLease) -> None:
                await lease.release()
                await locks.aclose()
                closed.set()

            def on_lost(lease: Any) -> object:
                if not driven.threads:
                    return close(lease)
                lease.release()
                locks.inner.close()  # type: ignore[attr-defined]
                closed.set()
                return None

            lease = await locks.lock("doomed", ttl=TTL, on_lost=on_lost).acquire()
            driven.steal("doomed")
            driven.clock.advance(TTL / 3)
            assert await eventually_async(closed.is_set)
            assert not lease.held

    asyncio.run(main())


async def body(locks: AsyncLocker, entered: asyncio.Event, seen: list[BaseException]) -> None:
    async with locks.lock("a", ttl=TTL):
        entered.set()
        try:
            await forever()
        except asyncio.CancelledError as error:
            seen.append(error)
            raise


def test_the_body_of_a_block_is_cancelled_and_the_block_raises(driven_tasks: DrivenSide) -> None:
    async def main() -> None:
        async with driven_tasks.locker() as locks:
            entered, seen = asyncio.Event(), list[BaseException]()
            task = asyncio.create_task(body(locks, entered, seen))
            await entered.wait()
            driven_tasks.steal("a")
            driven_tasks.clock.advance(TTL / 3)
            assert await eventually_async(task.done)
            with pytest.raises(LeaseLost) as lost:
                await task
            assert lost.value.reason is LossReason.TAKEN
            assert len(seen) == 1
            assert task.cancelling() == 0, "the task goes on as if it had never been cancelled"

    asyncio.run(main())


def test_the_callers_own_cancellation_is_not_mistaken_for_a_loss(driven_tasks: DrivenSide) -> None:
    """Cancelled by the caller, by a timeout around it, and by both loss and caller at once."""
    side = driven_tasks

    async def main() -> None:
        async with side.locker() as locks:
            for loss_too in (False, True):
                entered, seen = asyncio.Event(), list[BaseException]()
                task = asyncio.create_task(body(locks, entered, seen))
                await entered.wait()
                if loss_too:
                    side.steal("a")
                    side.clock.advance(TTL / 3)
                    assert await eventually_async(lambda seen=seen: seen)  # type: ignore[misc]
                task.cancel()
                with pytest.raises(asyncio.CancelledError if not loss_too else (asyncio.CancelledError, LeaseLost)):
                    await task
                if not loss_too:
                    assert task.cancelled()
                for double in side.doubles:
                    double.delete("a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await body(locks, asyncio.Event(), [])
            with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012
                async with asyncio.TaskGroup() as group:
                    group.create_task(body(locks, entered := asyncio.Event(), []))
                    await entered.wait()
                    side.steal("a")
                    side.clock.advance(TTL / 3)
            assert failed.group_contains(LeaseLost)

    asyncio.run(main())


def test_a_cancellation_that_comes_with_the_loss_goes_on(driven_tasks: DrivenSide) -> None:
    """Both before the task runs again: LeaseLost must not swallow what the caller asked for."""

    async def main() -> None:
        async with driven_tasks.locker() as locks:
            held: list[AsyncLease] = []

            async def block() -> None:
                async with locks.lock("a", ttl=TTL) as lease:
                    held.append(lease)
                    await forever()

            task = asyncio.create_task(block())
            assert await eventually_async(lambda: held)
            task.cancel()
            held[0]._lose(LossReason.BROKEN)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def check_until_late(side: DrivenSide, *leases: Any) -> None:
    """Time passes in small steps, and nobody renews: check() says yes before the deadline, and never after it."""
    said_yes = 0
    for _ in range(70):
        for lease in leases:
            left = lease.remaining()
            try:
                lease.check()
            except LeaseLost:
                assert left <= TTL / 50
                assert not lease.held
            else:
                assert left > 0, "past the deadline"
                said_yes += 1
        side.slip(TTL / 50)
    assert said_yes >= 40 * len(leases)
    assert {reason_of(lease) for lease in leases} == {LossReason.EXPIRED}


def test_check_never_says_yes_past_the_deadline_in_a_blocked_loop(driven_tasks: DrivenSide) -> None:
    async def main() -> None:
        async with driven_tasks.locker() as locks:
            lease = await locks.lock("a", ttl=TTL).acquire()
            check_until_late(driven_tasks, lease)  # nothing is awaited in it, so nothing is renewed
            assert await eventually_async(lease.lost.is_set)

    asyncio.run(main())


def test_check_never_says_yes_past_the_deadline_while_the_keeper_starves(driven_threads: DrivenSide) -> None:
    """Its thread is held up before it can ask anybody."""
    side = driven_threads
    with quorumlock.connect(side.url, fleet="side") as locks:
        leases = [locks.lock(name, ttl=TTL).acquire() for name in "ab"]
        with locks._keeper._asking:
            check_until_late(side, *leases)
        for lease in leases:
            lease.release()


STOPPED = """
locks = quorumlock.connect(urls, max_ttl=1)
lease = locks.lock("a", ttl=0.5).acquire(timeout=20)
print("held", flush=True)
with locks._keeper._asking:  # the keeper cannot find out first
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        lease.check()
        print("still held", flush=True)
    except quorumlock.LeaseLost as lost:
        print("lost", lease.held, lease.remaining(), flush=True)
lease.release()
"""


@pytest.mark.real_time
def test_check_never_says_yes_after_a_stop(servers: Servers, connect: Connect) -> None:
    """pause-while-holding: stopped for longer than the ttl, B works, A wakes and asks first of all."""
    locks = connect(servers.urls[:3])
    with programs.start(STOPPED, *servers.urls[:3]) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        mine = locks.lock("a", ttl=1).acquire(timeout=20)
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.stdout.readline() == "lost False 0.0\n"
        assert holder.wait(20) == 0
    mine.check()
    mine.extend()
    mine.release()


def test_renewal_ends_with_the_thread_that_is_inside_a_block(driven_threads: DrivenSide) -> None:
    """keeper-outlives-owner: the thread ends without leaving its block."""
    side = driven_threads
    with quorumlock.connect(side.url, fleet="side") as locks:
        lock = locks.lock("a", ttl=TTL)
        leases: list[quorumlock.Lease] = []
        owner = threading.Thread(target=lambda: leases.append(lock.__enter__()))
        owner.start()
        owner.join()
        (lease,) = leases
        side.clock.advance(TTL / 3)
        assert eventually(lambda: lease._fate is LossReason.OWNER_GONE), "it is renewed"
        side.clock.advance(TTL)
        assert eventually(lease.lost.is_set)
        assert reason_of(lease) is LossReason.OWNER_GONE
        assert not side.lock_keys()


def test_renewal_ends_with_the_task_that_is_inside_a_block(driven_tasks: DrivenSide) -> None:
    async def main() -> None:
        async with driven_tasks.locker() as locks:
            lock = locks.lock("a", ttl=TTL)
            lease = await asyncio.create_task(lock.__aenter__())
            lost = lease.lost
            driven_tasks.clock.advance(TTL / 3)
            assert await eventually_async(lambda: lease._fate is LossReason.OWNER_GONE), "it is renewed"
            driven_tasks.clock.advance(TTL)
            assert await eventually_async(lost.is_set)
            assert reason_of(lease) is LossReason.OWNER_GONE
            assert not driven_tasks.lock_keys()

    asyncio.run(main())


@pytest.mark.real_time
def test_no_majority_until_the_end_is_told_as_unreachable(side: Side, put_proxy: Put, ahead: ClockAhead) -> None:
    """Before the lock can be somebody else's."""

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies], max_ttl=20) as locks:
            told: list[events.Event] = []
            locks.subscribe(told.append)
            lease = await locks.lock("a", ttl=20).acquire()
            await lease.extend()
            lost = lease.lost
            for proxy in proxies[:2]:
                proxy.refusing = True
                proxy.go_silent()
            ahead.advance(7, locks)
            assert await eventually_async(lambda: any(isinstance(event, events.RenewalFailed) for event in told))
            lease.check()
            ahead.advance(13, locks)
            assert await eventually_async(lost.is_set)
            assert reason_of(lease) is LossReason.UNREACHABLE
            for proxy in proxies:
                proxy.let_go()

    asyncio.run(main())
