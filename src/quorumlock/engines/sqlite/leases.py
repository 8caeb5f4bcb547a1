"""What a file answers to each request.

**Whose time is it?** A lease ends at an instant of the holder's boot clock. Processes of the same boot (and time
namespace) compare it with their own. To all others, and to everybody after a reboot, the number says nothing, and
they never take such a lease for expired. The first of them that meets it notes, for all that share its clock, "seen
now", and waits max(max_ttl, the lease's ttl) from there, unless the holder renews it:

    A (boot a)   acquire, ttl 10 ──── renew ──── renew ─ ✕ dies          its lease ends 10 s after the last renewal
    B (boot b)        sees it: +60 s     ⋯ renewed: +60 s again  ⋯ seen unchanged for 60 s: free

Safe: a renewal changes `expires_ms`, and B counts from an instant at which it read the row as it still is, so after
the renewal that wrote it. From there A's lease has `ttl` at the most, by a clock of the same rate (within the drift
that the holder's own validity allows for). Each clock has a note of its own, and none touches the lease: if they
overwrote one another's, two waiters of different boots would put the end off for ever.
Limit: a holder that survives on another machine (a file shared between machines, which WAL does not allow; a
frozen virtual machine that is thawed) knows the end of its validity by its own clock alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.requests import (
    Acquire,
    Break,
    Close,
    Confirm,
    Extend,
    Heal,
    Initialise,
    Join,
    Kept,
    Leave,
    Look,
    Release,
    Request,
    Survey,
)
from ...core.votes import GRANTED, REFUSED, Answer, Cause, of_each
from .boot import Boot, ends_ms, now_ms
from .fences import Fences
from .tickets import LEFT, Line, Tickets, again_ms

PRUNE_EVERY = 1000
PRUNE_MOST = 1000
"""So many rows at once: a transaction is short, also in a file that was neglected."""

CLOSED = "ql:closed"
"""The token of a lock that stays closed after its release: nobody's."""

AGREED = Answer(GRANTED, Cause.AGREED)
ABSENT = Answer(REFUSED, Cause.ABSENT)

_FIND = "SELECT token, fence, expires_ms, ttl_ms, boot FROM leases WHERE name = ?"
_STORE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)"
_RENEW = "UPDATE leases SET expires_ms = ?, ttl_ms = ?, boot = ? WHERE name = ?"
_SHUT = """UPDATE leases SET token = ?, expires_ms = ?, ttl_ms = ?, boot = ?
    WHERE name = ? AND token = ? AND (boot <> ? OR expires_ms > ?)"""
_SEEN = "SELECT until_ms FROM sightings WHERE name = ? AND boot = ? AND token = ? AND expires_ms = ?"
_SEE = "INSERT OR REPLACE INTO sightings VALUES (?, ?, ?, ?, ?)"

_PRUNABLE = f"""SELECT EXISTS (SELECT 1 FROM leases WHERE boot <> :boot OR expires_ms <= :now)
    OR EXISTS (SELECT 1 FROM sightings) OR EXISTS (SELECT 1 FROM tickets WHERE {LEFT} <= 0)"""
_PRUNE = (
    """DELETE FROM leases WHERE name IN
        (SELECT name FROM leases WHERE boot = :boot AND expires_ms <= :now LIMIT :most)""",
    """INSERT OR REPLACE INTO sightings
        SELECT name, :boot, token, expires_ms, :now + max(ttl_ms, :max_ttl) FROM leases AS l
        WHERE boot <> :boot AND NOT EXISTS (SELECT 1 FROM sightings AS s WHERE s.name = l.name AND s.boot = :boot
            AND s.token = l.token AND s.expires_ms = l.expires_ms) LIMIT :most""",
    """DELETE FROM leases WHERE name IN (SELECT l.name FROM leases AS l JOIN sightings AS s ON s.name = l.name
        AND s.boot = :boot AND s.token = l.token AND s.expires_ms = l.expires_ms
        WHERE l.boot <> :boot AND s.until_ms <= :now LIMIT :most)""",
    """DELETE FROM sightings WHERE NOT EXISTS
        (SELECT 1 FROM leases AS l WHERE l.name = sightings.name AND l.token = sightings.token)""",
    f"""DELETE FROM tickets WHERE (name, ticket) IN
        (SELECT name, ticket FROM tickets WHERE {LEFT} <= 0 LIMIT :most)""",
)


class Row(NamedTuple):
    token: str
    fence: int
    expires_ms: int
    ttl_ms: int
    boot: str


