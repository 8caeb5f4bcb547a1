"""Performs the procedures of SQL guards on connections of asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...errors import ConfigurationError
from .links import ASYNC, DRIVERS, SYNC, AlchemyLink, Link, alchemy_answer, answering, kind, module, unknown
from .steps import Answer, Foreign, Query, Steps

T = TypeVar("T")


async def _sqlite_cursor(connection: Any) -> Any:
    cursor = await connection.cursor()
    cursor.row_factory = None
    return cursor


async def _psycopg_cursor(connection: Any) -> Any:
    return module("psycopg").AsyncCursor(connection, row_factory=module("psycopg.rows").tuple_row)


async def _asyncmy_cursor(connection: Any) -> Any:
    return connection.cursor(module("asyncmy.cursors").Cursor)


_CURSORS = {"aiosqlite": _sqlite_cursor, "psycopg": _psycopg_cursor, "asyncmy": _asyncmy_cursor}
_SESSIONS = {"AsyncSession", "async_scoped_session"}


class AsyncDriverLink(Link):
    """A connection of a driver."""

    def __init__(self, connection: Any, name: str) -> None:
        super().__init__(connection, DRIVERS[name])
        self._cursor = _CURSORS[name]

    async def run(self, query: Query | Foreign) -> Answer:
        cursor = await self._cursor(self.connection)
        try:
            await cursor.execute(*self.written(query))
            rows = [tuple(row) for row in await cursor.fetchall()] if cursor.description else []
            return Answer(rows, cursor.rowcount)
        finally:
            await cursor.close()


class AsyncSessionLink(AlchemyLink):
    """An AsyncConnection or AsyncSession of SQLAlchemy."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection.sync_connection)
        self._outer = connection

    async def run(self, query: Query | Foreign) -> Answer:
        options = {"preserve_rowcount": True}
        return alchemy_answer(await self._outer.execute(*self.written(query), execution_options=options))


async def link(connection: Any) -> AsyncDriverLink | AsyncSessionLink:
    """What the guard acts through; ConfigurationError if it cannot act on such a connection."""
    name, cls = kind(connection)
    if name == "sqlalchemy" and cls in _SESSIONS:
        return AsyncSessionLink(await connection.connection())
    if name == "sqlalchemy" and cls == "AsyncConnection":
        if connection.sync_connection is None:
            raise ConfigurationError(
                "this AsyncConnection is not open: `async with engine.connect() as connection`"
            )
        return AsyncSessionLink(connection)
    if name in _CURSORS and hasattr(connection, "cursor") and not (name == "psycopg" and "Async" not in cls):
        return AsyncDriverLink(answering(connection, name), name)
    other = f": for threads there is a guard without Async, for {SYNC}" if name else ""
    raise unknown(connection, ASYNC, other)


async def perform(connection: Any, procedure: Callable[..., Steps[T]], *arguments: Any) -> T:
    """Runs a procedure to its end."""
    through = await link(connection)
    steps = procedure(through, *arguments)
    try:
        query = next(steps)
        while True:
            try:
                answer = await through.run(query)
            except Exception as error:
                query = steps.throw(error)
            else:
                query = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
