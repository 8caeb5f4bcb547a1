"""What happened in the demo so far, as the workers tell it, and what is to be thought of it.

All instants are of the monotonic clock, which the processes of one machine share.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple


class Wait(NamedTuple):
    """From asking for a lock to having it."""

    asked_at: float
    at: float
    free: bool
    """It was a lock that nobody else wants."""


class Late(NamedTuple):
    """A write that came too late: what it would have written, and over what."""

    wanted: int
    found: int


@dataclass(slots=True)
class Worker:
    """One worker, as its own words tell it."""

    state: str = "starts"
    wrote_at: list[float] = field(default_factory=list)
    refused_at: list[float] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    """Why its leases were lost, for each that it was told of."""
    stopped_at: float = math.inf
    woke_at: float = math.inf
    fence: int = 0
    value: int = 0
    """What it had read, and with which fence, when it was stopped."""
    late: Late | None = None

    def stop(self) -> None:
        self.state, self.stopped_at = "stopped", time.monotonic()

    def wake(self) -> None:
        self.state, self.woke_at = "works", time.monotonic()


class Story:
    """Everything that happened so far."""

    def __init__(self, nodes: int, workers: int) -> None:
        self.started_at = time.monotonic()
        self.nodes = nodes
        self.ready = False
        """Are the nodes up, and their fleet initialised?"""
        self.dead: set[int] = set()
        self.struck_at = math.inf
        """When the first node was about to be killed."""
        self.killed_at = math.inf
        """When all that were to die were dead."""
        self.workers = [Worker() for _ in range(workers)]
        self.waits: list[Wait] = []
        self.fence = 0
        self.holder = 0
        self.ended_at: float | None = None
        self.value: int | None = None
        """What the counter said in the end."""
        self.fences: list[int] = []
        """Of the writes, in the order in which the counter accepted them."""
        self.failure = ""

    @property
    def seconds(self) -> float:
        return (self.ended_at or time.monotonic()) - self.started_at

    @property
    def done(self) -> int:
        """Acknowledged increments."""
        return sum(len(worker.wrote_at) for worker in self.workers)

    @property
    def refused(self) -> int:
        return sum(len(worker.refused_at) for worker in self.workers)

    @property
    def losses(self) -> list[str]:
        return [reason for worker in self.workers for reason in worker.losses]

    @property
    def late(self) -> Late | None:
        return next((worker.late for worker in self.workers if worker.late), None)

    def heard(self, number: int, did: str, **what: Any) -> None:
        """A worker said something."""
        worker = self.workers[number]
        if did == "acquired":
            self.waits.append(Wait(**what))
        elif did == "increment":
            worker.state = "works"
            worker.wrote_at.append(what["at"])
            if what["fence"] > self.fence:  # what several workers say may arrive in another order
                self.fence, self.holder = what["fence"], number
        elif did == "between":
            worker.state, worker.fence, worker.value = "between", what["fence"], what["value"]
        elif did == "refused":
            worker.refused_at.append(time.monotonic())
            if "wanted" in what:
                worker.late = Late(what["wanted"], what["value"])
        elif did == "lost":
            worker.losses.append(what["reason"])

    def strike(self) -> None:
        """Nodes are about to be killed."""
        self.struck_at = time.monotonic()

    def killed(self, nodes: set[int]) -> None:
        self.dead |= nodes
        self.killed_at = time.monotonic()

    def settle(self, value: int, fences: list[int]) -> None:
        """All workers have ended; this is what the counter holds, and its history."""
        self.value = value
        for worker in self.workers:
            worker.state = "ended"
        self.fences = fences

    def end(self) -> None:
        self.ended_at = time.monotonic()

    def steps_back(self) -> int:
        """How many writes were accepted with a fence that was not above the one before."""
        return sum(later <= earlier for earlier, later in pairwise(self.fences))

    def done_after_the_kill(self) -> int:
        return sum(at > self.killed_at for worker in self.workers for at in worker.wrote_at)

    def waited(self, *, free: bool, all_nodes: bool) -> list[float]:
        """Seconds of waiting, with all nodes alive or after some died (a wait during which they died is after).

        Waits for the worker that was stopped are left out: they last until its ttl is over, whatever the nodes do.
        """
        stops = [(worker.stopped_at, worker.woke_at) for worker in self.workers]
        return [
            wait.at - wait.asked_at
            for wait in self.waits
            if wait.free is free
            and (wait.at < self.struck_at) is all_nodes
            and (free or not any(wait.asked_at < woke and wait.at > stopped for stopped, woke in stops))
        ]

    def troubles(self) -> list[str]:
        """Why the demo has failed, in sentences; nothing if all is well."""
        if self.failure:
            return [self.failure]
        if self.value is None:
            return ["it ended before anything could be counted"]
        lost, back = self.done - self.value, self.steps_back()
        return [
            sentence
            for wrong, sentence in (
                (lost > 0, f"{lost} of {self.done} acknowledged increments were lost"),
                (lost < 0, f"the counter holds {-lost} more than was acknowledged"),
                (back, f"fences did not grow: {back} of {len(self.fences)} not above the one before"),
                (not self.refused, "no stale write was refused"),
                (not self.losses, "nobody was told of a lost lease"),
                (not self.done_after_the_kill(), "nothing was incremented after the nodes had died"),
            )
            if wrong
        ]

    def facts(self) -> list[tuple[str, str, str]]:
        """The closing table: what, how many, and what that means."""
        known = self.value is not None
        back = self.steps_back()
        fences = f"{back} of them not above the one before" if back else "each above the one before"
        return [
            ("increments done", str(self.done), f"acknowledged, {self.done_after_the_kill()} after two nodes died"),
            (
                "increments lost",
                str(self.done - self.value) if self.value is not None else "?",
                f"{self.done} done, and the counter says {self.value}" if known else "the end was not reached",
            ),
            ("stale writes refused", str(self.refused), "the row had seen a newer fence"),
            ("leases lost and told", str(len(self.losses)), "by LeaseLost, at the end of the with block"),
            ("fences of the writes", str(len(self.fences)) if known else "?", fences if known else ""),
        ]

    def latency_headers(self) -> tuple[str, str, str]:
        left = self.nodes - len(self.dead)
        return "time to acquire, p50 / p99", f"{self.nodes} of {self.nodes} nodes", f"{left} of {self.nodes} nodes"

    def latencies(self) -> list[tuple[str, str, str]]:
        """The second table: how long it took to acquire what, with all nodes, and with those that were left."""
        rows = []
        for what, free in (("a lock that is free", True), ("the counter's, waiting included", False)):
            before, after = (_spread(self.waited(free=free, all_nodes=all_nodes)) for all_nodes in (True, False))
            rows.append((what, before, after))
        return rows

    def note(self) -> str:
        return "Waits for the stopped worker (until its ttl is over) are not counted."

    def moral(self) -> str:
        """What the fence was good for."""
        if self.late is None or self.late.found < self.late.wanted:
            return ""
        wiped = self.late.found - self.late.wanted + 1
        return (
            f"Without the fence the late write would have set the counter back from "
            f"{self.late.found} to {self.late.wanted}: {wiped} increments of others, acknowledged and lost."
        )

    def verdict(self) -> str:
        troubles = self.troubles()
        return f"Failed: {'; '.join(troubles)}." if troubles else f"Nothing was lost, in {self.seconds:.0f} s."


def _spread(seconds: list[float]) -> str:
    """p50 and p99, by nearest rank."""
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    p50, p99 = (ordered[math.ceil(len(ordered) * part) - 1] * 1000 for part in (0.5, 0.99))
    return f"{_ms(p50)} / {_ms(p99)} ms"


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"
