"""A cell, for threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import options
from ..celling import CellBase, decoded
from ..errors import VersionConflict

if TYPE_CHECKING:
    from .locker import Locker

ATTEMPTS_MOST = 10_000


class Cell(CellBase):
    """A small value beside the locks, changed by whoever has seen its last version."""

    _locker: Locker

    def get(self) -> tuple[Any, int]:
        """The value and its version; (None, 0) if there is none."""
        data, version = self._locker._run(self._reading())
        return decoded(data), version

    def set(self, value: Any, version: int) -> int:
        """Sets the value if the cell still has this version; gives the new one. Raises VersionConflict.

        `value` is bytes, or anything that JSON knows; at most 1 MiB. Version 0: there must not be a value yet.
        """
        return self._locker._run(self._writing(value, version))

    def update(self, fn: Callable[[Any], Any], attempts: int = 100) -> Any:
        """Sets the value to `fn(value)`, again and again until nobody came between; gives what was set.

        `fn` may be called several times. Raises VersionConflict after so many attempts.
        """
        options.callback("fn", fn)
        for attempt in range(options.whole("attempts", attempts, 1, ATTEMPTS_MOST)):
            value, version = self.get()
            value = fn(value)
            try:
                self.set(value, version)
            except VersionConflict:
                if attempt == attempts - 1:
                    raise
                time.sleep(self._locker._fleet.random() * 0.002 * min(attempt + 1, 20))
            else:
                return value
        raise AssertionError("unreachable")
