"""In which order faults come."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

Fault = tuple[str, Callable[[], bool]]
"""What it is called, and how it is caused; False if it cannot be caused now."""


class Deck:
    """Every fault once in each round, in an order drawn anew; what cannot be caused is tried again in every turn of
    the round, and keeps nothing else waiting.

    What has never happened in this run comes first: what a run of forty seconds shows is no matter of luck, nor of
    how many turns there are in it on a slow machine.
    """

    def __init__(self, draw: random.Random, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self._draw, self._clock = draw, clock
        self._faults: Sequence[Fault] = ()
        self._left: list[Fault] = []

    def turn(self, faults: Sequence[Fault]) -> tuple[str, float] | None:
        """Causes one of those: which, and since when."""
        if faults is not self._faults:
            self._faults, self._left = faults, []
        return self._next() or self._next_round()

    def _next_round(self) -> tuple[str, float] | None:
        self._left = self._draw.sample(self._faults, len(self._faults))
        return self._next()

    def _next(self) -> tuple[str, float] | None:
        for chosen in sorted(self._left, key=lambda fault: fault[0] in self.counts):
            what, cause = chosen
            began_at = self._clock()
            if cause():
                self._left.remove(chosen)
                self.counts[what] += 1
                return what, began_at
        return None
