"""Our lock in a chaos run: what it says about its leases goes into the history, renewals and losses included."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import quorumlock
from quorumlock.events import Event, Extended, Lost

from . import canaries
from .clients import Acquired, clock

MAX_TTL = 1.0
FLEET = "chaos"
WAIT = 1.0
Record = Callable[..., None]


def connect(urls: list[str], **options: Any) -> quorumlock.Locker:
    """Clients come over different wires, and spell the nodes differently: the fleet has a name."""
    return quorumlock.connect(urls, max_ttl=MAX_TTL, fleet=FLEET, retry=quorumlock.Jitter(0.02), **options)


class Ours:
    """One lock of quorumlock. `busy` says of an error whether it was a refusal."""

    def __init__(self, urls: list[str], name: str, record: Record, draw: random.Random, keep: bool | None) -> None:
        logging.getLogger("quorumlock").setLevel(logging.CRITICAL)  # quarantine and loss are daily bread here
        self.lease: quorumlock.Lease | None = None
        self._locks = connect(urls, **canaries.options())
        self._locks.subscribe(self._told)
        self._name = name
        self._record = record
        self._draw = draw
        self._keep = keep

    def acquire(self, ttl: float) -> Acquired | None:
        keep = self._draw.random() < 0.5 if self._keep is None else self._keep
        try:
            self.lease = self._locks.lock(self._name, ttl=ttl, keep=keep).acquire(timeout=WAIT)
        except quorumlock.AcquireTimeout:
            return None
        return canaries.until(validity(self.lease)[1], self.lease), canaries.fence(self.lease.fence)

    def release(self) -> None:
        assert self.lease is not None
        self.lease.release()
        self.lease = None

    def abandon(self) -> None:
        """It is not renewed any more, and runs to its end."""
        self.lease = None

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


def validity(lease: quorumlock.Lease) -> tuple[float, float]:
    """From when to when, by the common clock. Read again if the process was held up between two readings."""
    while True:
        before, remaining, after = clock(), lease.remaining(), clock()
        if after - before < 0.0005:
            return before, before + remaining
