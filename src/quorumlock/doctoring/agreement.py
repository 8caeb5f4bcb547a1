"""Do nodes and this client mean the same fleet, and is there a majority of it?"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.states import DOWN, QUARANTINED, READY
from ..engines.redis.states import differs
from .facts import FleetFacts, on_nodes
from .findings import ERROR, OK, WARNING, Check, Trouble


def markers(fleet: FleetFacts) -> Iterator[Trouble]:
    """What nodes remember of their fleet: N, the list, max_ttl, durable, quarantine."""
    terms = fleet.terms
    for node in fleet.answering:
        if node.marked and node.marker is None:
            yield Trouble(
                ERROR,
                node.node,
                "has a marker that this version of quorumlock cannot read",
                "upgrade quorumlock here; if the marker is damaged, `quorumlock init --force` writes it anew",
            )
        elif node.marker is not None and differs(node.marker, terms):
            yield Trouble(
                ERROR,
                node.node,
                f"belongs to a fleet with other terms: {node.marker.differences(terms) or 'another format'}",
                "give every client the same node list and settings (--fleet NAME where addresses are spelled "
                "differently); `quorumlock init --force` changes a fleet on purpose",
            )
        elif node.marker is not None and node.marker.closed:
            yield Trouble(
                ERROR,
                node.node,
                "is closed: a change of the fleet has not reached every node, and it grants nothing",
                "repeat `quorumlock init --force`",
            )
    if terms.quarantine:
        yield from _missing(fleet)


def _missing(fleet: FleetFacts) -> Iterator[Trouble]:
    knows = [node for node in fleet.nodes if node.state.state != DOWN]
    without = [node for node in knows if not node.marked]
    if without and len(without) == len(knows):
        yield Trouble(
            WARNING,
            None,
            "no node has a marker: this fleet was never initialised, and grants nothing for its first "
            f"{fleet.terms.max_ttl:g} s",
            "`quorumlock init`, once, with the same options",
        )
        return
    for node in without:
        yield Trouble(
            WARNING,
            node.node,
            "has no marker, but others have: it is new, or has lost its memory (a restart, FLUSHALL). It grants "
            f"nothing for {fleet.terms.max_ttl:g} s from when a client meets it",
            "nothing, if you replaced or restarted it; else find out who emptied it",
        )


def quarantines(fleet: FleetFacts) -> Iterator[Trouble]:
    """Who votes for nobody yet; and whether enough are left."""
    waiting = [node for node in fleet.nodes if node.state.state == QUARANTINED and node.marker is not None]
    for node in waiting:
        if not (node.marker and node.marker.closed):
            yield Trouble(
                WARNING,
                node.node,
                f"is in quarantine for {node.state.quarantine:.1f} s: {node.state.detail}",
                "wait; restart no other node meanwhile",
            )
    ready, needed = sum(node.state.state == READY for node in fleet.nodes), fleet.count // 2 + 1
    if ready < needed:
        yield Trouble(
            ERROR,
            None,
            f"{ready} of {fleet.count} nodes are ready, {needed} needed: no lock is granted now",
            "see what is said of the others",
        )


def numbers(fleet: FleetFacts) -> Iterator[Trouble]:
    """How many nodes."""
    count = fleet.count
    if count == 1:
        yield Trouble(
            OK,
            None,
            "one node: no locks while it is down, and two holders may be if it comes back without its memory",
            "good for saving work; where a second holder does harm, use three nodes, or fence the resource",
        )
    elif count % 2 == 0:
        survive = (count - 1) // 2
        yield Trouble(
            WARNING,
            None,
            f"{count} nodes survive the loss of {survive}, as {count - 1} do, and there is one more to fail",
            f"use {count + 1} nodes, or {count - 1}",
        )


CHECKS = (
    Check("number of nodes", numbers, "an odd number of nodes"),
    Check(
        "markers",
        markers,
        "all nodes agree with this client on the fleet and its terms",
        on_nodes(lambda node: node.up),
    ),
    Check("majority", quarantines, "a majority is ready, and no node is in quarantine"),
)
