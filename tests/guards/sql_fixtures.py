"""Databases for the tests of SQL guards: one server of each kind for the session, emptied before every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.servers import databases
from tests.support.servers.databases import Database, MariaDB, PostgreSQL

from .sql_sides import NO_TLS, Side

SERVERS: dict[str, type[Database]] = {"postgresql": PostgreSQL, "mysql": MariaDB}
DROP = b"DROP TABLE IF EXISTS quorumlock_guard, other_guard, account, history, settings"

Database_ = Database | None
Find = Callable[[str], Database_]


def needed(store: str) -> None:
    """Skips a test whose server is not on this machine; never in CI."""
    if store in SERVERS:
        databases.needed(SERVERS[store])


def empty(store: str, server: Database) -> None:
    if store == "postgresql":
        import psycopg

        url = f"postgresql://test@127.0.0.1:{server.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '10s'")
            connection.execute(DROP)
    else:
        import pymysql  # type: ignore[import-untyped]

        with (
            closing(
                pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True, **NO_TLS)
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE DATABASE IF NOT EXISTS test")
            cursor.execute("USE test")
            cursor.execute("SET lock_wait_timeout = 10")
            cursor.execute(DROP)


@pytest.fixture(scope="session")
def find_database() -> Iterator[Find]:
    """The server of a store, started when it is first asked for; None for SQLite, which has none."""
    running: dict[str, Database] = {}
    with ExitStack() as stack:

        def find(store: str) -> Database_:
            needed(store)
            if store in SERVERS and store not in running:
                running[store] = stack.enter_context(SERVERS[store]())
            return running.get(store)

        yield find


@pytest.fixture
def open_side(find_database: Find, tmp_path: Path) -> Iterator[Callable[[str], Side]]:
    """A way to an empty database, by its name."""
    opened: list[Side] = []

    def make(name: str) -> Side:
        store = name.partition("-")[0]
        server = find_database(store)
        if server is not None and not opened:
            empty(store, server)
        opened.append(Side(name, server, str(tmp_path / "database")))
        return opened[-1]

    yield make
    for side in opened:
        side.close()
