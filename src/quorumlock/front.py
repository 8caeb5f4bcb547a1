"""What the two fronts share: everything about lockers, locks and leases that does no I/O."""

from __future__ import annotations

import enum
import functools
import os
import random
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import options
from .core import redlock, waiting
from .core.effects import Steps
from .core.fleet import Fleet
from .core.redlock import Grant
from .core.votes import Tally
from .errors import LeaseClosed, LeaseLost, LossReason, NoQuorum
from .events import (
    Acquired,
    Broken,
    Bus,
    Confirmed,
    Event,
    Extended,
    Healed,
    Lost,
    NodeQuarantined,
    Released,
    logger,
)  # fmt: skip
from .options import LockOptions, Settings

if TYPE_CHECKING:
    from .core.redlock import Extension
    from .engines.base import Engine

HOST_CHARACTERS = 32

if hasattr(time, "CLOCK_BOOTTIME"):
    clock: Callable[[], float] = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    clock = time.monotonic
"""Seconds that never jump and, where the system can, go on while the machine is suspended."""


class Default(enum.Enum):
    """For `acquire(timeout=…)`: the lock's own timeout, which may be None."""

    TIMEOUT = "the timeout of the lock"


class Process:
    """Facts of this process that a fork changes."""

    generation = 0
    whoami = ""
    mutex = threading.Lock()
    """Guards the few lines in which any lease changes its state."""

    @classmethod
    def forked(cls) -> None:
        cls.generation += 1
        cls.whoami = ""
        cls.mutex = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process.forked)


_random_bytes = secrets.SystemRandom().randbytes


def anonymous_token() -> str:
    return _random_bytes(20).hex()


def token() -> str:
    """Who: unguessable, new for every attempt, with a readable `@host:pid` behind it."""
    if not Process.whoami:
        host = re.sub(r"[^A-Za-z0-9._-]", "", socket.gethostname())[:HOST_CHARACTERS]
        Process.whoami = f"@{host}:{os.getpid()}"
    return _random_bytes(20).hex() + Process.whoami


class LockerBase:
    """A client of one fleet: its settings, its nodes and its events."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self._settings = settings
        self._bus = Bus()
        self._fleet = Fleet(
            engine.labels,
            clock,
            time.time,
            random.random,
            token if settings.identify else anonymous_token,
            settings.node_timeout,
            settings.drift,
        )
        for node in engine.nodes:
            node.on_quarantine = self._quarantined

    def subscribe(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Calls `callback` with every event of this Locker; what is returned ends that.

        It is called where the event happens, and should be quick. What it raises is logged and dropped.
        """
        return self._bus.subscribe(callback)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.engine!r}>"

    def _quarantined(self, node: str, seconds: float) -> None:
        if self._bus.listening:
            self._bus.emit(NodeQuarantined(node, seconds))

    def _broken(self, name: str, tally: Tally) -> None:
        if not redlock.broken(tally):
            raise NoQuorum(f"{name!r} was not broken on a majority: {tally.describe()}", tally)
        if self._bus.listening:
            self._bus.emit(Broken(name, tally))


class LockBase:
    """Names a resource; holds no ownership, and may be shared by threads and tasks."""

    def __init__(self, locker: LockerBase, name: str, chosen: LockOptions) -> None:
        self._locker = locker
        self._fleet = locker._fleet
        self._name = options.name(name)
        self._options = chosen

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} ttl={self._options.ttl:g}>"

    def _acquiring(self, timeout: float | Default | None) -> Steps[Grant]:
        chosen, settings = self._options, self._locker._settings
        within = chosen.timeout if timeout is Default.TIMEOUT else options.checked_timeout(timeout)
        return waiting.acquire_within(
            self._fleet, self._name, chosen.ttl, within, settings.retry, settings.patience
        )

    def _trying(self) -> Steps[Grant | None]:
        return waiting.try_acquire(self._fleet, self._name, self._options.ttl)

    def _forgoing(self, grant: Grant) -> Steps[Tally]:
        return redlock.release(self._fleet, grant.name, grant.token, grant.ttl, grant.route)

    def _looking(self) -> Steps[Tally]:
        return redlock.look(self._fleet, self._name)

    def _held(self, tally: Tally) -> bool:
        if tally.won:
            return False
        if not tally.able:
            raise NoQuorum(f"no majority could tell whether {self._name!r} is held: {tally.describe()}", tally)
        return True


EventT = TypeVar("EventT", bound=Any)


