"""A lease, for threads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import LeaseLost
from ..leasing import LeaseBase

if TYPE_CHECKING:
    from .locker import Locker


class Lease(LeaseBase[threading.Event]):
    """The only proof of holding a lock. May be handed to another thread or task."""

    _locker: Locker
    _new_event = staticmethod(threading.Event)
    _new_lock = staticmethod(threading.RLock)  # a signal handler may extend what its thread is just extending

    def extend(self, ttl: float | None = None) -> None:
        """Renews the lease for `ttl` seconds from now (default: its own); raises LeaseLost if it is gone.

        With less than is left, the lease ends sooner; the nodes keep the lock until the end they were told before,
        or until it is released.
        """
        try:
            with self._turn():
                extension = self._locker._runner.run(self._extending(ttl))
        except LeaseLost as lost:
            self._lose(lost.reason, raised=True)
            raise
        finally:
            self._reschedule()
            self._locker._bus.catch_up()
        self._extended(extension)

    def release(self) -> None:
        """Gives the lock back. Quiet if it was released before, or is somebody else's by now."""
        if self._close():
            try:
                tally = self._locker._run(self._releasing())
            except BaseException:
                self._given_up()
                raise
            self._released(tally)

    def _owned_by(self, thread: threading.Thread) -> None:
        """Renewal ends with this thread."""
        self._owner_gone = lambda: not thread.is_alive()

    def _call_back(self) -> None:
        self._locker._keeper.call(super()._call_back)

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            lost = self._loss_on_exit()
            self.release()
        except Exception as failed:
            lost = self._loss_on_exit()
            if lost is None and error is None:
                raise
            self._unreleased(failed)
        except BaseException:  # an interrupt, perhaps before anything was sent
            self.release()
            raise
        if lost is not None and error is None:
            raise lost
