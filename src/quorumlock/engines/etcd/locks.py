"""What etcd is asked for one lock: one transaction for each request, behind the renewal of a lease.

A lock is free if no key begins with its name (`keys.py`). Whoever wants it alone makes one, in a transaction that
depends on that, under a lease that was renewed a moment ago: never by waiting for its turn and then taking it as
granted. (That is how locks on etcd have failed: the lease of whoever waited ended before its turn came.) The
revision in which the key came to be is the fence: etcd counts all changes of the whole store, and never goes back.
"""

from __future__ import annotations

import time

from ...core.requests import READER, Acquire, Confirm, Downgrade, Extend, Heal, Kept, Leave, Look, Release
from ...core.votes import GRANTED, REFUSED, Answer, Cause, of_each
from . import words
from .keys import Keys
from .leases import TERMS, Deed, Leases, seconds_of
from .queue import Queue
from .talk import NOT_FOUND, Question, Refusal, Steps, Talk
from .words import Compare, Op, Told

CLOSED = "ql:closed"
"""The token of a lock that stays closed after its release: nobody's."""
START = 8
"""Characters of a token."""
AT_ONCE = 30
"""Locks in one transaction: etcd allows 128 operations, unless it was told otherwise."""

RESTLESS = "its leader changes all the time"

AGREED = Answer(GRANTED, Cause.AGREED)
ABSENT = Answer(REFUSED, Cause.ABSENT)
CHANGED = Answer(REFUSED, Cause.CHANGED)


def about(token: str, ttl_ms: int, since_us: int, begins: int, card: str) -> bytes:
    """What is kept beside a token, for whoever asks."""
    return f"{token[:START]} {ttl_ms} {since_us} {begins} {card}".encode()


def read_about(value: bytes) -> tuple[str, int, int, int, str]:
    """The start of a token, its ttl, since when, the length of a prefix, and a card."""
    start, ttl_ms, since_us, begins, card = [*value.decode(errors="replace").split(" ", 4), "", "", "", "", ""][:5]
    return start, *(int(one) if one.isdigit() else 0 for one in (ttl_ms, since_us, begins)), card  # type: ignore[return-value]


