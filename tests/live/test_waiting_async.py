"""Waiting without polling, for asyncio: who is told, and what becomes of those who are cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import quorumlock
from quorumlock import AsyncLease, AsyncLocker
from quorumlock.lab.servers import Server, Servers
from tests.support.waiting import eventually, eventually_async

from .queues import CALM, SOON, all_queued, calls, forget_calls, no_tickets, queued
from .tools import client_ids

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.5)]

LONG = bool(os.environ.get("QUORUMLOCK_LONG"))

Connect = Callable[..., quorumlock.Locker]


@asynccontextmanager
async def lockers(urls: list[str], count: int, **options: Any) -> AsyncIterator[list[AsyncLocker]]:
    async with AsyncExitStack() as stack:
        given: dict[str, Any] = {**CALM, **options}
        made = [await stack.enter_async_context(quorumlock.connect_async(urls, **given)) for _ in range(count)]
        await made[0].init_fleet()
        yield made


def waiting(locks: AsyncLocker, name: str = "a", **options: Any) -> asyncio.Task[AsyncLease]:
    return asyncio.create_task(locks.lock(name, ttl=30, **options).acquire())


async def are_queued(nodes: list[Server], count: int, name: str = "a") -> bool:
    return await asyncio.to_thread(all_queued, nodes, count, name)


async def handed_on(tasks: list[asyncio.Task[AsyncLease]], within: float = SOON) -> None:
    """Lets each of them have the lock and give it back."""
    left = set(tasks)
    while left:
        done, left = await asyncio.wait(left, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        assert done, f"{len(left)} of {len(tasks)} are still waiting"
        for task in done:
            await task.result().release()


async def has_a_ticket(locks: AsyncLocker, draw: random.Random) -> None:
    """Returns when somebody waits in that Locker, and has most probably said so to the nodes."""
    while not locks._runner.room.waiting:  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(0.001)
    await asyncio.sleep(draw.uniform(0.001, 0.006))


def nothing_is_kept(locks: AsyncLocker) -> bool:
    """Has the Locker forgotten everybody?"""
    room = locks._runner.room
    return not (room._contenders or room._lines or room._tickets or room.held or room.broken or room._aside)


def nothing_is_owed(locks: AsyncLocker) -> bool:
    """Have all nodes answered all releases? Forgets those, as the keeper would some time later."""
    owed = [desk.owed for desk in locks._keeper._desks.values()]
    for one in owed:
        assert not one.sweep()
    return not any(owed)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_release_hands_the_lock_over_without_any_poll(servers: Servers, count: int) -> None:
    nodes = servers.servers[:count]

    async def main() -> None:
        async with lockers(servers.urls[:count], 5) as (holder, *others):
            lease = await holder.lock("a", ttl=30).acquire()
            tasks = [waiting(locks) for locks in others]
            assert await are_queued(nodes, 4)
            await lease.release()
            await handed_on(tasks)
            assert all(nothing_is_kept(locks) for locks in (holder, *others))
        assert no_tickets(nodes)

    run(main())


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_hand_over_while_subscriptions_are_cut_again_and_again(servers: Servers, count: int) -> None:
    nodes = servers.servers[:count]

    cuts: list[Server] = []

    async def cut() -> None:
        while True:
            for server in nodes:
                await asyncio.to_thread(server.command, "CLIENT", "KILL", "TYPE", "pubsub")
                cuts.append(server)
                await asyncio.sleep(0.01)

    async def main() -> None:
        async with lockers(servers.urls[:count], 4) as locks:
            cutting = asyncio.create_task(cut())
            for _ in range(8):
                lease = await locks[0].lock("a", ttl=30).acquire()
                tasks = [waiting(one) for one in locks[1:]]
                before = len(cuts)
                assert await eventually_async(lambda: len(cuts) >= before + 2)  # noqa: B023
                await lease.release()
                await handed_on(tasks)
            cutting.cancel()
        assert no_tickets(nodes)

    run(main())


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_who_begins_to_wait_just_after_its_subscriptions_were_cut_is_told_all_the_same(
    servers: Servers, count: int
) -> None:
    nodes = servers.servers[:count]

    async def main() -> None:
        async with lockers(servers.urls[:count], 2) as (holder, other):
            for _ in range(4):
                lease = await holder.lock("a", ttl=30).acquire()
                task = waiting(other)
                assert await are_queued(nodes, 1)
                await lease.release()
                await handed_on([task])
                for server in nodes:
                    server.command("CLIENT", "KILL", "TYPE", "pubsub")
                await asyncio.sleep(0.01)  # they are seen to be gone, and nobody waits who would miss them

    run(main())


@pytest.mark.one_kind
@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_a_woken_waiter_that_is_cancelled_passes_it_on(servers: Servers, count: int, fair: bool) -> None:
    """Cancelled at any moment around its being told: then the next has the lock, and soon."""
    nodes = servers.servers[:count]
    rng = random.Random(count)

    async def main() -> None:
        cancelled = 0
        async with lockers(servers.urls[:count], 3) as (holder, one, two):
            for turn in range(400):
                if turn >= (40 if LONG else 20) and cancelled > 5:
                    break
                lease = await holder.lock("a", ttl=30).acquire()
                first = waiting(one, fair=fair)
                await has_a_ticket(one, rng)
                second = waiting(two, fair=fair)
                await has_a_ticket(two, rng)
                releasing = asyncio.create_task(lease.release())
                await asyncio.sleep(rng.random() * 0.006)
                first.cancel()
                await asyncio.wait([first])
                if first.cancelled():
                    cancelled += 1
                else:
                    await first.result().release()
                await handed_on([second])
                await releasing
        assert cancelled > 5, "it was never struck at the right time"
        assert no_tickets(nodes)

    run(main())


@pytest.mark.one_kind
def test_a_release_that_is_cancelled_still_wakes_the_waiters_of_its_own_locker(servers: Servers) -> None:
    """The nodes leave it to the Locker to tell its own; a cancellation must not get between."""

    async def main() -> None:
        async with lockers(servers.urls[:3], 1) as (locks,):
            for after in (0.0, 0.0002, 0.001):
                lease = await locks.lock("a", ttl=30).acquire()
                task = waiting(locks)
                assert await eventually_async(lambda: locks._runner.room._contenders)
                releasing = asyncio.create_task(lease.release())
                await asyncio.sleep(after)
                releasing.cancel()
                await asyncio.wait([releasing])
                await handed_on([task], within=2.0)

    run(main())


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_a_cancelled_waiter_takes_its_ticket_away_over_a_new_connection(servers: Servers, count: int) -> None:
    """Servers close connections that idle, and who waits for long idles."""
    nodes = servers.servers[:count]

    async def main() -> None:
        async with lockers(servers.urls[:count], 3) as (holder, one, two):
            lease = await holder.lock("a", ttl=30).acquire()
            gone, stays = waiting(one), waiting(two)
            assert await are_queued(nodes, 2)
            for server in nodes:
                server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert await eventually_async(lambda: not any(client_ids(server) for server in nodes))
            for _ in range(3):
                await asyncio.sleep(0)  # the loop comes to see it
            gone.cancel()
            await asyncio.wait([gone])
            assert gone.cancelled()
            assert await are_queued(nodes, 1), "its ticket is still there"
            await lease.release()
            await handed_on([stays])
            # Before the Lockers are closed: a node that is just being connected to would not hear of the end.
            assert await asyncio.to_thread(no_tickets, nodes)

    run(main())


@pytest.mark.one_kind
def test_a_timeout_of_asyncio_takes_the_ticket_away(servers: Servers) -> None:
    nodes = servers.servers[:3]

    async def main() -> None:
        async with lockers(servers.urls[:3], 2) as (holder, other):
            lease = await holder.lock("a", ttl=30).acquire()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await other.lock("a", ttl=30).acquire()
            assert await asyncio.to_thread(no_tickets, nodes)
            await lease.release()
            assert nothing_is_kept(other)

    run(main())


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_of_many_tasks_one_asks_the_nodes(servers: Servers, count: int) -> None:
    nodes = servers.servers[:count]

    async def main() -> None:
        async with lockers(servers.urls[:count], 2) as (holder, other):
            lease = await holder.lock("a", ttl=30).acquire()
            forget_calls(nodes)
            tasks = [waiting(other) for _ in range(50)]
            assert await are_queued(nodes, 1)
            room = other._runner.room
            assert await eventually_async(lambda: len(room._lines.get("a", ())) == 49)
            assert max(calls(server) for server in nodes) <= 2 * 3, "each attempt, and what undoes it"
            assert max(queued(server) for server in nodes) == 1
            await lease.release()
            await handed_on(tasks)

    run(main())


@pytest.mark.one_kind
@pytest.mark.parametrize("names", [1, 1000])
def test_a_thousand_tasks_all_finish_and_leave_nothing_behind(servers: Servers, names: int) -> None:
    async def main() -> None:
        async with lockers(servers.urls[:3], 2, node_timeout=20.0) as (one, two):

            async def work(index: int) -> None:
                async with (one, two)[index % 2].lock(f"job-{index // 2 % names}", ttl=30):
                    await asyncio.sleep(0)

            async def crowd() -> int:
                async with asyncio.timeout(20):
                    await asyncio.gather(*(work(index) for index in range(1000)))
                assert nothing_is_kept(one)
                assert nothing_is_kept(two)
                assert await eventually_async(lambda: nothing_is_owed(one) and nothing_is_owed(two))
                gc.collect()
                return sys.getallocatedblocks()

            first, last = await crowd(), await crowd()
            # What is remembered of names is limited; a leak would be of several blocks for each task.
            assert last - first < 5000, f"{last - first} blocks of memory more after the second thousand"

    run(main())


@pytest.mark.one_kind
def test_a_locker_that_is_closed_lets_its_waiters_go(servers: Servers) -> None:
    nodes = servers.servers[:3]

    async def main() -> None:
        async with lockers(servers.urls[:3], 3) as (holder, other, third):
            lease = await holder.lock("a", ttl=30).acquire()
            tasks = [waiting(other) for _ in range(4)] + [waiting(other, fair=True)]
            stays = waiting(third)
            assert await are_queued(nodes, 3)
            await other.aclose()
            done, left = await asyncio.wait(tasks, timeout=SOON)
            assert not left, "a closed Locker keeps a task"
            assert {type(task.exception()) for task in done} == {quorumlock.ConfigurationError}
            await lease.release()
            await handed_on([stays])
        assert eventually(lambda: no_tickets(nodes))

    run(main())
