"""Locks through a pool of the user's own: SQLAlchemy, with the drivers that people use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import quorumlock
from quorumlock import ConfigurationError, NoQuorum
from tests.support.waiting import eventually

from .sql_servers import Place, in_a_thread, place

__all__ = ["place"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(1)]


def address(place: Place, driver: str) -> str:
    if place.announces:
        return f"postgresql+psycopg://test@127.0.0.1:{place.server.port}/{place.database}"
    return f"mysql+{driver}://root@127.0.0.1:{place.server.port}/{place.database}"


@pytest.fixture
def pool(place: Place) -> Iterator[sqlalchemy.Engine]:
    options: dict[str, Any] = {} if place.announces else {"connect_args": {"ssl_disabled": True}}
    engine = sqlalchemy.create_engine(address(place, "pymysql"), **options)
    yield engine
    engine.dispose()


def async_pool(place: Place) -> AsyncEngine:
    return create_async_engine(address(place, "asyncmy"))


def test_an_engine_is_all_it_takes(pool: sqlalchemy.Engine) -> None:
    with quorumlock.connect(clients=[pool]) as locks:
        with locks.lock("pooled", ttl=5) as lease:
            assert locks.lock("pooled").try_acquire() is None
            assert locks.inspect("pooled").holders[0].fence == lease.fence
        with locks.multi(["p1", "p2"], ttl=5) as several:
            assert len(several.fences) == 2
        with locks.read_write("rw").read(ttl=5), locks.read_write("rw").read(ttl=5):
            pass
        version = locks.cell("c").set(b"\0value", locks.cell("c").get()[1])
        assert locks.cell("c").get() == (b"\0value", version)
        (state,) = locks.nodes()
        assert (state.state, state.server) == ("ready", locks.engine.name)
    with pool.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1, "the pool is the user's to close"
    assert pool.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_waiter_gets_it_after_the_release(pool: sqlalchemy.Engine) -> None:
    with quorumlock.connect(clients=[pool]) as ours, quorumlock.connect(clients=[pool]) as theirs:
        lease = ours.lock("handed", ttl=30).acquire()
        thread, came = in_a_thread(lambda: theirs.lock("handed", ttl=30, fair=True).acquire(timeout=20))
        assert eventually(lambda: ours.inspect("handed").waiters)
        lease.release()
        thread.join()
        (later,) = came
        assert later.fence > lease.fence
        later.release()


def test_an_async_engine_for_asyncio(place: Place) -> None:
    async def play() -> None:
        pool = async_pool(place)
        async with quorumlock.connect_async(clients=[pool]) as locks:
            async with locks.lock("pooled", ttl=5) as lease:
                assert await locks.lock("pooled").try_acquire() is None
            async with locks.lock("pooled", ttl=5) as later:
                assert later.fence > lease.fence
            async with locks.multi(["p1", "p2"], ttl=5):
                pass
            (state,) = await locks.nodes()
            assert state.state == "ready"
        await pool.dispose()

    asyncio.run(play())


def test_the_two_kinds_are_not_mixed_up(place: Place) -> None:
    pool = async_pool(place)
    with quorumlock.connect(clients=[pool]) as locks, pytest.raises(ConfigurationError, match="connect_async"):
        locks.lock("a").acquire()


def test_a_pool_for_another_database_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="postgresql, mysql, mariadb"):
        quorumlock.connect(clients=[sqlalchemy.create_engine("sqlite://")])


def test_a_pool_that_reaches_nobody_says_so() -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://nobody:secret@127.0.0.1:1/none?connect_timeout=2")
    with quorumlock.connect(clients=[engine]) as locks:
        with pytest.raises(NoQuorum, match=r"postgresql:127\.0\.0\.1:1/none cannot be reached") as told:
            locks.lock("a").acquire(timeout=0.1)
        assert "secret" not in str(told.value) + repr(locks)
