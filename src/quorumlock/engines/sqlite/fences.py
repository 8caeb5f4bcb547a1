"""The fence of a file: one counter for all names, which never goes back.

WAL with synchronous=NORMAL does not wait for the disk: after a power cut the last commits may be missing, and
with them the last steps of the counter. So it is reserved ahead. Every fence handed out is below `reserved`, a
value whose commit did wait for the disk (synchronous=FULL):

    reserve 2,000,000 (waits for the disk) → grants 1,000,001 … 1,000,300 (do not) → power cut
    → the file comes back with the counter at 1,000,120 and `reserved` at 2,000,000, of another boot
    → the first grant of the new boot leaps to 2,000,000 or the wall clock, whichever is higher, and reserves anew

A kernel that did not restart has lost nothing, so processes that come and go leap nowhere. A new file starts at
the wall clock in µs: one that was deleted and made again goes on above the old one.

Limits. The argument leans on a disk that keeps what it said it had written, and on a reservation that did wait for
it: one whose process was killed in that very instant, and that the next to open the file found all the same, may be
lost by a power cut in the seconds after. Then, and wherever the file itself goes back, only the wall clock keeps
fences growing: a file that was deleted, or an old copy put in its place, goes on above its former fences if the
clock was not set back meanwhile. For a copy that takes a reboot: put there on a running machine, it counts on from
where it was. Fences fit in 53 bits: until the year 2255, or for 7 * 10**15 grants.
"""

from __future__ import annotations

import sqlite3
import time
from types import TracebackType

from . import troubles
from .boot import Boot

BLOCK = 1_000_000
SMALL_BLOCK = 1_000
"""Where the system does not tell boots apart, every change of process looks like a reboot, and costs a block."""

LIMIT = 2**53
SANE_CLOCK = 2**52
"""µs: the year 2112. A clock beyond that is wrong, and must not use up the fences."""


def wall_us() -> int:
    now = time.time_ns() // 1000
    return now if 0 < now < SANE_CLOCK else 1


def block(boot: Boot) -> int:
    return BLOCK if boot.known else SMALL_BLOCK


class durably:  # noqa: N801 - reads as a word: with durably(…)
    """Commits within wait for the disk. An error that leaves a transaction open ends the connection, too."""

    def __init__(self, db: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
        self._db = db
        self._cursor = cursor

    def __enter__(self) -> None:
        self._cursor.execute("PRAGMA synchronous = FULL")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._db.in_transaction:
            self._cursor.execute("PRAGMA synchronous = NORMAL")


class Fences:
    """The counter, seen through one connection."""

    def __init__(self, db: sqlite3.Connection, cursor: sqlite3.Cursor, path: str, boot: Boot) -> None:
        self._db = db
        self._cursor = cursor
        self._path = path
        self._boot = boot

    def begin(self) -> int:
        """Begins a write transaction, and gives the fence that it may take."""
        while True:
            self._cursor.execute("BEGIN IMMEDIATE")
            fence, reserved, machine = self._read()
            if machine == self._boot.machine and fence + 1 < reserved:
                return fence + 1
            self._cursor.execute("ROLLBACK")
            self._reserve()

    def take(self, fence: int) -> None:
        """Within that transaction: nobody gets it again."""
        self._cursor.execute("UPDATE meta SET fence = ?", (fence,))

    def last(self) -> int:
        return self._read()[0]

    def _read(self) -> tuple[int, int, str]:
        self._cursor.execute("SELECT fence, reserved, boot FROM meta")
        return self._cursor.fetchall()[0]  # type: ignore[no-any-return]

    def _reserve(self) -> None:
        with durably(self._db, self._cursor):
            self._cursor.execute("BEGIN IMMEDIATE")
            fence, reserved, machine = self._read()
            if machine != self._boot.machine:
                fence = max(reserved, wall_us())
            ahead = max(reserved, fence + block(self._boot))
            if ahead >= LIMIT:
                raise troubles.used_up(self._path)
            self._cursor.execute(
                "UPDATE meta SET fence = ?, reserved = ?, boot = ?", (fence, ahead, self._boot.machine)
            )
            self._cursor.execute("COMMIT")
