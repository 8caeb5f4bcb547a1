"""A lease, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from ..errors import LeaseLost, LossReason
from ..leasing import LeaseBase
from ..process import Process

if TYPE_CHECKING:
    from .keeper import LoopDesk
    from .locker import AsyncLocker


class AsyncLease(LeaseBase[asyncio.Event]):
    """The only proof of holding a lock. May be handed to another thread or task."""

    _locker: AsyncLocker
    _new_event = staticmethod(asyncio.Event)
    _new_lock = staticmethod(asyncio.Lock)

    _task: asyncio.Task[Any] | None = None
    """Whose block it is."""
    _interrupted = False
    """Was that task cancelled because the lease was lost?"""
    _cancellations = 0

    async def extend(self, ttl: float | None = None) -> None:
        """Renews the lease for `ttl` seconds from now (default: its own); raises LeaseLost if it is gone.

        With less than is left, the lease ends sooner; the nodes keep the lock until the end they were told before,
        or until it is released.
        """
        try:
            async with self._turn():
                extension = await self._locker._run(self._extending(ttl))
        except LeaseLost as lost:
            self._lose(lost.reason, raised=True)
            raise
        finally:
            self._reschedule()
        self._extended(extension)

    async def release(self) -> None:
        """Gives the lock back. Quiet if it was released before, or is somebody else's by now."""
        # Nothing is awaited before the release is on its way: a cancellation cannot come between.
        if self._close():
            try:
                tally = await self._locker._run(self._releasing())
            except BaseException:
                self._given_up()
                raise
            self._released(tally)

    async def __aenter__(self) -> AsyncLease:
        self.check()
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lost = self._loss_on_exit()
        task = self._task
        if self._depth <= 1:
            self._task = None
        mine = False
        if self._interrupted and task is not None:
            # As asyncio.timeout does it: if this was the only cancellation, it was ours, and goes no further.
            self._interrupted = False
            mine = task.uncancel() <= self._cancellations and isinstance(error, asyncio.CancelledError)
        try:
            await self.release()
        except Exception as failed:
            if lost is None and error is None:
                raise
            self._unreleased(failed)
        if lost is not None and (mine or error is None):
            raise lost from error

    def _enter(self, *, owned: bool = False, interrupted: bool = True) -> None:
        """The running task is inside a block of this lease: cancelled when it is lost."""
        task = asyncio.current_task()
        if task is None:
            return
        self._task = task if interrupted else None
        self._cancellations = task.cancelling()
        if owned:
            known = weakref.ref(task)
            self._owner_gone = lambda: (owner := known()) is None or owner.done()

    def _announce(self, reason: LossReason, raised: bool) -> None:
        if self._forks == Process.generation:  # else the loop, too, is the parent's
            desk = cast("LoopDesk", self._hold.desk)
            noticed_by = asyncio.current_task() if asyncio._get_running_loop() is desk.loop else None
            bus = self._locker._bus
            mark = bus.begin()

            def tell() -> None:
                try:
                    self._tell(reason, noticed_by if raised else None)
                finally:
                    bus.end(mark)

            if not desk.in_loop(tell):
                bus.end(mark)

    def _tell(self, reason: LossReason, told: asyncio.Task[Any] | None) -> None:
        super()._announce(reason, False)
        task = self._task
        if task is None or task is told:
            return
        if task is asyncio.current_task():
            # A running task can only be cancelled at its next await: not if it has left the block by then.
            asyncio.get_running_loop().call_soon(self._interrupt, task)
        else:
            self._interrupt(task)

    def _interrupt(self, task: asyncio.Task[Any]) -> None:
        if task is self._task and not task.done():
            self._interrupted = True
            task.cancel(f"the lease of {self.name!r} is lost")

    def _call_back(self) -> None:
        told = super()._call_back()
        if inspect.iscoroutine(told):
            callbacks = self._locker._keeper.callbacks
            callback = asyncio.get_running_loop().create_task(told)
            callbacks.add(callback)
            callback.add_done_callback(callbacks.discard)
