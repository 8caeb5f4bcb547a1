"""Locks through a pool of the user's own: SQLAlchemy, with the drivers that people use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import quorumlock
from quorumlock import ConfigurationError, NoQuorum
from tests.support.servers.databases import Database, MariaDB, PostgreSQL, needed

SERVERS: dict[str, type[Database]] = {"postgresql": PostgreSQL, "mysql": MariaDB}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    needed(SERVERS[request.param])
    with SERVERS[request.param]() as running:
        yield running


def address(server: Database, driver: str) -> str:
    if isinstance(server, PostgreSQL):
        return f"postgresql+psycopg://test@127.0.0.1:{server.port}/postgres"
    return f"mysql+{driver}://root@127.0.0.1:{server.port}/mysql"


@pytest.fixture
def pool(server: Database) -> Iterator[sqlalchemy.Engine]:
    options: dict[str, Any] = {} if isinstance(server, PostgreSQL) else {"connect_args": {"ssl_disabled": True}}
    engine = sqlalchemy.create_engine(address(server, "pymysql"), **options)
    yield engine
    engine.dispose()


def async_pool(server: Database) -> AsyncEngine:
    return create_async_engine(address(server, "asyncmy"))


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
        lease = ours.lock("handed", ttl=5).acquire()
        release = threading.Timer(0.1, lease.release)
        release.start()
        with theirs.lock("handed", ttl=5, timeout=5) as later:
            assert later.fence > lease.fence
        release.join()


def test_an_async_engine_for_asyncio(server: Database) -> None:
    async def play() -> None:
        pool = async_pool(server)
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


def test_the_two_kinds_are_not_mixed_up(server: Database) -> None:
    pool = async_pool(server)
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
