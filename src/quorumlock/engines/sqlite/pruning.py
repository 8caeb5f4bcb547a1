"""Deletes what is over and was never asked for again: of killed holders, readers and waiters, and forgotten cells.

SQLite gives the space to what comes next; the file does not shrink.
"""

from __future__ import annotations

import sqlite3

from .cells import LEFT as CELL_LEFT
from .journal import PRUNED
from .readers import READERS
from .tickets import LEFT, Tickets

PRUNE_EVERY = 1000
PRUNE_MOST = 1000
"""So many rows at once: a transaction is short, also in a file that was neglected."""
CELLS_MOST = 50
"""So many cells, of a megabyte each."""

_NOBODY_READS = f"token = '{READERS}' AND NOT EXISTS (SELECT 1 FROM readers AS r WHERE r.name = leases.name)"

_PRUNABLE = f"""SELECT
    EXISTS (SELECT 1 FROM leases WHERE token <> '{READERS}' AND (boot <> :boot OR expires_ms <= :now))
    OR EXISTS (SELECT 1 FROM sightings) OR EXISTS (SELECT 1 FROM tickets WHERE {LEFT} <= 0)
    OR EXISTS (SELECT 1 FROM readers WHERE boot <> :boot OR expires_ms <= :now)
    OR EXISTS (SELECT 1 FROM reader_sightings) OR EXISTS (SELECT 1 FROM leases WHERE {_NOBODY_READS})
    OR EXISTS (SELECT 1 FROM cells WHERE {CELL_LEFT} <= 0)"""
_OVER = "(SELECT name FROM leases WHERE boot = :boot AND expires_ms <= :now LIMIT :most)"
_OVER_ELSEWHERE = """(SELECT l.name FROM leases AS l JOIN sightings AS s ON s.name = l.name
        AND s.boot = :boot AND s.token = l.token AND s.expires_ms = l.expires_ms
        WHERE l.boot <> :boot AND s.until_ms <= :now LIMIT :most)"""
_NOTE = (f"{PRUNED} {_OVER}", f"{PRUNED} {_OVER_ELSEWHERE}")
_PRUNE = (
    f"DELETE FROM leases WHERE name IN {_OVER}",
    f"""INSERT OR REPLACE INTO sightings
        SELECT name, :boot, token, expires_ms, :now + max(ttl_ms, :max_ttl) FROM leases AS l
        WHERE boot <> :boot AND token <> '{READERS}' AND NOT EXISTS (SELECT 1 FROM sightings AS s
            WHERE s.name = l.name AND s.boot = :boot AND s.token = l.token AND s.expires_ms = l.expires_ms)
        LIMIT :most""",
    f"DELETE FROM leases WHERE name IN {_OVER_ELSEWHERE}",
    """DELETE FROM sightings WHERE NOT EXISTS
        (SELECT 1 FROM leases AS l WHERE l.name = sightings.name AND l.token = sightings.token)""",
    """DELETE FROM readers WHERE (name, token) IN
        (SELECT name, token FROM readers WHERE boot = :boot AND expires_ms <= :now LIMIT :most)""",
    """INSERT OR REPLACE INTO reader_sightings
        SELECT name, token, :boot, expires_ms, :now + max(ttl_ms, :max_ttl) FROM readers AS r
        WHERE boot <> :boot AND NOT EXISTS (SELECT 1 FROM reader_sightings AS s
            WHERE s.name = r.name AND s.token = r.token AND s.boot = :boot AND s.expires_ms = r.expires_ms)
        LIMIT :most""",
    """DELETE FROM readers WHERE (name, token) IN (SELECT r.name, r.token FROM readers AS r
        JOIN reader_sightings AS s ON s.name = r.name AND s.token = r.token AND s.boot = :boot
        AND s.expires_ms = r.expires_ms WHERE r.boot <> :boot AND s.until_ms <= :now LIMIT :most)""",
    """DELETE FROM reader_sightings WHERE NOT EXISTS (SELECT 1 FROM readers AS r
        WHERE r.name = reader_sightings.name AND r.token = reader_sightings.token)""",
    f"DELETE FROM leases WHERE name IN (SELECT name FROM leases WHERE {_NOBODY_READS} LIMIT :most)",
    f"""DELETE FROM tickets WHERE (name, ticket) IN
        (SELECT name, ticket FROM tickets WHERE {LEFT} <= 0 LIMIT :most)""",
    f"DELETE FROM cells WHERE name IN (SELECT name FROM cells WHERE {CELL_LEFT} <= 0 LIMIT :cells_most)",
)


class Pruning:
    """Of a file, through one connection: when it is opened, and every so many changes."""

    def __init__(self, cursor: sqlite3.Cursor, tickets: Tickets, max_ttl_ms: int, noted: bool = False) -> None:
        self._cursor = cursor
        self._tickets = tickets
        self._max_ttl_ms = max_ttl_ms
        self._noted = noted
        """Is there a journal for what is over?"""
        self.changes = 0
        """Since the last time; counted by whoever makes them."""

    def if_due(self) -> None:
        """Before a transaction begins."""
        if self.changes >= PRUNE_EVERY:
            self.now()

    def now(self) -> None:
        """Takes the write lock only if there is anything to delete."""
        self.changes = 0
        try:
            self._prune()
        except sqlite3.Error:
            # It can wait. If more is wrong than another writer, the request itself will meet it, and say so.
            if self._cursor.connection.in_transaction:
                self._cursor.execute("ROLLBACK")

    def _prune(self) -> None:
        self._cursor.execute(_PRUNABLE, self._tickets.now())
        if not self._cursor.fetchall()[0][0]:
            return
        self._cursor.execute("BEGIN IMMEDIATE")
        # The clock is read after that: no row can be younger than "now".
        known = self._tickets.now() | {
            "max_ttl": self._max_ttl_ms, "most": PRUNE_MOST, "cells_most": min(PRUNE_MOST, CELLS_MOST)
        }  # fmt: skip
        for statement in (*_NOTE, *_PRUNE) if self._noted else _PRUNE:
            self._cursor.execute(statement, known)
        self._cursor.execute("COMMIT")
