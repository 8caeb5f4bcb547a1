"""What each database calls things, and the queries in which they differ."""

from __future__ import annotations

from dataclasses import dataclass

LOCKS = "quorumlock_locks"
CELLS = "quorumlock_cells"
META = "quorumlock_meta"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database says it."""

    name: str
    now: str
    """µs since 1970 by its clock, when the statement began or later."""
    big: str
    """What a parameter is cast to, to be a number."""
    text: str
    """The types of columns: names, which are compared byte by byte; documents; values; tokens."""
    long: str
    blob: str
    token: str
    share: str
    """Behind a SELECT: nobody may change the row until this transaction ends."""
    skips: str
    """Behind an INSERT: leaves alone what is there. See `skip`."""
    binary: bool
    """Are names bytes?"""
    announces: bool
    settings: str
    """What the server is set up to do, in the order of `cautions`."""
    cautions: tuple[tuple[str, str, str], ...]
    """For each of those: the value that speaks against it, why, and what to do."""
    table: str = ""
    """Behind CREATE TABLE."""

    def skip(self, column: str) -> str:
        """`column` is the one that may change a little by it.

        MySQL says how many rows were changed: 1 where one was made, 2 where one was there and is another now, and
        where nothing came of it 0 or, to those who ask for rows that were found (SQLAlchemy does), 1.
        """
        return self.skips.format(column)

    def key(self, name: str) -> str | bytes:
        return name.encode() if self.binary else name


POSTGRESQL = Dialect(
    name="postgresql",
    now="CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
    big="BIGINT",
    text='TEXT COLLATE "C"',
    long="TEXT",
    blob="BYTEA",
    token="VARCHAR(255)",
    share="FOR SHARE",
    skips="ON CONFLICT DO NOTHING",
    binary=False,
    announces=True,
    settings="current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery()",
    cautions=(
        ("off", "does not wait for its disk (fsync = off): a crash of the machine forgets locks", "set fsync = on"),
        (
            "off",
            "may forget the last commits in a crash (synchronous_commit = off)",
            "set synchronous_commit = on for the role of quorumlock; connections that are not pooled see to it",
        ),
        ("1", "is a replica", "name the primary (target_session_attrs=read-write)"),
    ),
)

MYSQL = Dialect(
    name="mysql",
    # In UTC, which has no hours that come twice.
    now="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    big="SIGNED",
    text="VARBINARY(2300)",
    long="LONGTEXT CHARACTER SET ascii",
    blob="LONGBLOB",
    token="VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    share="LOCK IN SHARE MODE",
    skips="ON DUPLICATE KEY UPDATE {0} = {0} + 1",
    binary=True,
    announces=False,
    settings="@@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.read_only",
    cautions=(
        (
            "not 1",
            "may forget the last commits in a crash (innodb_flush_log_at_trx_commit is not 1)",
            "set innodb_flush_log_at_trx_commit = 1",
        ),
        ("1", "only reads", "name the primary"),
    ),
    table=" ENGINE = InnoDB",
)
