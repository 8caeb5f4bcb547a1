"""Keeping leases alive: who is due, and what became of it.

Every lease is in its keeper's care from its acquisition until it is released, lost or garbage; one that is not to
be renewed only has its end announced. The keeper itself (a thread, or a timer and a task) is in the fronts: it
sleeps until `Roster.wake_at`, which an `add` may bring forward, and then runs `tend`.

Rules:

1. A lease is due a third of its `ttl` after it was last renewed, or somewhat earlier: leases that were taken
   together are not renewed together.
2. What cannot be told is asked again, while validity lasts. Only time, or a majority of nodes, makes a lease lost.
3. Whatever goes wrong in a round, the leases of that round are due again soon: none is forgotten.
4. Leases are renewed in chunks, with a pause behind each: others use the same nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

from ..errors import LossReason
from .effects import Sleep, Steps
from .fleet import Fleet
from .redlock import Grant, release_grant
from .renewal import Extension, pause_before, renew
from .votes import Tally

CHUNK = 50
"""Leases in one message. A server is busy with so many for about as long as with ten acquires."""
CHUNK_WHEN_LATE = 500
HASTY = 1.0
"""A ttl below that is a short one."""
PAUSE_MOST = 0.005
NEVER = float("inf")
DUE_FIRST = 5 / 6
"""How much of its ttl a lease may have left when it is first renewed. (Two thirds are the rule.)"""
AHEAD = 0.05
"""Leases due within so many seconds are renewed with those that are due now."""


class Charge(Protocol):
    """A lease, as its keeper sees it."""

    grant: Grant
    due_at: float
    """When to look at it; at first, when to look at it at the earliest."""

    def renewable(self, now: float) -> bool:
        """Is it to be renewed (still)?"""

    def renewed(self, extension: Extension) -> None:
        """A majority has said yes."""

    def doubt(self) -> None:
        """Nobody could tell; it is asked again."""

    def failed(self, tally: Tally | None, error: Exception | None = None) -> None:
        """For onlookers, when that has been taken care of: by which votes nobody could tell, or what was raised."""

    def expire(self) -> None:
        """Its time has run out; it knows why."""

    def lost(self, reason: LossReason) -> None:
        """A majority has said no."""


class Roster:
    """The leases in one keeper's care, by when they are due.

    `add` and `drop` may be called by any thread, everything else by the keeper alone.
    """

    def __init__(self, clock: Callable[[], float], random: Callable[[], float]) -> None:
        self.wake_at = NEVER
        """Until when the keeper sleeps. It stays what it was when a lease that set it is over: so a program that
        takes and releases locks all day wakes its keeper three times a ttl, not for every one of them."""
        self._clock = clock
        self._random = random
        self._fresh: dict[int, Charge] = {}
        """Not yet in the heap: most leases are released before they are due, and never get there.
        By identity: those of one token may be several."""
        self._hasty: list[tuple[float, int, Charge]] = []
        """Those of a short ttl are looked at first: they cannot wait behind thousands of others."""
        self._heap: list[tuple[float, int, Charge]] = []
        self._taken: list[Charge] = []
        """Those that are being looked at."""
        self._count = 0

    def add(self, charge: Charge) -> bool:
        """Takes a new lease into care; True if the keeper has to be told that it sleeps too long."""
        self._fresh[id(charge)] = charge
        if charge.due_at >= self.wake_at:
            return False
        self.wake_at = charge.due_at
        return True

    def drop(self, charge: Charge) -> None:
        """The lease is over; what is in the heap is left there until it is due."""
        self._fresh.pop(id(charge), None)

    def charges(self) -> list[Charge]:
        """All leases that are not over."""
        known = [*self._fresh.values(), *self._taken, *(charge for _, _, charge in self._hasty + self._heap)]
        return [charge for charge in known if not charge.grant.over]

    def forget(self) -> None:
        """In a forked child: these leases are the parent's."""
        for charge in self.charges():
            charge.grant.over = True
        self._fresh.clear()
        self._hasty.clear()
        self._heap.clear()

    def rise(self) -> None:
        """The keeper is awake: nobody need tell it anything."""
        self.wake_at = -NEVER

    def settle(self) -> None:
        """The keeper is going to sleep until the first lease is due."""
        self._sort_in()
        self.wake_at = NEVER
        self.hurry()  # who came after the sorting saw that we were awake, and did not tell

    def hurry(self) -> None:
        """Somebody told the keeper: two who do so at a time may have set the later of two times."""
        fresh = (charge.due_at for charge in list(self._fresh.values()))
        self.wake_at = min(self.wake_at, self._first_at(), *fresh)

    def behind(self, now: float) -> bool:
        """Is more due already?"""
        return self._first_at() <= now

    def _first_at(self) -> float:
        return min(heap[0][0] if heap else NEVER for heap in (self._hasty, self._heap))

    def take(self, now: float) -> list[Charge]:
        """Up to a chunk of leases that are due, or nearly so; not of both heaps, since a round takes as long as the
        shortest ttl in it allows."""
        self._sort_in()
        self._taken = []
        for heap in (self._hasty, self._heap):
            most = CHUNK
            while heap and len(self._taken) < most and heap[0][0] <= now:
                if now - heap[0][0] > heap[0][2].grant.ttl / 10:
                    most = CHUNK_WHEN_LATE
                self._take(heap)
            while heap and self._taken and len(self._taken) < CHUNK and heap[0][0] <= now + _ahead(heap[0][2]):
                self._take(heap)
            if self._taken:
                break
        return list(self._taken)

    def _take(self, heap: list[tuple[float, int, Charge]]) -> None:
        due_at, _, charge = heapq.heappop(heap)
        if not charge.grant.over and due_at == charge.due_at:  # else it is over, or was put elsewhere since
            self._taken.append(charge)

    def put(self, charge: Charge, due_at: float) -> None:
        """Looks at it again when it is due; not before, whatever was said earlier."""
        self._count += 1
        charge.due_at = due_at
        heapq.heappush(self._hasty if charge.grant.ttl < HASTY else self._heap, (due_at, self._count, charge))

    def put_next(self, charge: Charge) -> None:
        """Looks at it again a third of its ttl after it was renewed."""
        grant = charge.grant
        due_at = grant.valid_until - grant.ttl * (2 / 3 + self._random() / 15)
        self.put(charge, max(due_at, self._clock() + grant.ttl / 20))

    def _sort_in(self) -> None:
        for _ in range(len(self._fresh)):
            try:
                _, charge = self._fresh.popitem()
            except KeyError:  # dropped meanwhile, by another thread
                return
            grant = charge.grant
            if not grant.over:
                slack = grant.valid_until - grant.ttl * 2 / 3 - charge.due_at
                self.put(charge, charge.due_at + max(0.0, slack) * self._random())


