"""The journal: what happened to locks, as nodes have written it down, put together for people.

Every node writes down what it did itself, by its own clock. Here that becomes one entry for each event:

1. Rows of several nodes are one event if they say the same of the same token: `what`, `name` and the start of the
   token, which no two attempts have in common.
2. Clocks of nodes differ. All of them tell their time in the same round, so an event's is told by the clock of the
   first node that answered. A round takes time, too: of two events that are close to each other, the order is the
   one in which most nodes wrote them down.
3. A cursor has for each node the last row that was read. What was shown before all nodes had written it is in the
   cursor, too, with the nodes that still owe it: it is not shown again. (A few hundred at most: then the oldest are
   forgotten, and could be shown once more.)
4. What was written on some nodes a moment ago is not shown until all have it, or a moment has passed: else every
   event would be seen half, now and then. Nothing behind it is shown before it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .core.votes import History, Noted, Tally
from .errors import ConfigurationError

SETTLE_US = 300_000
OWED_MOST = 256
LIMIT_MOST = 10_000
CURSOR = r"((?:\d{1,19}-\d{1,19})?(?:_(?:\d{1,19}-\d{1,19})?)*)\.((?:[0-9a-f]+-[0-9a-f]+(?:_|$))*)"
"""Read once from left to right, whatever it is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to a lock."""

    at: float
    """Seconds since 1970, by a node's clock; of an expiry, when it was noticed."""
    what: str
    """acquired, released, expired, broken, refused."""
    name: str
    fence: int | None
    who: str
    """host:pid; "" if it is not known."""
    detail: str


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Some entries of the journal, old to new."""

    entries: tuple[Entry, ...]
    cursor: str
    """Opaque: `journal(after=cursor)` tells what came behind these."""
    kept: bool
    """Is there a journal at all? It is there from the first entry on."""


@dataclass(slots=True)
class Cursor:
    """How far each node was read, and what was shown that some of them still owe (as bits)."""

    ids: list[str]
    owed: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        owed = "_".join(f"{key}-{nodes:x}" for key, nodes in list(self.owed.items())[-OWED_MOST:])
        return f"{'_'.join(self.ids)}.{owed}"

    @classmethod
    def parse(cls, text: object, nodes: int) -> Cursor:
        if text is None:
            return cls([""] * nodes)
        found = re.fullmatch(CURSOR, str(text)[:100_000])
        ids = found[1].split("_") if found else []
        if found is None or len(ids) != nodes or not any(ids):
            raise ConfigurationError(
                f"after={str(text)[:40]!r} is no cursor of this fleet's journal: give the `cursor` of a JournalPage"
            )
        pairs = (one.split("-") for one in found[2].split("_") if one)
        return cls(ids, {key: int(mask, 16) for key, mask in pairs})

    def starts(self) -> list[str]:
        """Where to read on, on each node. One that did not answer the last time goes on where the others were."""
        behind = min((one for one in self.ids if one), key=_order, default="")
        return [one or behind for one in self.ids]


@dataclass(slots=True)
class _Event:
    key: str
    at_us: int
    rows: dict[int, Noted]


def page(tally: Tally, cursor: Cursor, limit: int, wanted: bool) -> JournalPage:
    """What nodes have told, as one; `wanted`: this client writes a journal, where there is anything to write."""
    told = [None if answer is None else answer.history for answer in tally.answers]
    shown, later = merged(told, cursor, limit)
    entries = tuple(_entry(event, told, tally.needed) for event in shown)
    return JournalPage(entries, str(later), wanted or any(one.oldest_us for one in told if one is not None))


def merged(told: Sequence[History | None], cursor: Cursor, limit: int) -> tuple[list[_Event], Cursor]:
    """The events to show, old to new, and from where to go on."""
    events = _events(told)
    first = next((one for one in told if one is not None), None)
    now_us = 0 if first is None else first.now_us
    newest = not any(cursor.ids)
    since = {node: _since(one, now_us, newest) for node, one in enumerate(told) if one is not None}
    settled: list[_Event] = []
    for event in _ordered(events, told):
        # (What lies before all that a node could tell of, or hardly behind that, it may have forgotten already.)
        awaited = any(node not in event.rows and since[node] + SETTLE_US < event.at_us for node in since)
        if awaited and event.key not in cursor.owed and event.at_us > now_us - SETTLE_US:
            break
        settled.append(event)
    fresh = [event for event in settled if event.key not in cursor.owed]
    shown = fresh[-limit:] if newest else fresh[:limit]
    done = {event.key for event in (settled if newest else shown)} | cursor.owed.keys()
    later = Cursor(list(cursor.ids), dict(cursor.owed))
    for event in shown:
        later.owed[event.key] = (1 << len(told)) - 1
    for node, history in enumerate(told):
        if history is None:
            later.ids[node] = ""
            continue
        later.ids[node] = cursor.starts()[node] or (_before(history.rows[0].id) if history.rows else "0-0")
        for row in history.rows:
            key = _key(row)
            if key not in done:
                break
            later.ids[node] = row.id
            if key in later.owed:
                later.owed[key] &= ~(1 << node)
    later.owed = {key: nodes for key, nodes in later.owed.items() if nodes}
    return shown, later


def _since(history: History, now_us: int, newest: bool) -> int:
    """When what a node could tell of begins, by the clock that all are brought to."""
    oldest_us = history.rows[0].at_us if newest and history.rows else history.oldest_us
    return oldest_us - history.now_us + now_us


def _events(told: Sequence[History | None]) -> dict[str, _Event]:
    first = next((one for one in told if one is not None), None)
    events: dict[str, _Event] = {}
    for node, history in enumerate(told):
        for row in history.rows if history is not None and first is not None else ():
            at_us = row.at_us - history.now_us + first.now_us  # type: ignore[union-attr]
            event = events.setdefault(_key(row), _Event(_key(row), at_us, {}))
            event.rows.setdefault(node, row)
    return events


def _ordered(events: dict[str, _Event], told: Sequence[History | None]) -> Iterator[_Event]:
    """By time; but what most nodes wrote right before an event comes first."""
    written = [dict.fromkeys(_key(row) for row in history.rows) for history in told if history is not None]
    places = [{key: place for place, key in enumerate(keys)} for keys in written]
    before: dict[str, list[str]] = {key: [] for key in events}
    for keys in written:
        for one, other in pairwise(keys):
            votes = [at[one] < at[other] for at in places if one in at and other in at]
            if 2 * sum(votes) > len(votes):
                before[other].append(one)
    seen: set[str] = set()
    for event in sorted(events.values(), key=lambda event: event.at_us):
        waiting = [] if event.key in seen else [event.key]
        seen.add(event.key)
        while waiting:
            earlier = next((one for one in before[waiting[-1]] if one not in seen), None)
            if earlier is None:
                yield events[waiting.pop()]
            else:
                seen.add(earlier)
                waiting.append(earlier)


def _key(row: Noted) -> str:
    said = f"{row.what}\0{row.name}\0{row.by}".encode("utf-8", "replace")
    return hashlib.sha1(said, usedforsecurity=False).hexdigest()[:10]


def _order(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in number.split("-"))


def _before(number: str) -> str:
    """An id below this one, and above those before it."""
    first, second = _order(number)
    return f"{first}-{second - 1}" if second else f"{max(0, first - 1)}-{2**63}"


def _entry(event: _Event, told: Sequence[History | None], needed: int) -> Entry:
    rows = list(event.rows.values())
    fences = Counter(row.fence for row in rows if row.fence)
    fence = max(fences, key=lambda one: (fences[one] >= needed, one), default=None)
    first = next((row for row in rows if row.fence), rows[0])
    who, _, where = first.by.partition("@")[2].partition(" ")
    words = _words(first, where)
    silent = sum(one is None for one in told)
    if len(rows) + silent < needed:
        words.append(f"on {len(rows)} of {len(told)} nodes")
    return Entry(event.at_us / 1e6, first.what, first.name, fence, who, ", ".join(word for word in words if word))


def _words(row: Noted, where: str) -> list[str]:
    """What else there is to say."""
    if row.what == "acquired":
        kind, _, note = [*row.detail.split(" ", 2), "", "", ""][:3]
        return [kind if kind != "mutex" else "", note]
    if row.what in ("released", "expired"):
        since, _, wake = row.detail.partition(" ")
        after = f"{max(0, row.at_us - int(since)) / 1e6:.3f} s" if since.isdecimal() and int(since) else ""
        if row.what == "expired":
            return [f"noticed {after} after the grant" if after else ""]
        return [f"after {after}" if after else "", "given up" if wake == "0" else ""]
    if row.what == "broken":
        whose = row.detail.partition("@")[2]
        return [f"was held by {whose}" if whose else "", where]
    return [row.detail]
