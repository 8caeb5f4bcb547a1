"""What the keepers of both fronts share: a lease in their care, and what they do besides renewing it."""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from .core.keeper import DUE_FIRST, Roster
from .core.redlock import Grant
from .core.votes import Tally
from .errors import LockError, LossReason
from .events import logger
from .process import Process

if TYPE_CHECKING:
    from .core.fleet import Fleet
    from .core.owed import Debt
    from .core.renewal import Extension
    from .leasing import LeaseBase

    LeaseRef = weakref.ref[LeaseBase[Any]]
else:
    LeaseRef = weakref.ref

NOT_KEPT = float("-inf")
TOLD_WITHIN = 2.0
"""For how many seconds close() waits for subscribers, and for `on_lost`, to take what happened before it."""


class Desk(Protocol):
    """Where a keeper works: it has one, or one for each event loop."""

    roster: Roster
    closing: bool
    """Nothing is renewed any more; the end of what is held is still announced."""

    def watch(self, hold: Hold) -> None:
        """Takes a lease into care, or is told that it is due earlier than was thought."""


class Hold(LeaseRef):
    """A lease in its keeper's care, which does not keep it alive: what nobody can release is not renewed."""

    __slots__ = ("desk", "due_at", "grant", "keep_until")

    desk: Desk
    grant: Grant
    due_at: float
    keep_until: float
    """Until when it is renewed."""

    def renewable(self, now: float) -> bool:
        lease = self()
        if lease is None or lease._closed or self.desk.closing:
            return False
        if now >= self.keep_until:
            if self.keep_until != NOT_KEPT:
                lease._fate = LossReason.MAX_HOLD
            return False
        if lease._owner_gone is not None and lease._owner_gone():
            lease._fate = LossReason.OWNER_GONE
            return False
        return True

    def doubt(self) -> None:
        lease = self()
        if lease is not None:
            lease._fate = LossReason.UNREACHABLE

    def failed(self, tally: Tally | None, error: Exception | None = None) -> None:
        lease = self()
        if lease is not None:
            lease._not_renewed(tally, error)

    def expire(self) -> None:
        lease = self()
        if lease is not None:
            lease._lose(lease._fate)

    def schedule(self) -> bool:
        """Sets when it is due; True if that is earlier than it was."""
        grant = self.grant
        due_at = grant.valid_until
        if self.keep_until != NOT_KEPT:
            due_at -= grant.ttl * DUE_FIRST
        earlier = due_at < self.due_at
        if earlier:
            self.due_at = due_at
        return earlier

    def renewed(self, extension: Extension) -> None:
        lease = self()
        if lease is not None:
            lease._fate = LossReason.EXPIRED
            if not extension.outdated:
                lease._extended(extension)

    def lost(self, reason: LossReason) -> None:
        lease = self()
        if lease is not None:
            lease._lose(reason)

    def drop(self) -> None:
        """The lease is over."""
        self.grant.over = True
        self.desk.roster.drop(self)


def collected(hold: Hold) -> None:
    """The lease object is garbage. Nothing is sent from here: the lock ends by its ttl."""
    grant = hold.grant
    if not grant.over:
        hold.drop()
        if hold.keep_until != NOT_KEPT:
            warnings.warn(
                f"the lease of {grant.name!r} (fence {grant.fence}) was dropped without a release: it is not "
                f"renewed any more, and ends by its ttl",
                ResourceWarning,
                stacklevel=2,
            )


class KeeperBase:
    """Renews the leases of one Locker, and announces their loss."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        Process.keepers.add(self)
        known = weakref.ref(self)

        def owe(debt: Debt) -> None:
            if (keeper := known()) is not None:
                keeper.owe(debt)

        fleet.owe = owe

    def owe(self, debt: Debt) -> None:
        """Remembers a release that not every node has answered, and sends it again when it is due."""

    def watch(self, hold: Hold) -> None:
        """Takes a new lease into care."""
        raise NotImplementedError

    def wake(self) -> None:
        """Looks at the clock, which may have jumped."""
        raise NotImplementedError

    def charges(self) -> list[Hold]:
        """All leases in its care."""
        raise NotImplementedError

    def forget(self) -> None:
        """In a forked child: these leases, and whoever renews them, are the parent's."""
        raise NotImplementedError

    def lose(self, name: str) -> None:
        """Loses the leases of that name, as if a majority of nodes had said so."""
        for hold in self.charges():
            if hold.grant.name == name:
                hold.lost(LossReason.BROKEN)

    def _complain(self, error: BaseException) -> None:
        """A round of renewal has failed. Its leases are due again soon; they end in time if it goes on."""
        try:
            if isinstance(error, LockError):
                logger.warning("renewing leases failed, and will be tried again: %s", error)
            else:
                logger.error("renewing leases failed, and will be tried again", exc_info=error)
        except Exception:
            pass  # a log that cannot be written is no reason to lose a lease

    @staticmethod
    def _complain_of_release(error: Exception) -> None:
        """Releases could not be sent again. That is tried once more, until their locks end by their ttl."""
        logger.debug("sending releases again failed: %s", error, exc_info=not isinstance(error, LockError))
