"""What is in the file, and how a new one is made.

leases: who holds what, until when. `expires_ms` is an instant of the boot clock `boot`, and means nothing to
readers of another one; see `leases.py`. Rows of locks that were released are deleted. `since_us` (wall clock) and
`card` are for people who ask who holds it; a row that lacks them was written by some other hand. `begins` says how
long the prefix is: "shop" + "ping:x" and "shopping:" + "x" are one lock, but not in the same lists.
sightings: when a boot clock first saw a lease of another one, and until when it waits for it.
readers, reader_sightings: the same for those who share a lock, whose row in `leases` says only that it is shared;
see `readers.py`.
tickets: who waits for what, in which order; see `tickets.py`.
cells: small values; see `cells.py`.
journal: what happened, if a client wants that; see `journal.py`.
meta: one row, the fence; see `fences.py`.

What came later is added to a file that lacks it, whoever holds something there, and the format stays.
"""

from __future__ import annotations

import re
import sqlite3

from . import fences, troubles
from .boot import Boot

APPLICATION = 0x516C6F63  # "Qloc": how a file says that it is ours
FORMAT = 1

_TABLES = (
    """CREATE TABLE leases (
        name TEXT PRIMARY KEY, token TEXT NOT NULL, fence INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, boot TEXT NOT NULL,
        since_us INTEGER NOT NULL DEFAULT 0, card TEXT NOT NULL DEFAULT '', begins INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    """CREATE TABLE sightings (
        name TEXT, boot TEXT, token TEXT NOT NULL, expires_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
        PRIMARY KEY (name, boot)
    ) WITHOUT ROWID""",
    """CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1), fence INTEGER NOT NULL, reserved INTEGER NOT NULL, boot TEXT NOT NULL
    )""",
)
_LATER = {
    "tickets": """CREATE TABLE tickets (
        name TEXT, ticket TEXT, order_us INTEGER NOT NULL, expires_ms INTEGER NOT NULL, boot TEXT NOT NULL,
        wall_ms INTEGER NOT NULL, PRIMARY KEY (name, ticket)
    ) WITHOUT ROWID""",
    "readers": """CREATE TABLE readers (
        name TEXT, token TEXT, expires_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, boot TEXT NOT NULL,
        PRIMARY KEY (name, token)
    ) WITHOUT ROWID""",
    "reader_sightings": """CREATE TABLE reader_sightings (
        name TEXT, token TEXT, boot TEXT, expires_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
        PRIMARY KEY (name, token, boot)
    ) WITHOUT ROWID""",
    # The value stands last: to see whether a cell is over, nobody reads a megabyte.
    "cells": """CREATE TABLE cells (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, entered INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        boot TEXT NOT NULL, wall_ms INTEGER NOT NULL, value BLOB NOT NULL
    )""",
    "journal": """CREATE TABLE journal (
        id INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, what TEXT NOT NULL, name TEXT NOT NULL,
        begins INTEGER NOT NULL, fence INTEGER NOT NULL, by TEXT NOT NULL, detail TEXT NOT NULL
    )""",
}
_LATER_COLUMNS = {
    "since_us": "ALTER TABLE leases ADD COLUMN since_us INTEGER NOT NULL DEFAULT 0",
    "card": "ALTER TABLE leases ADD COLUMN card TEXT NOT NULL DEFAULT ''",
    "begins": "ALTER TABLE leases ADD COLUMN begins INTEGER NOT NULL DEFAULT 0",
}

# One statement, one snapshot: a file that is being made by another process is seen before or after, never between.
_WHOSE = """SELECT application_id, user_version, (SELECT group_concat(name, ' ') FROM sqlite_master),
    (SELECT sql FROM sqlite_master WHERE name = 'leases') FROM pragma_application_id, pragma_user_version"""


def prepare(db: sqlite3.Connection, cursor: sqlite3.Cursor, path: str, boot: Boot) -> None:
    """Makes the file ours if it is empty; raises if it is somebody else's, or too new."""
    missing = _missing(cursor, path)
    cursor.execute("PRAGMA journal_mode = WAL")
    (mode,) = cursor.fetchall()[0]
    if mode != "wal":
        raise troubles.no_wal(path, mode)
    cursor.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the disk
    if missing:
        with fences.durably(db, cursor):
            cursor.execute("BEGIN IMMEDIATE")
            missing = _missing(cursor, path)  # nothing, if another process was faster
            for table in missing:
                cursor.execute(table)
            if _TABLES[0] in missing:
                started = fences.wall_us()
                values = (started, started + fences.block(boot), boot.machine)
                cursor.execute("INSERT INTO meta VALUES (1, ?, ?, ?)", values)
                cursor.execute(f"PRAGMA application_id = {APPLICATION}")
                cursor.execute(f"PRAGMA user_version = {FORMAT}")
            cursor.execute("COMMIT")
    cursor.execute("PRAGMA synchronous = NORMAL")


def _missing(cursor: sqlite3.Cursor, path: str) -> tuple[str, ...]:
    """How to make what is not there: everything, what came later, or nothing."""
    cursor.execute(_WHOSE)
    application, version, tables, leases = cursor.fetchall()[0]
    if application == APPLICATION and version > FORMAT:
        raise troubles.newer(path, version, FORMAT)
    found = (tables or "").split()
    if not found:
        return (*_TABLES, *_LATER.values())
    if application != APPLICATION or version < 1:
        raise troubles.foreign(path)
    columns = re.findall(r"\w+", leases or "")  # without that table, it is damaged: to add to it fails, and says so
    return (
        *(statement for name, statement in _LATER.items() if name not in found),
        *(statement for name, statement in _LATER_COLUMNS.items() if name not in columns),
    )
