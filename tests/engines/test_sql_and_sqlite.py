"""The locks of databases against those of SQLite: the same requests at the same instants, and the same answers.

No server is needed: the rows are in a dict, which does what the few queries of `rows.py` say. What may differ:
fences are numbers of their own, of which only the order counts; and a release of what is over says so here, where
SQLite, which has not looked, says that it was done.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from quorumlock.core.requests import (
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    Confirm,
    Downgrade,
    Extend,
    Inspect,
    Kept,
    Leave,
    Look,
    Release,
    Request,
    Ticket,
)
from quorumlock.core.votes import GRANTED, Answer, Cause
from quorumlock.engines.sql.batches import Batch, Query, Result
from quorumlock.engines.sql.dialect import MYSQL
from quorumlock.engines.sql.lock import CLOSED
from quorumlock.engines.sql.visits import Visits

from .sqlite_clocks import Clock, clock
from .test_sqlite import File, settings

__all__ = ["clock"]  # fixtures
NAMES, SLOTS = ("a", "b", "c"), ("s#0", "s#1")
WRITERS, READERS = tuple(f"w{n}" for n in range(5)), tuple(f"r:{n}" for n in range(3))


class Table:
    """Rows in memory, under the queries of a dialect that does not announce."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._visits = Visits(MYSQL, "table", settings())
        self._visits.rows.changes = -(10**9)  # pruning is another story
        self._rows: dict[Any, list[Any]] = {}

    def ask(self, request: Request) -> Answer:
        visit = self._visits.answer(request)
        try:
            batch: Batch = next(visit)
            while True:
                batch = visit.send([self._run(query) for query in batch.queries])
        except StopIteration as done:
            answer: Answer = done.value
            return answer

    def _run(self, query: Query) -> Result:
        rows, values, now = self._visits.rows, query.values, self._clock.ms * 1000
        if query.text.startswith("SELECT m.format"):
            found = [(1, 1000, now, name, *self._rows[name]) for name in values if name in self._rows]
            return Result(found or [(1, 1000, now, None, None, None, None, None, None)], len(found))
        if query.text == rows._insert:
            name, _, version, fence, token, base, plus, doc, _ = values
            return self._write(name, None, [version, fence, token, base * now + plus, doc])  # type: ignore[operator]
        if query.text == rows._update:
            version, fence, token, base, plus, doc, name, old = values
            return self._write(name, old, [version, fence, token, base * now + plus, doc])  # type: ignore[operator]
        if query.text.startswith("UPDATE (SELECT COUNT"):
            count: Any = values[-1]
            told = [values[at : at + 8] for at in range(2 * count, 10 * count, 8)]
            if any(self._rows.get(name, [None])[0] != old for name, old, *_ in told):
                return Result((), 0)
            for name, old, version, fence, token, base, plus, doc in told:
                self._write(name, old, [version, fence, token, base * now + plus, doc])  # type: ignore[operator]
            return Result((), count)
        assert " AS v STRAIGHT_JOIN " in query.text, query.text
        done = 0
        for at in range(0, len(values), 3):
            name, token, lasts = values[at : at + 3]
            row = self._rows.get(name)
            if row is not None and row[2] == token and row[3] > now:
                row[0], row[3] = row[0] + 1, max(row[3], now + lasts)  # type: ignore[operator]
                done += 1
        return Result((), done)

    def _write(self, name: Any, old: Any, row: list[Any]) -> Result:
        if self._rows.get(name, [None])[0] != old:
            return Result((), 0)
        self._rows[name] = row
        return Result((), 1)


class Script:
    """Requests that a client might make, drawn by lot."""

    def __init__(self, seed: int) -> None:
        self._lot = random.Random(seed)
        self._shown: set[str] = set()

    def ticket(self, of: str = "t", reads: bool = False) -> Ticket | None:
        """One that waits for a set waits for nothing else."""
        number = self._lot.randrange(6)
        if number < 2:
            return None
        name = f"{of}{number}" + ("~r" if reads else "")
        again = name in self._shown
        self._shown.add(name)
        return Ticket(name, f"{number:016x}", 1000 - number, self._lot.choice((300, 5000)), again)

    def next(self) -> Request:
        lot = self._lot
        name, token, reader = lot.choice(NAMES), lot.choice(WRITERS), lot.choice(READERS)
        ttl, strict = lot.choice((40, 200, 1000)), lot.random() < 0.5
        ticket, shared, of_set = self.ticket(), self.ticket(reads=True), self.ticket("m")
        two = tuple(lot.sample(NAMES, 2))
        stay, member = lot.choice((0, 0, 50)), "" if ticket is None else ticket.member
        return lot.choice(
            (
                lambda: Acquire(name, token, ttl, 0, ticket, strict, "card"),
                lambda: Acquire(name, token, ttl, 0, ticket, strict, "card"),
                lambda: Acquire(name, reader, ttl, 0, shared, strict, "", True),
                lambda: AcquireAny(SLOTS, "s", token, ttl, 0, ticket, strict, "card"),
                lambda: AcquireAll(two, token, ttl, 0, of_set, "card"),
                lambda: Extend((Kept(name, token, ttl, 0), Kept("s#0", token, ttl, 0), Kept(name, reader, ttl, 0))),
                lambda: Release(name, token, strict, member, "", stay),
                lambda: Release(name, reader, strict, member),
                lambda: Release("s", token, strict, member, "", 0, SLOTS, "s"),
                lambda: Release(two[0], token, strict, member, "", stay, two),
                lambda: Leave(name, member),
                lambda: Leave("s", member, SLOTS, "s"),
                lambda: Downgrade(name, token, ttl, reader, member),
                lambda: Break(name, 0),
                lambda: Look(name, strict),
                lambda: Inspect(name),
                lambda: Confirm(name, token, 1, 2),
            )
        )()

    def pause(self) -> int:
        return self._lot.choice((0, 0, 1, 5, 30, 100, 400))


def told(request: Request, answer: Answer) -> Any:
    """What both must agree on."""
    if isinstance(request, Release):
        return "gone" if answer.cause in (Cause.AGREED, Cause.ABSENT) else answer.cause
    sight = answer.sight
    if sight is not None:
        sight = sight._replace(fence=0, since_us=0)
        if sight.value == CLOSED:
            sight = sight._replace(start="", card="")
    place = answer.place if getattr(request, "ticket", None) or getattr(request, "strict", False) else 0
    # Behind several one waits for the first of them here, and there for the one whose ticket ends first.
    wait_ms = answer.wait_ms if place < 2 else 0
    return answer._replace(fence=0, fences=(), place=place, wait_ms=wait_ms, sight=sight), len(answer.fences)


def alike(request: Request, ours: Answer, theirs: Answer) -> bool:
    over = isinstance(request, Release) and theirs.cause is Cause.AGREED
    return over or told(request, ours) == told(request, theirs)


@pytest.mark.parametrize("seed", range(15))
def test_they_answer_alike(tmp_path: Path, clock: Clock, seed: int) -> None:
    table, file, script = Table(clock), File(tmp_path / "locks.db"), Script(seed)
    fences: dict[str, int] = {}
    granted = 0
    for number in range(400):
        clock.ms += script.pause()
        request = script.next()
        ours, theirs = table.ask(request), file.ask(request)
        assert alike(request, ours, theirs), f"{seed=}, {number=}: {request} {ours} {theirs}"
        if isinstance(request, Acquire) and ours.vote is GRANTED and not request.shared:
            assert ours.fence >= fences.get(request.name, 0)
            fences[request.name] = ours.fence
            granted += 1
    file.engine.close()
    assert granted > 10
