"""The column form: the fence is kept in the row that it protects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ConfigurationError
from ..base import Fenced, claim, refused
from . import defining, names
from .faults import about, meaning
from .links import Link
from .steps import Query, Steps
from .table import old_view, stale


class RowGuard:
    """The procedures of a fence column."""

    def __init__(self, table: str, *, key: str = "id", column: str = "fence") -> None:
        self.table = names.table(table)
        self.key = names.column("the key", key)
        self.column = names.column("the column", column)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.table!r} key={self.key!r} column={self.column!r}>"

    def _creating(self, link: Link) -> Steps[None]:
        return defining.column(link, self.table, self.column)

    def _entering(self, link: Link, lease: Fenced, key: object) -> Steps[None]:
        return self._updating(link, lease, key, {})

    def _updating(self, link: Link, lease: Fenced, key: object, values: Mapping[str, object]) -> Steps[None]:
        _, fence = claim(lease)
        parameters: dict[str, object] = {"key": key, "fence": fence}
        changes = [f"{self._name(link, self.column)} = :fence"]
        for number, (column, value) in enumerate(values.items()):
            if names.column("a column", column).lower() == self.column.lower():
                raise ConfigurationError(f"{column!r} is the guard's own column: it takes its value from the lease")
            changes.append(f"{self._name(link, column)} = :value{number}")
            parameters[f"value{number}"] = value
        fitting = f"{self._name(link, self.key)} = :key AND {self._name(link, self.column)} <= :fence"
        sql = f"UPDATE {self._name(link, self.table)} SET {', '.join(changes)} WHERE {fitting}"
        yield from self._explained(self._refuse_old_view(link, lease, key))
        count = yield from self._explained(self._count(Query(sql, parameters)))
        yield from self._checking(link, lease, key, count)

    def _count(self, query: Query) -> Steps[int]:
        return (yield query).count

    def _checking(self, link: Link, lease: Fenced, key: object, rowcount: int) -> Steps[None]:
        resource, fence = claim(lease)
        if rowcount == 1:
            return
        if rowcount > 1:
            raise ConfigurationError(
                f"{self.key} = {key!r} names {rowcount} rows of {self.table!r}, not one: roll back; a fence belongs"
                " to one row"
            )
        seen = yield from self._explained(self._seen(link, key))
        if seen > fence:
            raise refused(lease, stale(resource, fence, seen))
        if seen == fence and link.dialect == "mysql":
            return  # the row is as it was to become: MySQL counts what changes, not what matches
        raise LookupError(f"no row of {self.table!r} with {self.key} = {key!r} was there to be written to")

    def _refuse_old_view(self, link: Link, lease: Fenced, key: object) -> Steps[None]:
        """Refuses a transaction of MySQL's that reads the row as it was before this holder entered.

        A row that it has changed itself it sees as it is. One that has the fence already, because its holder
        entered elsewhere, it may have read in a view of then. The row is locked first: a view that is made here is
        not older than that.
        """
        if link.dialect != "mysql" or link.alone():
            return
        resource, fence = claim(lease)
        if (yield from self._seen(link, key)) == fence != (yield from self._seen(link, key, now="")):
            raise old_view(resource)

    def _seen(self, link: Link, key: object, now: str = " FOR UPDATE") -> Steps[int]:
        """The fence in a row, as it is now, and not in the view of a transaction of MySQL's."""
        now = now if link.dialect == "mysql" else ""
        table, column = self._name(link, self.table), self._name(link, self.column)
        sql = f"SELECT {column} FROM {table} WHERE {self._name(link, self.key)} = :key{now}"
        rows = (yield Query(sql, {"key": key})).rows
        if not rows:
            raise LookupError(f"{self.table!r} has no row with {self.key} = {key!r}")
        if not isinstance(rows[0][0], int):
            raise ConfigurationError(
                f"{self.column!r} of {self.table!r} is to be BIGINT NOT NULL DEFAULT 0; it holds {rows[0][0]!r:.40}"
            )
        return rows[0][0]

    def _name(self, link: Link, name: str) -> str:
        return names.quoted(name, link.dialect)

    def _explained(self, steps: Steps[Any]) -> Steps[Any]:
        """Says what to do about a column that is missing, if it is the guard's."""
        try:
            return (yield from steps)
        except Exception as error:
            meant = meaning(error)
            if meant == "no table":
                raise ConfigurationError(f"there is no table {self.table!r} in this database") from error
            if meant == "no column" and about(error, self.column):
                raise ConfigurationError(
                    f"{self.table!r} has no column {self.column!r}: call create() of the guard once"
                ) from error
            raise
