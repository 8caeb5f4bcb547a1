"""Every database by every way to it, behind one face: the tests of SQL guards are written once, without `await`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from quorumlock.guards.sql import AsyncColumnGuard, AsyncSQLGuard, ColumnGuard, SQLGuard
from tests.support.servers.databases import Database

SIDES = [
    f"{store}-{way}{aio}"
    for store in ("sqlite", "postgresql", "mysql")
    for way in ("driver", "session", "connection")
    for aio in ("", "-async")
    if way != "connection" or store == "postgresql"  # a session acts on a connection: once is enough
]
DRIVERS = [f"{store}-driver" for store in ("sqlite", "postgresql", "mysql")]
SQLALCHEMY = {
    "sqlite": "sqlite:///{file}",
    "postgresql": "postgresql+psycopg://test@127.0.0.1:{port}/postgres",
    "mysql": "mysql+pymysql://root@127.0.0.1:{port}/test",
    "sqlite-async": "sqlite+aiosqlite:///{file}",
    "postgresql-async": "postgresql+psycopg://test@127.0.0.1:{port}/postgres",
    "mysql-async": "mysql+asyncmy://root@127.0.0.1:{port}/test",
}

NO_TLS: dict[str, Any] = {"ssl_disabled": True}
"""PyMySQL reads the certificates of the system for every connection, which takes longer than a test."""


@cache
def engine(url: str, aio: bool, autocommit: bool) -> Any:
    """Kept, because each one asks its server a lot before it begins; it holds no connection."""
    import sqlalchemy
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    create: Any = create_async_engine if aio else sqlalchemy.create_engine
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": 20, "check_same_thread": False}
    if "pymysql" in url:
        options["connect_args"] = NO_TLS
    return create(url, poolclass=NullPool, **options)


class Conn:
    """A connection or session; what it returns is awaited where it must be."""

    def __init__(self, given: Any, settle: Callable[[Any], Any], alchemy: bool) -> None:
        self.given = given
        self._settle = settle
        self._alchemy = alchemy

    def __call__(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a guard's method with this connection."""
        return self._settle(method(self.given, *arguments))

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        if self._alchemy:
            from sqlalchemy import text

            result = self._settle(self.given.execute(text(sql)))
            return [tuple(row) for row in result.fetchall()] if result.returns_rows else []
        cursor = self._settle(self.given.cursor())
        self._settle(cursor.execute(sql))
        rows = [tuple(row) for row in self._settle(cursor.fetchall())] if cursor.description else []
        self._settle(cursor.close())
        return rows

    def one(self, sql: str) -> Any:
        """The first column of the only row."""
        ((value, *_),) = self.execute(sql)
        return value

    def commit(self) -> None:
        self._settle(self.given.commit())

    def rollback(self) -> None:
        self._settle(self.given.rollback())

    def close(self) -> None:
        self._settle(getattr(self.given, "ensure_closed", self.given.close)())


class Side:
    """One way to one database. Closes what it opened."""

    def __init__(self, name: str, where: Database | None, file: str) -> None:
        self.store, self.way, *aio = name.split("-")
        self.name = name
        self.aio = bool(aio)
        self._where = {"port": where.port if where else 0, "file": file}
        self._runner = asyncio.Runner() if self.aio else None
        self._conns: list[Conn] = []
        self.sql_guard: Any = AsyncSQLGuard if self.aio else SQLGuard
        self.column_guard: Any = AsyncColumnGuard if self.aio else ColumnGuard

    def settle(self, value: Any) -> Any:
        if self._runner is None or not inspect.isawaitable(value):
            return value

        async def wait() -> Any:
            return await value

        return self._runner.run(wait())

    def connect(self, *, autocommit: bool = False, isolation: str | None = None) -> Conn:
        if self.way == "driver":
            given = self.settle(getattr(self, f"_{self.store}")(autocommit))
        else:
            given = self._alchemy(autocommit)
        conn = Conn(given, self.settle, self.way != "driver")
        self._conns.append(conn)
        if self.store == "sqlite":
            conn.execute("PRAGMA synchronous = OFF")
        if isolation is not None:
            self._isolate(conn, isolation)
        return conn

    def _isolate(self, conn: Conn, level: str) -> None:
        if self.store == "postgresql":
            conn.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
        elif self.store == "mysql":
            conn.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        conn.commit()

    def _sqlite(self, autocommit: bool) -> Any:
        import sqlite3

        import aiosqlite

        connect: Any = aiosqlite.connect if self.aio else sqlite3.connect
        level = None if autocommit else ""
        return connect(self._where["file"], isolation_level=level, check_same_thread=False, timeout=20)

    def _postgresql(self, autocommit: bool) -> Any:
        import psycopg

        connect: Any = psycopg.AsyncConnection.connect if self.aio else psycopg.connect
        return connect(
            SQLALCHEMY["postgresql"].format(**self._where).replace("+psycopg", ""), autocommit=autocommit
        )

    def _mysql(self, autocommit: bool) -> Any:
        import asyncmy
        import pymysql  # type: ignore[import-untyped]

        options = {"host": "127.0.0.1", "port": self._where["port"], "user": "root", "database": "test"}
        options["autocommit"] = autocommit
        return asyncmy.connect(**options) if self.aio else pymysql.connect(**options, **NO_TLS)

    def _alchemy(self, autocommit: bool) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession
        from sqlalchemy.orm import Session

        url = SQLALCHEMY[f"{self.store}-async" if self.aio else self.store].format(**self._where)
        made = engine(url, self.aio, autocommit)
        if self.way == "connection":
            return self.settle(made.connect())
        return AsyncSession(made) if self.aio else Session(made)

    def close(self) -> None:
        for conn in self._conns:
            conn.close()
        if self._runner is not None:
            self._runner.close()
