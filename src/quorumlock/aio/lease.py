"""A lease, for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import LeaseLost
from ..front import LeaseBase

if TYPE_CHECKING:
    from .locker import AsyncLocker


class AsyncLease(LeaseBase[asyncio.Event]):
    """The only proof of holding a lock. May be handed to another thread or task."""

    __slots__ = ()
    _locker: AsyncLocker
    _new_event = staticmethod(asyncio.Event)
    _new_lock = staticmethod(asyncio.Lock)

    async def extend(self, ttl: float | None = None) -> None:
        """Renews the lease for `ttl` seconds from now (default: its own); raises LeaseLost if it is gone."""
        try:
            async with self._turn():
                extension = await self._locker._run(self._extending(ttl))
        except LeaseLost as lost:
            self._lose(lost.reason)
            raise
        self._extended(extension)

    async def release(self) -> None:
        """Gives the lock back. Quiet if it was released before, or is somebody else's by now."""
        # Nothing is awaited before the release is on its way: a cancellation cannot come between.
        if self._close():
            tally = await self._locker._run(self._releasing())
            self._released(tally)

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lost = self._loss_on_exit()
        await self.release()
        if lost is not None and error is None:
            raise lost
