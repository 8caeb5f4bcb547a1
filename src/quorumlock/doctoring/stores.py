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
    """One store, which may have several servers."""

    states: tuple[NodeState, ...]
    node_timeout: float
    cautions: tuple[tuple[str, str], ...]
    """What it is set up to do that locks do not go well with, each with a remedy."""


def gather(locks: Any) -> StoreFacts:
    states = locks.nodes(samples=SAMPLES)
    ask = getattr(locks.engine, "cautions", None)
    cautions = tuple(ask()) if ask is not None and all(state.state == READY for state in states) else ()
    return StoreFacts(states, locks._settings.node_timeout, cautions)


def usable(store: StoreFacts) -> Iterator[Trouble]:
    for state in store.states:
        if state.state != READY:
            yield Trouble(ERROR, state.node, f"cannot be used: {state.detail}", "correct the URL, or the server")


def quick(store: StoreFacts) -> Iterator[Trouble]:
    most = store.node_timeout
    for state in store.states:
        if state.latency is not None and state.latency > most:
            yield Trouble(
                WARNING,
                state.node,
                f"takes {state.latency * 1000:.0f} ms to answer, more than node_timeout ({most * 1000:.0f} ms)",
                "raise node_timeout, or bring the server nearer",
            )


def clocks(store: StoreFacts) -> Iterator[Trouble]:
    for state in store.states:
        offset = state.clock_offset
        if offset is not None and abs(offset) > FAR:
            yield Trouble(
                WARNING,
                state.node,
                f"has a clock that is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}",
                "keep clocks with NTP; a clock that is set in one step ends leases early, or late",
            )


def durable(store: StoreFacts) -> Iterator[Trouble]:
    for says, remedy in store.cautions:
        yield Trouble(WARNING, store.states[0].node, says, remedy)


CHECKS = (
    Check("store", usable, "it answers"),
    Check("latency", quick, "it answers within node_timeout", lambda store: _seen(store, "latency")),
    Check("clock", clocks, "its clock is like ours", lambda store: _seen(store, "clock_offset")),
    Check(
        "set-up", durable, "nothing speaks against it", lambda store: [one.state == READY for one in store.states]
    ),
)


def _seen(store: StoreFacts, what: str) -> list[bool]:
    return [getattr(state, what) is not None for state in store.states]
