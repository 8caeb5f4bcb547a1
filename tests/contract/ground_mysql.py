"""A MariaDB database, for the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql  # type: ignore[import-untyped]

from tests.support.servers.databases import Database, MariaDB

from .ground_sql import SqlGround

missing = MariaDB.missing


@contextmanager
def servers() -> Iterator[tuple[Database, Any]]:
    with MariaDB() as server:
        options = {"host": "127.0.0.1", "port": server.port, "user": "root", "autocommit": True}
        with closing(pymysql.connect(**options, ssl_disabled=True)) as connection:
            with connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE test")
            connection.select_db("test")
            yield server, connection


def ground(server: tuple[Database, Any]) -> SqlGround:
    return SqlGround(server[0].url, False, server[1])
