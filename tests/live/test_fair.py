"""`fair=True` on real servers: grants in the order of tickets, and what a head that is gone costs the others."""

from __future__ import annotations

import asyncio
import functools
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock.lab.servers import Server, Servers
from tests.hazards.programs import start
from tests.support.processes import in_child
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, eventually_async

from .queues import CALM, LONG, SOON, Crowd, Waiter, all_queued, handed_on, lockers, no_tickets, queued

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]
Put = Callable[[Server], Proxy]

PASSED_OVER_WITHIN = 5.0
"""A poll of the next in the queue, which is a second or two for the first few, and a node timeout."""

PROGRAM = """
locks = quorumlock.connect(urls, max_ttl=60, node_timeout=0.5, retry=quorumlock.Jitter(3600))
with locks.lock("a", ttl=30, fair=True) as lease:
    print(lease.fence, flush=True)
locks.close()
"""


def held(locks: quorumlock.Locker) -> quorumlock.Lease:
    return locks.lock("a", ttl=30, fair=True).acquire(timeout=5)


def waiting(locks: quorumlock.Locker, nodes: list[Server], place: int) -> Waiter:
    """Somebody who waits fairly; its ticket is there when this returns."""
    waiter = Waiter(locks.lock("a", ttl=30, fair=True))
    assert all_queued(nodes, place)
    return waiter


@pytest.mark.parametrize("count", [1, 3, 5])
def test_grants_are_in_the_order_of_tickets(servers: Servers, connect: Connect, count: int) -> None:
    nodes = servers.servers[:count]
    locks = lockers(connect, servers.urls[:count], 4)
    lease = held(locks[0])
    before = queued(nodes[0])
    waiters = [waiting(locks[turn % 4], nodes, before + turn + 1) for turn in range(8)]
    lease.release()
    assert handed_on(waiters) == list(range(8))
    fences = [waiter.lease.fence for waiter in waiters if waiter.lease is not None]
    assert fences == sorted(fences)
    assert no_tickets(nodes)


def take_once(urls: list[str], log: Path) -> None:
    """In a process of its own."""
    retry = quorumlock.Jitter(3600)
    with (
        quorumlock.connect(urls, max_ttl=LONG, node_timeout=0.5, retry=retry) as locks,
        locks.lock("a", ttl=30, fair=True) as lease,
    ):
        log.write_text(str(lease.fence))


@pytest.mark.one_kind
def test_grants_are_in_the_order_of_tickets_across_processes(
    servers: Servers, connect: Connect, tmp_path: Path
) -> None:
    nodes = servers.servers[:3]
    (locks,) = lockers(connect, servers.urls[:3], 1)
    lease = held(locks)
    before = queued(nodes[0])
    logs = [tmp_path / f"log-{turn}" for turn in range(4)]
    with ThreadPoolExecutor(len(logs)) as threads:
        programs = []
        for turn, log in enumerate(logs):
            programs.append(threads.submit(in_child, functools.partial(take_once, servers.urls[:3], log)))
            assert all_queued(nodes, before + turn + 1, within=20)
        ours = waiting(locks, nodes, before + 5)
        lease.release()
        ours.has_it(20).release()
        for program in programs:
            program.result()
    fences = [int(log.read_text()) for log in logs]
    assert ours.lease is not None
    assert [*fences, ours.lease.fence] == sorted([*fences, ours.lease.fence])
    assert no_tickets(nodes)


@pytest.mark.one_kind
def test_grants_are_in_the_order_of_tickets_with_asyncio(servers: Servers) -> None:
    nodes = servers.servers[:3]

    async def main() -> None:
        given: dict[str, Any] = CALM
        async with (
            quorumlock.connect_async(servers.urls[:3], **given) as one,
            quorumlock.connect_async(servers.urls[:3], **given) as two,
        ):
            await one.init_fleet()
            order: list[int] = []
            lease = await one.lock("a", ttl=30, fair=True).acquire()
            before = queued(nodes[0])

            async def wait(turn: int) -> None:
                async with (one, two)[turn % 2].lock("a", ttl=30, fair=True):
                    order.append(turn)

            tasks = []
            for turn in range(8):
                tasks.append(asyncio.create_task(wait(turn)))
                assert await eventually_async(lambda: all_queued(nodes, before + turn + 1, within=0))  # noqa: B023
            await lease.release()
            async with asyncio.timeout(SOON):
                await asyncio.gather(*tasks)
            assert order == list(range(8))

    asyncio.run(main())
    assert no_tickets(nodes)


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_a_crowd_does_not_overtake_who_waits(servers: Servers, connect: Connect, count: int) -> None:
    many, few = lockers(connect, servers.urls[:count], 2)
    crowd = Crowd(many.lock("a", ttl=30, fair=True), 6)
    try:
        assert eventually(lambda: crowd.taken > 20, SOON)
        waits = []
        few.lock("a", ttl=30, fair=True).acquire(timeout=SOON).release()  # the first wait subscribes
        for _ in range(10):
            before = crowd.taken
            few.lock("a", ttl=30, fair=True).acquire(timeout=SOON).release()
            waits.append(crowd.taken - before)
    finally:
        crowd.stop()
    assert not crowd.errors
    # Who came before us, and perhaps whoever was just asking; and once or twice we may be kept from asking at all,
    # after we have counted.
    assert sorted(waits)[-3] <= 6 + 4, waits


