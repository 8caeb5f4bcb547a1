"""Small values in the file, changed by whoever has seen their last version.

A version is a step of the file's fence counter (`fences.py`), so that none ever comes again: not of a cell that is
over and was set anew, and not after a reboot. As with all that is committed here, a power cut may undo the last
changes, value and version together.

**Whose time is it?** A cell may live for days, and outlives the boot that it was set in. While that lasts, its end
is an instant of the boot clock, which nobody sets. To those who read another boot clock, after a reboot for one, it
ends by the wall clock, which is noted as well; a wall clock that is set makes it end earlier or later by so much.
That would not do for leases. But what is lost with a cell is a value that was to be lost one day.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

from ...core.requests import CellEnter, CellGet, CellPut, CellSwap
from ...core.votes import GRANTED, REFUSED, Answer, Cause
from .boot import Boot, ends_ms, now_ms
from .fences import Fences

if TYPE_CHECKING:
    from .pruning import Pruning

LEFT = "CASE WHEN boot = :boot THEN expires_ms - :now ELSE wall_ms - :wall END"
"""For how long a cell is good; not above 0: it is over."""

_GET = f"SELECT version, value FROM cells WHERE name = :name AND {LEFT} > 0"
_KNOWN = f"SELECT version, entered FROM cells WHERE name = :name AND {LEFT} > 0"
_SET = """INSERT OR REPLACE INTO cells (name, version, entered, expires_ms, boot, wall_ms, value)
    VALUES (:name, :version, :entered, :expires, :boot, :expires_wall, :value)"""


class Cells:
    """The cells of a file, seen through one connection. Errors leave it in any state: it is then closed."""

    def __init__(self, cursor: sqlite3.Cursor, fences: Fences, pruning: Pruning, boot: Boot, prefix: str) -> None:
        self._cursor = cursor
        self._fences = fences
        self._pruning = pruning
        self._clock = boot.clock
        self._prefix = prefix

    def get(self, request: CellGet) -> Answer:
        version, value = self._get(request.name)
        return Answer(GRANTED, Cause.AGREED, version, value=value)

    def swap(self, request: CellSwap) -> Answer:
        self._pruning.if_due()
        fence = self._fences.begin()
        known, entered = self._versions(request.name)
        if known != request.version:
            return self._changed(known)
        self._fences.take(fence)
        return self._set(request, max(fence, known + 1), entered, request.value)

    # What follows is how several nodes are set. One is swapped; but it can be asked for this, too.

    def enter(self, request: CellEnter) -> Answer:
        self._cursor.execute("BEGIN IMMEDIATE")
        known, entered = self._versions(request.name)
        if max(known, entered) > request.fence:
            return self._changed(max(known, entered))
        _, value = self._get(request.name)
        return self._set(request, known, request.fence, value)._replace(value=value)

    def put(self, request: CellPut) -> Answer:
        self._pruning.if_due()
        self._cursor.execute("BEGIN IMMEDIATE")
        known, entered = self._versions(request.name)
        if max(known, entered) > request.version:
            return self._changed(max(known, entered))
        return self._set(request, request.version, entered, request.value)

    def _changed(self, known: int) -> Answer:
        self._cursor.execute("COMMIT")
        return Answer(REFUSED, Cause.CHANGED, known)

    def _set(self, request: CellSwap | CellEnter | CellPut, version: int, entered: int, value: bytes) -> Answer:
        known = self._known(request.name) | {
            "version": version, "entered": entered, "expires": ends_ms(request.ttl_ms),
            "expires_wall": _wall_ms() + request.ttl_ms, "value": value,
        }  # fmt: skip
        self._cursor.execute(_SET, known)
        self._cursor.execute("COMMIT")
        self._pruning.changes += 1
        return Answer(GRANTED, Cause.AGREED, version)

    def _get(self, name: str) -> tuple[int, bytes]:
        self._cursor.execute(_GET, self._known(name))
        found = self._cursor.fetchall()
        return found[0] if found else (0, b"")

    def _versions(self, name: str) -> tuple[int, int]:
        """Its version, and the highest fence that has entered."""
        self._cursor.execute(_KNOWN, self._known(name))
        found = self._cursor.fetchall()
        return found[0] if found else (0, 0)

    def _known(self, name: str) -> dict[str, Any]:
        return {"name": self._prefix + name, "boot": self._clock, "now": now_ms(), "wall": _wall_ms()}


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
