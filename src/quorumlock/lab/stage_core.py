"""Clients of a story that run the production code: locks, leases and keeper over the core (`client.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.effects import Steps
from ..core.redlock import ALONE
from ..errors import LeaseError, LossReason
from ..events import Event, Healed
from ..options import LockOptions
from .client import SimLease, SimLock, SimLocker, settings
from .stage_players import NAME, Neighbour, Player, nodes
from .stage_record import Asking, Holding

if TYPE_CHECKING:
    from .stage import Stage

PATIENCE = 5.0


class CorePlayer(Player):
    """A client of quorumlock, or of quorumlock with a protection switched off."""

    lease: SimLease | None = None
    renewals = 0

    def __init__(self, stage: Stage, client: Neighbour, name: str) -> None:
        super().__init__(stage, client, name)
        if stage.design.wall:
            client.fleet.clock = client.wall
        max_ttl = stage.cast.max_ttl or stage.cast.ttl
        told = settings(
            max_ttl=max_ttl,
            quarantine=stage.design.quarantine is not False,
            fence_ttl=max(86400.0, 4 * max_ttl),
            patience=PATIENCE,
        )
        self.locker = SimLocker(client, told, self)
        self.locker.subscribe(self._heard)

    def obtain(self, asking: Asking, patience: float) -> Steps[None]:
        cast, design = self.stage.cast, self.stage.design
        chosen = LockOptions.checked(
            self.locker._settings, ttl=cast.ttl, timeout=patience, keep=cast.keep,
            max_hold=design.max_hold or cast.max_hold, reentrant=False, fair=False, lock_delay=0.0, at_least=0.0,
            note=None, on_lost=None,
        )  # fmt: skip
        lease = yield from SimLock(self.locker, NAME, chosen, ALONE).acquire(self.name)
        if design.owner_bound:
            lease._owner_gone = lambda: self.worker_died
        self.lease, self.renewals = lease, 0
        yes, of = sum(1 for _ in lease.tally.granted()), len(self.client.nodes)
        said = f"{yes} of {of} nodes say yes, " if of > 1 else ""
        holding = Holding(self.name, lease.fence, self.now, lambda: lease.held)
        self.got(asking, holding, f"{said}fence #{lease.fence}, for {lease.remaining():.1f} s")

    def checks(self, holding: Holding) -> None:
        assert self.lease is not None
        try:
            self.lease.check()
        except LeaseError:  # a loss is told by `lost`, once
            return
        self.tell("checks its lease: it is valid")

    def releases(self, holding: Holding) -> Steps[None]:
        lease = self.lease
        assert lease is not None
        held = lease.held
        if held:
            holding.ended_at = self.now
            self.tell("gives the lock back")
        yield from lease.release()
        if not held and not holding.told:
            self.lose(holding, "expired", "gives back what is not its own any more; nothing is deleted: ")

    def leave(self) -> None:
        if self.lease is not None:
            self.lease._drop()

    # What its keeper says.

    def renewed(self, lease: SimLease) -> None:
        self.renewals += 1
        self.stage.record.count("renewals", self.name)
        self.flag("", "renewed")
        if self.renewals == 1:
            self.tell(f"its keeper renews the lease, as it does every {lease.ttl / 3:.1f} s")

    def lost(self, lease: SimLease, reason: LossReason) -> None:
        if self.holding is not None and self.lease is lease:
            self.lose(self.holding, reason.value)

    def failed(self, error: BaseException) -> None:
        raise error

    def _heard(self, event: Event) -> None:
        if isinstance(event, Healed):
            self.stage.record.count("healed", self.name, len(event.nodes))
            healed = [int(label.rpartition("-")[2]) + 1 for label in event.nodes]
            self.tell(f"its keeper gives the lock again to {nodes(healed)}", "good")