class Leases:
    """The leases of a file, seen through one connection. Errors leave it in any state: it is then closed."""

    def __init__(self, cursor: sqlite3.Cursor, fences: Fences, boot: Boot, prefix: str, max_ttl_ms: int) -> None:
        self._cursor = cursor
        self._fences = fences
        self._tickets = Tickets(cursor, boot)
        self._clock = boot.clock
        self._prefix = prefix
        self._max_ttl_ms = max_ttl_ms
        self._grants = 0

    def answer(self, request: Request) -> Answer:
        return _ANSWERS[type(request)](self, request)

    def prune(self) -> None:
        """Deletes what expired and was never asked for again; takes the write lock only if there is any."""
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
        known = self._tickets.now() | {"max_ttl": self._max_ttl_ms, "most": PRUNE_MOST}
        for statement in _PRUNE:
            self._cursor.execute(statement, known)
        self._cursor.execute("COMMIT")

    def _nothing(self, _: Join | Survey | Close | Initialise) -> Answer:
        """Whoever can ask has opened the file, and thereby made it."""
        return AGREED

    def _acquire(self, request: Acquire) -> Answer:
        if request.strict or request.ticket is not None:
            return self._acquire_in_turn(request)
        name = self._prefix + request.name
        row = self._find(name)
        if row is not None and row.token != request.token and (left_ms := self._left_ms(name, row)):
            return _held(row, left_ms)  # by a plain read, which waits for nobody and hinders nobody
        fence, row, left_ms = self._begin(name)
        if row is not None and left_ms:
            self._cursor.execute("COMMIT")
            return Answer(GRANTED, Cause.AGREED, row.fence) if row.token == request.token else _held(row, left_ms)
        return self._grant(name, request, fence)

    def _acquire_in_turn(self, request: Acquire) -> Answer:
        """For whoever waits in the queue, or does not overtake those who do."""
        name, ticket = self._prefix + request.name, request.ticket
        row = self._find(name)
        if row is None or row.token != request.token:
            left_ms = 0 if row is None else self._left_ms(name, row)
            if left_ms is not None:
                line = self._tickets.line(name, ticket)
                if line.fresh and (left_ms or (request.strict and line.place)):
                    return _waits(request, self._fences.last() if row is None else row.fence, left_ms, line)
        fence, row, left_ms = self._begin(name)
        if row is not None and left_ms and row.token == request.token:
            self._cursor.execute("COMMIT")
            return Answer(GRANTED, Cause.AGREED, row.fence)
        line = self._tickets.line(name, ticket)
        if left_ms or (request.strict and line.place):
            if ticket is not None:
                self._tickets.show(name, ticket, line)
            self._cursor.execute("COMMIT")
            return _waits(request, fence - 1 if row is None else row.fence, left_ms, line)
        if ticket is not None and line.stored is not None:
            self._tickets.leave(name, ticket.member)
        return self._grant(name, request, fence)

    def _begin(self, name: str) -> tuple[int, Row | None, int]:
        """Begins a write transaction: the fence to take, who has the lock, and for how long; 0: it is free."""
        if self._grants >= PRUNE_EVERY:
            self._grants = 0
            self.prune()
        fence = self._fences.begin()
        row = self._find(name)
        left_ms = 0 if row is None else self._left_ms(name, row)
        if row is not None and left_ms is None:
            left_ms = self._see(name, row)
        return fence, row, left_ms or 0

    def _grant(self, name: str, request: Acquire, fence: int) -> Answer:
        self._fences.take(fence)
        ends = ends_ms(request.ttl_ms)
        self._cursor.execute(_STORE, (name, request.token, fence, ends, request.ttl_ms, self._clock))
        self._cursor.execute("COMMIT")
        self._grants += 1
        return Answer(GRANTED, Cause.AGREED, fence)

    def _confirm(self, request: Confirm) -> Answer:
        """One node always agrees with itself: there is nothing to raise."""
        row = self._find(self._prefix + request.name)
        if row is None or row.token != request.token or not request.fence <= request.granted == row.fence:
            return Answer(REFUSED, Cause.CHANGED)
        return Answer(GRANTED, Cause.AGREED, row.fence)

    def _extend(self, request: Extend) -> Answer:
        self._cursor.execute("BEGIN IMMEDIATE")
        causes = [self._renew(kept, request.shorten) for kept in request.leases]
        self._cursor.execute("COMMIT")
        return of_each(causes)

    def _heal(self, request: Heal) -> Answer:
        """Here no node forgets: what is absent was released, broken or is over, and stays so."""
        return self._extend(Extend(request.leases))

    def _renew(self, kept: Kept, shorten: bool) -> Cause:
        name = self._prefix + kept.name
        row = self._find(name)
        if row is None:
            return Cause.ABSENT
        is_over = row.boot == self._clock and row.expires_ms <= now_ms()
        if row.token != kept.token or is_over:
            return Cause.ABSENT if is_over else Cause.HELD
        ends = ends_ms(kept.ttl_ms)
        if shorten or row.boot != self._clock or ends > row.expires_ms:
            self._cursor.execute(_RENEW, (ends, kept.ttl_ms, self._clock, name))
        return Cause.AGREED

    def _release(self, request: Release) -> Answer:
        name = self._prefix + request.name
        if request.ticket and request.wake:
            # It went with the grant, as a rule. First: if another process writes just now, all of this is asked
            # again, and must find the lock.
            self._tickets.leave(name, request.ticket)
        if request.stay_ms and self._shut(name, request):
            return AGREED
        self._cursor.execute("DELETE FROM leases WHERE name = ? AND token = ?", (name, request.token))
        if self._cursor.rowcount:
            return AGREED
        row = self._find(name)
        if row is None or (left_ms := self._left_ms(name, row)) == 0:
            return ABSENT
        return _held(row, left_ms or self._wait_ms(row))

    def _shut(self, name: str, request: Release) -> bool:
        """Keeps a lock closed that is released: from now on it is nobody's. One that is over stays so."""
        self._cursor.execute(
            _SHUT,
            (
                CLOSED, ends_ms(request.stay_ms), request.stay_ms, self._clock,
                name, request.token, self._clock, now_ms(),
            ),
        )  # fmt: skip
        return self._cursor.rowcount > 0

    def _leave(self, request: Leave) -> Answer:
        self._tickets.leave(self._prefix + request.name, request.ticket)
        return AGREED

    def _break(self, request: Break) -> Answer:
        name = self._prefix + request.name
        if self._is_free(name):
            return ABSENT
        fence = self._fences.begin()
        self._cursor.execute("DELETE FROM leases WHERE name = ?", (name,))
        if not self._cursor.rowcount:
            self._cursor.execute("ROLLBACK")
            return ABSENT
        self._fences.take(fence)
        self._cursor.execute("COMMIT")
        return Answer(GRANTED, Cause.AGREED, fence)

    def _look(self, request: Look) -> Answer:
        name = self._prefix + request.name
        row = self._find(name)
        if row is None or (left_ms := self._left_ms(name, row)) == 0:
            return Answer(GRANTED, Cause.AGREED, self._fences.last())
        return _held(row, left_ms or self._wait_ms(row))

    def _is_free(self, name: str) -> bool:
        row = self._find(name)
        return row is None or self._left_ms(name, row) == 0

    def _find(self, name: str) -> Row | None:
        self._cursor.execute(_FIND, (name,))
        rows = self._cursor.fetchall()  # to the end: a statement that is not over keeps its snapshot
        return Row._make(rows[0]) if rows else None

    def _left_ms(self, name: str, row: Row) -> int | None:
        """What is left of a lease; 0: it is over; None: it is of another clock, and was not seen before."""
        until_ms = row.expires_ms
        if row.boot != self._clock:
            self._cursor.execute(_SEEN, (name, self._clock, row.token, row.expires_ms))
            seen = self._cursor.fetchall()
            if not seen:
                return None
            (until_ms,) = seen[0]
        return max(0, until_ms - now_ms())

    def _see(self, name: str, row: Row) -> int:
        """Within the transaction that read the row: notes it, and gives how long to wait from now."""
        wait_ms = self._wait_ms(row)
        # The clock is read after the row, or a renewal in between would be counted from too early.
        self._cursor.execute(_SEE, (name, self._clock, row.token, row.expires_ms, ends_ms(wait_ms)))
        return wait_ms

    def _wait_ms(self, row: Row) -> int:
        return max(self._max_ttl_ms, row.ttl_ms)


def _held(row: Row, left_ms: int) -> Answer:
    return Answer(REFUSED, Cause.HELD, row.fence, left_ms)


def _waits(request: Acquire, fence: int, left_ms: int, line: Line) -> Answer:
    """It is held, or free and somebody else's turn."""
    wait_ms = again_ms(request.ticket, left_ms or line.wait_ms)
    return Answer(REFUSED, Cause.HELD, fence, wait_ms, place=line.place)


_ANSWERS: dict[type[Request], Callable[[Leases, Any], Answer]] = {
    Join: Leases._nothing,
    Acquire: Leases._acquire,
    Confirm: Leases._confirm,
    Extend: Leases._extend,
    Heal: Leases._heal,
    Release: Leases._release,
    Leave: Leases._leave,
    Break: Leases._break,
    Look: Leases._look,
    Survey: Leases._nothing,
    Close: Leases._nothing,
    Initialise: Leases._nothing,
}
