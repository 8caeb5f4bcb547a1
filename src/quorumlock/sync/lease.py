"""A lease, for threads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import LeaseLost
from ..front import LeaseBase

if TYPE_CHECKING:
    from .locker import Locker


class Lease(LeaseBase[threading.Event]):
    """The only proof of holding a lock. May be handed to another thread or task."""

    __slots__ = ()
    _locker: Locker
    _new_event = staticmethod(threading.Event)
    _new_lock = staticmethod(threading.Lock)

    def extend(self, ttl: float | None = None) -> None:
        """Renews the lease for `ttl` seconds from now (default: its own); raises LeaseLost if it is gone."""
        try:
            with self._turn():
                extension = self._locker._run(self._extending(ttl))
        except LeaseLost as lost:
            self._lose(lost.reason)
            raise
        self._extended(extension)

    def release(self) -> None:
        """Gives the lock back. Quiet if it was released before, or is somebody else's by now."""
        if self._close():
            steps = self._releasing()
            if self._busy is None:
                tally = self._locker._run(steps)
            else:
                with self._busy:  # behind an extension that is under way: it might heal what is deleted here
                    tally = self._locker._run(steps)
            self._released(tally)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lost = self._loss_on_exit()
        self.release()
        if lost is not None and error is None:
            raise lost
