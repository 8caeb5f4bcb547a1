"""Those who share a lock: each has a lease of its own.

The row of a shared lock in `leases` names nobody: its token is `READERS`, its fence that of all who share it, and
it is in force for as long as any of them lives. So whoever wants the lock alone finds out by the one look that it
takes anyway, and only then looks here.

**Whose time is it?** As for other leases (`leases.py`), and for each reader by itself: of one clock with us, its
end is compared with ours; of another one, it is noted when first seen, and waited out from there unless it is
renewed.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from ...core.requests import Kept
from ...core.votes import Cause
from .boot import Boot, ends_ms, now_ms

READERS = "ql:readers"

_SEEN = """LEFT JOIN reader_sightings AS s
    ON s.name = r.name AND s.token = r.token AND s.boot = :boot AND s.expires_ms = r.expires_ms"""
_LEFT = f"""SELECT max(CASE WHEN r.boot = :boot THEN r.expires_ms ELSE s.until_ms END),
    ifnull(sum(r.boot <> :boot AND s.until_ms IS NULL), 0) FROM readers AS r {_SEEN} WHERE r.name = :name"""
_EACH = f"""SELECT r.token, CASE WHEN r.boot = :boot THEN r.expires_ms - :now
    ELSE ifnull(s.until_ms - :now, max(r.ttl_ms, :max_ttl)) END AS left_ms
    FROM readers AS r {_SEEN} WHERE r.name = :name ORDER BY left_ms, r.token"""
_SEE = f"""INSERT OR REPLACE INTO reader_sightings
    SELECT r.name, r.token, :boot, r.expires_ms, :now + max(r.ttl_ms, :max_ttl) FROM readers AS r {_SEEN}
    WHERE r.name = :name AND r.boot <> :boot AND s.until_ms IS NULL"""
_FIND = "SELECT expires_ms, boot FROM readers WHERE name = ? AND token = ?"
_STORE = "INSERT OR REPLACE INTO readers (name, token, expires_ms, ttl_ms, boot) VALUES (?, ?, ?, ?, ?)"
_LEAVE = "DELETE FROM readers WHERE name = ? AND token = ?"
_CLEAR = "DELETE FROM readers WHERE name = ?"


class Readers:
    """The readers of a file, seen through one connection. What changes them belongs into a transaction."""

    def __init__(self, cursor: sqlite3.Cursor, boot: Boot, max_ttl_ms: int) -> None:
        self._cursor = cursor
        self._clock = boot.clock
        self._max_ttl_ms = max_ttl_ms

    def _known(self, name: str) -> dict[str, Any]:
        return {"name": name, "boot": self._clock, "max_ttl": self._max_ttl_ms}

    def left_ms(self, name: str) -> int | None:
        """What is left of the last of them; 0: all are over; None: one of another clock was not seen before."""
        self._cursor.execute(_LEFT, self._known(name))
        until_ms, unseen = self._cursor.fetchall()[0]
        if unseen:
            return None
        return max(0, (until_ms or 0) - now_ms())

    def see(self, name: str) -> int:
        """Notes those of other clocks; gives how long to wait from now for the last of all."""
        # Rounded up, and read after the transaction began: no renewal is counted from too early.
        self._cursor.execute(_SEE, self._known(name) | {"now": ends_ms(0)})
        return self.left_ms(name) or 0

    def each(self, name: str) -> tuple[tuple[str, int], ...]:
        """Who is alive, and for how long; the first to end first."""
        self._cursor.execute(_EACH, self._known(name) | {"now": now_ms()})
        return tuple((token, left_ms) for token, left_ms in self._cursor.fetchall() if left_ms > 0)

    def has(self, name: str, token: str) -> bool:
        """Is it one of them? One of another clock is, as far as anybody here can know."""
        found = self._find(name, token)
        return found is not None and not self._is_over(*found)

    def add(self, name: str, token: str, ttl_ms: int) -> None:
        self._cursor.execute(_STORE, (name, token, ends_ms(ttl_ms), ttl_ms, self._clock))

    def renew(self, name: str, kept: Kept) -> Cause:
        found = self._find(name, kept.token)
        if found is None or self._is_over(*found):
            return Cause.ABSENT
        expires_ms, boot = found
        if boot != self._clock or ends_ms(kept.ttl_ms) > expires_ms:
            self.add(name, kept.token, kept.ttl_ms)
        return Cause.AGREED

    def leave(self, name: str, token: str) -> bool:
        """Ends one; False: it was none."""
        self._cursor.execute(_LEAVE, (name, token))
        return self._cursor.rowcount > 0

    def clear(self, name: str) -> None:
        """Ends all of them."""
        self._cursor.execute(_CLEAR, (name,))

    def _find(self, name: str, token: str) -> tuple[int, str] | None:
        self._cursor.execute(_FIND, (name, token))
        found = self._cursor.fetchall()
        return found[0] if found else None

    def _is_over(self, expires_ms: int, boot: str) -> bool:
        return boot == self._clock and expires_ms <= now_ms()
