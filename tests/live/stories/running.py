"""Rounds of a story, several at a time: they mostly sleep. In threads for tests, in processes for the soak."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from . import play
from .outcome import Outcome

VOID_MOST = 3
"""So many times the rounds asked for may say nothing, before that is a fault in itself."""


@dataclass
class Summary:
    """All rounds of one story."""

    story: str
    rounds: int = 0
    voids: list[str] = field(default_factory=list)
    leases: int = 0
    refusals: int = 0
    overlaps: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.seconds += outcome.seconds
        if outcome.void and not outcome.faults:
            self.voids.append(outcome.void)
            return
        self.rounds += 1
        self.leases += len(outcome.spans)
        self.refusals += outcome.refusals
        self.overlaps += len(outcome.overlaps)
        self.faults += outcome.faults


def run(
    story: str,
    rounds: int,
    executor: Executor,
    kinds: Sequence[str],
    seed: str,
    quarantine: bool = True,
    first: int = 0,
    at_a_time: int = 4,
    progress: Callable[[Summary], bool] = lambda _: False,
) -> Summary:
    """Plays until so many rounds have said something; `progress` is told of each, and may say that it is enough.

    Round number n, counted from `first`, draws its timing from `seed-n`.
    """
    summary = Summary(story)
    under_way: set[Future[Outcome]] = set()
    begun, enough = first, False
    try:
        while summary.rounds < rounds and not enough:
            if len(summary.voids) > VOID_MOST * rounds:
                summary.faults.append(f"{story}: {len(summary.voids)} rounds said nothing: {summary.voids[-1]}")
                break
            while len(under_way) < min(at_a_time, rounds - summary.rounds):
                kind = kinds[begun % len(kinds)]
                under_way.add(executor.submit(play, story, kind, f"{seed}-{begun}", quarantine))
                begun += 1
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                summary.add(future.result())
                enough = progress(summary)
    finally:
        for future in under_way:
            future.cancel()
        wait(under_way)
    return summary


def run_side_by_side(
    rounds: Mapping[str, int],
    kind: str,
    at_a_time: int,
    quarantine: bool = True,
    progress: Callable[[Summary], bool] = lambda _: False,
) -> list[Summary]:
    """Plays so many rounds of each story on servers of that kind, so many stories at a time, one round each."""

    def played(story: str) -> Summary:
        seed = f"{random.randrange(2**32):x}"
        with ThreadPoolExecutor(1) as thread:
            return run(story, rounds[story], thread, [kind], seed, quarantine, at_a_time=1, progress=progress)

    with ThreadPoolExecutor(at_a_time) as threads:
        return list(threads.map(played, rounds))
