"""What a file answers to requests for several locks: the slots of a semaphore, and locks that are set all or none.

Each of them is one transaction, so nobody ever sees a half of it; and whoever holds all or waits for all does so in
one step, so that sets of names that overlap cannot deadlock, in whatever order they are given.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.requests import AcquireAll, AcquireAny, ConfirmAll, Leave, Release
from ...core.votes import GRANTED, Answer, Cause
from .leases import ABSENT, AGREED, CHANGED, Leases, Row, held, waits
from .tickets import Line

AT_ONCE = 500
"""Names in one statement: SQLite knew a limit of 999 for long."""

NO_LINE = Line(0, 0, None, True)


class Family(Leases):
    """Several locks at once."""

    def acquire_any(self, request: AcquireAny) -> Answer:
        names, queue = self._all(request.names), self._prefix + request.line
        ticket, strict = request.ticket, request.strict
        rows = self._find_all(names)
        lefts = [self._left_ms(name, row) for name, row in rows.items()]
        if None not in lefts and not any(row.token == request.token for row in rows.values()):
            # By plain reads, as far as these can tell: most of those who wait find that they still have to.
            line = self._tickets.line(queue, ticket) if strict or ticket is not None else NO_LINE
            left_ms = _soonest(lefts) if len(rows) == len(names) else 0
            if line.fresh and (left_ms or (strict and line.place)):
                return waits(ticket, _highest(rows), left_ms, line)
        fence, rows, left = self._begin_all(names)
        for choice, name in enumerate(names):
            if left.get(name) and rows[name].token == request.token:
                self._cursor.execute("COMMIT")
                return Answer(GRANTED, Cause.AGREED, rows[name].fence, choice=choice)
        line = self._tickets.line(queue, ticket) if strict or ticket is not None else NO_LINE
        free = next((choice for choice, name in enumerate(names) if not left.get(name)), None)
        if free is None or (strict and line.place):
            if ticket is not None:
                self._tickets.show(queue, ticket, line)
            self._cursor.execute("COMMIT")
            return waits(ticket, _highest(rows), _soonest(list(left.values())) if free is None else 0, line)
        if ticket is not None and line.stored is not None:
            self._tickets.leave(queue, ticket.member)
        self._fences.take(fence)
        self._store(names[free], request.token, fence, request.ttl_ms, request.card)
        self._cursor.execute("COMMIT")
        self._pruning.changes += 1
        return Answer(GRANTED, Cause.AGREED, fence, choice=free)

    def acquire_all(self, request: AcquireAll) -> Answer:
        """A refused one waits in the queue of the first that is busy, and in no other.

        All are given one step of the counter: it is new for each of them.
        """
        names, ticket, token = self._all(request.names), request.ticket, request.token
        rows = self._find_all(names)
        lefts = {name: self._left_ms(name, row) for name, row in rows.items() if row.token != token}
        busy = next((name for name in names if lefts.get(name)), None)
        if busy is not None and None not in lefts.values():
            line = self._tickets.line(busy, ticket) if ticket is not None else NO_LINE
            if line.fresh:
                return waits(ticket, rows[busy].fence, lefts[busy] or 0, line)
        fence, rows, left = self._begin_all(names)
        busy = next((name for name in names if left.get(name) and rows[name].token != token), None)
        if busy is not None:
            line = NO_LINE
            if ticket is not None:
                line = self._tickets.line(busy, ticket)
                if line.stored is None:
                    # It may stand where it waited before: there it would keep others from a lock that is free.
                    self._leave_all(names, ticket.member)
                self._tickets.show(busy, ticket, line)
            self._cursor.execute("COMMIT")
            return waits(ticket, rows[busy].fence, left[busy], line)
        if ticket is not None:
            self._leave_all(names, ticket.member)
        fences = [rows[name].fence if left.get(name) else fence for name in names]
        if fence in fences:
            self._fences.take(fence)
        for name in names:
            if not left.get(name):
                self._store(name, token, fence, request.ttl_ms, request.card)
        self._cursor.execute("COMMIT")
        self._pruning.changes += len(names)
        return Answer(GRANTED, Cause.AGREED, max(fences), fences=tuple(fences))

    def confirm_all(self, request: ConfirmAll) -> Answer:
        """One node always agrees with itself: there is nothing to raise."""
        rows = self._find_all(self._all(request.names))
        for name, granted, fence in zip(self._all(request.names), request.granted, request.fences, strict=True):
            row = rows.get(name)
            if row is None or row.token != request.token or not fence <= granted == row.fence:
                return CHANGED
        return Answer(GRANTED, Cause.AGREED, max(request.granted), fences=request.granted)

    def release(self, request: Release) -> Answer:
        return self._release_all(request) if request.names else super().release(request)

    def _release_all(self, request: Release) -> Answer:
        names = self._all(request.names)
        self._cursor.execute("BEGIN IMMEDIATE")
        if request.ticket and request.wake:
            self._leave_all(self._queues(request), request.ticket)
        mine = False
        others: list[Answer] = []
        for name, row in self._find_all(names).items():
            if row.token != request.token:
                if (left_ms := self._left_ms(name, row)) != 0:
                    others.append(held(row, left_ms or self._wait_ms(row)))
                continue
            mine = True
            if self._journal is not None:
                self._journal.ends(name, request.token, request.wake, self._is_over(row))
            if not request.stay_ms or not self._shut(name, request):
                self._cursor.execute("DELETE FROM leases WHERE name = ?", (name,))
        self._cursor.execute("COMMIT")
        return AGREED if mine else others[0] if others else ABSENT

    def leave(self, request: Leave) -> Answer:
        if not request.names:
            return super().leave(request)
        self._cursor.execute("BEGIN IMMEDIATE")
        self._leave_all(self._queues(request), request.ticket)
        self._cursor.execute("COMMIT")
        return AGREED

    def _queues(self, request: Release | Leave) -> list[str]:
        return [self._prefix + request.line] if request.line else self._all(request.names)

    def _leave_all(self, queues: Sequence[str], member: str) -> None:
        for queue in queues:
            self._tickets.leave(queue, member)

    def _all(self, names: Sequence[str]) -> list[str]:
        return [self._prefix + name for name in names]

    def _find_all(self, names: Sequence[str]) -> dict[str, Row]:
        """The rows of those that have one."""
        rows: dict[str, Row] = {}
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            self._cursor.execute(_find_some(len(some)), some)
            rows |= {name: Row._make(row) for name, *row in self._cursor.fetchall()}
        return rows

    def _begin_all(self, names: Sequence[str]) -> tuple[int, dict[str, Row], dict[str, int]]:
        """Begins a write transaction: the fence to take, the rows, and what is left of each; 0: it is free."""
        self._pruning.if_due()
        fence = self._fences.begin()
        rows = self._find_all(names)
        return fence, rows, {name: self._settled_ms(name, row) for name, row in rows.items()}


def _find_some(count: int) -> str:
    return f"""SELECT name, token, fence, expires_ms, ttl_ms, boot FROM leases
        WHERE name IN ({", ".join("?" * count)})"""


def _highest(rows: dict[str, Row]) -> int:
    return max((row.fence for row in rows.values()), default=0)


def _soonest(lefts: Sequence[int | None]) -> int:
    """When the first of them is over; 0: one of them is."""
    return min((left_ms or 0 for left_ms in lefts), default=0)
