"""Guards of SQL databases, for threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import Fenced
from .column import RowGuard
from .table import TableGuard
from .threads import perform


class SQLGuard(TableGuard):
    """A table of fences: one row for each resource, in the database that the resource lives in.

    `table` may be `schema.table`, spelled as the database spells it. A guard holds no connection and may be shared.
    """

    def create(self, conn: Any) -> None:
        """Makes the guard table unless it is there. Belongs to a deployment: MySQL would commit for it."""
        perform(conn, self._creating)

    def enter(self, conn: Any, lease: Fenced) -> None:
        """Raises the mark of the resource, before its holder reads: older holders are refused from then on.

        Raises StaleFence if a newer holder was seen. The row stays locked until the transaction ends: what an
        older holder was just writing is decided before this returns. Where every statement commits by itself, so
        does this. On MySQL, VersionConflict if the transaction read before it entered, and would not see the last
        write.
        """
        perform(conn, self._entering, lease)

    def admit(self, conn: Any, lease: Fenced) -> None:
        """Lets the writes of this transaction pass, or raises StaleFence: then roll back.

        Call it in the transaction of the write, best before the write; ConfigurationError if there is none.
        """
        perform(conn, self._admitting, lease)

    def mark(self, conn: Any, lease: Any) -> None:
        """Marks the resource with this lease, before its holder reads; whoever marks last is who may write.

        Stores a digest of the token. There is no order between holders: one that was delayed may mark over a newer
        one, which then is refused. Fences do not have that weakness; this is for locks that have none.
        """
        perform(conn, self._marking, lease)

    def write_if_marked(self, conn: Any, lease: Any, statement: Any, parameters: Any = ()) -> int:
        """Runs a statement of yours if the resource is still marked by this lease; VersionConflict otherwise.

        Statement and parameters are written as the connection wants them. Returns the number of rows, as the driver
        counts them. Call it in a transaction; ConfigurationError if there is none.
        """
        return perform(conn, self._writing_if_marked, lease, statement, parameters)


class ColumnGuard(RowGuard):
    """A fence in the row that it protects: `UPDATE … SET …, fence = :fence WHERE id = :id AND fence <= :fence`.

    `key` is the column that names a row, `column` the one that holds its fence; names are spelled as the database
    spells them. The resource of the lease is not stored: give every row one lock name, and no other.
    """

    def create(self, conn: Any) -> None:
        """Adds the column unless it is there. Belongs to a deployment: MySQL would commit for it."""
        perform(conn, self._creating)

    def enter(self, conn: Any, lease: Fenced, key: object) -> None:
        """Raises the fence of a row, before its holder reads it: older holders are refused from then on.

        Raises StaleFence if a newer holder was seen, LookupError if there is no such row.
        """
        perform(conn, self._entering, lease, key)

    def update(self, conn: Any, lease: Fenced, key: object, values: Mapping[str, object]) -> None:
        """Changes columns of a row in one statement; StaleFence if refused, LookupError if there is no such row."""
        perform(conn, self._updating, lease, key, values)

    def check(self, conn: Any, lease: Fenced, key: object, rowcount: int) -> None:
        """Says what became of an UPDATE of your own that ends in `AND fence <= :fence`, by its row count.

        Raises StaleFence if it was refused, LookupError if no such row was there. Your statement has to set the
        column to the fence as well. With MySQL's REPEATABLE READ, enter in the same transaction, before reading.
        """
        perform(conn, self._checking, lease, key, rowcount)
