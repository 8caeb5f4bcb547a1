"""Each await point of the async acquire, extend and release is cancelled once, while answers come late.

After each: no key is left once the clean-up round is over, and the next 100 commands on every connection get
their own answers.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from quorumlock.engines.redis.scripts import RELEASE
from tests.live.attribution import every_answer_is_its_own
from tests.live.tools import exists, pttl
from tests.support.waiting import eventually_async

from .late import DELAY, TTL, Bench, acquire, nothing_is_left
from .suspending import at_every_await_point, outcome

pytestmark = [pytest.mark.live, pytest.mark.real_time]

AFTERS = (0.0, DELAY / 2, 1.25 * DELAY)
"""When to strike after a suspension: before a byte has left, before the first answer, between the answers
(which come after 1, 1.5, 2, … delays)."""
PATIENT = 2.0
"""A node is given this many seconds, so that no stall replaces a connection."""


@pytest.mark.one_kind
def test_acquire_cancelled_at_each_await_point(bench: Bench) -> None:
    async def main() -> None:
        async with bench.locker(PATIENT) as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            lines = sum(len(proxy.lines) for proxy in bench.proxies)

            async def once(k: int, after: float) -> str:
                name = next(bench.names)
                bench.unequal_fences(name)
                bench.late(True)
                state, lease = await outcome(acquire(locks, name), k, after)
                if lease is not None:
                    await lease.release()
                await bench.verdict(locks)
                return state

            cancelled = await at_every_await_point(once, AFTERS)
            assert cancelled >= (2 if len(bench.nodes) == 1 else 5)
            assert sum(len(proxy.lines) for proxy in bench.proxies) == lines, "a connection was replaced"

    asyncio.run(main())


@pytest.mark.one_kind
def test_the_first_acquire_of_a_client_cancelled_at_each_await_point(bench: Bench) -> None:
    """Connecting and joining are part of it; the locker is used on afterwards."""

    async def once(k: int, after: float) -> str:
        bench.late(True)
        async with bench.locker() as locks:
            state, lease = await outcome(acquire(locks, next(bench.names)), k, after)
            if lease is not None:
                await lease.release()
            await bench.verdict(locks)
        return state

    afters = (*AFTERS, 2.25 * DELAY, 3.75 * DELAY)
    assert asyncio.run(at_every_await_point(once, afters)) >= 5


@pytest.mark.one_kind
def test_a_waiting_acquire_cancelled_at_each_await_point(bench: Bench) -> None:
    """Refused, sleeping, refused again: nothing is set by the attempts that were under way."""

    async def main() -> None:
        async with bench.locker(PATIENT) as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            lines = sum(len(proxy.lines) for proxy in bench.proxies)
            for k in range(1, 7):
                name = next(bench.names)
                for node in bench.nodes:
                    node.command("SET", name, "a stranger", "PX", "5000")
                bench.late(True)
                state, _ = await outcome(acquire(locks, name), k, DELAY / 2)
                assert state == "cancelled"
                for node in bench.nodes:
                    node.command("DEL", name)
                await bench.verdict(locks)
            listening = len(bench.nodes)
            assert sum(len(proxy.lines) for proxy in bench.proxies) <= lines + listening, "one was replaced"

    asyncio.run(main())


@pytest.mark.one_kind
def test_extend_cancelled_at_each_await_point(bench: Bench) -> None:
    """One node has forgotten the lock, so that healing is among the await points."""

    async def main() -> None:
        async with bench.locker() as locks:

            async def once(k: int, after: float) -> str:
                name = next(bench.names)
                bench.late(False)
                lease = await acquire(locks, name)
                if len(bench.nodes) > 1:
                    assert await eventually_async(lambda: all(exists(node, name) for node in bench.nodes))
                    bench.nodes[0].command("DEL", name)  # the quickest to answer: its absence is heard of
                bench.late(True)
                state, _ = await outcome(lease.extend(), k, after)
                lease.check()
                assert sum(exists(node, name) for node in bench.nodes) > len(bench.nodes) // 2
                await lease.release()
                await bench.verdict(locks)
                return state

            assert await at_every_await_point(once, AFTERS) >= (2 if len(bench.nodes) == 1 else 5)

    asyncio.run(main())


@pytest.mark.one_kind
def test_a_cancelled_extend_promises_no_more_than_the_nodes_keep(bench: Bench) -> None:
    """Whether nodes have heard of it yet or not, and whatever was asked for."""

    async def main() -> None:
        async with bench.locker() as locks:
            for after, ttl, arrives in itertools.product((*AFTERS, 3 * DELAY), (2.0, 10.0), (True, False)):
                name = next(bench.names)
                lease = await locks.lock(name, ttl=6, keep=False).acquire(timeout=20)
                bench.late(True)
                for proxy in bench.proxies if not arrives else ():
                    proxy.hold_requests()
                await outcome(lease.extend(ttl), 1, after)
                kept = sorted(pttl(node, name) for node in bench.nodes)[len(bench.nodes) // 2]
                assert lease.remaining() <= max(kept, 0) / 1000
                for proxy in bench.proxies:
                    proxy.let_go()
                await lease.release()
                await bench.verdict(locks)

    asyncio.run(main())


@pytest.mark.one_kind
def test_release_cancelled_at_each_await_point(bench: Bench) -> None:
    async def main() -> None:
        async with bench.locker() as locks:

            async def once(k: int, after: float) -> str:
                bench.late(False)
                lease = await acquire(locks, next(bench.names))
                bench.late(True)
                state, _ = await outcome(lease.release(), k, after)
                await bench.verdict(locks)
                return state

            assert await at_every_await_point(once, AFTERS) >= 2

    asyncio.run(main())


@pytest.mark.one_kind
def test_a_block_cancelled_at_each_await_point(bench: Bench) -> None:
    """`async with`: entering, the body, leaving."""

    async def main() -> None:
        async with bench.locker() as locks:

            async def block(name: str) -> None:
                async with locks.lock(name, ttl=TTL):
                    await asyncio.sleep(0)

            async def once(k: int, after: float) -> str:
                bench.late(True)
                state, _ = await outcome(block(next(bench.names)), k, after)
                await bench.verdict(locks)
                return state

            assert await at_every_await_point(once, AFTERS) >= 5

    asyncio.run(main())


def test_release_cancelled_on_a_server_that_has_forgotten_the_scripts(bench: Bench) -> None:
    """EVALSHA, NOSCRIPT, and only then EVAL: the caller is gone by the time the server asks for the source."""

    async def main() -> None:
        async with bench.locker() as locks:
            lease = await acquire(locks, next(bench.names))
            for node in bench.nodes:
                node.command("SCRIPT", "FLUSH")
            bench.late(True)
            state, _ = await outcome(lease.release(), 1, 0.0)
            assert state == "cancelled"
            await bench.verdict(locks)

    asyncio.run(main())


@pytest.mark.one_kind
def test_acquire_cancelled_on_servers_that_have_forgotten_the_scripts(bench: Bench) -> None:
    """All scripts, or only that of the acquire: then its undoing is executed first, and it must not come behind."""

    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            for after, all_of_them in itertools.product((*AFTERS, 2 * DELAY, 3 * DELAY), (True, False)):
                for node in bench.nodes:
                    node.command("SCRIPT", "FLUSH")
                    if not all_of_them:
                        node.command("SCRIPT", "LOAD", RELEASE.source)
                bench.late(True)
                _, lease = await outcome(acquire(locks, next(bench.names)), 1, after)
                if lease is not None:
                    await lease.release()
                await asyncio.to_thread(nothing_is_left, bench.nodes)
            await bench.verdict(locks)

    asyncio.run(main())
