"""Makes what a guard needs in a database: its table, or its column in a table of the user's."""

from __future__ import annotations

from ...errors import ConfigurationError
from . import names
from .faults import meaning
from .links import Link
from .steps import Query, Steps

_TABLE = {
    "postgresql": "resource VARCHAR(255) PRIMARY KEY, fence BIGINT NOT NULL, mark CHAR(64)",
    "sqlite": "resource VARCHAR(255) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL, mark CHAR(64)",
    # Bytes, because MySQL's texts are equal to others: in case, in accents, or in spaces at the end.
    # `writes` is how a transaction finds out that its view of the database is too old.
    "mysql": "resource VARBINARY(1020) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL, mark BINARY(64),"
    " writes BIGINT NOT NULL DEFAULT 0",
}
_TAIL = {"mysql": " ENGINE=InnoDB"}  # others of MySQL's have no transactions

_TABLE_IS_THERE = {
    "postgresql": "SELECT 1 WHERE to_regclass(CAST(:quoted AS text)) IS NOT NULL",
    "mysql": "SELECT 1 FROM information_schema.tables"
    " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table",
}
_COLUMN_IS_THERE = {
    "postgresql": "SELECT 1 FROM pg_attribute"
    " WHERE attrelid = to_regclass(CAST(:quoted AS text)) AND attname = :column AND NOT attisdropped",
    "mysql": "SELECT 1 FROM information_schema.columns"
    " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND column_name = :column",
    "sqlite": "SELECT 1 FROM pragma_table_info(:table, :schema) WHERE lower(name) = lower(:column)",
}


def table(link: Link, name: str) -> Steps[None]:
    """The table of a guard, unless it is there."""
    quoted = names.quoted(name, link.dialect)
    statement = f"CREATE TABLE IF NOT EXISTS {quoted} ({_TABLE[link.dialect]}){_TAIL.get(link.dialect, '')}"
    yield from _unless(link, _TABLE_IS_THERE.get(link.dialect), name, "", statement)


def column(link: Link, name: str, added: str) -> Steps[None]:
    """The column of a guard, unless it is there."""
    dialect = link.dialect
    kind = "BIGINT NOT NULL DEFAULT 0"
    statement = f"ALTER TABLE {names.quoted(name, dialect)} ADD COLUMN {names.quoted(added, dialect)} {kind}"
    try:
        yield from _unless(link, _COLUMN_IS_THERE[dialect], name, added, statement)
    except Exception as error:
        if meaning(error) == "no table":
            raise ConfigurationError(f"there is no table {name!r} to add the column {added!r} to") from error
        raise


def _unless(link: Link, is_there: str | None, table: str, column: str, statement: str) -> Steps[None]:
    """Runs a definition if it is needed; the same definition by somebody else in the meantime is as good."""
    busy = link.in_transaction()
    if is_there is not None:
        schema, last = names.split(table)
        known = {"schema": schema, "table": last, "column": column, "quoted": names.quoted(table, link.dialect)}
        used: dict[str, object] = {name: value for name, value in known.items() if f":{name}" in is_there}
        if (yield Query(is_there, used)).rows:
            return
    if link.dialect == "mysql" and busy:
        raise ConfigurationError(
            f"{table!r} is not ready for this guard, and MySQL would commit your transaction if it was made now:"
            " call create() outside of one"
        )
    if link.dialect == "postgresql":  # where IF NOT EXISTS fails if two of them run at once
        errors = "duplicate_table OR duplicate_object OR duplicate_column OR unique_violation"
        statement = f"DO $$ BEGIN {statement}; EXCEPTION WHEN {errors} THEN NULL; END $$"
    try:
        yield Query(statement)
    except Exception as error:
        if meaning(error) not in ("table is there", "column is there"):
            raise
