"""Who waits for a lock, in which order: fairness among processes that only have a file in common.

A ticket keeps the place it was given: by its `order_us`, then by itself. A request that comes in turn is granted a
free lock if no live ticket stands before its own. Its own goes with the grant, in the same transaction.

Nobody announces anything here, so whoever waits asks, and each time shows that it is still there. A ticket is good
for `LASTS_MS` after it was shown. That is the bound: a head that was killed, or is stopped, keeps a free lock from
the others for 2 s at the most. Many of them do so for no longer: they age at the same time. One that goes on
afterwards has its old place again. (To show a ticket that is good for long need not write it.)

**Whose time is it?** A deadline is an instant of a boot clock, as that of a lease is, and means nothing to those
who read another one: in another time namespace, after a reboot, on systems that do not tell. They go by the wall
clock, which is noted as well. It can be set: by so much a ticket lives shorter, or longer, up to 2 s. That would
not do for leases. But tickets decide who is next, never whether a lock is free.

**Readers.** The tickets of those who would share a lock end in "~r". They pass one another, but not one who came
before them and wants it alone; who wants it alone passes nobody. So neither starves the other.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any, NamedTuple

from ...core.requests import Ticket
from .boot import Boot, ends_ms, now_ms

LASTS_MS = 2000
LAST = 2**63 - 1
"""Behind everybody."""

LEFT = f"""CASE WHEN boot = :boot THEN expires_ms - :now
    WHEN wall_ms - :wall <= {LASTS_MS} THEN wall_ms - :wall ELSE 0 END"""
"""For how long a ticket is good; not above 0: it is dead. A wall clock that says more than can be was set back."""

_MINE = "FROM tickets WHERE name = :name AND ticket = :ticket"
_LINE = f"""SELECT (SELECT order_us {_MINE}), (SELECT {LEFT} {_MINE}), count(*), min({LEFT}) FROM tickets
    WHERE name = :name AND {LEFT} > 0 AND (order_us, ticket) <
        (ifnull((SELECT order_us {_MINE}), :order), :ticket)"""
_LINE_OF_READERS = f"{_LINE} AND substr(ticket, -2) <> '~r'"
_MEMBERS = f"SELECT ticket FROM tickets WHERE name = :name AND {LEFT} > 0 ORDER BY order_us, ticket LIMIT :most"
_SHOW = "INSERT OR REPLACE INTO tickets VALUES (:name, :ticket, :order, :expires, :boot, :expires_wall)"
_TIDY = f"DELETE FROM tickets WHERE name = :name AND {LEFT} <= 0"
_LEAVE = "DELETE FROM tickets WHERE name = ? AND ticket = ?"


class Line(NamedTuple):
    """A queue, as somebody sees it who comes with a ticket, or with none."""

    place: int
    """How many live tickets stand before."""
    wait_ms: int
    """When the first of those is dead, unless it is shown again."""
    stored: int | None
    """The place in the order that the file has given us."""
    fresh: bool
    """Is there nothing to write, if we go on waiting?"""


class Tickets:
    """The queues of a file, seen through one connection."""

    def __init__(self, cursor: sqlite3.Cursor, boot: Boot) -> None:
        self._cursor = cursor
        self._clock = boot.clock

    def now(self) -> dict[str, Any]:
        """What it takes to tell who is alive."""
        return {"boot": self._clock, "now": now_ms(), "wall": _wall_ms()}

    def line(self, name: str, ticket: Ticket | None, shared: bool = False) -> Line:
        """The queue of a name; before whoever would share it (`shared`) stand only those who would not."""
        member, order = ("", LAST) if ticket is None else (ticket.member, ticket.order_us)
        known = self.now() | {"name": name, "ticket": member, "order": order}
        self._cursor.execute(_LINE_OF_READERS if shared else _LINE, known)
        stored, left_ms, place, wait_ms = self._cursor.fetchall()[0]
        fresh = ticket is None or (stored is not None and left_ms > _lasts_ms(ticket) * 3 // 4)
        return Line(place, wait_ms or 0, stored, fresh)

    def show(self, name: str, ticket: Ticket, line: Line) -> None:
        """Within a transaction: stores a ticket, or keeps it good; takes the dead of its queue away."""
        lasts_ms = _lasts_ms(ticket)
        known = self.now() | {
            "name": name, "ticket": ticket.member, "order": ticket.order_us if line.stored is None else line.stored,
            "expires": ends_ms(lasts_ms), "expires_wall": _wall_ms() + lasts_ms,
        }  # fmt: skip
        self._cursor.execute(_SHOW, known)
        self._cursor.execute(_TIDY, known)

    def leave(self, name: str, member: str) -> None:
        self._cursor.execute(_LEAVE, (name, member))

    def members(self, name: str, most: int) -> tuple[str, ...]:
        """Who waits, in order."""
        self._cursor.execute(_MEMBERS, self.now() | {"name": name, "most": most})
        return tuple(member for (member,) in self._cursor.fetchall())


def again_ms(ticket: Ticket | None, wait_ms: int) -> int:
    """When to ask again. Whoever has a ticket does so in time to keep it good, though it likes to ask seldom."""
    return wait_ms if ticket is None else max(1, min(wait_ms, _lasts_ms(ticket) // 4))


def _lasts_ms(ticket: Ticket) -> int:
    return min(ticket.patience_ms, LASTS_MS)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
