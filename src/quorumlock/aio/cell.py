"""A cell, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import options
from ..celling import CellBase, decoded
from ..errors import VersionConflict

if TYPE_CHECKING:
    from .locker import AsyncLocker

ATTEMPTS_MOST = 10_000


class AsyncCell(CellBase):
    """A small value beside the locks, changed by whoever has seen its last version."""

    _locker: AsyncLocker

    async def get(self) -> tuple[Any, int]:
        """The value and its version; (None, 0) if there is none."""
        data, version = await self._locker._run(self._reading())
        return decoded(data), version

    async def set(self, value: Any, version: int) -> int:
        """Sets the value if the cell still has this version; gives the new one. Raises VersionConflict.

        `value` is bytes, or anything that JSON knows; at most 1 MiB. Version 0: there must not be a value yet.
        """
        return await self._locker._run(self._writing(value, version))

    async def update(self, fn: Callable[[Any], Any], attempts: int = 100) -> Any:
        """Sets the value to `fn(value)`, again and again until nobody came between; gives what was set.

        `fn` may be called several times. Raises VersionConflict after so many attempts.
        """
        options.callback("fn", fn)
        for attempt in range(options.whole("attempts", attempts, 1, ATTEMPTS_MOST)):
            value, version = await self.get()
            value = fn(value)
            try:
                await self.set(value, version)
            except VersionConflict:
                if attempt == attempts - 1:
                    raise
                await asyncio.sleep(self._locker._fleet.random() * 0.002 * min(attempt + 1, 20))
            else:
                return value
        raise AssertionError("unreachable")
