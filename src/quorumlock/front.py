"""What the two fronts share: everything about lockers, locks and leases that does no I/O."""

from __future__ import annotations

import enum
import inspect
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import options
from .core import redlock, waiting
from .core.effects import Steps
from .core.fleet import Fleet
from .core.keeper import DUE_FIRST
from .core.redlock import Grant
from .core.votes import Tally
from .errors import ConfigurationError, LeaseClosed, LeaseLost, LossReason, NoQuorum
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
from .keeping import NOT_KEPT, Hold, KeeperBase, collected
from .options import LockOptions, Settings
from .process import Process, anonymous_token, token
from .retry import DEFAULT_RETRY

if TYPE_CHECKING:
    from .core.renewal import Extension
    from .engines.base import Engine


class Default(enum.Enum):
    """For `acquire(timeout=…)`: the lock's own timeout, which may be None."""

    TIMEOUT = "the timeout of the lock"


class LockerBase:
    """A client of one fleet: its settings, its nodes and its events."""

    _keeper: KeeperBase

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine: Any = engine
        """What keeps the locks; an engine may offer more than all of them do."""
        self._settings = settings
        self._bus = Bus()
        asked = settings.retry
        self._retry = getattr(engine, "polling", asked) if asked == DEFAULT_RETRY else asked
        self._fleet = Fleet(
            engine.labels,
            engine.clock,
            time.time,
            random.random,
            token if settings.identify else anonymous_token,
            settings.node_timeout,
            settings.drift,
        )
        bus = self._bus  # and not self, which nobody would collect if its engine knew it

        def quarantined(node: str, seconds: float) -> None:
            if bus.listening:
                bus.emit(NodeQuarantined(node, seconds))

        for node in engine.nodes:
            node.on_quarantine = quarantined

    def _employ(self, keeper: KeeperBase) -> None:
        self._keeper = keeper
        if attend := getattr(self.engine, "attend", None):
            attend(keeper)  # an engine whose clock is not the machine's: it can jump

    def subscribe(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Calls `callback` with every event of this Locker; what is returned ends that.

        It is called where the event happens, and should be quick. What it raises is logged and dropped.
        """
        return self._bus.subscribe(callback)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.engine!r}>"

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
        self._entered: dict[object, list[LeaseBase[Any]]] = {}
        """For each thread or task the leases of the blocks it is in, the innermost last."""

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} ttl={self._options.ttl:g}>"

    def _acquiring(self, timeout: float | Default | None) -> Steps[Grant]:
        chosen, settings = self._options, self._locker._settings
        within = chosen.timeout if timeout is Default.TIMEOUT else options.checked_timeout(timeout)
        return waiting.acquire_within(
            self._fleet, self._name, chosen.ttl, within, self._locker._retry, settings.patience
        )

    def _trying(self) -> Steps[Grant | None]:
        return waiting.try_acquire(self._fleet, self._name, self._options.ttl)

    def _forgoing(self, grant: Grant) -> Steps[Tally]:
        grant.over = True
        return redlock.release(self._fleet, grant.name, grant.token, grant.ttl, grant.route)

    def _looking(self) -> Steps[Tally]:
        return redlock.look(self._fleet, self._name)

    def _innermost(self, owner: object) -> LeaseBase[Any]:
        """The lease of the block that `owner` leaves; of somebody else's, if there is no other."""
        mine = self._entered.get(owner) or [lease for leases in self._entered.values() for lease in leases]
        if owner not in self._entered and len(mine) != 1:
            raise RuntimeError(f"a block of the lock {self._name!r} is left where it was not entered")
        return mine[-1]

    def _left(self, lease: LeaseBase[Any]) -> None:
        for owner, leases in list(self._entered.items()):
            if lease in leases:
                leases.remove(lease)
                if not leases:
                    del self._entered[owner]

    def _held(self, tally: Tally) -> bool:
        if tally.won:
            return False
        if not tally.able:
            raise NoQuorum(f"no majority could tell whether {self._name!r} is held: {tally.describe()}", tally)
        return True


EventT = TypeVar("EventT", bound=Any)


class LeaseBase(Generic[EventT]):
    """The only proof of holding a lock. May be handed to another thread or task."""

    _new_event: Callable[[], EventT]
    _new_lock: Callable[[], Any]

    # What few leases ever change is said once, for all of them: a lease is made for every acquire.
    _closed = False
    _freed = False
    _reason: LossReason | None = None
    _event: EventT | None = None
    _busy: Any = None
    _fate = LossReason.EXPIRED
    """Why it is lost, should its time run out."""
    _owner_gone: Callable[[], bool] | None = None

    def __init__(self, locker: LockerBase, grant: Grant, chosen: LockOptions) -> None:
        self._locker = locker
        self._grant = grant
        self._options = chosen
        self._forks = Process.generation
        self._hold = hold = Hold(self, collected)
        hold.grant = grant
        if chosen.keep:
            hold.keep_until = grant.valid_until - grant.ttl + chosen.max_hold
            hold.due_at = grant.valid_until - grant.ttl * DUE_FIRST
        else:
            hold.keep_until = NOT_KEPT
            hold.due_at = grant.valid_until
        locker._keeper.watch(hold)
        bus = locker._bus
        if bus.listening:
            if grant.confirmed:
                bus.emit(Confirmed(grant.name, grant.fence, grant.confirmed))
            bus.emit(Acquired(grant.name, grant.fence, locker._fleet.clock() - grant.asked_at, grant.tally))

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
        return self._options.note

    @property
    def held(self) -> bool:
        """Is it still ours, as far as this process can know? Never true past the deadline."""
        return self.remaining() > 0

    @property
    def lost(self) -> EventT:
        """An event that is set when the lease is lost."""
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
        return max(0.0, self._grant.valid_until - self._locker._fleet.clock())

    def check(self) -> None:
        """Raises LeaseLost, or LeaseClosed after a release; returns only while the lease is valid."""
        if self._closed:
            raise LeaseClosed(f"the lease of {self.name!r} was released")
        self._notice(raised=True)
        if self._reason is not None:
            raise self._loss()

    def __repr__(self) -> str:
        state = "released" if self._closed else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} fence={self.fence} token={self.token[:6]}… {state}>"

    def _notice(self, *, raised: bool = False) -> None:
        """Finds out what only this process can know: that time is up, or that it is a fork's child."""
        if self._closed or self._reason is not None:
            return
        if self._forks != Process.generation:
            self._lose(LossReason.FORKED, raised=raised)
        elif self._locker._fleet.clock() >= self._grant.valid_until:
            self._lose(self._fate, raised=raised)

    def _lose(self, reason: LossReason, *, raised: bool = False) -> None:
        """The lease is gone; tells once. `raised`: who noticed it is told by a LeaseLost, too."""
        with Process.mutex:
            if self._closed or self._reason is not None:
                return
            self._reason = reason
        self._hold.drop()
        self._announce(reason, raised)

    def _announce(self, reason: LossReason, raised: bool) -> None:
        """Tells of the loss, in the thread that noticed it."""
        with Process.mutex:
            if self._event is not None:
                self._event.set()
        if self._locker._bus.listening:
            self._locker._bus.emit(Lost(self.name, self.fence, reason))
        if self._options.on_lost is not None:
            self._call_back()

    def _call_back(self) -> Any:
        """Calls `on_lost`; what it returns."""
        assert self._options.on_lost is not None
        try:
            return self._options.on_lost(self)
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
            self._hold.drop()  # first: an interrupt must not leave a closed lease in its keeper's care
            self._closed = True
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

    def _reschedule(self) -> None:
        """The holder has extended it, or tried to, perhaps to an earlier end than its keeper knows."""
        if not self._grant.over and self._hold.schedule():
            self._hold.desk.watch(self._hold)

    def _releasing(self) -> Steps[Tally]:
        grant = self._grant
        # A node that never was sent the token need not hear of its end, and one that hangs need not owe an answer.
        tally = None if grant.healed else grant.tally
        return redlock.release(self._locker._fleet, grant.name, grant.token, grant.ttl, grant.route, tally)

    def _released(self, tally: Tally) -> None:
        self._freed = True
        if self._locker._bus.listening:
            self._locker._bus.emit(Released(self.name, self.fence, tally.won))

    def _unreleased(self, error: Exception) -> None:
        """A release that failed where there is something more important to raise."""
        logger.warning("%r was not released, and ends by its ttl: %s", self.name, error)

    def _loss_on_exit(self) -> LeaseLost | None:
        """What to raise at the end of a block whose body succeeded."""
        self._notice()
        return self._loss() if self._reason is not None else None


def naming(value: object) -> Callable[..., str]:
    """For a decorator: what makes the name of a lock from the arguments of a call."""
    if callable(value):
        return value
    fixed = options.name(value)
    return lambda *_, **__: fixed


def plain_function(parameter: str, value: object) -> None:
    if not callable(value) or inspect.iscoroutinefunction(value) or _yields(value):
        raise ConfigurationError(
            f"{parameter} is for plain functions, not {options.shown(value)}: a coroutine function belongs to an "
            "AsyncLocker, and a generator would go on outside of the lock"
        )


def coroutine_function(parameter: str, value: object) -> None:
    if not inspect.iscoroutinefunction(value):
        raise ConfigurationError(
            f"{parameter} is for coroutine functions (async def), not {options.shown(value)}: a plain function "
            "belongs to a Locker, and a generator would go on outside of the lock"
        )


def _yields(value: object) -> bool:
    return inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value)
