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

from ...core.requests import CellGet, CellPut, CellSwap
from ...core.votes import GRANTED, REFUSED, Answer, Cause
from .boot import Boot, ends_ms, now_ms
from .fences import Fences

if TYPE_CHECKING:
    from .pruning import Pruning

LEFT = "CASE WHEN boot = :boot THEN expires_ms - :now ELSE wall_ms - :wall END"
"""For how long a cell is good; not above 0: it is over."""

_GET = f"SELECT version, value FROM cells WHERE name = :name AND {LEFT} > 0"
_VERSION = f"SELECT version FROM cells WHERE name = :name AND {LEFT} > 0"
_SET = """INSERT OR REPLACE INTO cells (name, version, expires_ms, boot, wall_ms, value)
    VALUES (:name, :version, :expires, :boot, :expires_wall, :value)"""


class Cells:
    """The cells of a file, seen through one connection. Errors leave it in any state: it is then closed."""

    def __init__(self, cursor: sqlite3.Cursor, fences: Fences, pruning: Pruning, boot: Boot, prefix: str) -> None:
        self._cursor = cursor
        self._fences = fences
        self._pruning = pruning
        self._clock = boot.clock
        self._prefix = prefix

    def get(self, request: CellGet) -> Answer:
        self._cursor.execute(_GET, self._known(request.name))
        found = self._cursor.fetchall()
        version, value = found[0] if found else (0, b"")
        return Answer(GRANTED, Cause.AGREED, version, value=value)

    def swap(self, request: CellSwap) -> Answer:
        self._pruning.if_due()
        fence = self._fences.begin()
        known = self._version(request.name)
        if known != request.version:
            self._cursor.execute("COMMIT")
            return Answer(REFUSED, Cause.CHANGED, known)
        self._fences.take(fence)
        return self._set(request, max(fence, known + 1))

    def put(self, request: CellPut) -> Answer:
        self._pruning.if_due()
        self._cursor.execute("BEGIN IMMEDIATE")
        known = self._version(request.name)
        if known > request.version:
            self._cursor.execute("COMMIT")
            return Answer(REFUSED, Cause.CHANGED, known)
        return self._set(request, request.version)

    def _set(self, request: CellSwap | CellPut, version: int) -> Answer:
        known = self._known(request.name) | {
            "version": version, "expires": ends_ms(request.ttl_ms), "value": request.value,
            "expires_wall": _wall_ms() + request.ttl_ms,
        }  # fmt: skip
        self._cursor.execute(_SET, known)
        self._cursor.execute("COMMIT")
        self._pruning.changes += 1
        return Answer(GRANTED, Cause.AGREED, version)

    def _version(self, name: str) -> int:
        self._cursor.execute(_VERSION, self._known(name))
        found = self._cursor.fetchall()
        return int(found[0][0]) if found else 0

    def _known(self, name: str) -> dict[str, Any]:
        return {"name": self._prefix + name, "boot": self._clock, "now": now_ms(), "wall": _wall_ms()}


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
