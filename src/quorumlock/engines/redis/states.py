"""From what servers say of themselves to what they are worth for this client's fleet."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

from ...core.states import DOWN, MISFIT, QUARANTINED, READY, NodeState, down
from ...core.votes import Cause
from .link import parse_hello
from .node import Hello, Marker, Node, Terms
from .visiting import Sighting, server
from .wire import FORMAT


def states(nodes: Sequence[Node], seen: Sequence[Sighting | str]) -> tuple[NodeState, ...]:
    """A state for each node, of which there is a sighting, or why there is none."""
    hellos = [parse_hello(one.survey) if isinstance(one, Sighting) else one for one in seen]
    # Judges of their own, so that nothing changes for those who lock; what was warned of is not told again.
    judges = [Node(node.index, node.label, node.terms, _warned=node._warned) for node in nodes]
    for judge, hello in zip(judges, hellos, strict=True):
        judge.mates = judges
        judge.run_id = hello.run_id if isinstance(hello, Hello) else ""
    found = []
    for judge, one, hello in zip(judges, seen, hellos, strict=True):
        if isinstance(one, str):
            found.append(down(judge.label, one))
        elif isinstance(hello, Hello):
            state, detail, left = standing(judge, hello, one.info.get("master_replid", ""))
            found.append(_told(judge.label, one, state, detail, left, hello.role))
        else:
            assert not isinstance(hello, str)
            state = MISFIT if hello.cause is Cause.UNSUPPORTED else DOWN
            found.append(_told(judge.label, one, state, hello.detail, 0.0, one.info.get("role", "")))
    return tuple(found)


def _told(label: str, seen: Sighting, state: str, detail: str, left: float, role: str) -> NodeState:
    kind, version = server(seen.info)
    return NodeState(label, state, detail, role or None, kind, version, seen.latency, seen.offset, left)


def standing(node: Node, hello: Hello, replication_id: str) -> tuple[str, str, float]:
    """The state, the reason, and the seconds of quarantine that are left. Says what join.lua would do, undone."""
    marker = readable(hello.marker)
    status = "misfit" if hello.marker and (marker is None or differs(marker, node.terms)) else hello.status
    refusal = node.judge(dataclasses.replace(hello, status=status))
    if refusal is not None:
        return MISFIT, refusal.detail.removeprefix(f"{node.label} "), 0.0
    if marker is None:
        if not node.terms.quarantine:
            return READY, "", 0.0
        detail = "has no marker: it is new, or was emptied. `quorumlock init` makes a fleet ready that is new"
        return QUARANTINED, detail, node.terms.max_ttl
    if marker.closed:
        detail = "is closed: a change of the fleet has not reached every node; repeat `quorumlock init --force`"
        return QUARANTINED, detail, marker.span_ms / 1000
    if node.terms.quarantine and not node.terms.durable and marker.identity != identity(hello, replication_id):
        detail = "has restarted, or changed its role: its quarantine begins when a client meets it"
        return QUARANTINED, detail, max(node.terms.max_ttl, marker.span_ms / 1000)
    left = min(hello.quarantine_ms(), marker.span_ms) / 1000
    return (QUARANTINED, "grants nothing yet, and then takes part by itself", left) if left else (READY, "", 0.0)


def readable(marker: bytes) -> Marker | None:
    try:
        return Marker.parse(marker) if marker else None
    except ValueError:
        return None


def differs(marker: Marker, terms: Terms) -> bool:
    """Would join.lua call it a misfit? Without quarantine, clients may differ in max_ttl and durable."""
    if (marker.format, marker.fleet, marker.nodes) != (FORMAT, terms.fleet, terms.nodes):
        return True
    if marker.quarantine != terms.quarantine:
        return True
    return terms.quarantine and (
        (marker.max_ttl_ms, marker.durable) != (round(terms.max_ttl * 1000), terms.durable)
    )


def identity(hello: Hello, replication_id: str) -> str:
    """As in join.lua, where there is a quarantine."""
    run = hashlib.sha1(hello.run_id.encode(), usedforsecurity=False).hexdigest()[:16]
    return f"{run}-{replication_id[:16]}"
