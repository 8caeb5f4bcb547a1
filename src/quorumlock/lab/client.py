"""A client in simulated time: the third front beside threads and asyncio, over the same locks, leases and keeper.

Everything that both fronts share is the production code: `front.LockBase`, `leasing.LeaseBase`, `keeping.Hold`, and
the core below. What remains is to say how a procedure is run, which here is: by `yield from`.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..core import family
from ..core.effects import Steps
from ..core.keeper import NEVER, Roster, tend
from ..core.redlock import ALONE, Kind
from ..core.renewal import Extension
from ..errors import LeaseLost, LossReason
from ..front import LockBase, LockerBase, downgraded
from ..keeping import Hold, KeeperBase
from ..leasing import LeaseBase
from ..options import LockOptions, Settings
from ..retry import DEFAULT_RETRY
from ..runners.virtual import VirtualRunner


class Audience(Protocol):
    """Who is told what becomes of leases."""

    def renewed(self, lease: SimLease) -> None: ...
    def lost(self, lease: SimLease, reason: LossReason) -> None: ...
    def failed(self, error: BaseException) -> None:
        """A keeper met something unexpected, and goes on."""


class Flag:
    """An event that nobody waits for."""

    def __init__(self) -> None:
        self.up = False

    def set(self) -> None:
        self.up = True


class SimLease(LeaseBase[Flag]):
    """The only proof of holding a lock."""

    _locker: SimLocker
    _new_event = Flag
    held_by = ""
    """Which worker has it."""

    def extend(self, ttl: float | None = None) -> Steps[None]:
        try:
            extension = yield from self._extending(ttl)
        except LeaseLost as lost:
            self._lose(lost.reason, raised=True)
            raise
        finally:
            self._reschedule()
        self._extended(extension)

    def release(self) -> Steps[None]:
        if self._close():
            try:
                tally = yield from self._releasing()
            except BaseException:
                self._given_up()
                raise
            self._released(tally)

    def _extended(self, extension: Extension) -> None:
        super()._extended(extension)
        self._locker.audience.renewed(self)

    def _announce(self, reason: LossReason, raised: bool) -> None:
        super()._announce(reason, raised)
        self._locker.audience.lost(self, reason)


class SimLock(LockBase):
    """Names a resource."""

    _locker: SimLocker

    def acquire(self, who: str) -> Steps[SimLease]:
        grant = yield from self._acquiring(self._options.timeout)
        lease = SimLease(self._locker, grant, self._options)
        lease.held_by = who
        return lease

    def downgrade(self, lease: SimLease) -> Steps[SimLease]:
        """Shares what the lease had alone."""
        lease._step_down()
        grant = yield from family.downgrade(self._locker._fleet, lease._grant)
        shared = downgraded(lease, grant, lambda made: SimLease(self._locker, made, self._options))
        shared.held_by = lease.held_by
        return shared

    @staticmethod
    def _running_name() -> str:
        return "worker"

    def _running(self) -> object:  # type: ignore[override]
        return self  # nobody here waits for itself


class SimKeeper(KeeperBase):
    """Renews the leases of one client: a timer, and a procedure while any of them is due."""

    closing = False

    def __init__(self, runner: VirtualRunner, audience: Audience) -> None:
        super().__init__(runner.fleet)
        self._audience = audience
        self.roster = Roster(runner.fleet.clock, runner.fleet.random)
        self._runner = runner
        self._timer: Any = None
        self._tending = False

    def watch(self, hold: Hold) -> None:
        hold.desk = self
        if self.roster.add(hold):
            self._set_timer()

    def forget(self) -> None:
        """There is no thread that a forked child would have to do without."""

    def charges(self) -> list[Hold]:
        return self.roster.charges()  # type: ignore[return-value]

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.roster.wake_at != NEVER and not self._tending:
            left = self.roster.wake_at - self._fleet.clock()
            self._timer = self._runner.call_later(max(0.0, left), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._fleet.clock() < self.roster.wake_at:
            self._set_timer()
            return
        self._tending = True
        self.roster.rise()
        self._runner.spawn(self._tend())

    def _tend(self) -> Steps[None]:
        try:
            yield from tend(self._fleet, self.roster)
        except Exception as error:
            self._audience.failed(error)
        finally:
            self._tending = False
            self.roster.settle()
            self._set_timer()


class SimLocker(LockerBase):
    """A client of a simulated fleet."""

    _keeper: SimKeeper
    _runner: VirtualRunner

    def __init__(self, runner: VirtualRunner, settings: Settings, audience: Audience) -> None:
        super().__init__(runner.board.engine, settings)
        self._fleet = runner.fleet  # its clocks, its randomness and its tokens are the world's
        self._runner = runner
        self._keeper = SimKeeper(runner, audience)
        self.audience = audience

    def lock(
        self,
        name: str,
        *,
        ttl: float,
        timeout: float | None,
        keep: bool = True,
        fair: bool = False,
        kind: Kind = ALONE,
    ) -> SimLock:
        options = LockOptions.checked(
            self._settings, ttl=ttl, timeout=timeout, keep=keep, max_hold=86400.0, reentrant=False, fair=fair,
            lock_delay=0.0, at_least=0.0, note=None, on_lost=None,
        )  # fmt: skip
        return SimLock(self, name, options, kind)


def settings(*, max_ttl: float, quarantine: bool, fence_ttl: float, patience: float) -> Settings:
    """What `connect` would have been told."""
    return Settings(
        prefix="", node_timeout=0.05, drift=0.01, max_ttl=max_ttl, quarantine=quarantine, durable=False,
        fence_ttl=fence_ttl, identify=True, retry=DEFAULT_RETRY, patience=patience, group=None, fleet=None,
    )  # fmt: skip
