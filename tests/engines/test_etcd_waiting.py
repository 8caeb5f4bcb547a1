"""The etcd engine and those who wait: few streams for many, and nobody is forgotten when they are changed."""

from __future__ import annotations

import asyncio
import functools

import pytest

from quorumlock import AsyncLocker, Jitter
from quorumlock.engines.etcd.ear import STREAMS_MOST
from tests.support.servers.etcd import EtcdServer
from tests.support.waiting import eventually_async

from .etcd_fixtures import connect_async, keys, server

__all__ = ["server"]  # fixtures

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

MANY = 25


def streams(locks: AsyncLocker) -> int:
    (ear,) = locks.engine._ears.values()
    return len(ear._streams)


def listens(locks: AsyncLocker) -> bool:
    """Whoever waits there has asked, and hears of what is in its way: it asks no more."""
    return any(stream.open.is_set() for ear in locks.engine._ears.values() for stream in ear._streams)


def test_many_waiters_share_a_few_streams(server: EtcdServer) -> None:
    async def main() -> None:
        async with (
            connect_async(server.url) as holder,
            connect_async(server.url, retry=Jitter(3600)) as locks,
        ):
            leases = [await holder.lock(f"a{index}", ttl=30).acquire(timeout=5) for index in range(MANY)]
            waiters = []
            for index in range(MANY):
                waiters.append(asyncio.create_task(locks.lock(f"a{index}", ttl=30).acquire(timeout=30)))
                await asyncio.sleep(0.01)

            async def all_wait() -> bool:
                return sum(b"/wait/" in key for key in keys(server)) == MANY

            assert await eventually_async(all_wait)
            assert streams(locks) <= STREAMS_MOST + 1
            for lease in leases:
                await lease.release()
            for lease in await asyncio.wait_for(asyncio.gather(*waiters), 20):
                await lease.release()

    asyncio.run(main())


def test_whoever_freed_a_lock_wakes_one_and_not_all(server: EtcdServer) -> None:
    """Each watches the one before it: behind the first nobody asks, but the next, who is the first from then on."""
    asked: list[int] = []

    async def main() -> None:
        async with connect_async(server.url) as holder:
            lease = await holder.lock("a", ttl=30).acquire(timeout=5)
            lockers = [connect_async(server.url, retry=Jitter(3600)) for _ in range(5)]
            waiters = []
            for place, locks in enumerate(lockers, 1):
                waiters.append(asyncio.create_task(locks.lock("a", ttl=30, fair=True).acquire(timeout=30)))

                async def stands(place: int = place) -> bool:
                    return len((await holder.inspect("a")).waiters) == place

                assert await eventually_async(stands)
            assert await eventually_async(lambda: all(map(listens, lockers)))
            for place, locks in enumerate(lockers):
                locks.engine._answers = {kind: noted(place, one) for kind, one in locks.engine._answers.items()}
            for place, waiter in enumerate(waiters):
                await lease.release()
                lease = await asyncio.wait_for(waiter, 20)
                behind = min(place + 1, len(waiters) - 1)
                assert await eventually_async(functools.partial(asked.__contains__, behind))
                assert set(asked) <= set(range(place + 2)), "somebody behind the next was woken"
            await lease.release()
            for locks in lockers:
                await locks.aclose()

    def noted(place: int, answering: object) -> object:
        def answer(*arguments: object) -> object:
            asked.append(place)
            return answering(*arguments)  # type: ignore[operator]

        return answer

    asyncio.run(main())
