"""What the dashboard knows: the last sample, and of what came before it as much as is worth its memory.

A board has a version, which grows with every sample. Whoever knows the board at some version gets what changed
since; a slow page skips versions, and nothing queues up for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import view
from .answers import dumped
from .seen import Seen, noticed
from .view import Json

EVENTS_KEPT = 10_000
EVENTS_SENT = 500
BEATS_KEPT = 300
LATENCIES_KEPT = 60
GONE_KEPT = 20_000
LOST = ("expired", "broken", "refused")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a fleet; what could not be learnt is None, and `problem` says why."""

    at: float
    rows: Mapping[str, Json] | None = None
    cut: bool = False
    """Are there more locks than were asked for?"""
    nodes: Sequence[Any] | None = None
    entries: Sequence[Any] = ()
    kept: bool | None = False
    """Is there a journal? None: that could not be learnt."""
    problem: str = ""


class Board:
    """Is changed by one task; read by all."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.version = 0
        self.started = clock()
        self.at = 0.0
        self.rows: dict[str, Json] = {}
        self.known = False
        """Were locks learnt with the last look? If not, they are from before."""
        self.cut = False
        self.kept = False
        self.problem = ""
        self.nodes: list[Json] = []
        self._events: deque[tuple[int, Json]] = deque(maxlen=EVENTS_KEPT)
        self._beats: deque[tuple[int, Json]] = deque(maxlen=BEATS_KEPT)
        self._latencies: dict[str, deque[float | None]] = {}
        self._changed: dict[str, int] = {}
        self._gone: deque[tuple[int, str]] = deque(maxlen=GONE_KEPT)
        self._numbered = 0
        self._broken: set[tuple[str, int | None]] = set()
        self._told: list[Seen] = []
        """What visitors did since the last sample."""
        self._news = asyncio.Event()
        self._written: dict[int, str] = {}
        """What changed since some versions, as text, for all pages that ask for the same."""
        self._switched = 0
        """The version with which a journal began, or ended."""

    def take(self, sample: Sample) -> None:
        """Puts a sample onto the board."""
        past = self.version == 0
        self.version += 1
        self._written.clear()
        self.at, self.problem = sample.at, sample.problem
        if sample.kept is not None and sample.kept is not self.kept:
            self.kept = past = sample.kept
            self._events.clear()  # what the journal tells is not told twice
            self._switched = self.version
        happened = [*self._told, *sample.entries]
        self._told.clear()
        self.known = sample.rows is not None
        if sample.rows is not None:
            if not self.kept:
                happened += [
                    one
                    for one in noticed(self.rows, sample.rows, sample.at)
                    if not (one.what == "ended" and (one.name, one.fence) in self._broken)  # told as broken already
                ]
            self._broken &= {(name, row["fence"]) for name, row in sample.rows.items()}
            self._take_rows(sample.rows)
            self.cut = sample.cut
        if sample.nodes is not None:
            self._take_nodes(sample.nodes)
        self._take_events(happened)
        counted = Counter() if past else Counter(entry.what for entry in happened)
        beat = {
            "at": sample.at,
            "held": len(self.rows),
            "waiting": sum(row["waiting"] for row in self.rows.values()),
            "acquired": counted["acquired"],
            "ended": counted["released"] + counted["ended"],
            "lost": sum(counted[what] for what in LOST),
        }
        self._beats.append((self.version, beat))
        self.wake()

    @contextmanager
    def breaking(self, name: str, fence: int | None, by: str) -> Iterator[None]:
        """Somebody breaks a lock from a page. A look in between only sees that it ended, and is not believed.

        It is told with the next sample; a journal tells it by itself.
        """
        self._broken.add((name, fence))
        try:
            yield
        except BaseException:
            self._broken.discard((name, fence))
            raise
        if not self.kept:
            self._told.append(Seen(self._clock(), "broken", name, fence, by))

    async def newer(self, version: int, within: float) -> bool:
        """Waits for a version above this one."""
        if self.version <= version:
            try:
                await asyncio.wait_for(self._news.wait(), within)
            except TimeoutError:
                return False
        return self.version > version

    def since(self, version: int) -> Json:
        """What changed after a version; everything, for 0 and for versions that are too long ago."""
        oldest_gone = self._gone[0][0] if len(self._gone) == GONE_KEPT else 0
        full = version <= 0 or version < max(oldest_gone, self._switched) or version > self.version
        gone = {name for at, name in self._gone if at > version and name not in self.rows}
        return {
            "version": self.version,
            "full": full,
            "started": self.started,
            "journal": self.kept,
            "problem": self.problem,
            "cut": self.cut,
            "locks": [row for name, row in self.rows.items() if full or self._changed[name] > version],
            "gone": [] if full else sorted(gone),
            "nodes": self.nodes,
            "beats": [beat for at, beat in self._beats if full or at > version],
            "events": [event for at, event in self._events if full or at > version][-EVENTS_SENT:],
            "rates": self.rates(),
        }

    def written(self, version: int) -> str:
        """The same as text; only what time it is is not remembered."""
        text = self._written.get(version) or dumped(self.since(version))[1:]
        if version in (0, self.version - 1):  # what new pages ask for, and those that keep up
            self._written[version] = text
        return f'{{"now":{self._clock()!r},{text}'

    def rates(self, window: float = 60.0) -> Json:
        """Events a second, in the last minute; None before anything can be said."""
        beats = [beat for _, beat in self._beats if beat["at"] > self.at - window]
        seconds = beats[-1]["at"] - beats[0]["at"] if len(beats) > 1 else 0.0
        return {
            what: sum(beat[what] for beat in beats[1:]) / seconds if seconds > 0 else None
            for what in ("acquired", "ended", "lost")
        }

    def lost(self, most: int = 10) -> list[Json]:
        """The newest that somebody should look at."""
        return [event for event in reversed(self.events) if event["what"] in LOST][:most]

    @property
    def events(self) -> list[Json]:
        """Old to new."""
        return [event for _, event in self._events]

    @property
    def beats(self) -> list[Json]:
        return [beat for _, beat in self._beats]

    def _take_rows(self, rows: Mapping[str, Json]) -> None:
        for name in self.rows.keys() - rows.keys():
            self._gone.append((self.version, name))
            del self._changed[name]
        for name, row in rows.items():
            if self.rows.get(name) != row:
                self._changed[name] = self.version
        self.rows = dict(rows)

    def _take_nodes(self, nodes: Sequence[Any]) -> None:
        for one in nodes:
            self._latencies.setdefault(one.node, deque(maxlen=LATENCIES_KEPT)).append(one.latency)
        self.nodes = [view.node(one, self._latencies[one.node]) for one in nodes]

    def _take_events(self, entries: Sequence[Any]) -> None:
        for entry in entries:
            self._numbered += 1
            self._events.append((self.version, view.event(self._numbered, entry)))

    def wake(self) -> None:
        """Whoever waits for news looks again."""
        news, self._news = self._news, asyncio.Event()
        news.set()
