"""The entry point, for threads."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .. import options
from ..core import fleet, looking
from ..core.family import NAMES_MOST, SLOTS_MOST, AllOf, AnyOf
from ..decorating import ON_BUSY, naming, plain_function
from ..errors import StaleFence
from ..front import LockerBase, told_refusal
from ..options import LockOptions, Settings
from .family import Election, ReadWrite
from .keeper import Keeper
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from ..core.effects import Steps
    from ..core.states import NodeState
    from ..engines.base import Engine
    from ..inspecting import Inspection
    from ..journal import JournalPage
    from ..runners.threads import ThreadRunner
    from .cell import Cell

P = ParamSpec("P")
T = TypeVar("T")


class Locker(LockerBase):
    """A client of one fleet; makes locks. Connects on first use; safe to share between threads."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        from ..runners.threads import runner_for

        super().__init__(engine, settings)
        self._runner: ThreadRunner = runner_for(engine, settings.node_timeout, self._bus)
        self._keeper: Keeper
        self._employ(Keeper(self._fleet, self._runner.run, self._bus, self._runner.read_late))
        self._keeper.relay()
        weakref.finalize(self, self._keeper.stop).atexit = False
        weakref.finalize(self, self._runner.deafen).atexit = False

    def _run(self, steps: Steps[T]) -> T:
        """For what leaves nothing behind that an interrupt in a subscriber would lose."""
        try:
            return self._runner.run(steps)
        finally:
            self._bus.catch_up()

    def lock(
        self,
        name: str,
        ttl: float = 10.0,
        timeout: float | None = None,
        keep: bool = True,
        max_hold: float = 86400.0,
        reentrant: bool = False,
        fair: bool = False,
        lock_delay: float = 0.0,
        at_least: float = 0.0,
        note: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lock:
        """The lock of that name. Nothing is sent until it is acquired.

        `ttl`: how long a lease lives without renewal. `timeout`: how long to wait for it (None: as long as it
        takes). `keep`: renew it in the background, for `max_hold` seconds at most. `note`: a word about the
        holder. `on_lost`: called with the lease when it is lost.
        """
        chosen = LockOptions.checked(
            self._settings, ttl=ttl, timeout=timeout, keep=keep, max_hold=max_hold, reentrant=reentrant,
            fair=fair, lock_delay=lock_delay, at_least=at_least, note=note, on_lost=on_lost,
        )  # fmt: skip
        return Lock(self, name, chosen)

    def read_write(self, name: str) -> ReadWrite:
        """A lock that many may share, or one have alone: `read_write(name).read()` and `.write()`.

        Who waits to have it alone is not overtaken by later ones who would share it. To have it alone is to have
        the lock of that name.
        """
        return ReadWrite(self, name)

    def semaphore(
        self,
        name: str,
        permits: int,
        ttl: float = 10.0,
        timeout: float | None = None,
        keep: bool = True,
        max_hold: float = 86400.0,
        fair: bool = False,
        lock_delay: float = 0.0,
        at_least: float = 0.0,
        note: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lock:
        """A lock that `permits` may have at a time; `lease.slot` tells which of them it is, counted from 0.

        A guard keys on `lease.resource`, `name#slot`. Every client should say the same number: it may grow at any
        time; where it shrinks, whoever has a slot that is no more keeps it until it is released. The other
        options are those of `lock`.
        """
        chosen = LockOptions.checked(
            self._settings, ttl=ttl, timeout=timeout, keep=keep, max_hold=max_hold, reentrant=False,
            fair=fair, lock_delay=lock_delay, at_least=at_least, note=note, on_lost=on_lost,
        )  # fmt: skip
        kind = AnyOf(options.name(name), options.whole("permits", permits, 1, SLOTS_MOST))
        return Lock(self, name, chosen, kind)

    def multi(
        self,
        names: Sequence[str],
        ttl: float = 10.0,
        timeout: float | None = None,
        keep: bool = True,
        max_hold: float = 86400.0,
        lock_delay: float = 0.0,
        at_least: float = 0.0,
        note: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Lock:
        """Several locks at once, all or none, in one round trip; sets that overlap cannot deadlock.

        `lease.fences` has the fence of each name, `lease.fence` is the highest. Losing one of them is losing them
        all. The other options are those of `lock`.
        """
        chosen = LockOptions.checked(
            self._settings, ttl=ttl, timeout=timeout, keep=keep, max_hold=max_hold, reentrant=False,
            fair=False, lock_delay=lock_delay, at_least=at_least, note=note, on_lost=on_lost,
        )  # fmt: skip
        return Lock(self, "", chosen, AllOf(options.names(names, NAMES_MOST)))

    def election(
        self,
        name: str,
        ttl: float = 10.0,
        note: str | None = None,
        on_elected: Callable[[Lease], object] | None = None,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Election:
        """Candidates of whom one leads: `lead()` waits to be elected, `leader()` tells who leads.

        A leader that dies is replaced within `ttl` and a hand-over. `on_elected` and `on_lost` are called with the
        lease.
        """
        chosen = LockOptions.checked(
            self._settings, ttl=ttl, timeout=None, keep=True, max_hold=options.FOREVER, reentrant=False,
            fair=True, lock_delay=0.0, at_least=0.0, note=note, on_lost=on_lost,
        )  # fmt: skip
        return Election(self, name, chosen, on_elected)

    def cell(self, name: str, ttl: float = 30 * 86400.0) -> Cell:
        """A small value, changed by whoever has seen its last version: `get`, `set` and `update`.

        It is forgotten when it was not set for `ttl` seconds. On a fleet it is kept by a majority of nodes, for as
        long as these keep their memory.
        """
        from .cell import Cell

        return Cell(self, name, ttl)

    def locked(
        self,
        name: str | Callable[..., str],
        ttl: float = 10.0,
        timeout: float | None = None,
        keep: bool = True,
        max_hold: float = 86400.0,
        reentrant: bool = False,
        fair: bool = False,
        lock_delay: float = 0.0,
        at_least: float = 0.0,
        note: str | None = None,
        on_lost: Callable[[Lease], object] | None = None,
        on_busy: str = "raise",
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: every call of the function runs under the lock of that name.

        `name` may be a template, filled from the call's arguments ("orders:{order_id}"), or a function that makes
        the name from them. A lock that is busy is waited for as `timeout` says, then LockHeld or AcquireTimeout
        is raised; with `on_busy="skip"` the call returns None instead, and does not wait unless there is a timeout.
        The other options are those of `lock`. A function that needs its lease is better written with a block of
        its own.
        """
        chosen = LockOptions.checked(
            self._settings, ttl=ttl, timeout=timeout, keep=keep, max_hold=max_hold, reentrant=reentrant,
            fair=fair, lock_delay=lock_delay, at_least=at_least, note=note, on_lost=on_lost,
        )  # fmt: skip
        naming_for = naming(name)
        skip = options.choice("on_busy", on_busy, ON_BUSY) == "skip"

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            plain_function("locked", function)
            named = naming_for(function)

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> T:
                lock = Lock(self, named(*args, **kwargs), chosen)
                if not skip:
                    with lock:
                        return function(*args, **kwargs)
                lease = lock._unless_busy()
                if lease is None:
                    return None  # type: ignore[return-value]
                with lease:
                    return function(*args, **kwargs)

            return call

        return decorate

    def inspect(self, name: str) -> Inspection:
        """Who holds a lock, who waits for it, and what each node thinks of it; raises NoQuorum."""
        from ..inspecting import inspection

        return inspection(name, self._run(looking.inspect(self._fleet, options.name(name))))

    def journal(self, after: str | None = None, limit: int = 1000) -> JournalPage:
        """What happened to locks, as nodes have written it down for clients with `connect(journal=…)`, old to new.

        `after`: the cursor of an earlier page; None: the newest. An event that several nodes have written down is
        told once. One node is enough to tell; raises NoQuorum where none does.
        """
        from ..journal import LIMIT_MOST, Cursor, page

        cursor = Cursor.parse(after, len(self._fleet.nodes))
        limit = options.whole("limit", limit, 1, LIMIT_MOST)
        tally = self._run(looking.history(self._fleet, cursor.starts(), limit))
        return page(tally, cursor, limit, self._settings.journal is not None)

    def report_refusal(self, resource: str, refusal: StaleFence) -> None:
        """Has nodes write down in the journal, if there is one, that a guard has refused a fence."""
        if self._settings.journal is not None:
            self._run(looking.report(self._fleet, *told_refusal(resource, refusal)))

    def survey(self, pattern: str = "*", limit: int = 1000) -> list[Inspection]:
        """What `inspect` tells, of all locks that are held now, in order of their names; at most `limit`.

        In a pattern * and ? stand for anything. Many locks are asked about at a time; raises NoQuorum.
        """
        from ..inspecting import inspections

        wanted = options.pattern(pattern), options.whole("limit", limit, 1, 100_000)
        return inspections(self._run(looking.survey(self._fleet, *wanted)))

    def list(self, pattern: str = "*", limit: int = 1000) -> list[str]:
        """The names of locks that are held now, in order; at most `limit`. In a pattern * and ? stand for anything.

        Servers are searched in small steps; where there are many millions of keys, that takes a while.
        """
        wanted = options.pattern(pattern), options.whole("limit", limit, 1, 100_000)
        return self._run(looking.names(self._fleet, *wanted))

    def nodes(self, samples: int = 3) -> tuple[NodeState, ...]:
        """How every node is doing: its state, version, latency and clock; `samples`: how often to ask for the time.

        Also of a fleet that grants nothing: a node that is down, or that cannot be of this fleet, is described, and
        nothing raised. Nothing is changed. Each node is visited over a new connection.
        """
        from ..runners.visits import MANY, states

        self._runner.refuse_closed()
        return states(self.engine, options.whole("samples", samples, 1, MANY))

    def break_(self, name: str, *, fence: int | None = None) -> None:
        """Forces a lock open on all nodes, whoever holds it, and raises its fence; raises NoQuorum.

        `fence`: only while it is the hold with that fence, as `inspect` tells it; if somebody has got the lock
        since, that is LockHeld, and the lock is left alone.
        """
        who = Lock._running_name()
        tally = self._run(self._breaking(name, fence, who))
        self._broken(name, tally, who)

    def init_fleet(self, force: bool = False) -> float:
        """Makes a new fleet ready at once; without it, new nodes grant nothing for one `max_ttl`.

        All nodes must answer and none may have been in use. `force` starts a fleet anew, with other terms
        or other nodes: every node then waits until locks of the old fleet are over. Returns how long that takes,
        in seconds; a new fleet is ready now: 0.
        """
        return self._run(fleet.initialise(self._fleet, options.flag("force", force)))

    def close(self) -> None:
        """Closes all connections. Leases that were not released end by their ttl.

        What happened before is delivered to subscribers before this returns, and `on_lost` has returned; those that
        take longer than 2 s are not waited for. Releases that nodes have not answered are sent to them once more.
        """
        self._keeper.stop()
        try:  # an interrupt must not leave it open
            self._keeper.settle_owed()
        finally:
            try:
                self._runner.close()
            finally:
                self._keeper.join()

    def __enter__(self) -> Locker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
