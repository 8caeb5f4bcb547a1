"""Looking at locks without touching them, and breaking one."""

from __future__ import annotations

import re

from ...core.requests import Break, Inspect, InspectMany, Scan
from ...core.votes import GRANTED, Answer, Cause, Sight
from . import words
from .family import Family
from .keys import member_of, place_of
from .locks import ABSENT, CHANGED, read_about
from .talk import Question, Steps
from .words import Kv, Told

WAITERS_MOST = 1000
NAMES_MOST = 20
"""Of how many locks is told at once."""
READERS = "ql:readers"
PAGE = 1000
BREAKS = 20
"""How often somebody else may come or go while all who share a lock are made to."""


class Looking(Family):
    """Everything that is asked about locks."""

    def inspect(self, request: Inspect, until: float) -> Steps[Answer]:
        sight = yield from self._sight(request.name, until)
        return Answer(GRANTED, Cause.AGREED, sight=sight)

    def inspect_many(self, request: InspectMany, until: float) -> Steps[Answer]:
        parts: tuple[Answer, ...] = ()
        for name in request.names[:NAMES_MOST]:
            parts += ((yield from self.inspect(Inspect(name), until)),)
        return Answer(GRANTED, Cause.AGREED, parts=parts)

    def _sight(self, name: str, until: float) -> Steps[Sight]:
        keys = self._keys
        look = [
            words.get(keys.hold(name)), words.get(keys.card(name)), words.get(keys.last(name)),
            words.get(*keys.readers(name)), words.get(*keys.queue(name), limit=WAITERS_MOST, bare=True),
        ]  # fmt: skip
        told = yield from self._txn([], look, [], until)
        hold, card, last = (told.first(at) for at in range(3))
        tickets = sorted((kv.key for kv in told.kvs(4)), key=place_of)
        waiters = tuple(map(member_of, tickets))
        if hold is not None:
            start, ttl_ms, since_us, _, text = read_about(b"" if card is None else card.value)
            token = hold.value.decode(errors="replace")
            if start and not token.startswith(start):
                start = ""
            left_ms = yield from self._left_ms(hold, ttl_ms, until)
            if not start or not since_us:  # of some other hand nothing is known
                since_us, start, text = 0, "", ""
            return Sight(token, left_ms, hold.created, since_us, start, text, (), waiters)
        fence = told.revision if last is None else last.modified
        if readers := told.kvs(3):
            each = tuple(self._reader(name, kv) for kv in readers)
            return Sight(READERS, max(left for _, left in each), fence, 0, "", "", each, waiters)
        return Sight("", 0, told.revision, 0, "", "", (), waiters)

    def _left_ms(self, kv: Kv, ttl_ms: int, until: float) -> Steps[int]:
        """At the most: etcd counts in seconds, and rounds down."""
        if not kv.lease:
            return ttl_ms or 1000  # a hand that has set it for ever
        left = yield from self._leases.left(kv.lease, until)
        return max(1, min(1000 * (max(0, left) + 1), ttl_ms or 10**12))

    def _reader(self, name: str, kv: Kv) -> tuple[str, int]:
        """Its token, and what is left of it at the most: nobody asks for the lease of each."""
        token = kv.key.removeprefix(self._keys.readers(name)[0]).decode(errors="replace")
        return token, max(1, read_about(kv.value)[1])

    def scan(self, request: Scan, until: float) -> Steps[Answer]:
        """One page of keys. The cursor is the last key that was seen, with a NUL behind it."""
        start, end = self._keys.locks()
        if request.cursor not in ("", "0"):
            start = bytes.fromhex(request.cursor)
        told = Told({"responses": [{"response_range": (yield from self._page(start, end, until))}]})
        found = told.kvs(0)
        cards: dict[bytes, Kv] = {}
        if found:
            first, last = (self._card_of(kv.key) for kv in (found[0], found[-1]))
            paged = yield from self._page(first, last + b"\0", until)
            cards = {kv.key: kv for kv in Told({"responses": [{"response_range": paged}]}).kvs(0)}
        matches = re.compile(_translated(request.pattern), re.DOTALL).fullmatch
        names = {
            name: None for kv in found
            if self._begins(kv, cards) == self._keys.begins and matches(name := self._keys.name_of(kv.key))
        }  # fmt: skip
        cursor = (found[-1].key + b"\0").hex() if told.count(0) > len(found) else "0"
        return Answer(GRANTED, Cause.AGREED, names=(cursor, *sorted(names)))

    def _page(self, start: bytes, end: bytes, until: float) -> Steps[dict[str, object]]:
        wanted = words.get(start, end, limit=PAGE)["request_range"]
        return (yield from self._talk.ask(Question("/v3/kv/range", wanted), until))

    def _card_of(self, key: bytes) -> bytes:
        """The key of the card, of a lock's key."""
        start, _ = self._keys.locks()
        return self._keys.cards() + self._keys.prefix + key.removeprefix(start).partition(b"\0")[0]

    def _begins(self, kv: Kv, cards: dict[bytes, Kv]) -> int:
        """How long the prefix is of whoever has it."""
        about: Kv | None = kv
        if kv.key.endswith(b"\0h"):
            about = cards.get(self._card_of(kv.key))
        return 0 if about is None else read_about(about.value)[3]

    def break_(self, request: Break, until: float) -> Steps[Answer]:
        """Deletes what was seen, and nothing that came later, however late this is executed.

        Every later fence is higher: it is a revision, and this made one.
        """
        keys, name = self._keys, request.name
        start, end = keys.lock(name)
        for _ in range(BREAKS):
            look = [words.get(start, end, limit=1, bare=True), words.get(keys.hold(name), bare=True)]
            seen = yield from self._txn([], [*look, words.get(keys.last(name), bare=True)], [], until)
            if not seen.count(0):
                return ABSENT
            hold, last = seen.first(1), seen.first(2)
            fence = hold.created if hold is not None else last.modified if last is not None else 0
            if 0 < request.only < fence:
                return CHANGED
            memory = yield from self._leases.for_memory(until)
            then = [
                words.delete(start, end),
                words.delete(keys.card(name)),
                words.put(keys.last(name), b"", memory),
            ]
            told = yield from self._txn([words.unchanged_since(start, end, seen.revision)], then, [], until)
            if told.succeeded:
                return Answer(GRANTED, Cause.AGREED, told.revision) if told.deleted(0) else ABSENT
        return CHANGED


def _translated(pattern: str) -> str:
    """A pattern in which * and ? stand for anything, as a regular expression."""
    return "".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in pattern)
