"""The guard table: one row for each resource, with the highest fence it has seen.

The row is where transactions meet. Every step writes it, so that it stays locked until the transaction ends, and so
that a database which notices old views (PostgreSQL from REPEATABLE READ on, SQLite) has something to notice.

MySQL's REPEATABLE READ notices nothing:

    B: SELECT … FROM settings       its view of the database is made
    A: admit(33); UPDATE …; COMMIT
    B: enter(34)                    locks the row as it is now
    B: SELECT …                     the view of then: A's write is not in it, and B will overwrite it

So a step there first locks the row without changing it, then reads `writes` through the view, and goes on only if
that is still what the row says.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ...errors import ConfigurationError, StaleFence, VersionConflict
from ..base import Fenced, claim, refused
from . import defining, names
from .faults import meaning
from .links import Link
from .steps import Foreign, Query, Steps

LONGEST = 255
"""Characters of a resource."""


def digest(token: str) -> str:
    """What is stored of a token: enough to know it by, and of no use to whoever reads the table."""
    return hashlib.sha256(token.encode()).hexdigest()


def stale(resource: str, fence: int, seen: int) -> StaleFence:
    return StaleFence(
        f"{resource!r} has seen fence {seen}, and refuses {fence}: a newer holder is at work; roll back what the"
        " older one did",
        fence,
        seen,
    )


def old_view(resource: str) -> VersionConflict:
    return VersionConflict(
        f"this transaction began to read before the last write under {resource!r} was committed, and would not see"
        " it: roll back, and enter before reading anything"
    )


def storable(resource: str) -> str:
    """A resource that every database can keep as it is."""
    try:
        resource.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"the resource {resource[:40]!r} is not text that can be stored") from error
    if "\0" in resource:
        raise ConfigurationError(f"the resource {resource[:40]!r} has a NUL, which PostgreSQL cannot store")
    return resource


def marked(lease: Any) -> tuple[str, str]:
    """Resource, and digest of the token, of a lease that need not have a fence."""
    resource, token = getattr(lease, "resource", None), getattr(lease, "token", None)
    if not isinstance(token, str) or not token:
        raise ConfigurationError(f"a mark is made of the token of a lease; {type(lease).__name__} has none")
    if not isinstance(resource, str) or not resource or len(resource) > LONGEST:
        raise ConfigurationError(f"the resource of a mark is to be a text of 1 to {LONGEST} characters")
    return storable(resource), digest(token)


class TableGuard:
    """The procedures of a guard table."""

    def __init__(self, table: str = "quorumlock_guard") -> None:
        self.table = names.table(table)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.table!r}>"

    def _creating(self, link: Link) -> Steps[None]:
        return defining.table(link, self.table)

    def _entering(self, link: Link, lease: Fenced) -> Steps[None]:
        resource, fence = claim(lease, LONGEST)
        parameters = {"resource": storable(resource), "fence": fence}
        if (yield from self._explained(self._change(link, "fence = :fence", "fence <= :fence", parameters))):
            return
        now = " FOR UPDATE" if link.dialect == "mysql" else ""  # or it would tell what its view knows
        answer = yield self._query(link, f"SELECT fence FROM {{table}} WHERE resource = :resource{now}", parameters)
        seen = answer.rows[0][0] if answer.rows else 0  # somebody has just removed the row
        raise refused(lease, stale(resource, fence, seen)) if seen > fence else old_view(resource)

    def _admitting(self, link: Link, lease: Fenced) -> Steps[None]:
        self._together(link)
        yield from self._entering(link, lease)
        self._together(link, begun=True)

    def _marking(self, link: Link, lease: Any) -> Steps[None]:
        resource, mark = marked(lease)
        parameters = {"resource": resource, "mark": mark, "fence": 0}
        if not (yield from self._explained(self._change(link, "mark = :mark", "", parameters))):
            raise old_view(resource)

    def _writing_if_marked(self, link: Link, lease: Any, statement: Any, parameters: Any) -> Steps[int]:
        resource, mark = marked(lease)
        self._together(link)
        if not (yield from self._explained(self._still_marked(link, resource, mark))):
            raise VersionConflict(f"{resource!r} is not marked by this lease, or not any more: nothing was written")
        self._together(link, begun=True)
        return (yield Foreign(statement, parameters)).count

    def _still_marked(self, link: Link, resource: str, mark: str) -> Steps[bool]:
        """Locks the row, if the mark is on it. MySQL does not count a row in which nothing changes."""
        counted = ", writes = writes + 1" if link.dialect == "mysql" else ""
        sql = f"UPDATE {{table}} SET mark = :mark{counted} WHERE resource = :resource AND mark = :mark"
        answer = yield self._query(link, sql, {"resource": resource, "mark": mark})
        return answer.count > 0

    def _change(self, link: Link, change: str, condition: str, parameters: dict[str, object]) -> Steps[bool]:
        """Makes the row, or changes it on a condition, and leaves it locked; says whether it did."""
        if link.dialect == "mysql":
            return (yield from self._change_in_mysql(link, change, condition, parameters))
        columns = [name for name in ("resource", "fence", "mark") if name in parameters]
        sql = (
            f"INSERT INTO {{table}} AS guard ({', '.join(columns)})"
            f" VALUES ({', '.join(f':{name}' for name in columns)})"
            f" ON CONFLICT (resource) DO UPDATE SET {change}"
            f"{f' WHERE guard.{condition}' if condition else ''} RETURNING fence"
        )
        return bool((yield self._query(link, sql, parameters)).rows)

    def _change_in_mysql(
        self, link: Link, change: str, condition: str, parameters: dict[str, object]
    ) -> Steps[bool]:
        alone = link.alone()  # then every statement has a view of its own
        lock = "INSERT INTO {table} (resource, fence) VALUES (:resource, 0) ON DUPLICATE KEY UPDATE fence = fence"
        yield self._query(link, lock, parameters)
        answer = yield self._query(link, "SELECT writes FROM {table} WHERE resource = :resource", parameters)
        viewed = {"writes": answer.rows[0][0] if answer.rows else -1}
        conditions = ["resource = :resource", condition, "" if alone else "writes = :writes"]
        where = " AND ".join(filter(None, conditions))
        sql = f"UPDATE {{table}} SET {change}, writes = writes + 1 WHERE {where}"
        return (yield self._query(link, sql, parameters | viewed)).count > 0

    def _query(self, link: Link, sql: str, parameters: dict[str, object]) -> Query:
        """With the table's name, and of the parameters those that are used."""
        used = {name: value for name, value in parameters.items() if f":{name}" in sql}
        if link.dialect == "mysql":
            used["resource"] = str(used["resource"]).encode()
        return Query(sql.format(table=names.quoted(self.table, link.dialect)), used)

    def _together(self, link: Link, *, begun: bool = False) -> None:
        """Refuses a connection on which the guard's statement would be committed without the user's."""
        if link.half_open():
            raise ConfigurationError(
                "with SQLite the end of a savepoint (begin_nested) may commit what is in it, so the write would not"
                " be decided together with its fence: call this outside of the savepoint"
            )
        if link.alone() or (begun and not link.in_transaction()):
            raise ConfigurationError(
                "this connection commits every statement by itself, so the write would not be decided together with"
                " its fence: begin a transaction first"
            )

    def _explained(self, steps: Steps[Any]) -> Steps[Any]:
        """Says what to do about a table that is missing."""
        try:
            return (yield from steps)
        except Exception as error:
            meant = meaning(error)
            if meant == "no table":
                raise ConfigurationError(
                    f"there is no guard table {self.table!r} in this database: call create() of the guard once"
                ) from error
            if meant == "no column":
                raise ConfigurationError(f"{self.table!r} is a table that create() did not make") from error
            raise
