"""Guards that are wrong, each in one way: the checks have to find them out."""

from __future__ import annotations

import random
import time
from typing import Any

from quorumlock.guards.base import Fenced, claim
from quorumlock.guards.sql import ColumnGuard, SQLGuard
from quorumlock.guards.sql.links import Link
from quorumlock.guards.sql.steps import Query, Steps
from quorumlock.guards.sql.table import stale


def linger(most: float = 0.05) -> None:
    """Where a right guard has the row locked, or would not be."""
    time.sleep(random.random() * most)


class Unlocked(SQLGuard):
    """Reads, compares, writes: somebody else may do so in between."""

    def _entering(self, link: Link, lease: Fenced) -> Steps[None]:
        resource, fence = claim(lease)
        known: dict[str, object] = {"resource": resource.encode() if link.dialect == "mysql" else resource}
        rows = (yield Query("SELECT fence FROM quorumlock_guard WHERE resource = :resource", known)).rows
        linger()
        if rows and rows[0][0] > fence:
            raise stale(resource, fence, rows[0][0])
        if rows:
            sql = "UPDATE quorumlock_guard SET fence = :fence WHERE resource = :resource"
        else:
            sql = "INSERT INTO quorumlock_guard (resource, fence) VALUES (:resource, :fence)"
        yield Query(sql, known | {"fence": fence})


class Unordered(SQLGuard):
    """Admits everybody."""

    def _change(self, link: Link, change: str, condition: str, parameters: dict[str, object]) -> Steps[bool]:
        yield from super()._change(link, change, "", parameters)
        return True


class Apart(SQLGuard):
    """Commits the mark by itself, before the write."""

    def admit(self, conn: Any, lease: Fenced) -> None:
        super().admit(conn, lease)
        conn.commit()
        linger(0.2)  # of these few are accepted


class Trusting(SQLGuard):
    """Believes that a transaction of MySQL's reads what is there."""

    def _change_in_mysql(
        self, link: Link, change: str, condition: str, parameters: dict[str, object]
    ) -> Steps[bool]:
        upsert = "INSERT INTO {table} (resource, fence) VALUES (:resource, :fence)"
        rising = "ON DUPLICATE KEY UPDATE fence = GREATEST(fence, :fence)"
        yield self._query(link, f"{upsert} {rising}", parameters)
        look = "SELECT fence FROM {table} WHERE resource = :resource FOR UPDATE"
        answer = yield self._query(link, look, parameters)
        return bool(answer.rows[0][0] == parameters["fence"])


class Unconditional(ColumnGuard):
    """Updates the row whatever its fence."""

    def _updating(self, link: Link, lease: Fenced, key: object, values: Any) -> Steps[None]:
        _, fence = claim(lease)
        changes = ", ".join(f"{name} = :{name}" for name in [*values, "fence"])
        sql = f"UPDATE {self.table} SET {changes} WHERE {self.key} = :key"
        yield Query(sql, {**values, "fence": fence, "key": key})


CANARIES = {"unlocked": Unlocked, "unordered": Unordered, "apart": Apart}
