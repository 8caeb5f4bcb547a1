"""What is in the file, and how a new one is made.

leases: who holds what, until when. `expires_ms` is an instant of the boot clock `boot`, and means nothing to
readers of another one; see `leases.py`. Rows of locks that were released are deleted.
sightings: when a boot clock first saw a lease of another one, and until when it waits for it.
meta: one row, the fence; see `fences.py`.
"""

from __future__ import annotations

import sqlite3

from . import fences, troubles
from .boot import Boot

APPLICATION = 0x516C6F63  # "Qloc": how a file says that it is ours
FORMAT = 1

_TABLES = (
    """CREATE TABLE leases (
        name TEXT PRIMARY KEY, token TEXT NOT NULL, fence INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, boot TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE sightings (
        name TEXT, boot TEXT, token TEXT NOT NULL, expires_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
        PRIMARY KEY (name, boot)
    ) WITHOUT ROWID""",
    """CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1), fence INTEGER NOT NULL, reserved INTEGER NOT NULL, boot TEXT NOT NULL
    )""",
)

# One statement, one snapshot: a file that is being made by another process is seen before or after, never between.
_WHOSE = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
    FROM pragma_application_id, pragma_user_version"""


def prepare(db: sqlite3.Connection, cursor: sqlite3.Cursor, path: str, boot: Boot) -> None:
    """Makes the file ours if it is empty; raises if it is somebody else's, or too new."""
    empty = _is_empty(cursor, path)
    cursor.execute("PRAGMA journal_mode = WAL")
    (mode,) = cursor.fetchall()[0]
    if mode != "wal":
        raise troubles.no_wal(path, mode)
    cursor.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the disk
    if empty:
        with fences.durably(db, cursor):
            cursor.execute("BEGIN IMMEDIATE")
            if _is_empty(cursor, path):  # else another process was faster
                for table in _TABLES:
                    cursor.execute(table)
                started = fences.wall_us()
                values = (started, started + fences.block(boot), boot.machine)
                cursor.execute("INSERT INTO meta VALUES (1, ?, ?, ?)", values)
                cursor.execute(f"PRAGMA application_id = {APPLICATION}")
                cursor.execute(f"PRAGMA user_version = {FORMAT}")
            cursor.execute("COMMIT")
    cursor.execute("PRAGMA synchronous = NORMAL")


def _is_empty(cursor: sqlite3.Cursor, path: str) -> bool:
    cursor.execute(_WHOSE)
    application, version, tables = cursor.fetchall()[0]
    if application == APPLICATION and version > FORMAT:
        raise troubles.newer(path, version, FORMAT)
    if tables == 0:
        return True
    if application != APPLICATION or version < 1:
        raise troubles.foreign(path)
    return False
