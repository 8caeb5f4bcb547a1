"""The same for locks in a store on a server: does it answer, by a clock like ours, and does it keep its word?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..core.states import READY, NodeState
from .findings import ERROR, WARNING, Check, Trouble

SAMPLES = 5
FAR = 1.0
"""Seconds between two clocks that are worth a word: leases do not depend on it, but what people read does."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One store."""

    state: NodeState
    node_timeout: float
    cautions: tuple[tuple[str, str], ...]
    """What it is set up to do that locks do not go well with, each with a remedy."""


def gather(locks: Any) -> StoreFacts:
    (state,) = locks.nodes(samples=SAMPLES)
    ask = getattr(locks.engine, "cautions", None)
    cautions = tuple(ask()) if ask is not None and state.state == READY else ()
    return StoreFacts(state, locks._settings.node_timeout, cautions)


def usable(store: StoreFacts) -> Iterator[Trouble]:
    if store.state.state != READY:
        yield Trouble(
            ERROR, store.state.node, f"cannot be used: {store.state.detail}", "correct the URL, or the server"
        )


def quick(store: StoreFacts) -> Iterator[Trouble]:
    latency = store.state.latency
    if latency is not None and latency > store.node_timeout:
        yield Trouble(
            WARNING,
            store.state.node,
            f"takes {latency * 1000:.0f} ms to answer, more than node_timeout ({store.node_timeout * 1000:.0f} ms)",
            "raise node_timeout, or bring the server nearer",
        )


def clocks(store: StoreFacts) -> Iterator[Trouble]:
    offset = store.state.clock_offset
    if offset is not None and abs(offset) > FAR:
        yield Trouble(
            WARNING,
            store.state.node,
            f"has a clock that is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}",
            "keep clocks with NTP; a clock that is set in one step ends leases early, or late",
        )


def durable(store: StoreFacts) -> Iterator[Trouble]:
    for says, remedy in store.cautions:
        yield Trouble(WARNING, store.state.node, says, remedy)


CHECKS = (
    Check("store", usable, "it answers"),
    Check("latency", quick, "it answers within node_timeout", lambda store: [store.state.latency is not None]),
    Check("clock", clocks, "its clock is like ours", lambda store: [store.state.clock_offset is not None]),
    Check("set-up", durable, "nothing speaks against it", lambda store: [store.state.state == READY]),
)
