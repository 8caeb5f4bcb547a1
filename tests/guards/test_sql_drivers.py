"""Connections that are set up in ways of their own: rows that are no tuples, subclasses, pools, modes."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import quorumlock.guards
from quorumlock import ConfigurationError, StaleFence
from quorumlock.guards import Claim
from quorumlock.guards.sql import AsyncSQLGuard, ColumnGuard, SQLGuard
from tests.style.test_exports import foreign, newly_imported

from .sql_sides import DRIVERS, NO_TLS, SIDES, Side

Open = Callable[[str], Side]


def uses_all_of_it(conn: Any) -> None:
    """Every method that reads rows."""
    guard = SQLGuard()
    guard.create(conn)
    guard.create(conn)
    guard.enter(conn, Claim("a", 2))
    with pytest.raises(StaleFence) as caught:
        guard.admit(conn, Claim("a", 1))
    assert caught.value.seen == 2
    guard.admit(conn, Claim("a", 2))
    conn.commit()


class Renamed(sqlite3.Connection):
    """A connection of somebody's own."""


def test_sqlite_rows_of_other_kinds_and_subclasses() -> None:
    with closing(sqlite3.connect(":memory:", factory=Renamed)) as conn:
        conn.row_factory = sqlite3.Row
        uses_all_of_it(conn)
    with closing(sqlite3.connect(":memory:")) as conn:
        conn.row_factory = lambda cursor, row: {"fence": row}
        conn.text_factory = bytes
        uses_all_of_it(conn)


if sys.version_info >= (3, 12):

    def test_sqlite_knows_of_transactions_in_a_new_way() -> None:
        with closing(sqlite3.connect(":memory:", autocommit=True)) as conn:
            SQLGuard().create(conn)
            with pytest.raises(ConfigurationError, match="begin a transaction first"):
                SQLGuard().admit(conn, Claim("a", 1))
            conn.execute("BEGIN")
            SQLGuard().admit(conn, Claim("a", 1))
            conn.execute("COMMIT")
        with closing(sqlite3.connect(":memory:", autocommit=False)) as conn:
            uses_all_of_it(conn)


def test_psycopg_rows_and_cursors_of_other_kinds(open_side: Open) -> None:
    import psycopg
    from psycopg.rows import dict_row, scalar_row

    conn = open_side("postgresql-driver").connect().given
    for rows, cursors in [
        (dict_row, psycopg.Cursor),
        (scalar_row, psycopg.ClientCursor),
        (None, psycopg.RawCursor),
    ]:
        if rows is not None:
            conn.row_factory = rows
        conn.cursor_factory = cursors
        uses_all_of_it(conn)


def test_a_transaction_of_psycopg_on_a_connection_that_commits_by_itself(open_side: Open) -> None:
    conn = open_side("postgresql-driver").connect(autocommit=True).given
    guard = SQLGuard()
    guard.create(conn)
    with conn.transaction():
        guard.admit(conn, Claim("a", 1))
    guard.enter(conn, Claim("a", 2))
    with pytest.raises(StaleFence), conn.transaction():
        guard.admit(conn, Claim("a", 1))
    with conn.pipeline(), pytest.raises(ConfigurationError, match="pipeline mode"):
        guard.enter(conn, Claim("a", 3))


def test_pymysql_rows_of_other_kinds(open_side: Open, find_database: Any) -> None:
    import pymysql  # type: ignore[import-untyped]

    open_side("mysql-driver")
    options = {"host": "127.0.0.1", "port": find_database("mysql").port, "user": "root", "database": "test"}
    for flags, cursors in [(0, pymysql.cursors.DictCursor), (pymysql.constants.CLIENT.FOUND_ROWS, None)]:
        more = {"cursorclass": cursors} if cursors else {}
        with closing(pymysql.connect(client_flag=flags, **options, **more, **NO_TLS)) as conn:
            uses_all_of_it(conn)


@pytest.mark.parametrize("name", ["sqlite-driver-async", "postgresql-driver-async"])
def test_rows_of_other_kinds_for_asyncio(open_side: Open, name: str) -> None:
    from psycopg.rows import dict_row

    conn = open_side(name).connect()
    conn.given.row_factory = dict_row if name.startswith("postgresql") else lambda cursor, row: {"fence": row}
    guard = AsyncSQLGuard()
    conn(guard.create)
    conn(guard.enter, Claim("a", 2))
    with pytest.raises(StaleFence) as caught:
        conn(guard.enter, Claim("a", 1))
    assert caught.value.seen == 2
    conn.rollback()


def test_a_scoped_session_is_a_session(tmp_path: Path) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import scoped_session, sessionmaker

    engine = create_engine(f"sqlite:///{tmp_path / 'x'}")
    session = scoped_session(sessionmaker(engine))
    uses_all_of_it(session)
    session.remove()
    engine.dispose()


def test_sqlalchemy_told_to_commit_by_itself_for_one_connection(tmp_path: Path) -> None:
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{tmp_path / 'x'}")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        SQLGuard().create(conn)
        with pytest.raises(ConfigurationError, match="begin a transaction first"):
            SQLGuard().admit(conn, Claim("a", 1))
    engine.dispose()


def test_a_guard_for_threads_inside_run_sync(tmp_path: Path) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def use() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'x'}")
        async with AsyncSession(engine) as session:
            await session.run_sync(uses_all_of_it)
        await engine.dispose()

    asyncio.run(use())


@pytest.mark.parametrize("name", DRIVERS)
def test_everybody_may_create_at_once(open_side: Open, name: str) -> None:
    side = open_side(name)
    conns = [side.connect(autocommit=True).given for _ in range(6)]
    conns[0].cursor().execute("CREATE TABLE account (id INTEGER PRIMARY KEY)")

    def create(conn: Any) -> None:
        SQLGuard().create(conn)
        ColumnGuard("account").create(conn)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(create, conns))
    SQLGuard().enter(conns[0], Claim("a", 1))


@pytest.mark.parametrize("name", [name for name in SIDES if name.endswith("async")])
def test_a_task_waits_until_the_others_write_is_decided(open_side: Open, name: str) -> None:
    side = open_side(name)
    a, b = side.connect(), side.connect()
    guard = AsyncSQLGuard()
    a(guard.create)
    a.commit()

    async def meet() -> None:
        await guard.admit(a.given, Claim("x", 33))
        waiting = asyncio.create_task(guard.enter(b.given, Claim("x", 34)))
        assert not (await asyncio.wait([waiting], timeout=0.1))[0]
        await a.given.commit()
        await asyncio.wait_for(waiting, 20)
        await b.given.commit()
        with pytest.raises(StaleFence):
            await guard.admit(a.given, Claim("x", 33))
        await a.given.rollback()

    side.settle(meet())


def test_guards_import_nothing_that_is_not_in_use() -> None:
    modules = newly_imported("from quorumlock.guards import SQLGuard, AsyncSQLGuard, ColumnGuard, Claim")
    assert foreign(modules) == set()
    assert not modules & {"sqlite3", "asyncio"}
    assert {"SQLGuard", "AsyncColumnGuard"} <= set(dir(quorumlock.guards))
