"""What is known of a fleet before anybody judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..core.states import DOWN, NodeState
from ..engines.redis.node import Marker, Terms
from ..engines.redis.visiting import Trip


@dataclass(frozen=True, slots=True)
class Transport:
    """How the bytes get there."""

    tls: bool
    verified: bool
    """Is the certificate of the server checked?"""
    local: bool
    """Do they stay on this machine?"""
    expires_in: float | None = None
    """Seconds that the server's certificate is valid for, where that is known."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One server."""

    state: NodeState
    info: Mapping[str, str] = field(default_factory=dict)
    """Of INFO; empty where it is denied."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Of CONFIG GET; empty where it is denied."""
    marker: Marker | None = None
    marked: bool = False
    """Is there a marker, if only one that cannot be read?"""
    trips: tuple[Trip, ...] = ()
    denied: tuple[str, ...] = ()
    """What this user may not do, of what the library needs."""
    transport: Transport | None = None

    @property
    def node(self) -> str:
        return self.state.node

    @property
    def up(self) -> bool:
        return bool(self.info) or self.state.state != DOWN

    def number(self, name: str) -> int:
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else 0


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """All of them, and what this client expects of them."""

    nodes: tuple[NodeFacts, ...]
    terms: Terms
    node_timeout: float
    drift: float

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def answering(self) -> list[NodeFacts]:
        return [node for node in self.nodes if node.up]


def on_nodes(shows: Callable[[NodeFacts], object]) -> Callable[[FleetFacts], list[bool]]:
    """For `Check.sees`: which nodes have shown it."""
    return lambda fleet: [bool(shows(node)) for node in fleet.nodes]