class LeaseBase(Generic[EventT]):
    """The only proof of holding a lock. May be handed to another thread or task."""

    __slots__ = ("__weakref__", "_busy", "_closed", "_event", "_forks", "_freed", "_grant", "_locker", "_note",
                 "_on_lost", "_reason")  # fmt: skip

    _new_event: Callable[[], EventT]
    _new_lock: Callable[[], Any]

    def __init__(self, locker: LockerBase, grant: Grant, chosen: LockOptions) -> None:
        self._locker = locker
        self._grant = grant
        self._note = chosen.note
        self._on_lost = chosen.on_lost
        self._closed = False
        self._freed = False
        self._reason: LossReason | None = None
        self._event: EventT | None = None
        self._busy: Any = None
        self._forks = Process.generation
        bus = locker._bus
        if bus.listening:
            if grant.confirmed:
                bus.emit(Confirmed(grant.name, grant.fence, grant.confirmed))
            bus.emit(Acquired(grant.name, grant.fence, clock() - grant.asked_at, grant.tally))

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._grant.name

    @property
    def resource(self) -> str:
        """What a guard keys on."""
        return self._grant.name

    @property
    def token(self) -> str:
        """Who: the secret by which the nodes know this lease. Not for logs."""
        return self._grant.token

    @property
    def fence(self) -> int:
        """Order: an integer that only grows, from one holder of a resource to the next."""
        return self._grant.fence

    @property
    def ttl(self) -> float:
        """How long the lease lives without renewal, in seconds."""
        return self._grant.ttl

    @property
    def tally(self) -> Tally:
        """The votes by which it was acquired."""
        return self._grant.tally

    @property
    def note(self) -> str | None:
        """What the lock's `note` said."""
        return self._note

    @property
    def held(self) -> bool:
        """Is it still ours, as far as this process can know? Never true past the deadline."""
        return self.remaining() > 0

    @property
    def lost(self) -> EventT:
        """An event that is set when the loss of the lease is noticed."""
        with Process.mutex:
            if self._event is None:
                self._event = self._new_event()
                if self._reason is not None:
                    self._event.set()
            return self._event

    def remaining(self) -> float:
        """Seconds for which the lease is certainly valid; 0 once it is released, lost or over."""
        if self._closed or self._reason is not None or self._forks != Process.generation:
            return 0.0
        return max(0.0, self._grant.valid_until - clock())

    def check(self) -> None:
        """Raises LeaseLost, or LeaseClosed after a release; returns only while the lease is valid."""
        if self._closed:
            raise LeaseClosed(f"the lease of {self.name!r} was released")
        self._notice()
        if self._reason is not None:
            raise self._loss()

    def __repr__(self) -> str:
        state = "released" if self._closed else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} fence={self.fence} token={self.token[:6]}… {state}>"

    def _notice(self) -> None:
        """Finds out what only this process can know: that time is up, or that it is a fork's child."""
        if self._closed or self._reason is not None:
            return
        if self._forks != Process.generation:
            self._lose(LossReason.FORKED)
        elif clock() >= self._grant.valid_until:
            self._lose(LossReason.EXPIRED)

    def _lose(self, reason: LossReason) -> None:
        """The lease is gone; tells once."""
        with Process.mutex:
            if self._closed or self._reason is not None:
                return
            self._reason = reason
            if self._event is not None:
                self._event.set()
        if self._locker._bus.listening:
            self._locker._bus.emit(Lost(self.name, self.fence, reason))
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:
                # The callback is the user's; the loss is told all the same, by check() and at the exit.
                logger.exception("on_lost of %r failed", self.name)

    def _loss(self) -> LeaseLost:
        assert self._reason is not None
        return LeaseLost(f"{self.name!r} (fence {self.fence}) is lost: {self._reason.value}", self._reason)

    def _close(self) -> bool:
        """Ends the lease; True if there is something to release: also again, if a release was interrupted."""
        with Process.mutex:
            if self._freed:
                return False
            self._closed = True
            self._grant.released = True
        # A forked child is not the owner: neither is the parent's lock its to release, nor the connection to use.
        return self._forks == Process.generation

    def _turn(self) -> Any:
        """The lock that keeps extensions of one lease from overtaking one another, and a release behind them."""
        with Process.mutex:
            if self._busy is None:
                self._busy = self._new_lock()
            return self._busy

    def _extending(self, ttl: float | None) -> Steps[Extension]:
        self.check()
        seconds = self.ttl if ttl is None else options.checked_ttl(self._locker._settings, ttl)
        return waiting.extend_or_lose(self._locker._fleet, self._grant, seconds)

    def _extended(self, extension: Extension) -> None:
        bus = self._locker._bus
        if bus.listening:
            bus.emit(Extended(self.name, self.fence, extension.tally))
            if extension.healed:
                bus.emit(Healed(self.name, self.fence, extension.healed))

    def _releasing(self) -> Steps[Tally]:
        grant = self._grant
        # A node that never was sent the token need not hear of its end, and one that hangs need not owe an answer.
        tally = None if grant.healed else grant.tally
        return redlock.release(self._locker._fleet, grant.name, grant.token, grant.ttl, grant.route, tally)

    def _released(self, tally: Tally) -> None:
        self._freed = True
        if self._locker._bus.listening:
            self._locker._bus.emit(Released(self.name, self.fence, tally.won))

    def _loss_on_exit(self) -> LeaseLost | None:
        """What to raise at the end of a block whose body succeeded."""
        self._notice()
        return self._loss() if self._reason is not None else None
