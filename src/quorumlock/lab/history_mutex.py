"""Is the history of a lock that of a mutex with leases? Exactly, by intervals.

A lock is linearizable if each acquire and each end of a hold can be given one instant, within what its holder saw,
so that in the order of these instants nobody acquires what is held.

  acquire   between its invocation and its `ok`
  end       not before E: the earliest of the invocation of the release, the end of the lease, and the moment at
            which the holder was told that it is lost; later, if the service is slow to notice. Never, without them.

Why no search is needed: moving an acquire later, or an end earlier, only takes instants away from that hold, and
what others do is the easier for it. So if any choice of instants works, then "acquired as late, and over as early,
as can be" works too: from A = min(ok, E) to E. Hence the history is linearizable if and only if these intervals do
not overlap inside. An empty one, of a lease that was over when its holder heard of it, must not lie inside another.
An acquire that failed has no effect, and one of unknown outcome need not have one: leaving it out takes instants
away. A release that failed ends nothing; one of unknown outcome may have ended the hold when it was invoked.
`tests/live/chaos/test_history_search.py` compares this argument with an exhaustive search over all orders.

One thing is left open in doubt: a process that releases after an acquire of unknown outcome is not judged for it.

Fences: whoever holds it after another has a higher one, and no two are alike.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .history_lines import Entry, terms

FOREVER = float("inf")
Excused = Callable[[float], bool]


@dataclass(slots=True)
class Hold:
    """From `at` to `until` its process could rely on the lock."""

    process: int | str
    line: int
    ok_at: float
    lease_until: float = FOREVER
    fence: int | None = None
    ended_at: float = FOREVER
    """Released or lost."""
    released: bool = False

    @property
    def until(self) -> float:
        return min(self.lease_until, self.ended_at)

    @property
    def at(self) -> float:
        return min(self.ok_at, self.until)

    def __str__(self) -> str:
        fence = "" if self.fence is None else f" with fence {self.fence}"
        return f"process {self.process} (line {self.line}){fence} from {self.at:.6f} to {self.until:.6f}"


@dataclass(frozen=True, slots=True)
class Fault:
    """What must not be. `excused`: what the lock relies on did not hold then."""

    reason: str
    text: str
    excused: bool = False


@dataclass(slots=True)
class Holds:
    """Every hold of one name, and what its processes did that no holder may."""

    all: list[Hold] = field(default_factory=list)
    refused: int = 0
    unknown: int = 0
    wrong: list[Fault] = field(default_factory=list)


def holds_of(entries: Iterable[Entry]) -> Holds:
    """The holds in the entries of one name."""
    found = Holds()
    mine: dict[int | str, list[Hold]] = {}
    in_doubt: set[int | str] = set()
    for entry in entries:
        own = mine.setdefault(entry.process, [])
        if entry.f == "acquire" and entry.type == "ok":
            until, fence = terms(entry.value)
            hold = Hold(entry.process, entry.line, entry.time, FOREVER if until is None else until, fence)
            own.append(hold)
            found.all.append(hold)
        elif entry.f == "acquire" and entry.type == "unknown":
            found.unknown += 1
            in_doubt.add(entry.process)
        elif entry.f == "acquire" and entry.type == "fail":
            found.refused += 1
        elif entry.f == "extend" and entry.type == "ok":
            if (extended := _meant(entry, own)) and extended.ended_at == FOREVER:
                extended.lease_until, _ = terms(entry.value)
        elif entry.f == "lost" and entry.type == "ok":
            if lost := _meant(entry, own):
                lost.ended_at = min(lost.ended_at, entry.time)
        elif entry.f == "release":
            _release(entry, own, in_doubt, found)
    return found


def _meant(entry: Entry, own: list[Hold]) -> Hold | None:
    """The process's hold with that fence; its last, if no fence is named."""
    _, fence = terms(entry.value)
    return next((hold for hold in reversed(own) if fence in (None, hold.fence)), None)


def _release(entry: Entry, own: list[Hold], in_doubt: set[int | str], found: Holds) -> None:
    hold = own[-1] if own else None
    if entry.type == "invoke" and hold is not None and not hold.released:
        hold.ended_at = min(hold.ended_at, entry.time)
    elif entry.type == "fail" and hold is not None and hold.ended_at == entry.invoked_at:
        hold.ended_at = FOREVER
    elif entry.type == "ok":
        if hold is not None and not hold.released:
            hold.released = True
        elif entry.process not in in_doubt:
            text = f"process {entry.process} releases in line {entry.line} what it does not hold"
            found.wrong.append(Fault("release without acquire", text))


def check_mutex(holds: Iterable[Hold], broken: Iterable[tuple[float, float]] = ()) -> list[Fault]:
    """A fault for every hold that begins inside another, and for every fence that does not grow."""
    ordered = sorted(holds, key=lambda hold: (hold.at, hold.until))
    excuses = sorted(broken)

    def excused(time: float) -> bool:
        return any(since <= time <= until for since, until in excuses)

    return [*_overlaps(ordered, excused), *_disorders(ordered, excused), *_twins(ordered)]


def _overlaps(ordered: list[Hold], excused: Excused) -> list[Fault]:
    faults = []
    longest: Hold | None = None
    for hold in ordered:
        if longest is not None and hold.at < longest.until:
            faults.append(Fault("overlap", f"{hold} begins inside that of {longest}", excused(hold.at)))
        if longest is None or hold.until > longest.until:
            longest = hold
    return faults


def _disorders(ordered: list[Hold], excused: Excused) -> list[Fault]:
    """Compared with the highest fence of all holds that were over when this one began.

    Where two leases overlap because a clock stepped, the earlier one may be told last: excused as the overlap is.
    """
    faults = []
    ended = sorted((hold for hold in ordered if hold.fence is not None), key=lambda hold: hold.until)
    ends = [hold.until for hold in ended]
    highest: list[Hold] = []
    for hold in ended:
        highest.append(max(highest[-1], hold, key=_fence) if highest else hold)
    for hold in ordered:
        before = bisect.bisect_right(ends, hold.at)
        if hold.fence is not None and before and _fence(highest[before - 1]) > hold.fence:
            text = f"{hold} comes after {highest[before - 1]}"
            faults.append(Fault("fence does not grow", text, excused(hold.at)))
    return faults


def _twins(ordered: list[Hold]) -> list[Fault]:
    """No excuse: uniqueness relies on no clock."""
    faults = []
    seen: dict[int, Hold] = {}
    for hold in ordered:
        if hold.fence is None:
            continue
        if hold.fence in seen:
            faults.append(Fault("fence used twice", f"{hold} has that of {seen[hold.fence]}"))
        seen[hold.fence] = hold
    return faults


def _fence(hold: Hold) -> int:
    return hold.fence or 0
