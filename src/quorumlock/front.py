"""What the two fronts share: everything about lockers and locks that does no I/O."""

from __future__ import annotations

import enum
import functools
import random
import re
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import options
from .core import redlock, waiting
from .core.effects import Steps
from .core.family import AllOf, AnyOf
from .core.fleet import Fleet
from .core.redlock import ALONE, Grant, Kind
from .core.votes import Cause, Tally
from .core.waiting import Wish
from .errors import ConfigurationError, LockHeld, LossReason, NoQuorum, StaleFence, Unsupported
from .events import Broken, Bus, Event, NodeQuarantined, logger
from .keeping import KeeperBase
from .leasing import LeaseBase
from .onlooking import Onlooker, tell_given_up
from .options import LockOptions, Settings
from .process import Process, anonymous_token, token
from .retry import DEFAULT_RETRY

if TYPE_CHECKING:
    from .engines.base import Engine


class Default(enum.Enum):
    """For `acquire(timeout=…)`: the lock's own timeout, which may be None."""

    TIMEOUT = "the timeout of the lock"


class LockerBase:
    """A client of one fleet: its settings, its nodes and its events."""

    _keeper: KeeperBase
    _runner: Any

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine: Any = engine
        """What keeps the locks; an engine may offer more than all of them do."""
        self._settings = settings
        self._bus = Bus()
        self._reentrant: weakref.WeakKeyDictionary[Any, dict[str, weakref.ref[LeaseBase[Any]]]]
        self._reentrant = weakref.WeakKeyDictionary()
        """The leases of reentrant locks, by the thread or task that has them."""
        self._sharing: weakref.WeakKeyDictionary[Any, dict[str, weakref.WeakSet[LeaseBase[Any]]]]
        self._sharing = weakref.WeakKeyDictionary()
        """The leases of read-write locks, likewise."""
        asked = settings.retry
        self._retry = getattr(engine, "polling", asked) if asked == DEFAULT_RETRY else asked
        self._adaptive = self._retry == DEFAULT_RETRY
        """May locks that are held be asked for as seldom as seems right?"""
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
                bus.report(NodeQuarantined(node, seconds))

        for node in engine.nodes:
            node.on_quarantine = quarantined

    def _employ(self, keeper: KeeperBase) -> None:
        self._keeper = keeper
        if attend := getattr(self.engine, "attend", None):
            attend(keeper)  # an engine whose clock is not the machine's: it can jump

    def subscribe(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Calls `callback` with every event of this Locker; what is returned ends that.

        It is called where the event happens, and should be quick; what the keeper's thread finds out is told in a
        thread beside it. What it raises is logged and dropped.
        """
        return self._bus.subscribe(callback)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.engine!r}>"

    def _by(self, who: str) -> str:
        """Who forces a lock open, for the journal."""
        if self._settings.journal is None:
            return ""
        return f"{token()} {who}" if self._settings.identify else anonymous_token()

    def _breaking(self, name: str, fence: int | None, who: str) -> Steps[Tally]:
        only = 0 if fence is None else options.whole("fence", fence, 1, 2**53)
        return redlock.break_(self._fleet, options.name(name), self._by(who), only)

    def _broken(self, name: str, tally: Tally, who: str) -> None:
        if not redlock.broken(tally):
            if tally.caused(Cause.CHANGED):
                raise LockHeld(f"{name!r} was left alone: somebody has got it since ({tally.describe()})", tally)
            raise NoQuorum(f"{name!r} was not broken on a majority: {tally.describe()}", tally)
        by = f"{token().partition('@')[2]} {who}" if self._settings.identify else who
        logger.warning("%r was forced open by %s", name, by)
        try:
            if self._bus.listening:
                self._bus.emit(Broken(name, tally, by))
        finally:
            self._keeper.lose(name)  # if it was ours


def told_refusal(resource: object, refusal: object) -> tuple[str, int, str]:
    """Name, fence and words for the journal."""
    if not isinstance(refusal, StaleFence):
        raise ConfigurationError(f"refusal={options.shown(refusal)} must be the StaleFence that a guard raised")
    return options.name(resource), refusal.fence or 0, f"a guard had seen {refusal.seen}"


@functools.lru_cache(1000)
def card(kind: str, who: str, note: str) -> str:
    """What stands on a node about who holds a lock: the kind, the thread or task, and the note."""
    return f"{kind} {re.sub('[^!-~]', '_', who)[:60] or '-'} {note}"


DEEPEST = 1000
"""How often one holder may enter a reentrant lock without leaving it."""


class LockBase:
    """Names a resource; holds no ownership, and may be shared by threads and tasks."""

    def __init__(self, locker: LockerBase, name: str, chosen: LockOptions, kind: Kind = ALONE) -> None:
        self._locker = locker
        self._fleet = locker._fleet
        # In braces, which no name of a lock has: "a, b" is one.
        self._name = f"{{{', '.join(kind.names)}}}" if isinstance(kind, AllOf) else options.name(name)
        self._options = chosen
        self._kind = kind
        self._entered: dict[object, list[LeaseBase[Any]]] = {}
        """For each thread or task the leases of the blocks it is in, the innermost last."""

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} ttl={self._options.ttl:g}>"

    def _acquiring(self, timeout: float | Default | None, onlooker: Onlooker | None = None) -> Steps[Grant]:
        self._refuse_deadlock()
        chosen, settings = self._options, self._locker._settings
        within = chosen.timeout if timeout is Default.TIMEOUT else options.checked_timeout(timeout)
        wish = Wish(
            self._name, chosen.ttl, within, self._locker._retry, settings.patience, fair=chosen.fair,
            lock_delay=chosen.lock_delay, adaptive=self._locker._adaptive, kind=self._fresh_kind(),
            card=self._card(),
        )  # fmt: skip
        if onlooker is not None:
            wish.on_wait, wish.serial = onlooker.waits, onlooker.serial
        return waiting.obtain(self._fleet, self._locker._runner.room, wish)

    def _trying(self) -> Steps[Grant | None]:
        chosen = self._options
        return waiting.try_acquire(
            self._fleet, self._name, chosen.ttl, self._locker._runner.room, fair=chosen.fair,
            lock_delay=chosen.lock_delay, kind=self._fresh_kind(), card=self._card(),
        )  # fmt: skip

    def _onlooker(self) -> Onlooker:
        """For an acquire, while somebody listens."""
        return Onlooker(self._locker._bus, self._fleet, self._name.strip("{}"), self._kind.word)

    def _not_tried(self, error: BaseException | None) -> None:
        """Tells of a try without success; no error: it is held."""
        if self._locker._bus.listening:
            tell_given_up(self._locker._bus, self._name.strip("{}"), self._kind.word, error)

    def _fresh_kind(self) -> Kind:
        """For one acquisition. Those of a semaphore begin with different slots, so that they rarely meet."""
        if isinstance(self._kind, AnyOf):
            permits = len(self._kind.names)
            return AnyOf(self._name, permits, int(self._fleet.random() * permits))
        return self._kind

    def _card(self) -> str:
        """Who asks, for `inspect`."""
        who = self._running_name() if self._locker._settings.identify else "-"
        return card(self._kind.word, who, self._options.note or "")

    @staticmethod
    def _running_name() -> str:
        """Of the thread or task that runs."""
        raise NotImplementedError

    @staticmethod
    def _running() -> object:
        """The thread or task that runs."""
        raise NotImplementedError

    def _refuse_deadlock(self) -> None:
        """Who shares a lock cannot have it alone before having given it back, nor the other way round."""
        if self._kind.word not in ("read", "write"):
            return
        other = "write" if self._kind.word == "read" else "read"
        with Process.mutex:
            known = list(self._locker._sharing.get(self._running(), {}).get(f"{other}:{self._name}", ()))
        if any(lease.held for lease in known):
            remedy = "downgrade() shares it" if other == "write" else "release that first, and look again then"
            raise ConfigurationError(
                f"{self._name!r}: this {self._kind.word} would wait for ever for the {other} lease that its own "
                f"thread or task has; {remedy}"
            )

    def _forgoing(self, grant: Grant) -> Steps[Tally]:
        grant.over = True
        if grant.room is not None:
            grant.room.forget(grant)
        request = self._kind.undoing(self._name, grant.token)._replace(wake=True, ticket=grant.ticket)
        return redlock.release_grant(self._fleet, grant, request)

    def _looking(self) -> Steps[Tally]:
        if self._kind.names:
            raise Unsupported(f"{self._name!r} is of several locks: ask inspect() for each of them")
        return redlock.look(self._fleet, self._name, not self._kind.exclusive)

    def _reentered(self) -> LeaseBase[Any] | None:
        """The lease that who runs has of this reentrant lock, entered once more; None if it has none."""
        if not self._options.reentrant:
            return None
        with Process.mutex:
            known = self._locker._reentrant.get(self._running(), {}).get(self._name)
            lease = None if known is None else known()
            if lease is None or not lease.held:
                return None
            if lease._depth >= DEEPEST:
                raise ConfigurationError(
                    f"{self._name!r} was entered {DEEPEST} times by its holder and never left: is a release "
                    "missing, or a recursion endless?"
                )
            lease._depth += 1
            return lease

    def _remember(self, lease: LeaseBase[Any]) -> None:
        """Whoever has it may enter again, or share what is its own; but not wait for itself."""
        word, owner = self._kind.word, self._running()
        with Process.mutex:
            if self._options.reentrant:
                self._locker._reentrant.setdefault(owner, {})[self._name] = weakref.ref(lease)
            if word in ("read", "write"):
                mine = self._locker._sharing.setdefault(owner, {})
                mine.setdefault(f"{word}:{self._name}", weakref.WeakSet()).add(lease)

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


LeaseT = TypeVar("LeaseT", bound=LeaseBase[Any])


def downgraded(lease: LeaseT, grant: Grant | LossReason, leased: Callable[[Grant], LeaseT]) -> LeaseT:
    """The lease of who shares from now on what `lease` had alone."""
    if isinstance(grant, LossReason):
        lease._closed = False
        lease._lose(grant, raised=True)
        raise lease._loss()
    lease._freed = True
    if grant.room is not None:
        grant.room.freed(lease._grant, others=False)
    if lease._locker._bus.listening:
        lease._tell_released(True)
    return leased(grant)
