"""How a node is doing, for whoever looks after a fleet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

READY, QUARANTINED, DOWN, MISFIT = "ready", "quarantined", "down", "misfit"


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node, as it was found just now."""

    node: str
    state: str
    """ready, quarantined (it votes for nobody yet), down, or misfit (it cannot belong to this client's fleet)."""
    detail: str
    """Why, and what to do; empty for a node that is ready."""
    role: str | None
    server: str | None
    """valkey, redis, sqlite, memory, zookeeper, etcd, postgresql or mysql."""
    version: str | None
    latency: float | None
    """Seconds that a question and its answer take: the median of some."""
    clock_offset: float | None
    """The node's clock less this machine's, in seconds."""
    quarantine: float
    """Seconds that are left of it."""


def down(node: str, detail: str) -> NodeState:
    """A node of which nothing is known but why."""
    return NodeState(node, DOWN, detail, None, None, None, None, None, 0.0)


def median(seconds: Iterable[float]) -> float:
    """Of an even number the higher one. (The module `statistics` would take longer to import than a lock takes.)"""
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2]
