"""What etcd is asked for several locks: the slots of a semaphore, and locks that are set all or none.

All or none is one transaction. So nobody ever sees a half of it; and since whoever is refused holds nothing, sets
of names that overlap cannot deadlock, in whatever order they are given.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.requests import AcquireAll, AcquireAny, ConfirmAll, Release
from ...core.votes import GRANTED, REFUSED, Answer, Cause
from . import words
from .leases import TERMS, Deed, seconds_of
from .locks import AGREED, AT_ONCE, CHANGED, RESTLESS, Locks, read_about
from .talk import NOT_FOUND, Refusal, Steps
from .words import Kv, Op, Told

RACES = 50
"""How often another one may take the very slot that was free."""
WITHIN = 8
"""Locks in a transaction within that which sets up to a hundred: each takes three operations."""


class Family(Locks):
    """Several locks at once."""

    def acquire_any(self, request: AcquireAny, until: float) -> Steps[Answer]:
        """Looks for a free slot, and takes it if it still is.

        That it is our turn is checked again when it is taken; that no slot is free, by what is watched from the
        revision on in which none was.
        """
        token, ticket, strict = request.token, request.ticket, request.strict
        for _ in range(RACES):
            held, told = yield from self._slots(request, until)
            for choice, name in enumerate(request.names):
                if name in held and held[name].value == token.encode():
                    return Answer(GRANTED, Cause.AGREED, held[name].created, choice=choice)
            spot = self._queue.spot(told, 1, False)
            free = next((choice for choice, name in enumerate(request.names) if name not in held), None)
            if free is None or (strict and spot.place):
                show = yield from self._queue.show(request.line, ticket, until)
                if show:
                    yield from self._txn([], show, [], until)
                if spot.before:
                    self._queue.watch(ticket, spot.before, b"", told.revision)
                else:
                    self._queue.watch(ticket, *self._around(request.names), told.revision)
                fence = max((kv.created for kv in held.values()), default=told.revision)
                return Answer(REFUSED, Cause.HELD, fence, 1000 * seconds_of(request.ttl_ms), place=spot.place)
            fence = yield from self._take_slot(request, request.names[free], until)
            if fence:
                return Answer(GRANTED, Cause.AGREED, fence, choice=free)
        return Answer(REFUSED, Cause.HELD, 0, 1)

    def _around(self, names: Sequence[str]) -> tuple[bytes, bytes]:
        """A range in which the keys of all these locks are, and few others."""
        ranges = [self._keys.lock(name) for name in names]
        return min(start for start, _ in ranges), max(end for _, end in ranges)

    def _slots(self, request: AcquireAny, until: float) -> Steps[tuple[dict[str, Kv], Told]]:
        """Who has which; and who waits."""
        look = [words.get(*self._around(request.names)), *self._queue.look(request.line, request.ticket, False)]
        told = yield from self._txn([], look, [], until)
        return {self._keys.name_of(kv.key): kv for kv in told.kvs(0)}, told

    def _take_slot(self, request: AcquireAny, name: str, until: float) -> Steps[int]:
        """The fence; 0: it was somebody else's by then."""
        token, ticket = request.token, request.ticket
        for _ in range(TERMS):
            deed, term = yield from self._deed([name], token, request.ttl_ms, request.card, until)
            compare = [words.absent(*self._keys.lock(name))]
            if request.strict:
                compare += self._queue.first(request.line, ticket, False)
            gone = self._queue.leave(ticket.member) if ticket is not None else []
            then, look = [*self._taken(name, token, deed), *gone], [words.get(self._keys.hold(name))]
            try:
                told = yield from self._txn(compare, then, look, until, deed)
            except Refusal as refusal:
                if refusal.code != NOT_FOUND:
                    raise
                self._leases.doubt(token)
                continue
            hold = None if told.succeeded else told.first(0)
            if not told.succeeded and (hold is None or hold.value != token.encode()):
                yield from self._lay_down(token, until)
                return 0
            if ticket is not None:
                self._queue.left(ticket.member)
            if term in (0, told.term):
                return told.revision if hold is None else hold.created
        raise Refusal(0, RESTLESS)

    def acquire_all(self, request: AcquireAll, until: float) -> Steps[Answer]:
        """A refused one waits in the queue of the first that is busy, and in no other."""
        names, token, ticket = request.names, request.token, request.ticket
        mine: dict[str, Kv] = {}
        for _ in range(RACES):
            deed, term = yield from self._deed(list(names), token, request.ttl_ms, request.card, until)
            compare = [
                words.valued(self._keys.hold(name), token.encode()) if name in mine
                else words.absent(*self._keys.lock(name)) for name in names
            ]  # fmt: skip
            gone = self._queue.leave(ticket.member) if ticket is not None else []
            then = self._set_all([name for name in names if name not in mine], token, deed)
            look = [words.get(*self._keys.lock(name), limit=1) for name in names]
            try:
                told = yield from self._txn(compare, [*then, *gone], look, until, deed)
            except Refusal as refusal:
                if refusal.code != NOT_FOUND:
                    raise
                self._leases.doubt(token)
                continue
            if told.succeeded:
                if ticket is not None:
                    self._queue.left(ticket.member)
                if term not in (0, told.term):
                    continue
                fences = tuple(mine[name].created if name in mine else told.revision for name in names)
                return Answer(GRANTED, Cause.AGREED, max(fences), fences=fences)
            found = {name: kv for at, name in enumerate(names) if (kv := told.first(at)) is not None}
            mine = {name: kv for name, kv in found.items() if kv.value == token.encode()}
            busy = next((name for name in names if name in found and name not in mine), None)
            if busy is not None:
                yield from self._lay_down(token, until)
                return (yield from self._wait_for(busy, request, found[busy], until))
        raise Refusal(0, RESTLESS)

    def _set_all(self, names: Sequence[str], token: str, deed: Deed) -> list[Op]:
        """In portions: one transaction has no more than so many operations, but may have others within."""
        portions = [names[start : start + WITHIN] for start in range(0, len(names), WITHIN)]
        return [
            words.within([], [op for name in some for op in self._taken(name, token, deed)]) for some in portions
        ]

    def _wait_for(self, busy: str, request: AcquireAll, holder: Kv, until: float) -> Steps[Answer]:
        ticket = request.ticket
        show = yield from self._queue.show(busy, ticket, until)
        look = [words.get(*self._keys.lock(busy), limit=1), words.get(self._keys.card(busy))]
        told = yield from self._txn([], [*look, *self._queue.look(busy, ticket, False), *show], [], until)
        spot, found, card = self._queue.spot(told, 2, False), told.first(0), told.first(1)
        if spot.before:
            self._queue.watch(ticket, spot.before, b"", told.revision)
        else:
            # If it was freed meanwhile, that is told at once.
            self._queue.watch(ticket, (found or holder).key, b"", told.revision if found else holder.modified)
        wait_ms = 1000 if card is None else 1000 * seconds_of(read_about(card.value)[1])
        return Answer(REFUSED, Cause.HELD, (found or holder).created, wait_ms, place=spot.place)

    def confirm_all(self, request: ConfirmAll, until: float) -> Steps[Answer]:
        """One cluster always agrees with itself: there is nothing to raise."""
        told = yield from self._txn([], [words.get(self._keys.hold(name)) for name in request.names], [], until)
        for at, (granted, fence) in enumerate(zip(request.granted, request.fences, strict=True)):
            kv = told.first(at)
            if kv is None or kv.value != request.token.encode() or not fence <= granted == kv.created:
                return CHANGED
        return Answer(GRANTED, Cause.AGREED, max(request.granted), fences=request.granted)

    def release(self, request: Release, until: float) -> Steps[Answer]:
        if not request.names:
            return (yield from super().release(request, until))
        token = request.token
        known = [name for name in request.names if name in self._leases.deeds.get(token, {})]
        names = known or list(request.names)  # of slots few may have been asked for
        gone = self._queue.leave(request.ticket) if request.wake else []
        mine, others, first = False, None, True
        elsewhere: list[Kv] = []
        while names:
            some, names = names[:AT_ONCE], names[AT_ONCE:]
            heads = self._heads(request, some) if first or not request.line else []
            told = yield from self._release_some(some, request, [*heads, *(gone if first else [])], until)
            first = False
            for at in range(len(some)):
                one = told.within(at)
                mine = mine or one.succeeded
                if not one.succeeded and others is None and (one.first(0) or one.first(2)):
                    others = self._not_mine(one)
            for at in range(len(some), len(some) + len(heads), 2):
                found = [*told.kvs(at), *told.kvs(at + 1)]
                elsewhere += found if self._queue.elsewhere(found, request.locker) else []
        if gone:
            self._queue.left(request.ticket)
        yield from self._lay_down(token, until)
        if mine:
            return AGREED._replace(place=int(bool(elsewhere)))
        return others or Answer(REFUSED, Cause.ABSENT)

    def _heads(self, request: Release, names: Sequence[str]) -> list[Op]:
        """Who is next in their queues, if that is to be known."""
        if not request.wake:
            return []
        return [op for name in ([request.line] if request.line else names) for op in self._queue.heads(name)]

    def _release_some(self, names: Sequence[str], request: Release, further: list[Op], until: float) -> Steps[Told]:
        keys, ends = self._keys, []
        for name in names:
            hold, card = keys.hold(name), keys.card(name)
            then = [words.delete(hold), words.delete(card)]
            if request.stay_ms:
                then = yield from self._shut(name, request.stay_ms, until)
            look = [words.get(hold), words.get(card), words.get(*keys.readers(name), limit=1)]
            ends.append(words.within([words.valued(hold, request.token.encode())], then, look))
        return (yield from self._txn([], [*ends, *further], [], until))
