"""What the leases of both fronts share: everything about them that does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import options
from .core import redlock, waiting
from .core.effects import Steps
from .core.keeper import DUE_FIRST
from .core.redlock import Grant
from .core.requests import Release
from .core.votes import Tally
from .errors import ConfigurationError, LeaseClosed, LeaseLost, LossReason, StaleFence, Unsupported
from .events import (
    Acquired,
    Confirmed,
    Extended,
    FenceRefused,
    Healed,
    Lost,
    Released,
    ReleasedLate,
    ReleaseRepeated,
    RenewalFailed,
    logger,
    next_serial,
)
from .keeping import NOT_KEPT, Hold, collected
from .options import LockOptions
from .process import Process

if TYPE_CHECKING:
    from .core.renewal import Extension
    from .front import LockerBase

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
    _further: tuple[Hold, ...] = ()
    """If it is of several locks: those behind the first."""
    _depth = 1
    """How often a reentrant lock was entered and not left."""
    _fate = LossReason.EXPIRED
    """Why it is lost, should its time run out."""
    _ended_at: float | None = None
    """When its holder began to give it back, if anybody listened."""
    _owner_gone: Callable[[], bool] | None = None

    def __init__(self, locker: LockerBase, grant: Grant, chosen: LockOptions) -> None:
        self._locker = locker
        self._grant = grant
        self._options = chosen
        self._forks = Process.generation
        # What is in the keeper's care may be lost at once, if we were held up meanwhile: all must be there by then.
        if grant.parts:
            self._hold, *further = [self._held(part) for part in grant.parts]
            self._further = tuple(further)
            with Process.mutex:
                for hold in (self._hold, *further):
                    locker._keeper.watch(hold)
        else:
            self._hold = self._held(grant)
            locker._keeper.watch(self._hold)
        if locker._bus.listening:
            self._tell_acquired()

    def _held(self, grant: Grant) -> Hold:
        """What its keeper is to care for."""
        chosen = self._options
        hold = Hold(self, collected)
        hold.grant = grant
        if chosen.keep:
            hold.keep_until = grant.valid_until - grant.ttl + chosen.max_hold
            hold.due_at = grant.valid_until - grant.ttl * DUE_FIRST
        else:
            hold.keep_until = NOT_KEPT
            hold.due_at = grant.valid_until
        return hold

    @property
    def name(self) -> str:
        """The name of the lock; of several, all of them."""
        return (self._grant.line or self._grant.name).strip("{}")

    @property
    def resource(self) -> str:
        """What a guard keys on: the name, or `name#slot`."""
        return self.name if self._grant.parts else self._grant.name

    @property
    def slot(self) -> int | None:
        """Which permit of a semaphore it is, counted from 0; None for other locks."""
        grant = self._grant
        return int(grant.name.rpartition("#")[2]) if grant.names and not grant.parts else None

    @property
    def fences(self) -> dict[str, int]:
        """The fence of each name; there are several if it is of several locks."""
        return {part.name: part.fence for part in self._grant.parts or (self._grant,)}

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
        return self._hold.grant.ttl

    @property
    def tally(self) -> Tally:
        """The votes by which it was acquired."""
        return self._grant.tally

    @property
    def condition(self) -> Any:
        """What makes a transaction of the user's own, in the store that keeps the lock, depend on this lease.

        Engines that have none raise Unsupported.
        """
        make = getattr(self._locker.engine, "condition", None)
        if make is None:
            raise Unsupported(
                f"the engine {self._locker.engine.name} has no transactions that could depend on a lease: let a "
                "guard (quorumlock.guards) refuse stale fences where the lease is used"
            )
        return make(self)

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
        return max(0.0, self._valid_until() - self._locker._fleet.clock())

    def _valid_until(self) -> float:
        until = self._hold.grant.valid_until
        return min([until, *(hold.grant.valid_until for hold in self._further)]) if self._further else until

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
        elif self._locker._fleet.clock() >= self._valid_until():
            self._lose(self._fate, raised=raised)

    def _lose(self, reason: LossReason, *, raised: bool = False) -> None:
        """The lease is gone; tells once. `raised`: who noticed it is told by a LeaseLost, too."""
        with self._locker._bus.announcing():  # before anybody can see it: close() waits for what is begun
            with Process.mutex:
                if self._closed or self._reason is not None:
                    return
                self._reason = reason
            try:
                self._drop()
                if (room := self._grant.room) is not None:
                    room.ended(self._grant)
            finally:
                self._announce(reason, raised)

    def _announce(self, reason: LossReason, raised: bool) -> None:
        """Tells of the loss, in the thread that noticed it."""
        with Process.mutex:
            if self._event is not None:
                self._event.set()
        if self._locker._bus.listening:
            grant = self._grant
            held = self._held_for(self._locker._fleet.clock())
            self._locker._bus.emit(Lost(self.name, self.fence, reason, held, grant.kind, grant.serial))
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
            if self._depth > 1:
                self._depth -= 1
                return False
            self._drop()  # first: an interrupt must not leave a closed lease in its keeper's care
            self._closed = True
        # A forked child is not the owner: neither is the parent's lock its to release, nor the connection to use.
        return self._forks == Process.generation

    def _step_down(self) -> None:
        """It is not had alone from now on: nodes may share it before we know."""
        self.check()
        self._drop()
        self._closed = True

    def _drop(self) -> None:
        """It is over: nothing is renewed any more."""
        self._grant.over = True
        self._hold.drop()
        for hold in self._further:
            hold.drop()

    def _turn(self) -> Any:
        """The lock that keeps extensions of one lease from overtaking one another, and a release behind them."""
        with Process.mutex:
            if self._busy is None:
                self._busy = self._new_lock()
            return self._busy

    def _extending(self, ttl: float | None) -> Steps[Extension]:
        self.check()
        seconds = self.ttl if ttl is None else options.checked_ttl(self._locker._settings, ttl)
        if seconds + self._options.lock_delay > self._locker._settings.max_ttl:
            raise ConfigurationError(f"ttl={seconds:g} and lock_delay are more than max_ttl together")
        if self._further:
            return self._extending_all(seconds)
        on_doubt = self._not_renewed if self._locker._bus.listening else None
        return waiting.extend_or_lose(self._locker._fleet, self._hold.grant, seconds, on_doubt)

    def _extending_all(self, seconds: float) -> Steps[Extension]:
        """One lock after the other: what is lost of one is lost of all."""
        on_doubt = self._not_renewed if self._locker._bus.listening else None
        for hold in (*self._further, self._hold):
            extension = yield from waiting.extend_or_lose(self._locker._fleet, hold.grant, seconds, on_doubt)
        return extension

    def _extended(self, extension: Extension) -> None:
        bus = self._locker._bus
        if bus.listening:
            grant = self._grant
            bus.emit(Extended(self.name, self.fence, extension.tally, self._hold.grant.ttl, grant.serial))
            if extension.healed:
                bus.emit(Healed(self.name, self.fence, extension.healed, grant.serial))

    def _reschedule(self) -> None:
        """The holder has extended it, or tried to, perhaps to an earlier end than its keeper knows."""
        for hold in (self._hold, *self._further):
            if not hold.grant.over and hold.schedule():
                hold.desk.watch(hold)

    def _releasing(self) -> Steps[Tally]:
        grant = self._grant
        # A node that never was sent the token need not hear of its end, and one that hangs need not owe an answer.
        healed = any(hold.grant.healed for hold in (self._hold, *self._further))
        tally = None if healed or grant.names or grant.ticket else grant.tally
        fleet, room, chosen = self._locker._fleet, grant.room, self._options
        if self._locker._bus.listening:
            self._ended_at = fleet.clock()
        stay = chosen.at_least - (fleet.clock() - grant.since) if chosen.at_least else 0.0
        known = room is not None and not chosen.fair and room.contended(grant.line or grant.name)
        locker = room.id if room is not None and known else ""
        line = "" if grant.parts else grant.line
        request = Release(
            grant.name, grant.token, True, grant.ticket, locker, max(0, round(stay * 1000)), grant.names, line
        )
        told = self._tell_repeated if self._locker._bus.listening else None
        kept = self._hold.grant
        ttl, expires_at = kept.ttl, kept.expires_at
        for hold in self._further:  # if an extension was interrupted, not all of them were given the same
            ttl, expires_at = max(ttl, hold.grant.ttl), max(expires_at, hold.grant.expires_at)
        return redlock.release(
            fleet, grant.name, grant.token, ttl + grant.lock_delay, kept.route, tally, request, told, expires_at
        )

    def _released(self, tally: Tally) -> None:
        if (room := self._grant.room) is not None:
            room.freed(self._grant, any(answer is not None and answer.place for answer in tally.answers))
        self._freed = True  # not before: who was interrupted gives it back once more
        if self._locker._bus.listening:
            self._tell_released(tally.won)

    def _given_up(self) -> None:
        """It could not be given back: whether it is free, nodes have to tell."""
        if (room := self._grant.room) is not None:
            room.ended(self._grant)
        if self._locker._bus.listening:
            self._tell_released(False)

    def _unreleased(self, error: Exception) -> None:
        """A release that failed where there is something more important to raise."""
        logger.warning("%r was not released, and ends by its ttl: %s", self.name, error)

    def _loss_on_exit(self) -> LeaseLost | None:
        """What to raise at the end of a block whose body succeeded."""
        self._notice()
        return self._loss() if self._reason is not None else None

    # What onlookers are told; called only while there are any.

    def _tell_acquired(self) -> None:
        grant, bus = self._grant, self._locker._bus
        if not grant.serial:
            grant.serial = next_serial()
        if grant.confirmed:
            bus.emit(Confirmed(self.name, grant.fence, grant.confirmed, grant.serial))
        waited = self._locker._fleet.clock() - grant.asked_at
        bus.emit(Acquired(self.name, grant.fence, waited, grant.tally, grant.kind, grant.ttl, grant.serial))

    def _tell_released(self, confirmed: bool) -> None:
        grant = self._grant
        at = self._locker._fleet.clock() if self._ended_at is None else self._ended_at
        late = at - self._valid_until()
        known = (self.name, self.fence, confirmed, self._held_for(at), grant.kind, grant.serial)
        if self._reason is not None or late >= 0:
            self._locker._bus.emit(ReleasedLate(*known, self._reason or self._fate, max(0.0, late)))
        else:
            self._locker._bus.emit(Released(*known))

    def _tell_repeated(self, confirmed: bool, after: float) -> None:
        grant = self._grant
        repeated = ReleaseRepeated(self.name, self.fence, confirmed, after, grant.kind, grant.serial)
        self._locker._bus.emit(repeated)

    def _held_for(self, at: float) -> float:
        """Seconds for which it was ours, at the most until `at`: it may have been over, and nobody noticed."""
        return max(0.0, min(at, self._valid_until()) - self._grant.since)

    def _not_renewed(self, tally: Tally | None, error: Exception | None = None) -> None:
        bus, left = self._locker._bus, self.remaining()
        if bus.listening and left > 0:
            why = str(error) if tally is None else tally.describe()
            bus.report(RenewalFailed(self.name, self.fence, left, why, tally, self._grant.serial))

    def _refused(self, stale: StaleFence) -> None:
        """A guard found its fence to be of the past."""
        bus = self._locker._bus
        if bus.listening:
            bus.emit(FenceRefused(self.name, self.resource, stale.fence, stale.seen, self._grant.serial))
