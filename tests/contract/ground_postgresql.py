"""A PostgreSQL database, for the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.support.servers.databases import Database, PostgreSQL

from .ground_sql import SqlGround

missing = PostgreSQL.missing


@contextmanager
def servers() -> Iterator[tuple[Database, Any]]:
    with PostgreSQL() as server, psycopg.connect(server.url, autocommit=True) as connection:
        yield server, connection


def ground(server: tuple[Database, Any]) -> SqlGround:
    return SqlGround(server[0].url, True, server[1])
