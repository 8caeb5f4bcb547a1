"""What a file answers to requests for one lock. (Several at once: `family.py`; shared ones: also `readers.py`.)

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
import time
from typing import NamedTuple

from ...core.requests import (
    READER,
    Acquire,
    Break,
    Close,
    Confirm,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Join,
    Kept,
    Leave,
    Look,
    Release,
    Survey,
    Ticket,
)
from ...core.votes import GRANTED, REFUSED, Answer, Cause, of_each
from .boot import Boot, ends_ms, now_ms
from .fences import Fences
from .journal import Journal
from .pruning import Pruning
from .readers import READERS, Readers
from .tickets import Line, Tickets, again_ms

CLOSED = "ql:closed"
"""The token of a lock that stays closed after its release: nobody's."""

AGREED = Answer(GRANTED, Cause.AGREED)
ABSENT = Answer(REFUSED, Cause.ABSENT)
CHANGED = Answer(REFUSED, Cause.CHANGED)

_FIND = "SELECT token, fence, expires_ms, ttl_ms, boot FROM leases WHERE name = ?"
_STORE = """INSERT OR REPLACE INTO leases (name, token, fence, expires_ms, ttl_ms, boot, since_us, card, begins)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_RENEW = "UPDATE leases SET expires_ms = ?, ttl_ms = ?, boot = ? WHERE name = ?"
_SHUT = """UPDATE leases SET token = ?, expires_ms = ?, ttl_ms = ?, boot = ?
    WHERE name = ? AND token = ? AND (boot <> ? OR expires_ms > ?)"""
_SEEN = "SELECT until_ms FROM sightings WHERE name = ? AND boot = ? AND token = ? AND expires_ms = ?"
_SEE = "INSERT OR REPLACE INTO sightings VALUES (?, ?, ?, ?, ?)"
_UNSHARE = """DELETE FROM leases WHERE name = :name AND token = :readers
    AND NOT EXISTS (SELECT 1 FROM readers WHERE name = :name)"""


class Row(NamedTuple):
    token: str
    fence: int
    expires_ms: int
    ttl_ms: int
    boot: str


class Leases:
    """The leases of a file, seen through one connection. Errors leave it in any state: it is then closed."""

    def __init__(
        self,
        cursor: sqlite3.Cursor,
        fences: Fences,
        tickets: Tickets,
        pruning: Pruning,
        boot: Boot,
        prefix: str,
        max_ttl_ms: int,
        journal: Journal,
    ) -> None:
        self._cursor = cursor
        self._fences = fences
        self._tickets = tickets
        self._pruning = pruning
        self._readers = Readers(cursor, boot, max_ttl_ms)
        self._clock = boot.clock
        self._prefix = prefix
        self._begins = len(prefix)
        self._max_ttl_ms = max_ttl_ms
        self._journal = journal if journal.kept else None

    def nothing(self, _: Join | Survey | Close | Initialise) -> Answer:
        """Whoever can ask has opened the file, and thereby made it."""
        return AGREED

    def acquire(self, request: Acquire) -> Answer:
        if request.strict or request.ticket is not None or request.shared:
            return self._acquire_in_turn(request)
        name = self._prefix + request.name
        row = self._find(name)
        if row is not None and row.token != request.token and (left_ms := self._left_ms(name, row)):
            return held(row, left_ms)  # by a plain read, which waits for nobody and hinders nobody
        fence, row, left_ms = self._begin(name)
        if row is not None and left_ms:
            self._cursor.execute("COMMIT")
            return Answer(GRANTED, Cause.AGREED, row.fence) if row.token == request.token else held(row, left_ms)
        return self._grant(name, request, fence)

    def _acquire_in_turn(self, request: Acquire) -> Answer:
        """For whoever waits in the queue, or does not overtake those who do; and for whoever shares."""
        name, ticket, shared = self._prefix + request.name, request.ticket, request.shared
        row = self._find(name)
        if row is None or not self._has(name, row, request.token):
            barred = row is not None and not (shared and row.token == READERS)
            left_ms = self._left_ms(name, row) if row is not None and barred else 0
            if left_ms is not None:
                line = self._tickets.line(name, ticket, shared)
                if line.fresh and (left_ms or (request.strict and line.place)):
                    return waits(ticket, self._fences.last() if row is None else row.fence, left_ms, line)
        fence, row, left_ms = self._begin(name)
        if row is not None and left_ms and self._has(name, row, request.token):
            self._cursor.execute("COMMIT")
            return Answer(GRANTED, Cause.AGREED, row.fence)
        beside = shared and row is not None and row.token == READERS
        line = self._tickets.line(name, ticket, shared)
        if (left_ms and not beside) or (request.strict and line.place):
            if ticket is not None:
                self._tickets.show(name, ticket, line)
            self._cursor.execute("COMMIT")
            wait_ms = 0 if beside else left_ms
            return waits(ticket, fence - 1 if row is None else row.fence, wait_ms, line)
        if ticket is not None and line.stored is not None:
            self._tickets.leave(name, ticket.member)
        if not shared:
            return self._grant(name, request, fence)
        # Not raised: the last that anybody was given, whatever the name; so not below that of the last who had it
        # alone. Whoever has it alone later is given a higher one. (Nobody has had it since it was marked.)
        fence = row.fence if row is not None and beside else fence - 1
        if self._journal is not None:
            self._journal.expired(name)
            self._journal.shared(name, request.token, fence, request.card)
        if not beside:
            self._mark_shared(name, fence, request.ttl_ms)
        self._readers.add(name, request.token, request.ttl_ms)
        self._cursor.execute("COMMIT")
        self._pruning.changes += 1
        return Answer(GRANTED, Cause.AGREED, fence)

    def _has(self, name: str, row: Row, token: str) -> bool:
        """Was it granted to this token, whose request comes again?"""
        return row.token == token or (row.token == READERS and self._readers.has(name, token))

    def _begin(self, name: str) -> tuple[int, Row | None, int]:
        """Begins a write transaction: the fence to take, who has the lock, and for how long; 0: it is free."""
        self._pruning.if_due()
        fence = self._fences.begin()
        row = self._find(name)
        return fence, row, 0 if row is None else self._settled_ms(name, row)

    def _settled_ms(self, name: str, row: Row) -> int:
        """Within a transaction: what is left of a lease; one of another clock is noted. 0: it is over."""
        left_ms = self._left_ms(name, row)
        if left_ms is None:
            left_ms = self._readers.see(name) if row.token == READERS else self._see(name, row)
        if not left_ms and row.token == READERS:
            self._readers.clear(name)  # whoever shares it next does so without them
        return left_ms

    def _grant(self, name: str, request: Acquire, fence: int) -> Answer:
        self._fences.take(fence)
        self._store(name, request.token, fence, request.ttl_ms, request.card)
        self._cursor.execute("COMMIT")
        self._pruning.changes += 1
        return Answer(GRANTED, Cause.AGREED, fence)

    def _store(self, name: str, token: str, fence: int, ttl_ms: int, card: str) -> None:
        if self._journal is not None:
            self._journal.granted(name, token, fence, card)
        ends, since_us = ends_ms(ttl_ms), time.time_ns() // 1000
        row = (name, token, fence, ends, ttl_ms, self._clock, since_us, card, self._begins)
        self._cursor.execute(_STORE, row)

    def _mark_shared(self, name: str, fence: int, ttl_ms: int) -> None:
        """It is of no clock: no look at this row alone says whether it is over."""
        self._cursor.execute(_STORE, (name, READERS, fence, 0, ttl_ms, "", 0, "", self._begins))

    def confirm(self, request: Confirm) -> Answer:
        """One node always agrees with itself: there is nothing to raise."""
        row = self._find(self._prefix + request.name)
        if row is None or row.token != request.token or not request.fence <= request.granted == row.fence:
            return CHANGED
        return Answer(GRANTED, Cause.AGREED, row.fence)

    def extend(self, request: Extend) -> Answer:
        self._cursor.execute("BEGIN IMMEDIATE")
        causes = [self._renew(kept) for kept in request.leases]
        self._cursor.execute("COMMIT")
        return of_each(causes)

    def heal(self, request: Heal) -> Answer:
        """Here no node forgets: what is absent was released, broken or is over, and stays so."""
        return self.extend(Extend(request.leases))

    def _renew(self, kept: Kept) -> Cause:
        name = self._prefix + kept.name
        row = self._find(name)
        if row is None:
            return Cause.ABSENT
        if row.token == READERS:
            if kept.token.startswith(READER):
                return self._readers.renew(name, kept)
            return Cause.ABSENT if self._readers.left_ms(name) == 0 else Cause.HELD
        is_over = self._is_over(row)
        if row.token != kept.token or is_over:
            return Cause.ABSENT if is_over else Cause.HELD
        ends = ends_ms(kept.ttl_ms)
        if row.boot != self._clock or ends > row.expires_ms:
            self._cursor.execute(_RENEW, (ends, kept.ttl_ms, self._clock, name))
        return Cause.AGREED

    def release(self, request: Release) -> Answer:
        if request.token.startswith(READER):
            return self._unread(request)
        name = self._prefix + request.name
        if self._journal is None:
            return self._end(name, request)
        self._cursor.execute("BEGIN IMMEDIATE")
        row = self._find(name)
        self._journal.ends(name, request.token, request.wake, row is not None and self._is_over(row))
        answer = self._end(name, request)
        self._cursor.execute("COMMIT")
        return answer

    def _end(self, name: str, request: Release) -> Answer:
        if request.ticket and request.wake:
            # It went with the grant, as a rule. First: if another process writes just now, all of this is asked
            # again, and must find the lock.
            self._tickets.leave(name, request.ticket)
        if request.stay_ms and self._shut(name, request):
            return AGREED
        self._cursor.execute("DELETE FROM leases WHERE name = ? AND token = ?", (name, request.token))
        return AGREED if self._cursor.rowcount else self._not_mine(name)

    def _not_mine(self, name: str) -> Answer:
        """To whoever releases what it does not have."""
        row = self._find(name)
        if row is None or (left_ms := self._left_ms(name, row)) == 0:
            return ABSENT
        return held(row, left_ms or self._wait_ms(row))

    def _unread(self, request: Release) -> Answer:
        """The end of one who shares; with the last of them the lock is free."""
        name = self._prefix + request.name
        self._cursor.execute("BEGIN IMMEDIATE")
        if request.ticket and request.wake:
            self._tickets.leave(name, request.ticket)
        gone = self._readers.leave(name, request.token)
        if gone:
            if self._journal is not None:
                self._journal.unshared(name, request.token, request.wake)
            self._cursor.execute(_UNSHARE, {"name": name, "readers": READERS})
        self._cursor.execute("COMMIT")
        return AGREED if gone else self._not_mine(name)

    def downgrade(self, request: Downgrade) -> Answer:
        """From now on the lock is shared, and nobody had it in between. Its fence stays."""
        name = self._prefix + request.name
        self._cursor.execute("BEGIN IMMEDIATE")
        row = self._find(name)
        if row is None or row.token != request.token or self._is_over(row):
            known = row is not None and row.token == READERS and self._readers.has(name, request.reader)
            self._cursor.execute("COMMIT")
            return Answer(GRANTED, Cause.AGREED, row.fence) if known and row is not None else CHANGED
        if request.ticket:
            self._tickets.leave(name, request.ticket)
        if self._journal is not None:
            self._journal.ends(name, request.token, True, False)
            self._journal.shared(name, request.reader, row.fence, "read -")
        self._mark_shared(name, row.fence, request.ttl_ms)
        self._readers.clear(name)
        self._readers.add(name, request.reader, request.ttl_ms)
        self._cursor.execute("COMMIT")
        return Answer(GRANTED, Cause.AGREED, row.fence)

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

    def leave(self, request: Leave) -> Answer:
        self._tickets.leave(self._prefix + request.name, request.ticket)
        return AGREED

    def break_(self, request: Break) -> Answer:
        name = self._prefix + request.name
        if self._is_free(name):
            return ABSENT
        fence = self._fences.begin()
        if request.only and (row := self._find(name)) is not None and row.fence > request.only:
            self._cursor.execute("ROLLBACK")
            return Answer(REFUSED, Cause.CHANGED, row.fence)
        if self._journal is not None:
            self._journal.broken(name, request.by)
        self._cursor.execute("DELETE FROM leases WHERE name = ?", (name,))
        if not self._cursor.rowcount:
            self._cursor.execute("ROLLBACK")
            return ABSENT
        self._readers.clear(name)
        self._fences.take(fence)
        self._cursor.execute("COMMIT")
        return Answer(GRANTED, Cause.AGREED, fence)

    def look(self, request: Look) -> Answer:
        name = self._prefix + request.name
        row = self._find(name)
        if row is None or (left_ms := self._left_ms(name, row)) == 0:
            return Answer(GRANTED, Cause.AGREED, self._fences.last())
        if request.shared and row.token == READERS:
            return Answer(GRANTED, Cause.AGREED, row.fence)
        return held(row, left_ms or self._wait_ms(row))

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
            if row.token == READERS:
                return self._readers.left_ms(name)
            self._cursor.execute(_SEEN, (name, self._clock, row.token, row.expires_ms))
            seen = self._cursor.fetchall()
            if not seen:
                return None
            (until_ms,) = seen[0]
        return max(0, until_ms - now_ms())

    def _is_over(self, row: Row) -> bool:
        """Is it, by the clock that we share? Then its holder has nothing left to renew."""
        return row.boot == self._clock and row.expires_ms <= now_ms()

    def _see(self, name: str, row: Row) -> int:
        """Within the transaction that read the row: notes it, and gives how long to wait from now."""
        wait_ms = self._wait_ms(row)
        # The clock is read after the row, or a renewal in between would be counted from too early.
        self._cursor.execute(_SEE, (name, self._clock, row.token, row.expires_ms, ends_ms(wait_ms)))
        return wait_ms

    def _wait_ms(self, row: Row) -> int:
        return max(self._max_ttl_ms, row.ttl_ms)


def held(row: Row, left_ms: int) -> Answer:
    return Answer(REFUSED, Cause.HELD, row.fence, left_ms)


def waits(ticket: Ticket | None, fence: int, left_ms: int, line: Line) -> Answer:
    """It is held, or free and somebody else's turn."""
    return Answer(REFUSED, Cause.HELD, fence, again_ms(ticket, left_ms or line.wait_ms), place=line.place)
