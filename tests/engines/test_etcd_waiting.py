"""The etcd engine and those who wait: few streams for many, and nobody is forgotten when they are changed."""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import AsyncLocker, Jitter
from quorumlock.engines.etcd.ear import STREAMS_MOST
from tests.support.servers.etcd import EtcdServer
from tests.support.waiting import eventually_async

from .etcd_fixtures import connect_async, keys, server, shared

__all__ = ["server", "shared"]  # fixtures

pytestmark = pytest.mark.live

MANY = 25


def streams(locks: AsyncLocker) -> int:
    (ear,) = locks.engine._ears.values()
    return len(ear._streams)


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
            for lease in await asyncio.wait_for(asyncio.gather(*waiters), 10):
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
                while len((await holder.inspect("a")).waiters) < place:
                    pass
            await asyncio.sleep(0.1)
            for place, locks in enumerate(lockers):
                locks.engine._answers = {kind: noted(place, one) for kind, one in locks.engine._answers.items()}
            await lease.release()
            first = await asyncio.wait_for(waiters[0], 5)
            await asyncio.sleep(0.3)
            assert set(asked) == {0, 1}
            await first.release()
            for waiter in waiters[1:]:
                await (await asyncio.wait_for(waiter, 5)).release()
            for locks in lockers:
                await locks.aclose()

    def noted(place: int, answering: object) -> object:
        def answer(*arguments: object) -> object:
            asked.append(place)
            return answering(*arguments)  # type: ignore[operator]

        return answer

    asyncio.run(main())
