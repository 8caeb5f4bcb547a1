"""A lock, for threads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, cast

from ..core.redlock import Grant
from ..errors import AcquireTimeout, LockHeld
from ..front import Default, LockBase
from .lease import Lease

if TYPE_CHECKING:
    from .locker import Locker


class Lock(LockBase):
    """Names a resource; holds no ownership, and may be shared by threads and tasks."""

    _locker: Locker

    def acquire(self, timeout: float | Default | None = Default.TIMEOUT) -> Lease:
        """Waits for the lock; raises AcquireTimeout if it stays held, NoQuorum if no majority can decide.

        `timeout` is in seconds; None waits as long as it takes, 0 tries once and raises LockHeld.
        """
        if (again := self._reentered()) is not None:
            return cast(Lease, again)
        onlooker = self._onlooker() if self._locker._bus.listening else None
        try:
            grant = self._locker._runner.run(self._acquiring(timeout, onlooker))
            try:
                return self._leased(grant)
            except BaseException:  # an interrupt, just before anybody could have released it
                self._locker._run(self._forgoing(grant))
                raise
        except BaseException as error:
            if onlooker is not None:
                onlooker.gave_up(error)
            raise

    def try_acquire(self) -> Lease | None:
        """Tries once: a lease, or None if somebody holds it; raises NoQuorum if nobody can tell."""
        if (again := self._reentered()) is not None:
            return cast(Lease, again)
        try:
            grant = self._locker._runner.run(self._trying())
        except BaseException as error:
            self._not_tried(error)
            raise
        if grant is None:
            self._not_tried(None)
            return None
        try:
            return self._leased(grant)
        except BaseException:  # as above
            self._locker._run(self._forgoing(grant))
            raise

    def _unless_busy(self) -> Lease | None:
        """For the decorator: a lease that its thread owns, or None if the lock is busy."""
        try:
            lease = self.try_acquire() if self._options.timeout is None else self.acquire()
        except (LockHeld, AcquireTimeout):
            return None
        if lease is not None:
            lease._owned_by(threading.current_thread())
        return lease

    def _leased(self, grant: Grant) -> Lease:
        lease = Lease(self._locker, grant, self._options)
        if self._options.reentrant or not self._kind.plain or self._kind.word == "write":
            self._remember(lease)
        return lease

    @staticmethod
    def _running_name() -> str:
        return threading.current_thread().name

    @staticmethod
    def _running() -> object:
        return threading.current_thread()

    def locked(self) -> bool:
        """Asks the nodes whether anybody holds it. By the time you know, it may have changed."""
        return self._held(self._locker._run(self._looking()))

    def __enter__(self) -> Lease:
        lease = self.acquire()
        try:
            lease._owned_by(threading.current_thread())
            self._entered.setdefault(threading.get_ident(), []).append(lease)
        except BaseException:  # an interrupt: the block will not be entered, nor left
            self._left(lease)
            lease.release()
            raise
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = cast(Lease, self._innermost(threading.get_ident()))
        try:
            lease.__exit__(kind, error, traceback)
        finally:
            self._left(lease)
