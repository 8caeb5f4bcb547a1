"""The connections that guards can act on, recognised by their type: no driver is imported that is not in use."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...errors import ConfigurationError
from .steps import Answer, Foreign, Query

_PARAMETER = re.compile(r":(\w+)")
_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS, of the MySQL protocol
_IDLE = 0  # PQTRANS_IDLE, of libpq


@dataclass(frozen=True, slots=True)
class Driver:
    """What there is to know of a driver."""

    dialect: str
    in_transaction: Callable[[Any], bool]
    """Is a transaction open?"""
    autocommits: Callable[[Any], bool]
    """Would the next statement be committed by itself, unless a transaction is open?"""
    named: bool = False
    """Are parameters written `:name`? Otherwise `%(name)s`."""


def _sqlite_autocommits(connection: Any) -> bool:
    return getattr(connection, "autocommit", None) is True or connection.isolation_level is None


def _sqlite() -> Driver:
    return Driver("sqlite", lambda connection: bool(connection.in_transaction), _sqlite_autocommits, named=True)


def _libpq() -> Driver:
    return Driver(
        "postgresql",
        lambda connection: connection.info.transaction_status != _IDLE,
        lambda connection: bool(connection.autocommit),
    )


def _mysql(in_transaction: Callable[[Any], bool]) -> Driver:
    return Driver("mysql", in_transaction, lambda connection: bool(connection.get_autocommit()))


DRIVERS = {
    "sqlite3": _sqlite(),
    "aiosqlite": _sqlite(),
    "psycopg": _libpq(),
    "psycopg2": _libpq(),
    "pymysql": _mysql(lambda connection: bool(connection.server_status & _IN_TRANSACTION)),
    "asyncmy": _mysql(lambda connection: bool(connection.get_transaction_status())),
    # It does not tell. With autocommit off there is a transaction, or will be.
    "MySQLdb": _mysql(lambda connection: not connection.get_autocommit()),
}
DIALECTS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
"""SQLAlchemy's names, and ours."""


def kind(connection: object) -> tuple[str, str]:
    """The driver, or `sqlalchemy`, that a connection is of, and the name of the class that says so."""
    for one in type(connection).__mro__:
        root = one.__module__.partition(".")[0]
        if root in DRIVERS or root == "sqlalchemy":
            return root, one.__name__
    return "", type(connection).__name__


class Link:
    """A connection, and what is known of it without asking the database."""

    def __init__(self, connection: Any, driver: Driver) -> None:
        self.connection = connection
        self.dialect = driver.dialect
        self._driver = driver

    @property
    def _raw(self) -> Any:
        return self.connection

    def in_transaction(self) -> bool:
        """Is a transaction open?"""
        return self._driver.in_transaction(self._raw)

    def alone(self) -> bool:
        """Would the next statement be a transaction of its own?"""
        return self._driver.autocommits(self._raw) and not self.in_transaction()

    def half_open(self) -> bool:
        """Would the end of a savepoint commit what is done now?"""
        return False

    def written(self, query: Query | Foreign) -> tuple[Any, ...]:
        """The arguments of the driver's `execute`."""
        if isinstance(query, Foreign):
            sql = query.statement
        else:
            sql = query.sql if self._driver.named else _PARAMETER.sub(r"%(\1)s", query.sql)
        return (sql, query.parameters) if query.parameters else (sql,)


def _alchemy_driver(connection: Any) -> Driver:
    """Of the connection that SQLAlchemy's stands for."""
    dialect = DIALECTS.get(connection.dialect.name)
    if dialect is None:
        raise ConfigurationError(f"{connection.dialect.name} is not among PostgreSQL, MySQL, MariaDB and SQLite")
    known = DRIVERS.get(kind(connection.connection.driver_connection)[0])
    if known is not None:
        return known

    # A driver that only SQLAlchemy knows: what was asked of it is what there is.
    def autocommits(_: object) -> bool:
        chosen = connection.engine.get_execution_options() | connection.get_execution_options()
        return bool(chosen.get("isolation_level") == "AUTOCOMMIT")

    return Driver(dialect, lambda raw: not autocommits(raw), autocommits)


class AlchemyLink(Link):
    """A Connection of SQLAlchemy; for asyncio, the one inside it."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, _alchemy_driver(connection))

    @property
    def _raw(self) -> Any:
        return self.connection.connection.driver_connection

    def half_open(self) -> bool:
        """Python's sqlite3 begins no transaction before a savepoint, unless it is told to: then its end commits."""
        if self.dialect != "sqlite" or not self.connection.in_nested_transaction():
            return False
        return getattr(self._raw, "autocommit", None) is not False

    def written(self, query: Query | Foreign) -> tuple[Any, ...]:
        from sqlalchemy import text

        sql = query.statement if isinstance(query, Foreign) else query.sql
        return (text(sql) if isinstance(sql, str) else sql, query.parameters or None)


def alchemy_answer(result: Any) -> Answer:
    rows = [tuple(row) for row in result.fetchall()] if result.returns_rows else []
    return Answer(rows, result.rowcount)


def module(name: str) -> Any:
    """A part of a driver that is in use already."""
    return import_module(name)


def answering(connection: Any, name: str) -> Any:
    """The connection, unless it would tell the answers later."""
    if name == "psycopg" and connection.pgconn.pipeline_status:
        raise ConfigurationError(
            "this connection is in pipeline mode: a guard has to know the answer; leave it first"
        )
    return connection


SYNC = "sqlite3, psycopg, psycopg2, PyMySQL, mysqlclient, or a Connection or Session of SQLAlchemy"
ASYNC = "aiosqlite, psycopg (AsyncConnection), asyncmy, or an AsyncConnection or AsyncSession of SQLAlchemy"


def unknown(connection: object, supported: str, other: str) -> ConfigurationError:
    given = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return ConfigurationError(f"this guard acts on connections of {supported}, not on {given}{other}")
