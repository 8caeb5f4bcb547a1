"""The argument by intervals agrees with an exhaustive search over all orders, on small random histories.

The search knows nothing of intervals: it takes the events one after another in every order that their times allow
(after Wing and Gong), and looks whether a mutex can go through one of them.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest

from quorumlock.lab.history_mutex import FOREVER, Hold, check_mutex

TRIES = 4000


@dataclass(frozen=True)
class Window:
    """One event, and when it may be. A hold without an end has none."""

    hold: int
    takes: bool
    since: float
    until: float


def windows(holds: list[tuple[float, float, float]]) -> list[Window]:
    """(invoked, ok, end) of each: taken in between, given back at the end or at any time after it."""
    events = []
    for number, (invoked, ok, end) in enumerate(holds):
        events.append(Window(number, True, invoked, ok))
        if end < FOREVER:
            events.append(Window(number, False, end, FOREVER))
    return events


def linearizable(holds: list[tuple[float, float, float]]) -> bool:
    """Depth first: what may come next is what must not wait for another, and what the mutex allows."""
    ends = [end for _, _, end in holds]

    def search(left: frozenset[Window], now: float, holder: int | None) -> bool:
        if not any(event.takes for event in left):
            return True
        for event in left:
            at = max(now, event.since)
            if any(at > other.until for other in left if other is not event) or at > event.until:
                continue
            if event.takes:
                if holder is None and at <= ends[event.hold] and search(left - {event}, at, event.hold):
                    return True
            elif holder == event.hold and search(left - {event}, at, None):
                return True
        return False

    return search(frozenset(windows(holds)), 0.0, None)


def drawn(draw: random.Random) -> list[tuple[float, float, float]]:
    holds = []
    for _ in range(draw.randint(2, 4)):
        invoked = draw.randint(0, 8)
        ok = invoked + draw.randint(0, 4)
        end = draw.choice([ok + draw.randint(0, 3), draw.randint(invoked, ok), ok, FOREVER])
        holds.append((float(invoked), float(ok), float(end)))
    return holds


def by_intervals(holds: list[tuple[float, float, float]]) -> bool:
    return not check_mutex(Hold(number, 0, ok, end) for number, (_, ok, end) in enumerate(holds))


def test_intervals_and_search_agree() -> None:
    draw = random.Random(1)
    agreed = {True: 0, False: 0}
    for _ in range(TRIES):
        holds = drawn(draw)
        found = linearizable(holds)
        assert by_intervals(holds) is found, holds
        agreed[found] += 1
    assert min(agreed.values()) > TRIES / 10, agreed


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ([(0, 1, 2), (2, 3, 4)], True),
        ([(0, 1, 2), (0, 3, 4)], True),
        ([(0, 1, 3), (0, 2, 4)], False),
        ([(0, 5, 3), (0, 3, 4)], True),
        ([(0, 1, FOREVER), (0, 2, 4)], False),
        ([(0, 2, 2), (0, 1, 3)], False),
    ],
)
def test_the_search_itself(holds: list[tuple[float, float, float]], expected: bool) -> None:
    assert all(linearizable(list(order)) is expected for order in itertools.permutations(holds))
