"""The shared counter of the demo: one row in SQLite that remembers the highest fence it has seen.

A holder *enters* before it reads, which leaves its fence in the row, and writes with the same fence. Both are
accepted only `WHERE fence <= ?`. So whoever is accepted has read what it adds to: between its entry and its write
no newer holder was here, and older ones were refused.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

SCHEMA = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE counter (value INTEGER NOT NULL, fence INTEGER NOT NULL);
    INSERT INTO counter VALUES (0, 0);
    CREATE TABLE history (place INTEGER PRIMARY KEY, fence INTEGER NOT NULL);
    CREATE TRIGGER remember AFTER UPDATE OF value ON counter
        BEGIN INSERT INTO history (fence) VALUES (new.fence); END;
"""
"""The history is written by the row itself: it knows in which order writes were accepted, whoever wrote."""


class Counter:
    """A connection to the counter. Without `fenced` every write is accepted: for the test of the demo itself."""

    def __init__(self, path: Path, *, fenced: bool = True) -> None:
        # Seconds of patience with other writers, far more than they need; each statement is its own transaction.
        self._rows = sqlite3.connect(path, timeout=10, isolation_level=None)
        self._rows.execute("PRAGMA synchronous = OFF")  # it need not survive the machine
        self._if = "WHERE fence <= :fence" if fenced else ""

    def create(self) -> None:
        self._rows.executescript(SCHEMA)

    def enter(self, fence: int) -> bool:
        """A new holder is here; False if a newer one was."""
        return self._rows.execute(f"UPDATE counter SET fence = :fence {self._if}", {"fence": fence}).rowcount == 1

    def read(self) -> int:
        return int(self._rows.execute("SELECT value FROM counter").fetchone()[0])

    def write(self, value: int, fence: int) -> tuple[bool, int]:
        """Was it accepted, and what the row holds now."""
        self._rows.execute("BEGIN IMMEDIATE")  # so that both answers are of the same moment
        accepted = self._rows.execute(
            f"UPDATE counter SET value = :value, fence = :fence {self._if}", {"value": value, "fence": fence}
        ).rowcount
        now = self.read()
        self._rows.execute("COMMIT")
        return accepted == 1, now

    def fences(self) -> list[int]:
        """The fences of all accepted writes, in the order of acceptance."""
        return [int(fence) for (fence,) in self._rows.execute("SELECT fence FROM history ORDER BY place")]

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()
