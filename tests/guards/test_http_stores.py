"""The stores of the middleware: each refuses what is stale; memory and SQL hold newer ones back, Redis does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import redis.asyncio

from quorumlock import StaleFence
from quorumlock.guards import AsyncSQLGuard, Claim, MemoryFences, RedisFences, SQLFences
from quorumlock.guards.http import Fences
from quorumlock.lab.servers import Server, Servers, kinds
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.real_time(0.3)
SEVEN, EIGHT, NINE = (Claim("report", fence) for fence in (7, 8, 9))

Opened = Callable[[], AbstractAsyncContextManager[Any]]


@contextlib.asynccontextmanager
async def memory_fences() -> AsyncIterator[MemoryFences]:
    yield MemoryFences()


@contextlib.asynccontextmanager
async def redis_fences(port: int) -> AsyncIterator[RedisFences]:
    async with redis.asyncio.Redis(port=port) as client:
        yield RedisFences(client)


@contextlib.asynccontextmanager
async def sqlite_fences(folder: Path) -> AsyncIterator[SQLFences]:
    store = SQLFences(lambda: aiosqlite.connect(folder / "fences.db", timeout=20))
    await store.create()
    await store.create()
    yield store


@pytest.fixture(params=["memory", "sql", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """A store, in the loop that it is used in."""
    if request.param == "memory":
        yield memory_fences
    elif request.param == "sql":
        yield lambda: sqlite_fences(tmp_path)
    else:
        with Server(kinds()[0]) as server:
            yield lambda: redis_fences(server.port)


async def admitted(store: Fences, claim: Claim) -> bool:
    try:
        async with store.hold(claim):
            return True
    except StaleFence as stale:
        if stale.fence == claim.fence < stale.seen:
            return False
        raise


def test_a_store_refuses_what_is_stale(opened: Opened) -> None:
    async def main() -> list[bool]:
        async with opened() as store:
            asked = [SEVEN, SEVEN, NINE, EIGHT, NINE, Claim("other", 1), SEVEN]
            return [await admitted(store, claim) for claim in asked]

    assert asyncio.run(main()) == [True, True, True, False, True, True, False]


def test_a_mark_stays_when_the_request_fails(opened: Opened) -> None:
    async def fail(store: Fences) -> None:
        async with store.hold(EIGHT):
            raise ZeroDivisionError

    async def main() -> None:
        async with opened() as store:
            with pytest.raises(ZeroDivisionError):
                await fail(store)
            assert not await admitted(store, SEVEN)
            assert await admitted(store, NINE)

    asyncio.run(main())


async def waits(store: Fences) -> bool:
    """Whether a newer holder has to wait for the request of an older one."""
    async with store.hold(SEVEN):
        newer = asyncio.ensure_future(admitted(store, EIGHT))
        await asyncio.wait([newer], timeout=0.1)
        waited = not newer.done()
    assert await newer
    return waited


def test_memory_and_sql_hold_newer_ones_back(tmp_path: Path) -> None:
    async def main() -> None:
        assert await waits(MemoryFences())
        async with sqlite_fences(tmp_path) as store:
            assert await waits(store)

    asyncio.run(main())


def test_redis_does_not_as_its_docstring_says(servers: Servers) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=servers[0].port) as client:
            assert not await waits(RedisFences(client))
        assert RedisFences.__doc__ is not None
        assert "cannot hold" in RedisFences.__doc__

    asyncio.run(main())


def test_requests_of_one_holder_run_side_by_side_in_memory() -> None:
    async def main() -> None:
        store = MemoryFences()
        async with store.hold(SEVEN), store.hold(SEVEN), asyncio.timeout(5):
            newer = asyncio.ensure_future(admitted(store, EIGHT))
            await asyncio.sleep(0)
            assert not await admitted(store, SEVEN), "the newer holder has been seen, even if it waits"
            assert not newer.done()
        assert await newer

    asyncio.run(main())


def test_of_those_who_wait_the_newest_is_let_in() -> None:
    async def main() -> None:
        store = MemoryFences()
        async with store.hold(SEVEN):
            waiting = [asyncio.ensure_future(admitted(store, claim)) for claim in (EIGHT, NINE, EIGHT, NINE)]
            assert await eventually_async(lambda: waiting[0].done() and waiting[2].done())
            assert [one.done() for one in waiting] == [True, False, True, False], "stale ones are told at once"
        assert await asyncio.gather(*waiting) == [False, True, False, True]

    asyncio.run(main())


def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async def main() -> None:
        store = MemoryFences()
        async with store.hold(SEVEN):
            waiting = asyncio.ensure_future(admitted(store, EIGHT))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert await admitted(store, EIGHT)
        assert store._rooms == {}, "only marks are kept"
        assert store._marks == {"report": 8}

    asyncio.run(main())


@pytest.mark.parametrize("how", ["awaited", "made"])
def test_connections_come_in_several_ways_and_are_closed(tmp_path: Path, how: str) -> None:
    """As drivers make them: a coroutine, or a connection at once; the others are context managers."""
    closed: list[bool] = []

    class Connection:
        def __init__(self, inner: aiosqlite.Connection) -> None:
            self.inner = inner

        async def commit(self) -> None:
            await self.inner.commit()

        async def rollback(self) -> None:
            await self.inner.rollback()

        async def close(self) -> None:
            closed.append(True)
            await self.inner.close()

    class Guard(AsyncSQLGuard):
        async def create(self, conn: Any) -> None:
            await super().create(conn.inner)

        async def enter(self, conn: Any, lease: Any) -> None:
            await super().enter(conn.inner, lease)

        async def admit(self, conn: Any, lease: Any) -> None:
            await super().admit(conn.inner, lease)

    async def main() -> None:
        async def connected() -> Connection:
            return Connection(await aiosqlite.connect(tmp_path / "fences.db"))

        ready = [await connected() for _ in range(3)] if how == "made" else []
        store = SQLFences(ready.pop if ready else connected, Guard())
        await store.create()
        assert await admitted(store, EIGHT)
        assert not await admitted(store, SEVEN)

    asyncio.run(main())
    assert closed == [True, True, True]
