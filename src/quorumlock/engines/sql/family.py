"""What a database answers to requests for several locks: the slots of a semaphore, and locks set all or none.

Rows are compared and set all at a time, so that nobody ever sees a half of it, and sets of names that overlap
cannot deadlock, in whatever order they are given.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.requests import AcquireAll, AcquireAny, ConfirmAll, Leave, Release
from ...core.votes import GRANTED, Answer, Cause
from .batches import Batch, Visit
from .leases import Leases, without
from .lock import ABSENT, AGREED, CHANGED, Line, Lock

NO_LINE = Line(0, None)


class Family(Leases):
    """Several locks at once."""

    def acquire_any(self, request: AcquireAny) -> Visit[Answer]:
        """The queue is a row of its own. One who comes in turn reads it in the same breath as the slots."""
        names, queue, ticket = self._all(request.names), self._prefix + request.line, request.ticket

        def decide(locks: list[Lock]) -> Answer:
            return self._any(request, locks[:-1], locks[-1])

        answer, locks = yield from self._rows.change_all([*names, queue], decide)
        if answer.vote is not GRANTED and ticket is not None and ticket.again:
            yield from self._tell(locks[:-1], locks[-1], "")
        return answer

    def _any(self, request: AcquireAny, slots: list[Lock], line_lock: Lock) -> Answer:
        ticket = request.ticket
        for choice, lock in enumerate(slots):
            if lock.token == request.token:
                return Answer(GRANTED, Cause.AGREED, lock.fence, choice=choice)
        line = line_lock.line(ticket) if request.strict or ticket is not None else NO_LINE
        free = next((choice for choice, lock in enumerate(slots) if not lock.token), None)
        if free is None or (request.strict and line.place):
            left_ms = min(lock.left_ms for lock in slots) if free is None else 0
            answer = line_lock.wait(ticket, left_ms, line, self.deaf, self._grace_ms)
            return answer._replace(fence=max(lock.fence for lock in slots))
        if ticket is not None:
            line_lock.leave(ticket.member)
        answer = slots[free].grant(request.token, request.ttl_ms, request.card)
        return answer._replace(choice=free)

    def acquire_all(self, request: AcquireAll) -> Visit[Answer]:
        """A refused one waits in the queue of the first that is busy, and in no other."""
        names = self._all(request.names)
        left: list[Lock] = []

        def decide(locks: list[Lock]) -> Answer:
            left.clear()
            return self._every(request, locks, left)

        answer, _ = yield from self._rows.change_all(names, decide)
        for lock in left:  # it stood where it waited before, and may have kept others from a lock that is free
            yield from self._tell([lock], lock, "")
        return answer

    def _every(self, request: AcquireAll, locks: list[Lock], left: list[Lock]) -> Answer:
        ticket = request.ticket
        busy = next((lock for lock in locks if lock.token and lock.token != request.token), None)
        if ticket is not None:
            left += [lock for lock in locks if lock is not busy and lock.leave(ticket.member)]
        if busy is not None:
            line = busy.line(ticket) if ticket is not None else NO_LINE
            return busy.wait(ticket, busy.left_ms, line, self.deaf, self._grace_ms)
        for lock in locks:
            if not lock.token:
                lock.grant(request.token, request.ttl_ms, request.card)
        fences = tuple(lock.fence for lock in locks)
        return Answer(GRANTED, Cause.AGREED, max(fences), fences=fences)

    def confirm_all(self, request: ConfirmAll) -> Visit[Answer]:
        """One node always agrees with itself: there is nothing to raise."""
        rows = yield from self._rows.read(self._all(request.names))
        for row, granted, fence in zip(rows, request.granted, request.fences, strict=True):
            lock = Lock(row)
            if lock.token != request.token or not fence <= granted == lock.fence:
                return CHANGED
        return Answer(GRANTED, Cause.AGREED, max(request.granted), fences=request.granted)

    def release(self, request: Release) -> Visit[Answer]:
        if not request.names:
            return (yield from super().release(request))
        names = self._all(request.names)
        queues = [self._prefix + request.line] if request.line else []

        def decide(locks: list[Lock]) -> Answer:
            held = []
            mine = False
            alone = request._replace(name="", names=(), line="", ticket="" if queues else request.ticket)
            for lock in locks[: len(names)]:
                if lock.token == request.token:
                    mine = True
                elif lock.token:
                    held.append(lock.held())
                lock.release(alone)
            if queues and request.ticket and request.wake:
                locks[-1].leave(request.ticket)
            return AGREED if mine else held[0] if held else ABSENT

        answer, locks = yield from self._rows.change_all([*names, *queues], decide)
        if not request.wake or answer is not AGREED:
            return answer
        others = False
        if queues:
            others = yield from self._tell(locks[:-1], locks[-1], request.locker)
        else:
            for lock in locks:
                others = (yield from self._tell([lock], lock, request.locker)) or others
        return answer._replace(place=1) if others and request.locker else answer

    def leave(self, request: Leave) -> Visit[Answer]:
        if not request.names:
            return (yield from super().leave(request))
        names = self._all(request.names)
        queues = [self._prefix + request.line] if request.line else []

        def decide(locks: list[Lock]) -> Answer:
            for lock in locks[-1:] if queues else locks:
                lock.leave(request.ticket)
            return AGREED

        answer, locks = yield from self._rows.change_all([*names, *queues], decide)
        if queues:
            yield from self._tell(locks[:-1], locks[-1], "")
        else:
            for lock in locks:
                yield from self._tell([lock], lock, "")
        return answer

    def _tell(self, slots: Sequence[Lock], line: Lock, locker: str) -> Visit[bool]:
        """If any of the slots is free, tells whose turn it is; true if that is somebody elsewhere."""
        if all(lock.token for lock in slots):
            return False
        dead = [""]
        while dead and (told_to := self._told(line.heads(), locker)):
            told = yield Batch(self._telling(told_to))
            dead = [one.member for one, said in zip(told_to, told, strict=True) if said.rows[0][1]]
            if dead:
                _, line, _ = yield from self._rows.change(line.row.name, without(dead))
        return any(one.locker != locker for one in line.heads())

    def _all(self, names: Sequence[str]) -> list[str]:
        return [self._prefix + name for name in names]
