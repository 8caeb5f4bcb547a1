"""The tables, and how they are made.

locks: a row for each name that was ever locked, until it is pruned. `token` says who has it until `until_us`; all
who share it, who waits, and what is for people stand in `doc`. `version` grows with every change. `begins` says how
long the prefix is: "shop" + "ping:x" and "shopping:" + "x" are one lock, but not in the same lists.
cells: small values.
meta: one row. `floor` is above every version that was deleted; new rows begin above it. New tables begin at the
clock, so that guards go on working where tables were dropped and made again.
"""

from __future__ import annotations

from ...errors import ConfigurationError
from .batches import Batch, NoTables, Query, Visit
from .dialect import CELLS, LOCKS, META, Dialect

FORMAT = 1
_TURNS = 0x516C6F63
"""The advisory lock under which PostgreSQL makes tables: two who do so at once get in each other's way."""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """What makes the tables, for whoever would rather run it by hand."""
    name, long, blob, table = dialect.text, dialect.long, dialect.blob, dialect.table
    unless = dialect.skip("floor")
    return (
        f"""CREATE TABLE IF NOT EXISTS {LOCKS} (
            name {name} PRIMARY KEY, begins BIGINT NOT NULL, version BIGINT NOT NULL, fence BIGINT NOT NULL,
            token {dialect.token} NOT NULL, until_us BIGINT NOT NULL, touched_us BIGINT NOT NULL,
            doc {long} NOT NULL
        ){table}""",
        f"""CREATE TABLE IF NOT EXISTS {CELLS} (
            name {name} PRIMARY KEY, version BIGINT NOT NULL, entered BIGINT NOT NULL, until_us BIGINT NOT NULL,
            value {blob} NOT NULL
        ){table}""",
        f"""CREATE TABLE IF NOT EXISTS {META} (
            id INTEGER PRIMARY KEY, format BIGINT NOT NULL, floor BIGINT NOT NULL
        ){table}""",
        f"INSERT INTO {META} (id, format, floor) SELECT 1, {FORMAT}, {dialect.now} {unless}",
    )


def make(dialect: Dialect) -> Visit[None]:
    """Makes what is not there."""
    queries = [Query(statement) for statement in statements(dialect)]
    if dialect.announces:
        queries.insert(0, Query(f"SELECT pg_advisory_xact_lock({_TURNS})"))
    yield Batch(tuple(queries), whole=dialect.announces)  # MySQL commits a table by itself


def now(dialect: Dialect) -> Visit[int]:
    """The time, of a database that may have no tables yet."""
    (result,) = yield Batch((Query(f"SELECT {dialect.now}"),))
    return int(result.rows[0][0] or 0)


def look(dialect: Dialect, label: str) -> Visit[int]:
    """Raises unless the tables are there, and ours; gives the time."""
    (result,) = yield Batch((Query(f"SELECT format, {dialect.now} FROM {META}"),))
    if not result.rows:
        raise not_made()
    if result.rows[0][0] != FORMAT:
        raise not_ours(label, result.rows[0][0])
    return int(result.rows[0][1] or 0)


def not_made() -> NoTables:
    """Somebody is about to make them: where tables are not made in a transaction, the row comes last."""
    return NoTables(f"the table {META} is empty, and one row belongs into it")


def not_ours(label: str, found: object) -> ConfigurationError:
    return ConfigurationError(
        f"{label}: the tables were made by another quorumlock (format {found}, this one knows {FORMAT}); upgrade, "
        "or use another database or schema"
    )
