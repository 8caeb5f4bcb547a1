"""The loss of a lease: told by every means there is, in time, once, and to nobody who was not concerned."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import AsyncLease, AsyncLocker, LeaseLost, LossReason, events
from quorumlock.lab.servers import Server, Servers
from tests.live.tools import lock_keys
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from . import programs
from .sides import Side
from .test_keeper import TTL, comes

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]


async def steal(side: Side, name: str) -> None:
    """Somebody deletes the lock on all nodes, and somebody else takes it."""
    for node in side.nodes:
        node.command("SET", name, "a thief", "PX", "900")


def reason_of(lease: Any) -> LossReason:
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    return lost.value.reason


def test_a_loss_is_told_by_all_means_and_once(side: Side) -> None:
    """Found by the keeper alone: nobody asks the lease."""

    async def main() -> None:
        async with side.locker() as locks:
            told: list[events.Event] = []
            called: list[str] = []
            locks.subscribe(told.append)
            taken, broken = [
                await locks.lock(name, ttl=TTL, on_lost=lambda lease: called.append(lease.name)).acquire()
                for name in ("taken", "broken")
            ]
            other = await locks.lock("other", ttl=TTL).acquire()
            flags = [taken.lost, broken.lost]
            await steal(side, "taken")
            async with side.locker() as operator:
                await operator.break_("broken")
            assert await comes(lambda: all(flag.is_set() for flag in flags), TTL)
            assert await comes(lambda: sorted(called) == ["broken", "taken"])
            assert (reason_of(taken), reason_of(broken)) == (LossReason.TAKEN, LossReason.BROKEN)
            for lease in (taken, broken):
                assert not lease.held
                assert lease.remaining() == 0
                with pytest.raises(LeaseLost):
                    await lease.extend()
                await lease.release()
            await asyncio.sleep(TTL / 2)
            lost = [(event.name, event.reason) for event in told if isinstance(event, events.Lost)]
            assert sorted(lost, key=str) == sorted(
                [("taken", LossReason.TAKEN), ("broken", LossReason.BROKEN)], key=str
            )
            assert sorted(called) == ["broken", "taken"], "told more than once"
            other.check()
            await other.release()
            assert not lock_keys(side.nodes) - {"taken"}

    asyncio.run(main())


def test_a_callback_may_block_or_fail(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    """Others are renewed meanwhile. (In an event loop nothing may block: there it only fails.)"""

    async def main() -> None:
        ended = threading.Event()

        def on_lost(lease: object) -> None:
            if side.threads:
                ended.wait(2)
            raise ZeroDivisionError("a bug of the user's")

        async with side.locker() as locks:
            doomed = await locks.lock("doomed", ttl=TTL, on_lost=on_lost).acquire()
            other = await locks.lock("other", ttl=TTL).acquire()
            lost = doomed.lost
            await steal(side, "doomed")
            assert await comes(lost.is_set, TTL)
            await asyncio.sleep(1.2 * TTL)
            other.check()
            await other.release()
            ended.set()
            assert await comes(lambda: "on_lost of 'doomed' failed" in caplog.text)

    asyncio.run(main())


def test_a_callback_may_end_everything(side: Side) -> None:
    """It releases the lease, and closes the Locker whose keeper has told it: nothing waits for itself."""

    async def main() -> None:
        closed = threading.Event()

        async with side.locker() as locks:

            async def close(lease: AsyncLease) -> None:
                await lease.release()
                await locks.aclose()
                closed.set()

            def on_lost(lease: Any) -> object:
                if not side.threads:
                    return close(lease)
                lease.release()
                locks.inner.close()  # type: ignore[attr-defined]
                closed.set()
                return None

            lease = await locks.lock("doomed", ttl=TTL, on_lost=on_lost).acquire()
            await steal(side, "doomed")
            assert await comes(closed.is_set, TTL + 1)
            assert not lease.held

    asyncio.run(main())


async def body(locks: AsyncLocker, entered: asyncio.Event, seen: list[BaseException]) -> None:
    async with locks.lock("a", ttl=TTL):
        entered.set()
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError as error:
            seen.append(error)
            raise


@pytest.fixture
def aside(servers: Servers) -> Side:
    return Side("asyncio", servers.servers[:3])


def test_the_body_of_a_block_is_cancelled_and_the_block_raises(aside: Side) -> None:
    async def main() -> None:
        async with aside.locker() as locks:
            entered, seen = asyncio.Event(), list[BaseException]()
            task = asyncio.create_task(body(locks, entered, seen))
            await entered.wait()
            await steal(aside, "a")
            with pytest.raises(LeaseLost) as lost:
                await asyncio.wait_for(asyncio.shield(task), 2)
            assert lost.value.reason is LossReason.TAKEN
            assert len(seen) == 1
            assert task.cancelling() == 0, "the task goes on as if it had never been cancelled"

    asyncio.run(main())


def test_the_callers_own_cancellation_is_not_mistaken_for_a_loss(aside: Side) -> None:
    """Cancelled by the caller, by a timeout around it, and by both loss and caller at once."""

    async def main() -> None:
        async with aside.locker() as locks:
            for loss_too in (False, True):
                entered, seen = asyncio.Event(), list[BaseException]()
                task = asyncio.create_task(body(locks, entered, seen))
                await entered.wait()
                if loss_too:
                    await steal(aside, "a")
                    assert await comes(lambda seen=seen: seen, 2)  # type: ignore[misc]
                task.cancel()
                with pytest.raises(asyncio.CancelledError if not loss_too else (asyncio.CancelledError, LeaseLost)):
                    await task
                if not loss_too:
                    assert task.cancelled()
                for node in aside.nodes:
                    node.command("DEL", "a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await body(locks, asyncio.Event(), [])
            with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012
                async with asyncio.TaskGroup() as group:
                    group.create_task(body(locks, entered := asyncio.Event(), []))
                    await entered.wait()
                    await steal(aside, "a")
            assert failed.group_contains(LeaseLost)

    asyncio.run(main())


def test_a_cancellation_that_comes_with_the_loss_goes_on(aside: Side) -> None:
    """Both before the task runs again: LeaseLost must not swallow what the caller asked for."""

    async def main() -> None:
        async with aside.locker() as locks:
            held: list[AsyncLease] = []

            async def block() -> None:
                async with locks.lock("a", ttl=TTL) as lease:
                    held.append(lease)
                    await asyncio.sleep(5)

            task = asyncio.create_task(block())
            assert await comes(lambda: held)
            task.cancel()
            held[0]._lose(LossReason.BROKEN)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_check_never_says_yes_past_the_deadline_in_a_blocked_loop(aside: Side) -> None:
    async def main() -> None:
        async with aside.locker() as locks:
            lease = await locks.lock("a", ttl=0.3).acquire()
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline + 0.05:  # nothing is renewed: the loop does not run
                late = time.monotonic() >= deadline
                try:
                    lease.check()
                except LeaseLost:
                    break
                assert not late, "past the deadline"
                time.sleep(0.002)  # noqa: ASYNC251 - that is what is tested
            assert not lease.held
            assert reason_of(lease) is LossReason.EXPIRED
            assert await comes(lease.lost.is_set, 1)

    asyncio.run(main())


def test_check_never_says_yes_past_the_deadline_while_the_keeper_starves(
    servers: Servers, connect: Connect
) -> None:
    """Its thread is held up before it can ask anybody."""
    locks = connect(servers.urls[:3])
    lease = locks.lock("a", ttl=0.4).acquire()
    other = locks.lock("b", ttl=0.4).acquire()
    with locks._keeper._asking:
        until = time.monotonic() + max(lease.remaining(), other.remaining())
        while time.monotonic() < until + 0.05:
            for one in (lease, other):
                left = one.remaining()
                try:
                    one.check()
                except LeaseLost:
                    assert not one.held
                else:
                    assert left > 0, "past the deadline"
            time.sleep(0.005)
        assert reason_of(lease) is LossReason.EXPIRED
        assert reason_of(other) is LossReason.EXPIRED
    lease.release()
    other.release()


STOPPED = """
locks = quorumlock.connect(urls, max_ttl=1)
lease = locks.lock("a", ttl=0.5).acquire(timeout=5)
print("held", flush=True)
sys.setswitchinterval(5)  # the keeper does not come first
os.kill(os.getpid(), signal.SIGSTOP)
try:
    lease.check()
    print("still held", flush=True)
