"""PostgreSQL and MariaDB: many who want, share, keep and wait for locks at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

import quorumlock
from quorumlock.engines.sql.batches import Batch
from quorumlock.events import Extended
from tests.support.waiting import eventually, eventually_async

from .sql_servers import Connect, Place, connect, in_a_thread, place

__all__ = ["connect", "place"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


def test_two_hundred_tasks_and_fifty_threads_lose_nothing(place: Place, connect: Connect) -> None:
    counter = [0]

    def once() -> None:
        seen = counter[0]
        time.sleep(0)
        counter[0] = seen + 1

    async def tasks() -> None:
        async with quorumlock.connect_async(place.url(), prefix="crowd:") as locker:

            async def one() -> None:
                async with locker.lock("a", ttl=30, timeout=60):
                    once()

            async with asyncio.TaskGroup() as group:
                for _ in range(200):
                    group.create_task(one())

    locker = connect(prefix="crowd:")

    def thread() -> None:
        with locker.lock("a", ttl=30, timeout=60):
            once()

    working = [in_a_thread(thread) for _ in range(50)]
    asyncio.run(tasks())
    for one, came in working:
        one.join()
        assert came == [None]
    assert counter == [250]


def test_hundreds_share_and_wait(place: Place) -> None:
    """The document of one row has them all."""

    async def main() -> None:
        async with quorumlock.connect_async(place.url(), prefix="hundreds:") as locker:
            read = locker.read_write("rw").read(ttl=30, keep=False)
            leases = [await read.acquire() for _ in range(200)]
            assert len((await locker.inspect("rw")).holders) == 200
            for lease in leases:
                await lease.release()
            held = await locker.lock("f", ttl=30).acquire()
            order: list[int] = []

            async def wait(number: int) -> None:
                async with locker.lock("f", ttl=8, fair=True, timeout=30):
                    order.append(number)

            async def all_wait() -> bool:
                return len((await locker.inspect("f")).waiters) == 60

            async with asyncio.TaskGroup() as group:
                for number in range(60):
                    group.create_task(wait(number))
                assert await eventually_async(all_wait)
                await held.release()
            assert sorted(order) == list(range(60))

    asyncio.run(main())


def test_three_hundred_leases_are_kept_in_few_statements(
    place: Place, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locker = connect(prefix="keeper:")
    names = [f"n{number}" for number in range(300)]
    leases = [locker.lock(name, ttl=1.5).acquire() for name in names]
    link = type(locker.engine._threads._shelf.idle[0])
    said: list[int] = []
    renewed: Counter[str] = Counter()
    locker.subscribe(lambda event: renewed.update([event.name] if isinstance(event, Extended) else ()))
    run = link.run

    def counted(self: Any, batch: Batch, due: float) -> Any:
        said.append(len(batch.queries))
        return run(self, batch, due)

    monkeypatch.setattr(link, "run", counted)
    assert eventually(lambda: all(renewed[name] >= 2 for name in names))
    for lease in leases:
        lease.check()
    assert 2 <= sum(said) <= 40 * max(renewed.values())
    monkeypatch.undo()
    for lease in leases:
        lease.release()
