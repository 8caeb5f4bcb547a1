"""Rows that are compared and set: nothing is locked while somebody thinks.

    read the row (and the database's clock) → what the request does to it (`lock.py`) → write it, if its version is
    still the one that was read; else read again

Safe, because whatever changes a lock raises its version, and versions never come again: a row that is deleted
leaves its version in the floor, above which new rows begin (`pruning.py`). A version is also the fence.

**Guesses.** What was written last is remembered. Who finds there that a lock is free, or its own, writes at once,
and reads in the same batch: if nobody has written since, all of it took one round trip. Nobody is refused by
memory. Ends of leases are reckoned by the database when it writes, so that a guess needs no clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ...clocks import boot_time
from ...core.votes import GRANTED, Answer
from .batches import Batch, Query, Result, Visit
from .dialect import LOCKS, META, Dialect
from .lock import Lock, Row
from .schema import FORMAT, not_made, not_ours

KNOWN_MOST = 10_000
PRUNE_EVERY = 1000
"""Changes of one client."""
AT_ONCE = 200
"""Names in one query."""

FAR = 2**62
"""The end of a lease whose end nobody knows: it is not to be written."""

Decide = Callable[[Lock], Answer]


class Rows:
    """The rows of the locks of one client."""

    def __init__(self, dialect: Dialect, label: str, prefix: str) -> None:
        self.dialect = dialect
        self._label = label
        self._begins = len(prefix)
        self._known: dict[str, tuple[Row, float]] = {}
        self.changes = random.randrange(PRUNE_EVERY)
        """Since rows were pruned last. Not from 0 on: processes may end before they have made many."""
        now, big = dialect.now, f"CAST(? AS {dialect.big})"
        self._update = f"""UPDATE {LOCKS} SET version = ?, fence = ?, token = ?,
            until_us = {now} * {big} + {big}, touched_us = {now}, doc = ? WHERE name = ? AND version = ?"""
        self._insert = f"""INSERT INTO {LOCKS} (name, begins, version, fence, token, until_us, touched_us, doc)
            SELECT ?, {big}, {big}, {big}, ?, {now} * {big} + {big}, {now}, ?
            FROM {META} AS m WHERE m.floor = {big} {dialect.share} {dialect.skip("touched_us")}"""
        if dialect.announces:
            self._told = f"(?, {big}, {big}, {big}, ?, {big}, {big}, ?)"
            self._swap_all = f"""WITH told (name, old, new, fence, token, base, plus, doc) AS (VALUES %s),
                same AS (SELECT l.name FROM {LOCKS} AS l JOIN told ON l.name = told.name AND l.version = told.old
                    ORDER BY l.name FOR UPDATE OF l)
                UPDATE {LOCKS} AS l SET version = told.new, fence = told.fence, token = told.token,
                    until_us = {now} * told.base + told.plus, touched_us = {now}, doc = told.doc
                FROM told WHERE l.name = told.name AND (SELECT count(*) FROM same) = {big}"""
        else:  # it has no WITH here: what is told is told twice. The order of the tables is that of the locks
            self._old = f"SELECT CAST(? AS BINARY) AS name, {big} AS old"
            self._told = f"""{self._old}, {big} AS new, {big} AS fence, ? AS token, {big} AS base, {big} AS plus,
                ? AS doc"""
            self._swap_all = f"""UPDATE (SELECT COUNT(*) AS n FROM (%s) AS seen STRAIGHT_JOIN {LOCKS} AS s
                    ON s.name = seen.name AND s.version = seen.old FOR UPDATE) AS same
                STRAIGHT_JOIN (%s) AS told
                STRAIGHT_JOIN {LOCKS} AS l ON l.name = told.name AND l.version = told.old
                SET l.version = told.new, l.fence = told.fence, l.token = told.token,
                    l.until_us = {now} * told.base + told.plus, l.touched_us = {now}, l.doc = told.doc
                WHERE same.n = {big}"""

    def select(self, names: Sequence[str]) -> Query:
        marks = ", ".join("?" * len(names))
        text = f"""SELECT m.format, m.floor, {self.dialect.now},
            l.name, l.version, l.fence, l.token, l.until_us, l.doc
            FROM {META} AS m LEFT JOIN {LOCKS} AS l ON l.name IN ({marks})"""
        return Query(text, tuple(self.dialect.key(name) for name in names))

    def found(self, names: Sequence[str], result: Result) -> list[Row]:
        """What a select has found, in the order of the names."""
        if not result.rows:
            raise not_made()
        form, floor, now_us = (int(value or 0) for value in result.rows[0][:3])
        if form != FORMAT:
            raise not_ours(self._label, form)
        there = {}
        for *_, name, version, fence, token, until_us, doc in result.rows:
            if name is not None:
                row = Row(_text(name), _int(version), _int(fence), _text(token), _int(until_us), _text(doc), now_us)
                there[row.name] = row
        return [there.get(name) or Row(name, 0, floor, "", 0, "", now_us) for name in names]

    def read(self, names: Sequence[str]) -> Visit[list[Row]]:
        rows: list[Row] = []
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            (result,) = yield Batch((self.select(some),))
            rows += self.found(some, result)
        return rows

    def change(
        self,
        name: str,
        decide: Decide,
        more: Callable[[Lock], tuple[Query, ...]] = lambda _: (),
        *,
        guess: bool = False,
    ) -> Visit[tuple[Answer, Lock, Sequence[Result]]]:
        """Does to a lock what `decide` does; gives its answer, the lock, and what `more` queries came to.

        `guess`: it may be decided by memory, if that leads to a grant, or to the end of one.
        """
        row = self._guess(name) if guess else None
        guessed = row is not None
        while True:
            if row is None:
                (row,) = yield from self.read([name])
                guessed = False
            lock = Lock(row)
            answer = decide(lock)
            if guessed and (answer.vote is not GRANTED or not lock.changed):
                row = None
                continue
            if not lock.changed:
                return answer, lock, ()
            said = more(lock)
            last = (self.select([name]),) if guessed else ()
            results = yield Batch((self.swap(lock), *said, *last))
            if results[0].count == 1:
                self.remember(lock)
                return answer, lock, results[1 : 1 + len(said)]
            self.forget(name)
            row = self.found([name], results[-1])[0] if guessed else None
            guessed = False

    def swap(self, lock: Lock) -> Query:
        """Writes a lock, unless somebody else has done so."""
        name, base = self.dialect.key(lock.row.name), int(bool(lock.lasts_us))
        plus = lock.lasts_us or lock.until_us
        assert plus < FAR
        version = lock.version + 1
        if lock.row.version:
            values = (version, lock.fence, lock.token, base, plus, lock.doc(), name, lock.row.version)
            return Query(self._update, values)
        told = (name, self._begins, version, lock.fence, lock.token, base, plus, lock.doc())
        return Query(self._insert, (*told, lock.row.fence))

    def change_all(self, names: Sequence[str], decide: Callable[[list[Lock]], Answer]) -> Visit[
        tuple[Answer, list[Lock]]
    ]:  # fmt: skip
        """The same for several locks, all or none. Rows that are missing are made first, which changes nothing."""
        while True:
            rows = yield from self.read(names)
            locks = [Lock(row) for row in rows]
            answer = decide(locks)
            changed = sorted((lock for lock in locks if lock.changed), key=lambda lock: lock.row.name)
            for lock in changed:
                self.forget(lock.row.name)
            self.changes += len(changed)
            if not changed:
                return answer, locks
            if len(changed) == 1:
                (result,) = yield Batch((self.swap(changed[0]),))
                if result.count == 1:
                    return answer, locks
                continue
            new = [Lock(lock.row) for lock in changed if not lock.row.version]
            if new:
                yield Batch(tuple(self.swap(lock) for lock in new))
                continue
            if (yield from self._swapped(changed)):
                return answer, locks

    def _swapped(self, locks: Sequence[Lock]) -> Visit[bool]:
        """One query: whoever stops in the midst of a transaction would keep all others from these rows."""
        values, seen = [], []
        for lock in locks:
            version, fence, token, base, plus, doc, name, old = self.swap(lock).values
            values += [name, old, version, fence, token, base, plus, doc]
            seen += [name, old]
        if self.dialect.announces:
            text = self._swap_all % ", ".join([self._told] * len(locks))
            seen = []
        else:
            said = (" UNION ALL ".join([form] * len(locks)) for form in (self._old, self._told))
            text = self._swap_all % tuple(said)
        (result,) = yield Batch((Query(text, (*seen, *values, len(locks))),))
        return result.count == len(locks)

    # What was written last.

    def _guess(self, name: str) -> Row | None:
        known = self._known.get(name)
        if known is None:
            return None
        row, at = known
        return row._replace(now_us=row.now_us + int((boot_time() - at) * 1_000_000))

    def remember(self, lock: Lock) -> None:
        """Only if it is free, or somebody's alone: in all other cases there is something to be read."""
        self.changes += 1
        if lock.token.startswith("ql:") or lock.queue:
            self.forget(lock.row.name)
            return
        if len(self._known) >= KNOWN_MOST:
            self._known.clear()
        far = FAR if lock.token else 0
        version = lock.version + 1
        row = Row(lock.row.name, version, lock.fence, lock.token, far, lock.doc(), lock.now_us)
        self._known[lock.row.name] = (row, boot_time())

    def renewed(self, name: str, token: str, version: int) -> None:
        """Our own lease was. What is known stays true only if nobody wrote in between, as one who waits does."""
        row, at = self._known.get(name) or (None, 0.0)
        if row is None:
            return
        if (row.token, row.version) == (token, version - 1):
            self._known[name] = (row._replace(version=version), at)
        else:
            self.forget(name)

    def forget(self, name: str) -> None:
        self._known.pop(name, None)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
