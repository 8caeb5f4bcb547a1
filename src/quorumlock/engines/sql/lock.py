"""One lock, as its row tells of it: who has it, who shares it, who waits. What requests do to it, and no database.

Time is the database's, in µs, and comes with the row. Whoever was told to wait stands in the queue with an instant
until which its ticket is good. `deaf` waiters are told nothing: they ask, and show by that that they are there, so
a ticket of theirs is good for `LASTS_MS` at the most. Others are announced, and are good for as long as they say.

A free lock that its next does not take within the grace is offered to whoever comes behind: `graces`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core.requests import READER, Acquire, Kept, Release, Ticket
from ...core.votes import GRANTED, REFUSED, Answer, Cause

READERS = "ql:readers"
CLOSED = "ql:closed"
"""Tokens of no holder: of a lock that is shared, and of one that stays closed after its release."""
NOBODYS = ("", READERS, CLOSED)
LASTS_MS = 2000

AGREED = Answer(GRANTED, Cause.AGREED)
ABSENT = Answer(REFUSED, Cause.ABSENT)
CHANGED = Answer(REFUSED, Cause.CHANGED)


class Row(NamedTuple):
    """What the table has of a name. `version` is 0 if it has nothing; then `fence` is what new ones begin above.

    `fence` is the version that was current when it was last granted: versions only grow.
    """

    name: str
    version: int
    fence: int
    token: str
    until_us: int
    doc: str
    now_us: int


class Waiter(NamedTuple):
    order_us: int
    member: str
    until_us: int
    deaf: int

    @property
    def reads(self) -> bool:
        return self.member.endswith("~r")

    @property
    def locker(self) -> str:
        return self.member.partition(":")[0]


class Line(NamedTuple):
    """The queue, as somebody sees it who comes with a ticket, or with none."""

    place: int
    first: Waiter | None
    """Of those who stand before."""


class Lock:
    """A row, opened. What changes it says so in `changed`; `until_us` may be given from now on, by `lasts_us`."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.now_us = row.now_us
        self.version, self.fence = row.version or row.fence, row.fence
        self.token, self.until_us = row.token, row.until_us
        self.lasts_us = 0
        told: dict[str, Any] = json.loads(row.doc) if row.doc else {}
        self.since_us: int = told.get("since", 0)
        self.card: str = told.get("card", "")
        self.readers: dict[str, int] = told.get("readers", {})
        self.queue = [Waiter(*one) for one in told.get("queue", ())]
        self.changed = False
        if self.token and self.until_us <= self.now_us:
            self._free()
        self._tidy()

    def _free(self) -> None:
        self.token, self.until_us, self.lasts_us = "", 0, 0
        self.readers, self.since_us, self.card = {}, 0, ""

    def _tidy(self) -> None:
        """Who is over stays in the row until somebody writes it for another reason."""
        self.readers = {one: until for one, until in self.readers.items() if until > self.now_us}
        self.queue = [one for one in self.queue if one.until_us > self.now_us]

    def doc(self) -> str:
        told: dict[str, Any] = {}
        if self.since_us:
            told["since"] = self.since_us
        if self.card:
            told["card"] = self.card
        if self.readers:
            told["readers"] = self.readers
        if self.queue:
            told["queue"] = self.queue
        return json.dumps(told, separators=(",", ":")) if told else ""

    # Who has it.

    @property
    def left_ms(self) -> int:
        """0: it is free."""
        return math.ceil((self.until_us - self.now_us) / 1000) if self.token else 0

    def has(self, token: str) -> bool:
        return self.token == token or (self.token == READERS and token in self.readers)

    def held(self) -> Answer:
        return Answer(REFUSED, Cause.HELD, self.fence, max(1, self.left_ms))

    def grant(self, token: str, ttl_ms: int, card: str) -> Answer:
        self._free()
        self.token, self.lasts_us = token, ttl_ms * 1000
        self.since_us, self.card = self.now_us, card
        self.fence = self.version + 1
        self.changed = True
        return Answer(GRANTED, Cause.AGREED, self.fence)

    def share(self, reader: str, ttl_ms: int) -> Answer:
        """The fence is not raised."""
        if self.token != READERS:
            self._free()
            self.token = READERS
        self.readers[reader] = max(self.readers.get(reader, 0), self.now_us + ttl_ms * 1000)
        self._lives_as_long_as_the_last()
        return Answer(GRANTED, Cause.AGREED, self.fence)

    def _lives_as_long_as_the_last(self) -> None:
        self.until_us, self.changed = max(self.readers.values()), True

    # What requests come to.

    def acquire(self, request: Acquire, deaf: bool, grace_ms: int) -> Answer:
        ticket, shared = request.ticket, request.shared
        if self.has(request.token):
            return Answer(GRANTED, Cause.AGREED, self.fence)
        beside = shared and self.token == READERS
        left_ms = 0 if beside else self.left_ms
        line = self.line(ticket, shared)
        if left_ms or (request.strict and line.place):
            return self.wait(ticket, left_ms, line, deaf, grace_ms)
        if ticket is not None:
            self.leave(ticket.member)
        return self.share(request.token, request.ttl_ms) if shared else self.grant(
            request.token, request.ttl_ms, request.card
        )  # fmt: skip

    def wait(self, ticket: Ticket | None, left_ms: int, line: Line, deaf: bool, grace_ms: int) -> Answer:
        """It is held, or free and somebody else's turn."""
        wait_ms = left_ms or self._graces(ticket, line, grace_ms)
        if ticket is None:
            return Answer(REFUSED, Cause.HELD, self.fence, wait_ms, place=line.place)
        lasts_ms = min(ticket.patience_ms, LASTS_MS) if deaf else ticket.patience_ms
        mine = next((one for one in self.queue if one.member == ticket.member), None)
        if mine is None or mine.until_us - self.now_us < lasts_ms * 750:
            order_us = ticket.order_us if mine is None else mine.order_us
            self.queue = [one for one in self.queue if one is not mine]
            self.queue.append(Waiter(order_us, ticket.member, self.now_us + lasts_ms * 1000, int(deaf)))
            self.queue.sort()
            self.changed = True
        if deaf:
            wait_ms = max(1, min(wait_ms, lasts_ms // 4))
        return Answer(REFUSED, Cause.HELD, self.fence, wait_ms, place=line.place)

    def _graces(self, ticket: Ticket | None, line: Line, grace_ms: int) -> int:
        """How long to leave a free lock to the first in the queue, who is told again, and has so long to come."""
        assert line.first is not None
        left_ms = max(1, (line.first.until_us - self.now_us) // 1000)
        if line.first.deaf:
            return left_ms
        if ticket is not None and ticket.again and left_ms > grace_ms:
            last = line.first._replace(until_us=self.now_us + grace_ms * 1000)
            self.queue = [last if one is line.first else one for one in self.queue]
            self.changed = True
        return min(left_ms, grace_ms)

    def line(self, ticket: Ticket | None, shared: bool = False) -> Line:
        """Before whoever would share it stand only those who would not."""
        mine: tuple[float, str] = (math.inf, "")
        if ticket is not None:
            stored = [one.order_us for one in self.queue if one.member == ticket.member]
            mine = (stored[0] if stored else ticket.order_us, ticket.member)
        before = [one for one in self.queue if (one.order_us, one.member) < mine and not (shared and one.reads)]
        return Line(len(before), before[0] if before else None)

    def leave(self, member: str) -> bool:
        """True if it was there."""
        staying = [one for one in self.queue if one.member != member]
        left = len(staying) < len(self.queue)
        self.queue, self.changed = staying, self.changed or left
        return left

    def release(self, request: Release) -> Answer:
        if request.ticket and request.wake:
            self.leave(request.ticket)
        if not self.has(request.token):
            return ABSENT if not self.token else self.held()
        self.changed = True
        if request.token.startswith(READER):
            del self.readers[request.token]
            if self.readers:
                self._lives_as_long_as_the_last()
                return AGREED
        self._free()
        if request.stay_ms:
            self.token, self.lasts_us = CLOSED, request.stay_ms * 1000
        return AGREED

    def renew(self, kept: Kept) -> Cause:
        if not self.has(kept.token):
            shares = kept.token.startswith(READER) and self.token == READERS
            return Cause.ABSENT if not self.token or shares else Cause.HELD
        until_us = self.now_us + kept.ttl_ms * 1000
        if self.token == READERS:
            self.share(kept.token, kept.ttl_ms)
        elif until_us > self.until_us:
            self.until_us, self.changed = until_us, True
        return Cause.AGREED

    def downgrade(self, token: str, reader: str, ttl_ms: int, ticket: str) -> Answer:
        """From now on the lock is shared, and nobody had it in between."""
        if self.token != token:
            return Answer(GRANTED, Cause.AGREED, self.fence) if self.has(reader) else CHANGED
        if ticket:
            self.leave(ticket)
        return self.share(reader, ttl_ms)

    def break_(self, above: int, only: int = 0) -> Answer:
        if not self.token:
            return ABSENT
        if 0 < only < self.fence:
            return CHANGED
        self._free()
        self.version = max(self.version, above)
        self.fence = self.version + 1
        self.changed = True
        return Answer(GRANTED, Cause.AGREED, self.fence)

    # Whose turn it is.

    def next(self) -> Iterator[Waiter]:
        """Who could have the lock now, or is to know that it will be free earlier than it thinks."""
        return self.heads(self.token == READERS) if self.token in NOBODYS else iter(())

    def heads(self, sharing: bool = False) -> Iterator[Waiter]:
        """The first in the queue; and if that one shares, all who do behind it. `sharing`: only these."""
        for at, one in enumerate(self.queue):
            if one.reads or not (at or sharing):
                yield one
            if not one.reads:
                return