except quorumlock.LeaseLost as lost:
    print("lost", lease.held, lease.remaining(), flush=True)
lease.release()
"""


def test_check_never_says_yes_after_a_stop(servers: Servers, connect: Connect) -> None:
    """pause-while-holding: stopped for longer than the ttl, B works, A wakes and asks first of all."""
    locks = connect(servers.urls[:3])
    with programs.start(STOPPED, *servers.urls[:3]) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        mine = locks.lock("a", ttl=1).acquire(timeout=5)
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.stdout.readline() == "lost False 0.0\n"
        assert holder.wait(5) == 0
    mine.check()
    mine.extend()
    mine.release()


def test_renewal_ends_with_the_thread_that_is_inside_a_block(servers: Servers, connect: Connect) -> None:
    """keeper-outlives-owner: the thread ends without leaving its block."""
    locks = connect(servers.urls[:3])
    lock = locks.lock("a", ttl=TTL)
    leases: list[quorumlock.Lease] = []
    owner = threading.Thread(target=lambda: leases.append(lock.__enter__()))
    owner.start()
    owner.join()
    (lease,) = leases
    assert lease.lost.wait(TTL + 1)
    assert reason_of(lease) is LossReason.OWNER_GONE
    assert eventually(lambda: not lock_keys(servers.servers[:3]), 1)


def test_renewal_ends_with_the_task_that_is_inside_a_block(aside: Side) -> None:
    async def main() -> None:
        async with aside.locker() as locks:
            lock = locks.lock("a", ttl=TTL)
            lease = await asyncio.create_task(lock.__aenter__())
            lost = lease.lost
            assert await comes(lost.is_set, TTL + 1)
            assert reason_of(lease) is LossReason.OWNER_GONE
            assert await comes(lambda: not lock_keys(aside.nodes), 1)

    asyncio.run(main())


def test_no_majority_until_the_end_is_told_as_unreachable(side: Side, put_proxy: Put) -> None:
    """Before the lock can be somebody else's."""

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies], node_timeout=0.05) as locks:
            lease = await locks.lock("a", ttl=TTL).acquire()
            await lease.extend()
            lost = lease.lost
            for proxy in proxies[:2]:
                proxy.refusing = True
                proxy.go_silent()
            assert await comes(lost.is_set, TTL + 0.5)
            assert reason_of(lease) in (LossReason.UNREACHABLE, LossReason.EXPIRED)
            for proxy in proxies:
                proxy.let_go()

    asyncio.run(main())