def _ahead(charge: Charge) -> float:
    return min(AHEAD, charge.grant.ttl / 20)


def tend(fleet: Fleet, roster: Roster) -> Steps[None]:
    """Renews what is due, chunk by chunk; announces what is over."""
    while chunk := roster.take(started_at := fleet.clock()):
        due: list[Charge] = []
        try:
            while chunk:
                charge = chunk.pop()
                grant = charge.grant
                if started_at >= grant.valid_until:
                    charge.expire()
                elif not charge.renewable(started_at):
                    roster.put(charge, grant.valid_until)
                elif grant.extending:
                    roster.put(charge, min(started_at + fleet.node_timeout, grant.valid_until))
                else:
                    due.append(charge)
            if due:
                yield from _renew(fleet, roster, due)
        except BaseException as error:
            again = [charge for charge in chunk + due if not charge.grant.over]
            for charge in again:
                _later(fleet, roster, charge)
            if isinstance(error, Exception):
                for charge in due:
                    charge.failed(None, error)
            raise
        now = fleet.clock()
        if roster.behind(now):
            yield Sleep(min(PAUSE_MOST, now - started_at))


def _renew(fleet: Fleet, roster: Roster, charges: list[Charge]) -> Steps[None]:
    extensions = yield from renew(fleet, [charge.grant for charge in charges])
    freed = []
    while charges:  # what is still in the list when something goes wrong is due again
        charge, extension = charges[-1], extensions[len(charges) - 1]
        grant = charge.grant
        if extension.valid_until is not None:
            roster.put_next(charge)
            charges.pop()
            charge.renewed(extension)
        elif extension.reason is None:
            _later(fleet, roster, charge)
            charges.pop()
            charge.failed(extension.tally)
        else:
            charges.pop()
            if not grant.over and any(extension.tally.granted()):
                freed.append(grant)
            if extension.reason is LossReason.EXPIRED:
                charge.expire()
            else:
                charge.lost(extension.reason)
    for grant in freed:
        # Some node has just renewed what is lost: better to free it than to let it run for a ttl.
        yield from release_grant(fleet, grant)


def _later(fleet: Fleet, roster: Roster, charge: Charge) -> None:
    """Nobody could tell: asks again soon, and in time to announce the end."""
    now = fleet.clock()
    left = max(0.0, charge.grant.valid_until - now)
    charge.doubt()
    usual = max(fleet.node_timeout, charge.grant.ttl / 50)
    roster.put(charge, now + min(left, pause_before(fleet, usual, left)))
