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
from tests.support.waiting import eventually

from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

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


def test_a_thread_that_leaves_its_block_late_ends_its_own_lease_only(servers: Servers, connect: Connect) -> None:
    """A's lease runs out inside its block; B enters through the same Lock object; then A leaves."""
    locks = connect(servers.urls[:3])
    lock = locks.lock("a", ttl=0.15, keep=False)
    b_is_in, a_is_out = threading.Event(), threading.Event()

    def second() -> None:
        with lock as mine:
            mine.extend(1)
            b_is_in.set()
            assert a_is_out.wait(3)
            mine.check()
            assert all(get(server, "a") in (mine.token, None) for server in servers.servers[:3])

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(LeaseLost), lock:  # noqa: PT012
            other = pool.submit(second)
            assert b_is_in.wait(3)
        a_is_out.set()
        other.result()


def test_a_task_that_leaves_its_block_late_ends_its_own_lease_only(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).close()

    async def main() -> None:
        async with quorumlock.connect_async(servers.urls[:3], max_ttl=1) as locks:
            lock = locks.lock("a", ttl=0.15, keep=False)
            b_is_in, a_is_out = asyncio.Event(), asyncio.Event()

            async def second() -> None:
                async with lock as mine:
                    await mine.extend(1)
                    b_is_in.set()
                    await a_is_out.wait()
                    mine.check()

            async def first() -> None:
                async with lock:
                    while not b_is_in.is_set():
                        try:
                            await b_is_in.wait()
                        except asyncio.CancelledError:
                            pass  # told that the lease is lost, and stays all the same

            one = asyncio.create_task(first())
            await asyncio.sleep(0.02)
            two = asyncio.create_task(second())
            with pytest.raises(LeaseLost):
                await one
            a_is_out.set()
            await two

    asyncio.run(main())


def test_a_lease_lives_on_after_the_thread_that_acquired_it(servers: Servers, connect: Connect) -> None:
    """It is renewed, extended by another thread, and released by two at once."""
    nodes = servers.servers[:3]
    locks = connect(servers.urls[:3])
    with ThreadPoolExecutor(1) as pool:
        lease = pool.submit(locks.lock("a", ttl=1).acquire).result()
    assert not lease.lost.wait(1.4), "its thread has ended, and so has renewal"
    with ThreadPoolExecutor(3) as pool:
        pool.submit(lease.extend).result()
        lease.check()
        for releasing in [pool.submit(lease.release) for _ in range(3)]:
            releasing.result()
    assert eventually(lambda: not lock_keys(nodes), 0.3)


def test_a_lease_lives_on_after_the_task_that_acquired_it(servers: Servers, connect: Connect) -> None:
    """`wait_for`, `gather` and a TaskGroup run acquire in tasks that are over when the lease is there."""
    connect(servers.urls[:3]).close()

    async def helped(locks: AsyncLocker) -> list[AsyncLease]:
        first = await asyncio.wait_for(locks.lock("a", ttl=1).acquire(), 2)
        second, third = await asyncio.gather(*(locks.lock(name, ttl=1).acquire() for name in "bc"))
        async with asyncio.TaskGroup() as group:
            fourth = group.create_task(locks.lock("d", ttl=1).acquire())
        async with asyncio.timeout(2):
            fifth = await locks.lock("e", ttl=1).acquire()
        return [first, second, third, fourth.result(), fifth]

    async def main() -> None:
        async with quorumlock.connect_async(servers.urls[:3], max_ttl=1) as locks:
            renewals = Renewals(locks)
            leases = await asyncio.create_task(helped(locks))
            assert await asyncio.to_thread(eventually, lambda: renewals.outlive_a_ttl(*"abcde"), 10)
            for lease in leases:
                lease.check()
                await asyncio.create_task(lease.extend())
            await asyncio.gather(*(asyncio.create_task(lease.release()) for lease in leases))
            assert await asyncio.to_thread(eventually, lambda: not lock_keys(servers.servers[:3]), 0.3)

    asyncio.run(main())


def test_one_async_locker_serves_two_loops_at_a_time(servers: Servers, connect: Connect) -> None:
    """In two threads: each keeps its own leases, is refused the other's, and closes its own connections."""
    connect(servers.urls[:3]).close()
    locks = quorumlock.connect_async(servers.urls[:3], max_ttl=1, node_timeout=0.25)
    meet, renewals = threading.Barrier(2), Renewals(locks)

    async def live(mine: str, others: str) -> None:
        lease = await locks.lock(mine, ttl=1).acquire(timeout=2)
        await asyncio.to_thread(meet.wait, 5)
        while not renewals.outlive_a_ttl(mine):
            assert await locks.lock(others, ttl=1).try_acquire() is None
            lease.check()
        await asyncio.to_thread(meet.wait, 5)
        await lease.release()
        async with locks.lock(mine, ttl=1) as again:
            assert again.fence > lease.fence
        await asyncio.to_thread(meet.wait, 5)
        await locks.aclose()  # each loop has connections of its own to close

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(asyncio.run, live(*names)) for names in ("ab", "ba")]:
            done.result()
    assert eventually(lambda: not lock_keys(servers.servers[:3]), 0.5)


def test_a_late_release_leaves_the_next_holder_alone(side: Side) -> None:
    """foreign-delete: A's lease is over, B has the lock, and only then A releases."""

    async def main() -> None:
        async with side.locker() as ours, side.locker() as theirs:
            old = await ours.lock("a", ttl=0.1, keep=False).acquire()
            new = await theirs.lock("a", ttl=1).acquire(timeout=3)
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
        async with side.locker() as ours, side.locker() as theirs:
            old = await ours.lock("a", ttl=1, keep=False).acquire()
            for node in side.nodes:
                node.command("DEL", "a")
            new = await theirs.lock("a", ttl=0.5, keep=False).acquire(timeout=3)
            with pytest.raises(LeaseLost) as lost:
                await old.extend()
            assert lost.value.reason is LossReason.TAKEN
            assert all(pttl(node, "a") <= 500 for node in side.nodes), "its time was changed"
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
