"""Who waits for a lock, in which order, and what each of them waits for.

A ticket is a key, in the order of its queue; it hangs on a lease that its client keeps alive while it waits, so
that one that is gone loses its place within seconds. Nobody polls: each waiter watches the one key that is in its
way, and asks again when that is deleted, whether by a release, by a break or by the end of its lease. That is the
ticket before its own; for the first in the queue, the lock itself. So whoever frees a lock wakes one, not all.

Tickets of those who would share a lock stand before one another without being in the way: they pass each other,
but not one who came before them and wants it alone; who wants it alone passes nobody. So neither starves the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...core.requests import Ticket
from . import words
from .keys import Keys, member_of, place_of
from .leases import Leases
from .talk import Steps
from .words import Compare, Kv, Op, Told

LAST = 10**19
"""Behind everybody."""
AT_ONCE = 20


class Spot(NamedTuple):
    """Where somebody stands: how many are before, and the ticket that is right before."""

    place: int
    before: bytes


class Watched(NamedTuple):
    """What is in the way of a ticket; it is told when any of these keys is deleted, from a revision on."""

    ticket: str
    key: bytes
    end: bytes
    revision: int


class Queue:
    """The tickets of one client."""

    def __init__(self, keys: Keys, leases: Leases) -> None:
        self._keys = keys
        self._leases = leases
        self._shown: dict[str, set[bytes]] = {}
        """Where our own tickets may be."""
        self.on_watch: Callable[[str, Watched], None] | None = None
        """Called with a locker's id, and what one of its tickets waits for."""

    def forget(self) -> None:
        self._shown = {}

    def _ranges(self, name: str, ticket: Ticket | None, shared: bool) -> list[tuple[bytes, bytes]]:
        """Where those stand who are in the way of this one."""
        order, member = (LAST, "") if ticket is None else (ticket.order_us, ticket.member)
        return [self._keys.before(name, order, member, kind) for kind in ((b"w",) if shared else (b"w", b"r"))]

    def first(self, name: str, ticket: Ticket | None, shared: bool) -> list[Compare]:
        """That nobody is before this one."""
        return [words.absent(*one) for one in self._ranges(name, ticket, shared)]

    def look(self, name: str, ticket: Ticket | None, shared: bool) -> list[Op]:
        """Finds out who is."""
        return [words.get(*one, limit=1, last=True, bare=True) for one in self._ranges(name, ticket, shared)]

    def spot(self, told: Told, index: int, shared: bool) -> Spot:
        """What that has found, in the answer to a transaction, from this index on."""
        looked = range(index, index + (1 if shared else 2))
        found = [kv.key for at in looked for kv in told.kvs(at)]
        return Spot(sum(told.count(at) for at in looked), max(found, key=place_of, default=b""))

    def show(self, name: str, ticket: Ticket | None, until: float) -> Steps[list[Op]]:
        """What puts a ticket into the queue, and takes it out of others; nothing, if it stands there."""
        if ticket is None:
            return []
        lease = yield from self._leases.for_tickets(until)
        key = self._keys.ticket(name, ticket.order_us, ticket.member)
        shown = self._shown.setdefault(ticket.member, set())
        elsewhere = _deleted(shown - {key})
        shown.add(key)
        return [words.within([words.leased(key, lease)], [], [words.put(key, b"", lease)]), *elsewhere]

    def leave(self, member: str) -> list[Op]:
        """What takes a ticket out of all queues."""
        return _deleted(self._shown.get(member, set())) if member else []

    def left(self, member: str) -> None:
        """That was done."""
        self._shown.pop(member, None)

    def watch(self, ticket: Ticket | None, key: bytes, end: bytes, revision: int) -> None:
        """From now on it is told of the end of what is in its way."""
        if ticket is not None and ticket.locker and self.on_watch is not None:
            self.on_watch(ticket.locker, Watched(ticket.id, key, end, revision + 1))

    def heads(self, name: str) -> list[Op]:
        """Finds the first of those who would have it alone, and of those who would share it."""
        start = self._keys.queue(name)[0]
        return [words.get(start + kind, words.after(start + kind), limit=1, bare=True) for kind in (b"w", b"r")]

    @staticmethod
    def elsewhere(found: list[Kv], locker: str) -> bool:
        """Is the first of these one who waits in another locker than this?"""
        first = min((kv.key for kv in found), key=place_of, default=b"")
        return bool(first) and (not locker or member_of(first).partition(":")[0] != locker)


def _deleted(keys: set[bytes]) -> list[Op]:
    """In portions: one transaction has no more than so many operations, but may have others within."""
    ordered = sorted(keys)
    portions = [ordered[start : start + AT_ONCE] for start in range(0, len(ordered), AT_ONCE)]
    return [words.within([], [words.delete(key) for key in some]) for some in portions]
