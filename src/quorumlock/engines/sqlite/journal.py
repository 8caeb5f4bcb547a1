"""What happened to the locks of a file, written down in the transaction in which it happened, if that is wanted.

A lease that ended without a release stays in the file until somebody else is granted the lock, it is released late,
or it is pruned: that is when its expiry is noticed. By a client without a journal nothing is noticed.
"""

from __future__ import annotations

import sqlite3
import time

from ...core.requests import Past, Refused
from ...core.votes import GRANTED, Answer, Cause, History, Noted

TRIM_EVERY = 64
NOBODYS = ("ql:closed", "ql:readers")
"""Tokens of no holder."""

_SHORT = "substr(token, 1, 14) || CASE WHEN instr(token, '@') THEN substr(token, instr(token, '@')) ELSE '' END"
_INSERT = "INSERT INTO journal (at_us, what, name, begins, fence, by, detail) VALUES (?, ?, ?, ?, ?, ?, ?)"
_HOLDER = "SELECT token, fence, since_us FROM leases WHERE name = ?"
_TRIM = "DELETE FROM journal WHERE id <= (SELECT max(id) FROM journal) - ?"
_MINE = "begins = length(:prefix) AND substr(name, 1, length(:prefix)) = :prefix"
_COLUMNS = "id, at_us, what, substr(name, length(:prefix) + 1), fence, by, detail"
_NEWEST = f"SELECT {_COLUMNS} FROM journal WHERE {_MINE} ORDER BY id DESC LIMIT :most"
_AFTER = f"SELECT {_COLUMNS} FROM journal WHERE {_MINE} AND id > :after ORDER BY id LIMIT :most"
PRUNED = f"""INSERT INTO journal (at_us, what, name, begins, fence, by, detail)
    SELECT :wall * 1000, 'expired', name, begins, fence, {_SHORT}, CAST(since_us AS TEXT) FROM leases
    WHERE token NOT IN ('ql:closed', 'ql:readers') AND begins >= 0 AND name IN"""
"""To be followed by the names of leases that are about to be pruned."""


class Journal:
    """The journal of a file, seen through one connection. What writes to it belongs into a transaction."""

    def __init__(self, cursor: sqlite3.Cursor, prefix: str, cap: int | None) -> None:
        self._cursor = cursor
        self._prefix = prefix
        self._cap = cap
        self.kept = cap is not None

    def granted(self, name: str, token: str, fence: int, card: str) -> None:
        """Before it is stored: whoever was granted it last, and is still there, has not given it back."""
        self.expired(name)
        self._note("acquired", name, fence, token, card)

    def expired(self, name: str) -> None:
        holder, fence, since_us = self._holder(name)
        if holder and holder not in NOBODYS:
            self._note("expired", name, fence, holder, str(since_us))

    def ends(self, name: str, token: str, wake: bool, over: bool) -> None:
        """Before it is deleted, or closed."""
        holder, fence, since_us = self._holder(name)
        if holder == token:
            what = "expired" if over else "released"
            self._note(what, name, fence, token, str(since_us) if over else f"{since_us} {wake:d}")

    def shared(self, name: str, token: str, fence: int, card: str) -> None:
        self._note("acquired", name, fence, token, card)

    def unshared(self, name: str, token: str, wake: bool) -> None:
        self._note("released", name, 0, token, f" {wake:d}")

    def broken(self, name: str, by: str) -> None:
        """Before it is deleted."""
        holder, fence, _ = self._holder(name)
        if holder:
            self._note("broken", name, fence, by, "" if holder in NOBODYS else short(holder))

    def refused(self, request: Refused) -> Answer:
        self._note("refused", self._prefix + request.name, request.fence, request.by, request.detail)
        return Answer(GRANTED, Cause.AGREED)

    def past(self, request: Past) -> Answer:
        after = request.after.partition("-")[0]
        known = {"prefix": self._prefix, "after": int(after or 0), "most": request.limit}
        self._cursor.execute(_AFTER if after else _NEWEST, known)
        found = self._cursor.fetchall()
        self._cursor.execute(f"SELECT at_us FROM journal WHERE {_MINE} ORDER BY id LIMIT 1", known)
        oldest = self._cursor.fetchall()
        rows = tuple(Noted(f"{row[0]}-0", *row[1:]) for row in (found if after else reversed(found)))
        return Answer(
            GRANTED, Cause.AGREED, history=History(time.time_ns() // 1000, oldest[0][0] if oldest else 0, rows)
        )

    def _holder(self, name: str) -> tuple[str, int, int]:
        self._cursor.execute(_HOLDER, (name,))
        found = self._cursor.fetchall()
        return found[0] if found else ("", 0, 0)

    def _note(self, what: str, name: str, fence: int, token: str, detail: str) -> None:
        row = (time.time_ns() // 1000, what, name, len(self._prefix), fence, short(token), detail)
        self._cursor.execute(_INSERT, row)
        if (self._cursor.lastrowid or 0) % TRIM_EVERY == 0:
            self._cursor.execute(_TRIM, (self._cap,))


def short(token: str) -> str:
    """Enough of a token to tell two apart, and who it is."""
    return token[:14] + "".join(token.partition("@")[1:])
