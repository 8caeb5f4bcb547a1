"""Who holds a lock: whoever has the lease, be it another thread or task; never two, and nobody by accident."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import quorumlock
from quorumlock import AsyncLease, AsyncLocker, LeaseLost, Locker, LossReason
from quorumlock.lab.servers import Servers
from tests.live.tools import Renewals, get, lock_keys, pttl
from tests.support.waiting import eventually, eventually_async

from .driven import TTL, DrivenSide
from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
CROWD = 8
TURNS = 6


class Room:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.met = 0
        self.visits = 0

    def enter(self) -> None:
        self.inside += 1
        self.met = max(self.met, self.inside)
        self.visits += 1

    def leave(self) -> None:
        self.inside -= 1

    def verdict(self) -> None:
        assert self.visits == CROWD * TURNS
        assert self.met == 1, f"{self.met} were inside at a time"


def test_one_lock_object_keeps_threads_apart(servers: Servers, connect: Connect) -> None:
    locks = connect(servers.urls[:3], retry=quorumlock.Jitter(0.005))
    lock, room, start = locks.lock("a", ttl=1), Room(), threading.Barrier(CROWD)

    def visit() -> None:
        start.wait()
        for _ in range(TURNS):
            with lock as lease:
                room.enter()
                assert lock.try_acquire() is None, "held by this very thread, and had again"
                lease.check()
                room.leave()

    with ThreadPoolExecutor(CROWD) as pool:
        for visitor in [pool.submit(visit) for _ in range(CROWD)]:
            visitor.result()
    room.verdict()


def test_one_lock_object_keeps_tasks_of_one_thread_apart(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).close()

    async def main() -> None:
        urls = servers.urls[:3]
        async with quorumlock.connect_async(urls, max_ttl=1, retry=quorumlock.Jitter(0.005)) as locks:
            lock, room = locks.lock("a", ttl=1), Room()

            async def visit() -> None:
                for _ in range(TURNS):
                    async with lock as lease:
                        room.enter()
                        assert await lock.try_acquire() is None, "held by this very task, and had again"
                        lease.check()
                        room.leave()

            await asyncio.gather(*(visit() for _ in range(CROWD)))
            room.verdict()

    asyncio.run(main())


def test_a_thread_that_leaves_its_block_late_ends_its_own_lease_only(driven_threads: DrivenSide) -> None:
    """A's lease runs out inside its block; B enters through the same Lock object; then A leaves."""
    side = driven_threads
    with quorumlock.connect(side.url, fleet="side") as locks:
        lock = locks.lock("a", ttl=TTL, keep=False)
        b_is_in, a_is_out = threading.Event(), threading.Event()

        def second() -> None:
            with lock as mine:
                b_is_in.set()
                assert a_is_out.wait(20)
                mine.check()
                assert all(double.get("a") == mine.token.encode() for double in side.doubles)

        with ThreadPoolExecutor(1) as pool:
            try:
                with pytest.raises(LeaseLost), lock:  # noqa: PT012
                    other = pool.submit(second)
                    side.clock.advance(TTL + 1)
                    assert b_is_in.wait(20)
            finally:
                a_is_out.set()
            other.result()


def test_a_task_that_leaves_its_block_late_ends_its_own_lease_only(driven_tasks: DrivenSide) -> None:
    side = driven_tasks

    async def main() -> None:
        async with side.locker() as locks:
            lock = locks.lock("a", ttl=TTL, keep=False)
            a_is_in, b_is_in, a_is_out = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def second() -> None:
                async with lock as mine:
                    b_is_in.set()
                    await a_is_out.wait()
                    mine.check()

            async def first() -> None:
                async with lock:
                    a_is_in.set()
                    while not b_is_in.is_set():
                        try:
                            await b_is_in.wait()
                        except asyncio.CancelledError:
                            pass  # told that the lease is lost, and stays all the same

            one = asyncio.create_task(first())
            await a_is_in.wait()
            two = asyncio.create_task(second())
            side.clock.advance(TTL + 1)
            with pytest.raises(LeaseLost):
                await one
            a_is_out.set()
            await two

    asyncio.run(main())


def test_a_lease_lives_on_after_the_thread_that_acquired_it(driven_threads: DrivenSide) -> None:
    """It is renewed, extended by another thread, and released by two at once."""
    side = driven_threads
    with quorumlock.connect(side.url, fleet="side") as locks:
        with ThreadPoolExecutor(1) as pool:
            lease = pool.submit(locks.lock("a", ttl=TTL).acquire).result()
        for _ in range(4):
            asyncio.run(side.a_third_later(lease))  # its thread has ended
        with ThreadPoolExecutor(3) as pool:
            pool.submit(lease.extend).result()
            lease.check()
            for releasing in [pool.submit(lease.release) for _ in range(3)]:
                releasing.result()
        assert not side.lock_keys()