@pytest.mark.one_kind
@pytest.mark.parametrize("first", ["plain", "fair"])
def test_fair_and_plain_waiters_of_one_locker_are_all_told(servers: Servers, connect: Connect, first: str) -> None:
    nodes = servers.servers[:3]
    (locks,) = lockers(connect, servers.urls[:3], 1)
    lease = locks.lock("a", ttl=30, fair=first == "fair").acquire()
    waiters = [Waiter(locks.lock("a", ttl=30, fair=fair)) for fair in (True, True, False, False)]
    assert eventually(lambda: max(queued(server) for server in nodes) >= 2, SOON)
    assert eventually(lambda: len(locks._runner.room._lines.get("a", ())) == 1), "one plain waiter behind the other"
    lease.release()
    assert sorted(handed_on(waiters)) == [0, 1, 2, 3]
    assert no_tickets(nodes)


def delay(lease: quorumlock.Lease, waiter: Waiter) -> float:
    freed_at = time.monotonic()
    lease.release()
    waiter.has_it(PASSED_OVER_WITHIN + SOON).release()
    return waiter.at - freed_at


@pytest.mark.one_kind
@pytest.mark.parametrize("end", ["SIGKILL", "SIGSTOP"])
def test_a_head_that_is_gone_delays_the_others_by_a_bounded_time(
    servers: Servers, connect: Connect, end: str, record_property: Callable[[str, object], None]
) -> None:
    """Killed, it is dropped at once. Stopped, it looks alive: the next finds out by its poll and passes it over."""
    nodes = servers.servers[:3]
    holder, other = (connect(servers.urls[:3], max_ttl=LONG, node_timeout=0.25) for _ in range(2))
    lease = held(holder)
    before = queued(nodes[0])
    with start(PROGRAM, *servers.urls[:3]) as program:
        assert all_queued(nodes, before + 1, within=20)
        waiter = waiting(other, nodes, before + 2)
        program.send_signal(getattr(signal, end))
        if end == "SIGKILL":
            program.wait(10)
        took = delay(lease, waiter)
        program.send_signal(signal.SIGKILL)
    record_property("delay", took)
    print(f"{end}: {took:.3f} s")
    assert took < (SOON / 4 if end == "SIGKILL" else PASSED_OVER_WITHIN)


def reaches_only(proxies: list[Proxy], node: int) -> None:
    """From now on this client gets through to one node alone, and the others do not know."""
    for index, proxy in enumerate(proxies):
        if index != node:
            proxy.refusing = True
            proxy.go_silent()


@pytest.mark.one_kind
@pytest.mark.parametrize(("count", "dead", "lame"), [(3, [0], [2]), (5, [], [0, 1, 2])])
def test_waiters_who_reach_some_nodes_only_do_not_keep_a_free_lock(
    make_servers: Make, connect: Connect, put_proxy: Put, count: int, dead: list[int], lame: list[int]
) -> None:
    """N = 3 with one node down and a waiter that reaches one node; N = 5 with three waiters cut to one node each.

    Their tickets stand in front, on nodes that hear nothing of their being cut off.
    """
    fleet = make_servers(count)
    options: dict[str, Any] = {"max_ttl": LONG, "fleet": "one", "node_timeout": 0.25}
    holder, healthy = (connect(fleet.urls, **options) for _ in range(2))
    lease = held(holder)
    before = queued(fleet[count - 1])
    ways = [[put_proxy(server) for server in fleet.servers] for _ in lame]
    cut = [connect([proxy.url for proxy in way], init=False, **options) for way in ways]
    stuck = [waiting(locks, fleet.servers, before + turn + 1) for turn, locks in enumerate(cut)]
    waiter = waiting(healthy, fleet.servers, before + len(lame) + 1)
    for index in dead:
        fleet[index].kill()
    for way, node in zip(ways, lame, strict=True):
        reaches_only(way, node)
    took = delay(lease, waiter)
    print(f"N = {count}: {took:.3f} s")
    assert took < PASSED_OVER_WITHIN
    for locks in cut:
        locks.close()
    assert all(one.over() for one in stuck)
    for one in stuck:
        assert one.error is not None or one.lease is not None
        if one.lease is not None:
            one.lease.release()
