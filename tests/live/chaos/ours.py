"""Our lock in a chaos run: what it says about its leases goes into the history, renewals and losses included."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import quorumlock
from quorumlock.events import Event, Extended, Lost
from scripts.soak import validity

from . import canaries
from .clients import Acquired

MAX_TTL = 1.0
FLEET = "chaos"
WAIT = 1.0
Record = Callable[..., None]


SETTINGS: dict[str, Any] = {"max_ttl": MAX_TTL, "fleet": FLEET, "retry": quorumlock.Jitter(0.02)}
"""Clients come over different wires, and spell the nodes differently: the fleet has a name."""


class Ours:
    """One lock of quorumlock, in threads."""

    def __init__(self, urls: list[str], name: str, record: Record, draw: random.Random, keep: bool | None) -> None:
        logging.getLogger("quorumlock").setLevel(logging.CRITICAL)  # quarantine and loss are daily bread here
        self.lease: Any = None
        """A Lease, or an AsyncLease."""
        self._locks = self._connect(urls, SETTINGS | canaries.options())
        self._locks.subscribe(self._told)
        self._locks._bus.relay = None  # where it happens: a loss is written down before what is left is freed
        self._name = name
        self._record = record
        self._draw = draw
        self._keep = keep

    def acquire(self, ttl: float) -> Acquired | None:
        keep = self._draw.random() < 0.5 if self._keep is None else self._keep
        try:
            self.lease = self._done(self._locks.lock(self._name, ttl=ttl, keep=keep).acquire(timeout=WAIT))
        except quorumlock.AcquireTimeout:
            return None
        return canaries.until(validity(self.lease)[1], self.lease), canaries.fence(self.lease.fence)

    def extend(self) -> None:
        self._done(self.lease.extend())

    def release(self) -> None:
        self.give_back()
        self.lease = None

    def give_back(self) -> None:
        """A second time it is quiet."""
        self._done(self.lease.release())

    def abandon(self) -> None:
        """It is not renewed any more, and runs to its end."""
        self.lease = None

    def _connect(self, urls: list[str], settings: dict[str, Any]) -> Any:
        return quorumlock.connect(urls, **settings)

    def _done(self, result: Any) -> Any:
        return result

    def _told(self, event: Event) -> None:
        lease = self.lease
        if lease is None or not isinstance(event, Extended | Lost) or event.fence != lease.fence:
            return
        if isinstance(event, Lost):
            self._record("ok", "lost", value={"fence": event.fence})
            return
        now, until = validity(lease)
        if until > now:  # else we were stopped meanwhile, and it ended some time ago
            self._record("ok", "extend", value={"fence": event.fence, "until": until}, at=now)


class AsyncOurs(Ours):
    """The same in asyncio: a loop in a thread of its own does what the worker asks for."""

    def _connect(self, urls: list[str], settings: dict[str, Any]) -> Any:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        return quorumlock.connect_async(urls, **settings)

    def _done(self, result: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(result, self._loop).result()


FRONTS = {"threads": Ours, "asyncio": AsyncOurs}
