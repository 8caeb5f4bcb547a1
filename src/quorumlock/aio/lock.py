"""A lock, for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, cast

from ..core.redlock import Grant
from ..errors import AcquireTimeout, LockHeld
from ..front import Default, LockBase
from .lease import AsyncLease

if TYPE_CHECKING:
    from .locker import AsyncLocker


class AsyncLock(LockBase):
    """Names a resource; holds no ownership, and may be shared by threads and tasks."""

    _locker: AsyncLocker

    async def acquire(self, timeout: float | Default | None = Default.TIMEOUT) -> AsyncLease:
        """Waits for the lock; raises AcquireTimeout if it stays held, NoQuorum if no majority can decide.

        `timeout` is in seconds; None waits as long as it takes, 0 tries once and raises LockHeld.
        """
        if (again := self._reentered()) is not None:
            return cast(AsyncLease, again)
        onlooker = self._onlooker() if self._locker._bus.listening else None
        try:
            return await self._taken(await self._locker._run(self._acquiring(timeout, onlooker)))
        except BaseException as error:
            if onlooker is not None:
                onlooker.gave_up(error)
            raise

    async def try_acquire(self) -> AsyncLease | None:
        """Tries once: a lease, or None if somebody holds it; raises NoQuorum if nobody can tell."""
        if (again := self._reentered()) is not None:
            return cast(AsyncLease, again)
        try:
            grant = await self._locker._run(self._trying())
        except BaseException as error:
            self._not_tried(error)
            raise
        if grant is None:
            self._not_tried(None)
            return None
        return await self._taken(grant)

    async def _taken(self, grant: Grant) -> AsyncLease:
        try:
            return self._leased(grant)
        except BaseException:  # of a subscriber: nobody else could release it
            await self._locker._run(self._forgoing(grant))
            raise

    async def _unless_busy(self) -> AsyncLease | None:
        """For the decorator: a lease that its task owns, or None if the lock is busy."""
        try:
            lease = await (self.try_acquire() if self._options.timeout is None else self.acquire())
        except (LockHeld, AcquireTimeout):
            return None
        if lease is not None and lease._depth == 1:
            lease._enter(owned=True)
        return lease

    def _leased(self, grant: Grant) -> AsyncLease:
        lease = AsyncLease(self._locker, grant, self._options)
        if self._options.reentrant or not self._kind.plain or self._kind.word == "write":
            self._remember(lease)
        return lease

    @staticmethod
    def _running_name() -> str:
        task = asyncio.current_task()
        return task.get_name() if task is not None else "-"

    @staticmethod
    def _running() -> object:
        return asyncio.current_task()

    async def locked(self) -> bool:
        """Asks the nodes whether anybody holds it. By the time you know, it may have changed."""
        return self._held(await self._locker._run(self._looking()))

    async def __aenter__(self) -> AsyncLease:
        lease = await self.acquire()
        if lease._depth == 1:
            lease._enter(owned=True)
        self._entered.setdefault(asyncio.current_task(), []).append(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = cast(AsyncLease, self._innermost(asyncio.current_task()))
        self._left(lease)
        await lease.__aexit__(kind, error, traceback)
