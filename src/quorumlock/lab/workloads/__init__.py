"""What the workers of a town do: one kind of work per file."""

from __future__ import annotations

from .base import Wait, Worker
from .counters import FencedCounter, GuardedCounter
from .election import Election
from .fair_queue import FairQueue
from .many_names import ManyNames
from .mutex import Mutex
from .read_write import ReadWrite
from .semaphore import Semaphore

__all__ = ["WORKLOADS", "Wait", "Worker"]

WORKLOADS: dict[str, type[Worker]] = {
    "mutex": Mutex,
    "guarded-counter": GuardedCounter,
    "fenced-counter": FencedCounter,
    "semaphore": Semaphore,
    "read-write": ReadWrite,
    "fair-queue": FairQueue,
    "election": Election,
    "many-names": ManyNames,
}
