"""What the cells of both fronts share: how a value becomes bytes, and what is allowed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import options
from .core import cells
from .core.effects import Steps
from .core.waiting import Wish
from .errors import ConfigurationError

if TYPE_CHECKING:
    from .front import LockerBase

MOST = 1024 * 1024
UNDER_LOCK = 2.0
"""Seconds that writing to several nodes may take."""


def encoded(value: object) -> bytes:
    """As it is stored: bytes as they are, everything else as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = b"b" + bytes(value)
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"value={options.shown(value)} is neither bytes nor JSON: {error}") from None
        data = b"j" + text.encode("utf-8", "surrogatepass")
    if len(data) - 1 > MOST:
        raise ConfigurationError(f"the value has {len(data) - 1} bytes; a cell holds at most {MOST} (1 MiB)")
    return data


def decoded(data: bytes) -> Any:
    return data[1:] if data[:1] == b"b" else json.loads(data[1:]) if data else None


class CellBase:
    """A small value beside the locks, changed by whoever has seen its last version."""

    def __init__(self, locker: LockerBase, name: str, ttl: float) -> None:
        self._locker = locker
        self._name = options.name(name)
        self._ttl_ms = round(options.real("ttl", ttl, 1.0, options.FOREVER) * 1000)

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _cell(self) -> cells.Cell:
        settings, locker = self._locker._settings, self._locker
        wish = Wish(
            f"ql:cell-lock:{self._name}", min(UNDER_LOCK, settings.max_ttl), None, locker._retry,
            settings.patience, adaptive=locker._adaptive,
        )  # fmt: skip
        return cells.Cell(locker._fleet, locker._runner.room, self._name, self._ttl_ms, wish)

    def _reading(self) -> Steps[tuple[bytes, int]]:
        return cells.read(self._cell())

    def _writing(self, value: object, version: int) -> Steps[int]:
        version = options.whole("version", version, 0, 2**53 - 1)
        return cells.write(self._cell(), encoded(value), version)
