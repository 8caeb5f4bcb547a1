"""What was seen on the stage: lines of the story, bars and marks of the picture, and what the facts are made of.

Leases, locks on nodes and quarantines are looked at in every tick of the story; so what is drawn and judged is what
was there, not what somebody said. A tick is below the width of a pixel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_FENCE = 33
"""Real fences have 16 digits. They are shown as 33, 34, … in their order."""


@dataclass(slots=True)
class Line:
    """One line of the story."""

    at: float
    who: str
    text: str
    tone: str = ""
    """fault, good, bad, or nothing."""


@dataclass(slots=True)
class Bar:
    """Something that lasts: a lease, a lock on a node, a quarantine, a pause."""

    lane: str
    kind: str
    start: float
    end: float
    owner: str = ""
    label: str = ""


@dataclass(slots=True)
class Mark:
    """Something that happens: on a lane, perhaps after a journey from another."""

    lane: str
    kind: str
    at: float
    label: str
    owner: str = ""
    sent_at: float | None = None


@dataclass(slots=True)
class Asking:
    """Somebody asks for the lock."""

    who: str
    since: float
    ended_at: float | None = None
    how: str = ""


@dataclass(slots=True)
class Holding:
    """A lease, as its holder sees it."""

    who: str
    fence: int
    since: float
    valid: Callable[[], bool]
    """Would its holder say now that it has the lock?"""
    ended_at: float | None = None
    """When it was given back, or its loss was told."""
    told: bool = False


@dataclass
class Record:
    """Everything that was seen."""

    lines: list[Line] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    askings: list[Asking] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    overlap: float = 0.0
    overlaps: list[tuple[float, float]] = field(default_factory=list)
    orphaned: float = 0.0
    """For how long some node named somebody who neither held the lock nor asked for it; the longest such time."""
    keys_without_ttl: int = 0
    acknowledged: int = 0
    value: int = 0
    _streak: float = 0.0
    closed: bool = False
    """Has the story ended? What happens behind the curtain is no part of it."""
    _open: dict[tuple[str, str], Bar] = field(default_factory=dict)

    def tell(self, at: float, who: str, text: str, tone: str = "") -> None:
        if not self.closed:
            self.lines.append(Line(at, who, text, tone))

    def count(self, fact: str, who: str = "", by: int = 1) -> None:
        if not self.closed:
            self.counts[fact, who] = self.counts.get((fact, who), 0) + by

    def mark(self, lane: str, kind: str, at: float, label: str, owner: str = "", sent: float | None = None) -> None:
        if not self.closed:
            self.marks.append(Mark(lane, kind, at, label, owner, sent))

    def state(self, lane: str, track: str, now: float, kind: str, owner: str = "", label: str = "") -> None:
        """What a lane shows from now on; no kind: nothing. A bar goes on as long as nothing changes."""
        known = self._open.get((lane, track))
        if known is not None and (known.kind, known.owner, known.label) == (kind, owner, label):
            known.end = now
            return
        if known is not None:
            known.end = now
            del self._open[lane, track]
        if kind:
            bar = self._open[lane, track] = Bar(lane, kind, now, now, owner, label)
            self.bars.append(bar)

    def orphan(self, there: bool, tick: float) -> None:
        """Does a node name nobody?"""
        self._streak = self._streak + tick if there else 0.0
        self.orphaned = max(self.orphaned, self._streak)

    def overlapped(self, now: float, tick: float) -> None:
        """Two leases are valid at a time."""
        self.overlap += tick
        if self.overlaps and now - self.overlaps[-1][1] < 2 * tick:
            self.overlaps[-1] = (self.overlaps[-1][0], now)
        else:
            self.overlaps.append((now, now))

    def shown(self, text: str) -> str:
        """With fences, written #1800000000000123, as people can tell them apart."""
        fences = sorted({one.fence for one in self.holdings if one.fence})
        short = {fence: FIRST_FENCE + place for place, fence in enumerate(fences)}
        return re.sub(r"#(\d+)", lambda found: str(short.get(int(found[1]), found[1])), text)
