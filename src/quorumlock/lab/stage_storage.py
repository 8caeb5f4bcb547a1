"""The resource of a story: a counter behind a guard, to which writes travel.

The guard is the production one, over SQLite in memory. A design may do without, or ask it for writes alone.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from ..errors import StaleFence
from ..guards import Claim
from ..guards.sql import SQLGuard

if TYPE_CHECKING:
    from .stage import Stage

LANE = "storage"
NAME = "counter"


class Storage:
    """Whoever works reads the counter, and writes one more than it has read."""

    def __init__(self, stage: Stage, guard: str) -> None:
        self.stage = stage
        self.record = stage.record
        self.guard = guard
        """full: enter before reading. writes: asked with every write alone. none: there is no guard."""
        self.acknowledged = 0
        """How many writes were accepted."""
        self._guard = SQLGuard()
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        self._rows.execute("CREATE TABLE counter (value INTEGER)")
        self._rows.execute("INSERT INTO counter VALUES (0)")
        self._guard.create(self._rows)

    def close(self) -> None:
        self._rows.close()

    @property
    def value(self) -> int:
        return int(self._rows.execute("SELECT value FROM counter").fetchone()[0])

    def read(self, who: str, fence: int) -> int | None:
        """What it holds; None if a newer holder was here before."""
        now, value = self.stage.now, self.value
        if self.guard != "full":
            self.record.mark(LANE, "read", now, f"{who} reads {value}", who)
            self.record.tell(now, who, f"reads the counter: {value}")
            return value
        try:
            self._guard.enter(self._rows, Claim(NAME, fence))
        except StaleFence as stale:
            self._refused(who, "entry", stale, now)
            return None
        self.record.mark(LANE, "read", now, f"{who} enters #{fence}, reads {value}", who)
        self.record.tell(now, who, f"enters the guard with fence #{fence}, then reads the counter: {value}")
        return value

    def send(self, who: str, fence: int, value: int, delay: float) -> None:
        """A write leaves, and arrives by itself: whatever becomes of its sender."""
        sent_at = self.stage.now
        self.stage.world.call_later(delay, lambda: self._arrive(who, fence, value, sent_at))

    def _arrive(self, who: str, fence: int, value: int, sent_at: float) -> None:
        now, before = self.stage.now, self.value
        self._rows.execute("BEGIN IMMEDIATE")
        try:
            if self.guard != "none":
                self._guard.admit(self._rows, Claim(NAME, fence))
        except StaleFence as stale:
            self._rows.execute("ROLLBACK")
            self._refused(who, "write", stale, now, sent_at)
            return
        self._rows.execute("UPDATE counter SET value = ?", (value,))
        self._rows.execute("COMMIT")
        self.acknowledged += 1
        lost = value <= before
        told = f"accepts {who}'s write: {before} becomes {value}"
        if lost:
            told += ". It had read before the last write, which is lost"
        self.record.tell(now, LANE, told, "bad" if lost else "")
        label = f"{who} writes {value}" + (f" over {before}: an update is lost" if lost else "")
        self.record.mark(LANE, "lost" if lost else "write", now, label, who, sent_at)

    def _refused(self, who: str, what: str, stale: StaleFence, now: float, sent: float | None = None) -> None:
        why = f"fence #{stale.fence} after #{stale.seen}"
        self.record.count("refused", who)
        self.record.tell(now, LANE, f"refuses {who}'s {what}: {why}", "good")
        self.record.mark(LANE, "refused", now, f"{who} refused: {why}", who, sent)
