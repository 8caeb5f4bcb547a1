"""Small values, changed by whoever has seen their last version. Versions never come again: see `rows.py`."""

from __future__ import annotations

from ...core.requests import CellEnter, CellGet, CellPut, CellSwap
from ...core.votes import GRANTED, REFUSED, Answer, Cause
from .batches import Batch, Query, Visit
from .dialect import CELLS, META, Dialect
from .schema import FORMAT, not_made, not_ours


class Cells:
    """The cells of one client in a database."""

    def __init__(self, dialect: Dialect, label: str, prefix: str) -> None:
        self._dialect = dialect
        self._label = label
        self._prefix = prefix
        now, big = dialect.now, f"CAST(? AS {dialect.big})"
        self._select = f"""SELECT m.format, m.floor, c.version, c.entered, c.value FROM {META} AS m
            LEFT JOIN {CELLS} AS c ON c.name = ? AND c.until_us > {now}"""
        self._update = f"""UPDATE {CELLS} SET version = ?, entered = ?, until_us = {now} + {big}, value = ?
            WHERE name = ? AND version = ? AND entered = ? AND until_us > {now}"""
        self._insert = f"""INSERT INTO {CELLS} (name, version, entered, until_us, value)
            SELECT ?, {big}, {big}, {now} + {big}, ? FROM {META} AS m WHERE m.floor = {big}
            {dialect.share} {dialect.skip("until_us")}"""
        self._remove = f"""DELETE FROM {CELLS} WHERE name = ? AND until_us <= {now}
            AND version <= (SELECT floor FROM {META})"""
        self._lift = f"""UPDATE {META} SET floor = GREATEST(floor,
            COALESCE((SELECT MAX(version) FROM {CELLS} WHERE name = ? AND until_us <= {now}), 0))"""

    def get(self, request: CellGet) -> Visit[Answer]:
        version, _, value, _ = yield from self._read(request.name)
        return Answer(GRANTED, Cause.AGREED, version, value=value)

    def swap(self, request: CellSwap) -> Visit[Answer]:
        while True:
            known, entered, _, floor = yield from self._read(request.name)
            if known != request.version:
                return Answer(REFUSED, Cause.CHANGED, known)
            version = max(known, floor) + 1
            if (yield from self._set(request, known, entered, version, entered, request.value, floor)):
                return Answer(GRANTED, Cause.AGREED, version)

    # What follows is how several nodes are set. One is swapped; but it can be asked for this, too.

    def enter(self, request: CellEnter) -> Visit[Answer]:
        while True:
            known, entered, value, floor = yield from self._read(request.name)
            if max(known, entered) > request.fence:
                return Answer(REFUSED, Cause.CHANGED, max(known, entered))
            if (yield from self._set(request, known, entered, known, request.fence, value, floor)):
                return Answer(GRANTED, Cause.AGREED, known, value=value)

    def put(self, request: CellPut) -> Visit[Answer]:
        while True:
            known, entered, _, floor = yield from self._read(request.name)
            if max(known, entered) > request.version:
                return Answer(REFUSED, Cause.CHANGED, max(known, entered))
            if (yield from self._set(request, known, entered, request.version, entered, request.value, floor)):
                return Answer(GRANTED, Cause.AGREED, request.version)

    def _read(self, name: str) -> Visit[tuple[int, int, bytes, int]]:
        """Its version, the highest fence that has entered, its value, and what new versions begin above."""
        (result,) = yield Batch((Query(self._select, (self._key(name),)),))
        if not result.rows:
            raise not_made()
        if result.rows[0][0] != FORMAT:
            raise not_ours(self._label, result.rows[0][0])
        _, floor, version, entered, value = result.rows[0]
        return _int(version), _int(entered), value if isinstance(value, bytes) else b"", _int(floor)

    def _set(
        self,
        request: CellSwap | CellEnter | CellPut,
        known: int,
        known_entered: int,
        version: int,
        entered: int,
        value: bytes,
        floor: int,
    ) -> Visit[bool]:
        key, lasts_us = self._key(request.name), request.ttl_ms * 1000
        if known or known_entered:
            values = (version, entered, lasts_us, value, key, known, known_entered)
            (result,) = yield Batch((Query(self._update, values),))
            return result.count == 1
        # One that is over may still be there: it goes, and leaves its version in the floor.
        (result,) = yield Batch((Query(self._insert, (key, version, entered, lasts_us, value, floor)),))
        if result.count != 1:
            yield Batch((Query(self._lift, (key,)), Query(self._remove, (key,))))
        return result.count == 1

    def _key(self, name: str) -> str | bytes:
        return self._dialect.key(self._prefix + name)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