def test_a_lease_lives_on_after_the_task_that_acquired_it(driven_tasks: DrivenSide) -> None:
    """`wait_for`, `gather` and a TaskGroup run acquire in tasks that are over when the lease is there."""

    async def helped(locks: AsyncLocker) -> list[AsyncLease]:
        first = await asyncio.wait_for(locks.lock("a", ttl=TTL).acquire(), 20)
        second, third = await asyncio.gather(*(locks.lock(name, ttl=TTL).acquire() for name in "bc"))
        async with asyncio.TaskGroup() as group:
            fourth = group.create_task(locks.lock("d", ttl=TTL).acquire())
        async with asyncio.timeout(20):
            fifth = await locks.lock("e", ttl=TTL).acquire()
        return [first, second, third, fourth.result(), fifth]

    async def main() -> None:
        async with driven_tasks.locker() as locks:
            leases = await asyncio.create_task(helped(locks))
            for _ in range(4):
                await driven_tasks.a_third_later(*leases)
            for lease in leases:
                lease.check()
                await asyncio.create_task(lease.extend())
            await asyncio.gather(*(asyncio.create_task(lease.release()) for lease in leases))
            assert await eventually_async(lambda: not driven_tasks.lock_keys())

    asyncio.run(main())


def test_one_async_locker_serves_two_loops_at_a_time(servers: Servers, connect: Connect) -> None:
    """In two threads: each keeps its own leases, is refused the other's, and closes its own connections."""
    connect(servers.urls[:3]).close()
    locks = quorumlock.connect_async(servers.urls[:3], max_ttl=1, node_timeout=0.25)
    meet, renewals = threading.Barrier(2), Renewals(locks)

    async def live(mine: str, others: str) -> None:
        lease = await locks.lock(mine, ttl=1).acquire(timeout=20)
        await asyncio.to_thread(meet.wait, 8)
        while not renewals.outlive_a_ttl(mine):
            assert await locks.lock(others, ttl=1).try_acquire() is None
            lease.check()
            await asyncio.sleep(0.01)
        await asyncio.to_thread(meet.wait, 8)
        await lease.release()
        async with locks.lock(mine, ttl=1) as again:
            assert again.fence > lease.fence
        await asyncio.to_thread(meet.wait, 8)
        await locks.aclose()  # each loop has connections of its own to close

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(asyncio.run, live(*names)) for names in ("ab", "ba")]:
            done.result()
    assert eventually(lambda: not lock_keys(servers.servers[:3]))


def test_a_late_release_leaves_the_next_holder_alone(side: Side) -> None:
    """foreign-delete: A's lease is over, B has the lock, and only then A releases."""

    async def main() -> None:
        async with side.locker() as ours, side.locker() as theirs:
            old = await ours.lock("a", ttl=0.1, keep=False).acquire()
            new = await theirs.lock("a", ttl=1).acquire(timeout=20)
            while [get(node, "a") for node in side.nodes] != [new.token] * 3:
                await new.extend()
            await old.release()
            with pytest.raises(quorumlock.LeaseClosed):
                old.check()
            assert [get(node, "a") for node in side.nodes] == [new.token] * 3
            await new.release()

    asyncio.run(main())


def test_an_extension_leaves_the_next_holder_alone(side: Side) -> None:
    """Our nodes are emptied, B has the lock, and then A extends: it is told, and B's time is not touched."""

    async def main() -> None:
        async with side.locker(max_ttl=60) as ours, side.locker(max_ttl=60) as theirs:
            old = await ours.lock("a", ttl=60, keep=False).acquire()
            for node in side.nodes:
                node.command("DEL", "a")
            new = await theirs.lock("a", ttl=20, keep=False).acquire(timeout=20)
            with pytest.raises(LeaseLost) as lost:
                await old.extend()
            assert lost.value.reason is LossReason.TAKEN
            assert all(pttl(node, "a") <= 20_000 for node in side.nodes), "its time was changed"
            assert get(side.nodes[0], "a") == get(side.nodes[1], "a") == new.token
            new.check()
            await new.release()

    asyncio.run(main())


def test_lockers_of_one_process_are_strangers(servers: Servers, connect: Connect) -> None:
    """The same host, the same process, the same thread: still two contenders."""
    lockers: list[Locker] = [connect(servers.urls[:3]) for _ in range(3)]
    held = [locks.lock("a", ttl=1).try_acquire() for locks in lockers]
    assert [lease is not None for lease in held] == [True, False, False]
    assert held[0] is not None
    held[0].release()
