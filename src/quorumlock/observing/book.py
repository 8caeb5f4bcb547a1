"""Who waits and who holds, by what events tell: what several adapters keep."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from ..clocks import boot_time
from ..events import Acquired, Event, Extended, GivenUp, Lost, Released, Waiting

T = TypeVar("T")

GRACE = 1.0
"""Seconds: an event may be told later than it happened."""


class Book(Generic[T]):
    """The acquires and leases that are open now, each with something of the adapter's.

    A lease that is neither renewed nor ended within its ttl is over: its object was dropped, and nobody tells.
    """

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self._held: dict[int, tuple[float, T]] = {}
        self._mutex = threading.RLock()
        """A renewal that is told late must not bring back what was released meanwhile."""

    def begin(self, event: Acquired, entry: T) -> None:
        if event.serial:
            with self._mutex:
                self._held[event.serial] = boot_time() + event.ttl + GRACE, entry

    def end(self, event: Lost | Released) -> T | None:
        """What was entered for a lease that has ended; None: it had ended before, or had begun unseen."""
        with self._mutex:
            known = self._held.pop(event.serial, None)
        return None if known is None else known[1]

    def entry(self, serial: int) -> T | None:
        known = self._held.get(serial)
        return None if known is None else known[1]

    def hear(self, event: Event) -> None:
        """Who begins and ceases to wait, and which leases live on."""
        if isinstance(event, Waiting):
            self.waiting.add(event.serial)
        elif isinstance(event, Acquired | GivenUp):
            self.waiting.discard(event.serial)
        elif isinstance(event, Extended):
            with self._mutex:
                if (known := self._held.get(event.serial)) is not None:
                    self._held[event.serial] = boot_time() + event.ttl + GRACE, known[1]

    def dropped(self) -> list[T]:
        """Takes out the leases whose time is over, although nobody told."""
        now = boot_time()
        with self._mutex:
            over = [serial for serial, (until, _) in self._held.items() if until < now]
            return [self._held.pop(serial)[1] for serial in over]

    @property
    def held(self) -> int:
        return len(self._held)
