"""Read-write locks and elections, for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from .. import options
from ..core import family, looking
from ..core.family import Read, Write
from ..core.redlock import Grant
from ..errors import ConfigurationError
from ..front import downgraded
from ..options import LockOptions
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from ..inspecting import Holder
    from .locker import Locker


class ReadWrite:
    """A lock that many may share, or one have alone."""

    def __init__(self, locker: Locker, name: str) -> None:
        self._locker = locker
        self._name = options.name(name)

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def read(
        self,
        ttl: float = 10.0,
        timeout: float | None = None,
        keep: bool = True,
        max_hold: float = 86400.0,
        note: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lock:
        """To share it. The options are those of `lock`; its fence is that of the last who had it alone."""
        return self._lock(Read(), ttl, timeout, keep, max_hold, 0.0, note, on_lost)

    def write(
        self,
        ttl: float = 10.0,
        timeout: float | None = None,
        keep: bool = True,
        max_hold: float = 86400.0,
        lock_delay: float = 0.0,
        note: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lock:
        """To have it alone. The options are those of `lock`."""
        return self._lock(Write(), ttl, timeout, keep, max_hold, lock_delay, note, on_lost)

    def downgrade(self, lease: Lease) -> Lease:
        """Shares what `lease` had alone, without anybody in between; gives the new lease, and ends the old one.

        Raises LeaseLost if it was lost meanwhile.
        """
        alone = lease._grant.exclusive and not lease._grant.parts
        if lease._locker is not self._locker or lease.resource != self._name or not alone:
            raise ConfigurationError(f"{lease!r} is no write lease of {self._name!r}")
        lease._step_down()
        chosen = replace(lease._options, ttl=lease.ttl, timeout=None, reentrant=False, fair=True, at_least=0.0)
        shared = Lock(self._locker, self._name, chosen, Read())
        grant = self._locker._runner.run(family.downgrade(self._locker._fleet, lease._grant))
        try:
            return downgraded(lease, grant, shared._leased)
        except BaseException:  # an interrupt, just before anybody could have released it
            if isinstance(grant, Grant):
                self._locker._run(shared._forgoing(grant))
            raise

    def _lock(
        self,
        kind: Read | Write,
        ttl: float,
        timeout: float | None,
        keep: bool,
        max_hold: float,
        lock_delay: float,
        note: str | None,
        on_lost: Callable[[Lease], object] | None,
    ) -> Lock:
        chosen = LockOptions.checked(
            self._locker._settings, ttl=ttl, timeout=timeout, keep=keep, max_hold=max_hold, reentrant=False,
            fair=True, lock_delay=lock_delay, at_least=0.0, note=note, on_lost=on_lost,
        )  # fmt: skip
        return Lock(self._locker, self._name, chosen, kind)


class Election:
    """Candidates of whom one leads."""

    def __init__(
        self,
        locker: Locker,
        name: str,
        chosen: LockOptions,
        on_elected: Callable[[Lease], object] | None,
    ) -> None:
        self._locker = locker
        self._lock = Lock(locker, name, chosen, family.Lead())
        self._on_elected = options.callback("on_elected", on_elected)

    @property
    def name(self) -> str:
        return self._lock.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def lead(self, timeout: float | None = None) -> Leading:
        """To be elected: a block (`with election.lead() as lease`), or a loop (`for lease in election.lead()`).

        A block is entered as the leader; leaving it, or `lease.release()`, is to resign. A loop stands for election
        again and again: its body runs once for every time that we lead, and is to end soon when `lease.lost` is
        set; nothing interrupts it. Who leaves it by `break` resigns when the loop is collected: release first.
        Waits for `timeout` seconds at the most (AcquireTimeout).
        """
        return Leading(self._lock, timeout, self._on_elected)

    def leader(self) -> Holder | None:
        """Who leads now, and since when; None: nobody. By the time you know, it may have changed."""
        tally = self._locker._run(looking.inspect(self._locker._fleet, self.name))
        from ..inspecting import inspection

        return inspection(self.name, tally).holder


class Leading:
    """Somebody who stands for election."""

    def __init__(self, lock: Lock, timeout: float | None, on_elected: Callable[[Lease], object] | None) -> None:
        self._lock = lock
        self._timeout = options.checked_timeout(timeout)
        self._on_elected = on_elected
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        lease = self._elected()
        self._lease = lease.__enter__()
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        lease.__exit__(kind, error, traceback)

    def __iter__(self) -> Iterator[Lease]:
        while True:
            lease = self._elected()
            try:
                yield lease
            finally:
                lease.release()

    def _elected(self) -> Lease:
        lease = self._lock.acquire(self._timeout)
        try:
            lease._owned_by(threading.current_thread())
            if self._on_elected is not None:
                self._on_elected(lease)
        except BaseException:
            lease.release()
            raise
        return lease
