"""Performs the procedures of SQL guards on connections that block."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from .links import ASYNC, DRIVERS, SYNC, AlchemyLink, Link, alchemy_answer, answering, kind, module, unknown
from .steps import Answer, Foreign, Query, Steps

T = TypeVar("T")

# Each gives rows as tuples, whatever the connection's own cursors do.
_CURSORS: dict[str, Callable[[Any], Any]] = {
    "sqlite3": lambda connection: connection.cursor(),
    "psycopg": lambda connection: module("psycopg").Cursor(
        connection, row_factory=module("psycopg.rows").tuple_row
    ),
    "psycopg2": lambda connection: connection.cursor(cursor_factory=module("psycopg2.extensions").cursor),
    "pymysql": lambda connection: connection.cursor(module("pymysql.cursors").Cursor),
    "MySQLdb": lambda connection: connection.cursor(module("MySQLdb.cursors").Cursor),
}
_SESSIONS = {"Session", "scoped_session"}


class DriverLink(Link):
    """A connection of a driver."""

    def __init__(self, connection: Any, name: str) -> None:
        super().__init__(connection, DRIVERS[name])
        self._cursor = _CURSORS[name]

    def run(self, query: Query | Foreign) -> Answer:
        with closing(self._cursor(self.connection)) as cursor:
            if self.dialect == "sqlite":
                cursor.row_factory = None
            cursor.execute(*self.written(query))
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            return Answer(rows, cursor.rowcount)


class SessionLink(AlchemyLink):
    """A Connection or Session of SQLAlchemy."""

    def run(self, query: Query | Foreign) -> Answer:
        options = {"preserve_rowcount": True}
        return alchemy_answer(self.connection.execute(*self.written(query), execution_options=options))


def link(connection: Any) -> DriverLink | SessionLink:
    """What the guard acts through; ConfigurationError if it cannot act on such a connection."""
    name, cls = kind(connection)
    if "Async" in cls or "async" in cls or name in {"aiosqlite", "asyncmy"}:
        raise unknown(connection, SYNC, f": for asyncio there is an Async guard, for {ASYNC}")
    if name == "sqlalchemy" and cls in _SESSIONS:
        return SessionLink(connection.connection())
    if name == "sqlalchemy" and cls == "Connection":
        return SessionLink(connection)
    if name in _CURSORS and hasattr(connection, "cursor"):
        return DriverLink(answering(connection, name), name)
    raise unknown(connection, SYNC, "")


def perform(connection: Any, procedure: Callable[..., Steps[T]], *arguments: Any) -> T:
    """Runs a procedure to its end."""
    through = link(connection)
    steps = procedure(through, *arguments)
    try:
        query = next(steps)
        while True:
            try:
                answer = through.run(query)
            except Exception as error:
                query = steps.throw(error)
            else:
                query = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