class Locks:
    """The locks of a cluster, as one client sees them."""

    def __init__(self, keys: Keys, talk: Talk, leases: Leases, queue: Queue) -> None:
        self._keys = keys
        self._talk = talk
        self._leases = leases
        self._queue = queue

    def _txn(
        self, compare: list[Compare], then: list[Op], otherwise: list[Op], until: float, deed: Deed | None = None
    ) -> Steps[Told]:
        """A transaction. One that may be executed late leaves its mark on the lease that it names."""
        question = Question("/v3/kv/txn", words.txn(compare, then, otherwise))
        if deed is not None:
            deed.clean = False  # also if we are interrupted
        told = yield from self._talk.ask(question, until)
        if deed is not None:
            deed.clean = not question.doubtful
        return Told(told)

    def _deed(self, names: list[str], token: str, ttl_ms: int, card: str, until: float) -> Steps[tuple[Deed, int]]:
        """A lease for locks that are not ours yet, and the term of its renewal; known before it is used."""
        seconds = seconds_of(ttl_ms)
        known = self._leases.deeds.get(token, {}).get(names[0])
        if known is not None and known.seconds == seconds:
            alive, term = yield from self._leases.renew([known.id], until)
            if known.id in alive:
                return known, term
        id_, term = yield from self._leases.obtain(seconds, until)
        deed = Deed(id_, seconds, ttl_ms, time.time_ns() // 1000, card)
        self._leases.enter(token, names, deed)
        return deed, term

    def _lay_down(self, token: str, until: float) -> Steps[None]:
        """The token has no lock any more: its leases are for others, or revoked if they may be used in vain."""
        for deed in set(self._leases.deeds.pop(token, {}).values()):
            if deed.clean:
                self._leases.keep_idle(deed)
            else:
                yield from self._leases.revoke(deed.id, until)

    def _taken(self, name: str, token: str, deed: Deed) -> list[Op]:
        """What gives a lock to one alone.

        Those who share it later have the fence of the last who could know of them; others make them begin anew.
        """
        card = about(token, deed.ttl_ms, deed.since_us, self._keys.begins, deed.card)
        return [
            words.put(self._keys.hold(name), token.encode(), deed.id),
            words.put(self._keys.card(name), card, deed.id),
            words.delete(self._keys.last(name)),
        ]

    def acquire(self, request: Acquire, until: float) -> Steps[Answer]:
        token, name = request.token, request.name
        for _ in range(TERMS):
            deed, term = yield from self._deed([name], token, request.ttl_ms, request.card, until)
            try:
                told = yield from self._ask_for(request, deed, until)
            except Refusal as refusal:
                if refusal.code != NOT_FOUND:
                    raise
                self._leases.doubt(token)
                continue
            answer = self._granted(request, told)
            if answer is None:
                answer = self._refused(request, told)
                yield from self._lay_down(token, until)
            elif term not in (0, told.term):
                continue  # renewed by a leader that may have been none: once more, and it is found to be ours
            return answer
        raise Refusal(0, RESTLESS)

    def _ask_for(self, request: Acquire, deed: Deed, until: float) -> Steps[Told]:
        """Takes it if it is free, and if it is our turn; else shows the ticket, and looks who has it."""
        keys, name, ticket, shared = self._keys, request.name, request.ticket, request.shared
        compare = [words.absent(keys.hold(name)) if shared else words.absent(*keys.lock(name))]
        if shared:
            compare.append(words.absent(keys.reader(name, request.token)))
        if request.strict:
            compare += self._queue.first(name, ticket, shared)
        show = yield from self._queue.show(name, ticket, until)
        gone = self._queue.leave(ticket.member) if ticket is not None else []
        if shared or request.card.startswith("write "):
            memory = yield from self._leases.for_memory(until)
            last = words.put(keys.last(name), b"", memory)
        if shared:
            value = about(request.token, request.ttl_ms, deed.since_us, keys.begins, request.card)
            then = [
                words.within([words.absent(keys.last(name))], [last]),
                words.get(keys.last(name)),
                words.put(keys.reader(name, request.token), value, deed.id),
            ]
        else:
            then = self._taken(name, request.token, deed)
            if request.card.startswith("write "):
                then[-1] = last
        look = [words.get(keys.hold(name)), words.get(keys.card(name)), words.get(keys.last(name))]
        look.append(words.get(*keys.readers(name), limit=1, last=True))
        look.append(words.get(keys.reader(name, request.token)))
        look += self._queue.look(name, ticket, shared)
        told = yield from self._txn(compare, [*then, *gone], [*look, *show], until, deed)
        if told.succeeded and ticket is not None:
            self._queue.left(ticket.member)
        return told

    def _granted(self, request: Acquire, told: Told) -> Answer | None:
        if told.succeeded:
            fence = told.kvs(1)[0].modified if request.shared else told.revision
            return Answer(GRANTED, Cause.AGREED, fence)
        hold, last, mine = told.first(0), told.first(2), told.first(4)
        if request.shared and mine is not None:
            return Answer(GRANTED, Cause.AGREED, told.revision if last is None else last.modified)
        if hold is not None and hold.value == request.token.encode():
            return Answer(GRANTED, Cause.AGREED, hold.created)
        return None

    def _refused(self, request: Acquire, told: Told) -> Answer:
        """Who has it, or whose turn it is; and what to wait for."""
        hold, card, last, reader = told.first(0), told.first(1), told.first(2), told.first(3)
        spot = self._queue.spot(told, 5, request.shared)
        if spot.before:
            self._queue.watch(request.ticket, spot.before, b"", told.revision)
        elif hold is not None:
            self._queue.watch(request.ticket, hold.key, b"", told.revision)
        elif reader is not None:
            self._queue.watch(request.ticket, reader.key, b"", told.revision)
        fence = hold.created if hold is not None else told.revision if last is None else last.modified
        wait_ms = 1000
        if hold is not None or (reader is not None and not request.shared):
            source = card if hold is not None else reader
            wait_ms = 1000 if source is None else 1000 * seconds_of(read_about(source.value)[1])
        return Answer(REFUSED, Cause.HELD, fence, wait_ms, place=spot.place)

    def confirm(self, request: Confirm, until: float) -> Steps[Answer]:
        """One cluster always agrees with itself: there is nothing to raise."""
        hold = self._keys.hold(request.name)
        mine = [words.valued(hold, request.token.encode()), words.created(hold, request.granted)]
        told = yield from self._txn(mine, [], [], until)
        if not told.succeeded or request.fence > request.granted:
            return CHANGED
        return Answer(GRANTED, Cause.AGREED, request.granted)

    # Renewal.

    def extend(self, request: Extend, until: float) -> Steps[Answer]:
        causes: dict[int, Cause] = {}
        todo = list(enumerate(request.leases))
        while todo:
            some, todo = todo[:AT_ONCE], todo[AT_ONCE:]
            causes.update((yield from self._extend_some(some, until)))
        return of_each([causes[index] for index in range(len(request.leases))])

    def heal(self, request: Heal, until: float) -> Steps[Answer]:
        """Here nothing is forgotten: what is absent was released, broken or is over, and stays so."""
        return (yield from self.extend(Extend(request.leases), until))

    def _extend_some(self, todo: list[tuple[int, Kept]], until: float) -> Steps[dict[int, Cause]]:
        """Renews their leases, all at once, and then makes sure, all at once, that the locks still hang on them."""
        causes: dict[int, Cause] = {}
        for _ in range(TERMS):
            deeds: dict[int, Deed] = {}
            for index, kept in todo:
                deed = self._leases.deeds.get(kept.token, {}).get(kept.name)
                if deed is None:
                    causes[index] = yield from self._not_renewed(kept, until)
                else:
                    deeds[index] = deed
            if not deeds:
                return causes
            alive, term = yield from self._leases.renew(dict.fromkeys(deed.id for deed in deeds.values()), until)
            moved = {}
            for index, kept in todo:
                if index in deeds and kept.ttl_ms > deeds[index].ttl_ms and deeds[index].id in alive:
                    moved[index] = yield from self._longer(deeds[index], kept, until)
            known = [(index, kept) for index, kept in todo if index in deeds]
            checks = [self._check(kept, deeds[index], moved.get(index)) for index, kept in known]
            if len(checks) == 1:  # etcd answers that without writing anything
                told = yield from self._txn(*checks[0], until)
            else:
                told = yield from self._txn([], [words.within(*check) for check in checks], [], until)
            if told.term != term:
                continue
            for at, (index, kept) in enumerate(known):
                one = told if len(checks) == 1 else told.within(at)
                if one.succeeded:
                    causes[index] = Cause.AGREED
                    self._leases.enter(kept.token, [kept.name], moved.get(index, deeds[index]))
                else:
                    causes[index] = Cause.HELD if any(map(one.count, range(len(one)))) else Cause.ABSENT
            return causes
        raise Refusal(0, RESTLESS)

    def _longer(self, deed: Deed, kept: Kept, until: float) -> Steps[Deed]:
        """For a longer ttl: a lease of that length, if the one that it hangs on is too short."""
        seconds, id_ = seconds_of(kept.ttl_ms), deed.id
        if seconds > deed.seconds:
            id_ = yield from self._leases.grant(seconds, until)
        longer = Deed(id_, max(seconds, deed.seconds), kept.ttl_ms, deed.since_us, deed.card)
        longer.clean = deed.clean
        return longer

    def _check(self, kept: Kept, deed: Deed, moved: Deed | None) -> tuple[list[Compare], list[Op], list[Op]]:
        """It is ours still, by that lease; then it is hung on another one, if it is to last longer."""
        keys, name, token = self._keys, kept.name, kept.token
        reader = token.startswith(READER)
        key = keys.reader(name, token) if reader else keys.hold(name)
        compare = [words.leased(key, deed.id)]
        if reader:
            compare.append(words.absent(keys.hold(name)))  # which only another hand could have set
        else:
            compare += [words.valued(key, token.encode()), words.created(key, kept.fence)]
        then = []
        if moved is not None:
            value = about(token, moved.ttl_ms, moved.since_us, keys.begins, moved.card)
            then = [words.put(key, value if reader else token.encode(), moved.id)]
            if not reader:
                then.append(words.put(keys.card(name), value, moved.id))
        holder, readers = words.get(keys.hold(name), bare=True), words.get(*keys.readers(name), limit=1, bare=True)
        return compare, then, [holder] if reader else [holder, readers]

    def _not_renewed(self, kept: Kept, until: float) -> Steps[Cause]:
        """We do not know that we had it: it was acquired in another life."""
        told = yield from self._txn([], [words.get(*self._keys.lock(kept.name), limit=1, bare=True)], [], until)
        return Cause.HELD if told.count(0) else Cause.ABSENT

    # The end.

    def release(self, request: Release, until: float) -> Steps[Answer]:
        keys, name, token = self._keys, request.name, request.token
        reader = token.startswith(READER)
        key = keys.reader(name, token) if reader else keys.hold(name)
        mine = [words.present(key)] if reader else [words.valued(key, token.encode())]
        gone = self._queue.leave(request.ticket) if request.wake else []
        then = [words.delete(key)] if reader else [words.delete(key), words.delete(keys.card(name))]
        if request.stay_ms and not reader:
            then = yield from self._shut(name, request.stay_ms, until)
        look = [words.get(keys.hold(name)), words.get(keys.card(name)), words.get(*keys.readers(name), limit=1)]
        heads = self._queue.heads(name) if request.wake else []
        told = yield from self._txn(mine, [*gone, *then, *heads], [*look, *gone], until)
        if gone:
            self._queue.left(request.ticket)
        yield from self._lay_down(token, until)
        if told.succeeded:
            found = [kv for at in range(len(told) - len(heads), len(told)) for kv in told.kvs(at)]
            return AGREED._replace(place=int(self._queue.elsewhere(found, request.locker)))
        return self._not_mine(told)

    def _not_mine(self, told: Told, at: int = 0) -> Answer:
        """To whoever releases what it does not have."""
        hold, card, reader = told.first(at), told.first(at + 1), told.first(at + 2)
        if hold is None and reader is None:
            return ABSENT
        wait_ms = 1000 * seconds_of(read_about(card.value)[1]) if card is not None else 1000
        return Answer(REFUSED, Cause.HELD, 0 if hold is None else hold.created, wait_ms)

    def _shut(self, name: str, stay_ms: int, until: float) -> Steps[list[Op]]:
        """What keeps a lock closed that is released: from now on it is nobody's."""
        lease = yield from self._leases.grant(seconds_of(stay_ms), until)
        return [
            words.put(self._keys.hold(name), CLOSED.encode(), lease),
            words.put(self._keys.card(name), about(CLOSED, stay_ms, 0, self._keys.begins, ""), lease),
        ]

    def leave(self, request: Leave, until: float) -> Steps[Answer]:
        gone = self._queue.leave(request.ticket)
        if gone:
            yield from self._txn([], gone, [], until)
        self._queue.left(request.ticket)
        return AGREED

    def downgrade(self, request: Downgrade, until: float) -> Steps[Answer]:
        """From now on the lock is shared, and nobody had it in between. Its fence stays."""
        keys, name = self._keys, request.name
        hold, reader = keys.hold(name), keys.reader(name, request.reader)
        for _ in range(TERMS):
            deed, term = yield from self._deed([name], request.reader, request.ttl_ms, "read -", until)
            value = about(request.reader, request.ttl_ms, deed.since_us, keys.begins, "read -")
            gone = self._queue.leave(request.ticket)
            then = [words.delete(hold), words.delete(keys.card(name)), words.put(reader, value, deed.id), *gone]
            look = [words.get(reader, bare=True), words.get(keys.last(name))]
            mine = [words.valued(hold, request.token.encode())]
            try:
                told = yield from self._txn(mine, [words.get(hold), *then], look, until, deed)
            except Refusal as refusal:
                if refusal.code != NOT_FOUND:
                    raise
                self._leases.doubt(request.reader)
                continue
            if told.succeeded:
                fence = told.kvs(0)[0].created
            elif told.count(0):
                last = told.first(1)
                fence = told.revision if last is None else last.modified
            else:
                return CHANGED
            if gone:
                self._queue.left(request.ticket)
            if term in (0, told.term):
                yield from self._lay_down(request.token, until)
                return Answer(GRANTED, Cause.AGREED, fence)
        return CHANGED

    def look(self, request: Look, until: float) -> Steps[Answer]:
        keys, name = self._keys, request.name
        found = [words.get(keys.hold(name)), words.get(keys.card(name)), words.get(*keys.readers(name), limit=1)]
        told = yield from self._txn([], [*found, words.get(keys.last(name))], [], until)
        if told.first(0) is None and (request.shared or not told.count(2)):
            last = told.first(3)
            shared = bool(told.count(2)) and last is not None
            return Answer(GRANTED, Cause.AGREED, last.modified if shared and last is not None else told.revision)
        return self._not_mine(told)
