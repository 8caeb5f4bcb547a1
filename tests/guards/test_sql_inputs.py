"""What SQL guards refuse: leases that are none, names that are none, and connections they cannot act on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlock import ConfigurationError, StaleFence
from quorumlock.guards import Claim
from quorumlock.guards.sql import AsyncColumnGuard, AsyncSQLGuard, ColumnGuard, SQLGuard

from .sql_sides import Side

Open = Callable[[str], Side]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
        connection.execute("INSERT INTO account VALUES (1, 0)")
        SQLGuard().create(connection)
        ColumnGuard("account").create(connection)
        connection.commit()
        yield connection
        assert not connection.in_transaction, "nothing was begun"
        assert connection.execute("SELECT count(*) FROM quorumlock_guard").fetchone() == (0,)
        assert connection.execute("SELECT * FROM account").fetchall() == [(1, 0, 0)]


def lease(resource: object = "a", fence: object = 1, **more: object) -> Any:
    return SimpleNamespace(resource=resource, fence=fence, **more)


LEASES = {
    "no lease": (None, "does not name a resource"),
    "a number": (33, "does not name a resource"),
    "no resource": (lease(None), "does not name a resource"),
    "an empty resource": (lease(""), "does not name a resource"),
    "bytes": (lease(b"a"), "does not name a resource"),
    "no fence": (lease(fence=None), "has no fence"),
    "without the attribute": (SimpleNamespace(resource="a"), "has no fence"),
    "zero": (lease(fence=0), "between 1 and"),
    "below zero": (lease(fence=-1), "between 1 and"),
    "above 2**53": (lease(fence=2**53 + 1), "between 1 and"),
    "a text": (lease(fence="7"), "is to be an integer, not str"),
    "a float": (lease(fence=7.0), "is to be an integer, not float"),
    "a bool": (lease(fence=True), "is to be an integer, not bool"),
}
RESOURCES = {
    "too long": (lease("x" * 256), "has 256 characters; this guard stores 255"),
    "NUL": (lease("a\0b"), "NUL"),
    "a surrogate": (lease("a\ud800"), "not text that can be stored"),
}


@pytest.mark.parametrize("verb", ["enter", "admit"])
@pytest.mark.parametrize("name", LEASES | RESOURCES)
def test_a_lease_that_is_none_is_refused(database: sqlite3.Connection, name: str, verb: str) -> None:
    given, words = (LEASES | RESOURCES)[name]
    with pytest.raises(ConfigurationError, match=words):
        getattr(SQLGuard(), verb)(database, given)


@pytest.mark.parametrize("name", LEASES)
def test_a_lease_that_is_none_is_refused_by_a_column(database: sqlite3.Connection, name: str) -> None:
    given, words = LEASES[name]
    guard = ColumnGuard("account")
    calls: list[Callable[[], None]] = [
        lambda: guard.enter(database, given, 1),
        lambda: guard.update(database, given, 1, {"balance": 1}),
        lambda: guard.check(database, given, 1, 1),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=words):
            call()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "has none"),
        (Claim("a", 1), "Claim has none"),
        (lease(token=""), "has none"),
        (lease(token=b"x"), "has none"),
        (lease(None, token="x"), "1 to 255 characters"),
        (lease("", token="x"), "1 to 255 characters"),
        (lease("x" * 256, token="x"), "1 to 255 characters"),
        (lease("a\0", token="x"), "NUL"),
    ],
)
def test_a_mark_needs_a_token_and_a_resource(database: sqlite3.Connection, given: Any, words: str) -> None:
    guard = SQLGuard()
    with pytest.raises(ConfigurationError, match=words):
        guard.mark(database, given)
    with pytest.raises(ConfigurationError, match=words):
        guard.write_if_marked(database, given, "UPDATE account SET balance = 1")


NAMES: list[Any] = [
    "", " ", "a b", 'a"b', "a`b", "a;b", "a'b", "a.b.c", ".a", "a.", "1a", "a:b", "a%s", "x" * 64, "a\0", None, 7,
    b"a", "a]", "a--", "a$$b",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_name_that_could_be_something_else_is_refused(database: sqlite3.Connection, name: Any) -> None:
    for make in (SQLGuard, AsyncSQLGuard, ColumnGuard, AsyncColumnGuard):
        with pytest.raises(ConfigurationError, match="is to be a name"):
            make(name)
    with pytest.raises(ConfigurationError, match="the key is to be a name"):
        ColumnGuard("account", key=name)
    with pytest.raises(ConfigurationError, match="the column is to be a name"):
        ColumnGuard("account", column=name)
    with pytest.raises(ConfigurationError, match="a column is to be a name"):
        ColumnGuard("account").update(database, Claim("a", 1), 1, {"balance": 1, name: 2})


@pytest.mark.parametrize("name", ["order", "Select", "größe", "_x1", "x" * 63, "Main.Group"])
def test_every_other_name_is_taken_as_it_is(name: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        guard = SQLGuard(name)
        guard.create(database)
        guard.enter(database, Claim("a", 2))
        with pytest.raises(StaleFence):
            guard.enter(database, Claim("a", 1))
    assert repr(guard) == f"<SQLGuard {name!r}>"


def test_the_fence_is_not_a_value_of_the_users(database: sqlite3.Connection) -> None:
    with pytest.raises(ConfigurationError, match="takes its value from the lease"):
        ColumnGuard("account").update(database, Claim("a", 1), 1, {"Fence": 7})


def test_a_missing_column_is_not_taken_for_a_text(database: sqlite3.Connection) -> None:
    """In double quotes, SQLite would."""
    with pytest.raises(ConfigurationError, match="no column 'token'"):
        ColumnGuard("account", column="token").update(database, Claim("a", 1), 1, {"balance": 1})
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        ColumnGuard("account", key="nothing").update(database, Claim("a", 1), 1, {"balance": 1})
    database.rollback()


def test_a_table_of_somebody_elses_is_said_to_be_one(database: sqlite3.Connection) -> None:
    with pytest.raises(ConfigurationError, match=r"'account' is a table that create\(\) did not make"):
        SQLGuard("account").enter(database, Claim("a", 1))
    database.rollback()


NOT_CONNECTIONS = {"None": None, "url": "sqlite://", "object": object(), "number": 7, "module": sqlite3}


@pytest.mark.parametrize("conn", NOT_CONNECTIONS.values(), ids=NOT_CONNECTIONS)
def test_a_connection_of_an_unknown_kind_is_refused(conn: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"acts on connections of sqlite3, psycopg.*SQLAlchemy, not on"):
        SQLGuard().enter(conn, Claim("a", 1))
    with pytest.raises(ConfigurationError, match=r"acts on connections of aiosqlite, psycopg.*SQLAlchemy, not on"):
        asyncio.run(AsyncSQLGuard().enter(conn, Claim("a", 1)))


def test_a_cursor_and_an_engine_are_not_connections(database: sqlite3.Connection) -> None:
    from sqlalchemy import create_engine

    engine = create_engine("sqlite://")
    for conn in (database.cursor(), engine):
        with pytest.raises(ConfigurationError, match="acts on connections of"):
            SQLGuard().enter(conn, Claim("a", 1))
    engine.dispose()


@pytest.mark.parametrize("side", ["sqlite-driver", "sqlite-connection", "sqlite-session", "postgresql-driver"])
def test_a_guard_of_the_other_side_is_named(open_side: Open, side: str) -> None:
    blocking, awaiting = open_side(side).connect(), open_side(f"{side}-async").connect()
    with pytest.raises(ConfigurationError, match="for threads there is a guard without Async"):
        asyncio.run(AsyncSQLGuard().enter(blocking.given, Claim("a", 1)))
    with pytest.raises(ConfigurationError, match="for asyncio there is an Async guard"):
        SQLGuard().enter(awaiting.given, Claim("a", 1))


def test_an_async_connection_that_is_not_open_is_refused() -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    async def use() -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        with pytest.raises(ConfigurationError, match="is not open"):
            await AsyncSQLGuard().enter(engine.connect(), Claim("a", 1))
        await engine.dispose()

    asyncio.run(use())


def test_a_locked_database_is_the_drivers_own_error(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "x", timeout=0)) as one,
        closing(sqlite3.connect(tmp_path / "x", timeout=0)) as two,
    ):
        SQLGuard().create(one)
        SQLGuard().enter(one, Claim("a", 1))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            SQLGuard().enter(two, Claim("a", 2))
