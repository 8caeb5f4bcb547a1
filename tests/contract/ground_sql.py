"""What the grounds of the databases share: rows, looked at from behind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from quorumlock import AsyncLocker

from .grounds import ALL, SOMEBODY

TABLES = ("quorumlock_locks", "quorumlock_cells", "quorumlock_meta")


class SqlGround:
    """A database without our tables. What has expired may still be in it, and counts as gone."""

    count = 1
    shortest = 0.15

    def __init__(self, url: str, announces: bool, connection: Any) -> None:
        self.urls = [url]
        self.announces = announces
        self._connection = connection
        self._execute(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")

    async def prepare(self, locker: AsyncLocker) -> None:
        await locker.lock("makes the tables", ttl=0.1).locked()

    def holders(self, name: str) -> list[str | None]:
        row = self._row(name)
        return [row[0] if row else None]

    def left_ms(self, name: str) -> list[int]:
        row = self._row(name)
        return [int(row[2] / 1000 - _now_ms()) if row else -2]

    def fences(self, name: str) -> list[int]:
        found = self._execute("SELECT fence FROM quorumlock_locks WHERE name = %s", name)
        return [found[0][0] if found else self._execute("SELECT floor FROM quorumlock_meta")[0][0]]

    def delete(self, name: str, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            told = "token = '', until_us = 0, doc = '', version = version + 1"
            self._execute(f"UPDATE quorumlock_locks SET {told} WHERE name = %s", name)

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            until_us = int((_now_ms() + ttl_ms) * 1000)
            told = "token = %s, until_us = %s, doc = '', version = version + 1"
            if not self._execute("SELECT 1 FROM quorumlock_locks WHERE name = %s", name):
                self._execute(
                    """INSERT INTO quorumlock_locks (name, begins, version, fence, token, until_us, touched_us, doc)
                    SELECT %s, 0, floor + 1, floor + 1, '', 0, 0, '' FROM quorumlock_meta""",
                    name,
                )
            self._execute(f"UPDATE quorumlock_locks SET {told} WHERE name = %s", SOMEBODY, until_us, name)

    def _row(self, name: str) -> tuple[str, int, int] | None:
        """Token, fence and end."""
        found = self._execute(
            "SELECT token, fence, until_us FROM quorumlock_locks WHERE name = %s AND until_us > %s",
            name,
            int(_now_ms() * 1000),
        )
        return found[0] if found else None

    def _execute(self, statement: str, *values: Any) -> Sequence[Any]:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []


def _now_ms() -> float:
    """Of this machine: its databases have no other clock."""
    return time.time() * 1000
