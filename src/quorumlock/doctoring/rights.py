"""May this user do what locks need?"""

from __future__ import annotations

from collections.abc import Iterator

from .facts import FleetFacts, on_nodes
from .findings import ERROR, WARNING, Check, Trouble

ORPHANS = "a connection that owes an answer cannot be ended: a lock may stay for one ttl although nobody has it"
NO_JOURNAL = "no journal can be kept, or read"
BEARABLE = {
    "client|info": ORPHANS,
    "client|kill": ORPHANS,
    "script|load": "the first request of a connection takes longer",
    "subscribe": "whoever waits has to ask again and again",
    "publish": "whoever waits has to ask again and again",
    "scan": "`quorumlock ls` cannot search",
    "xadd": NO_JOURNAL,
    "xrange": NO_JOURNAL,
    "xrevrange": NO_JOURNAL,
    "ping": "a subscription that has nothing to say is given up, and made again",
}
"""What locks can do without, and what that costs."""
UNSEEN = "replicas, restarts and servers that are listed twice go unnoticed"
"""INFO, where there is no quarantine; else a restart must be noticed."""


def rights(fleet: FleetFacts) -> Iterator[Trouble]:
    remedy = "`quorumlock doctor --acl` prints a line for ACL SETUSER that allows what is needed, and no more"
    bearable = BEARABLE if fleet.terms.quarantine else {**BEARABLE, "info": UNSEEN}
    for node in fleet.nodes:
        fatal = [one for one in node.denied if one not in bearable]
        if fatal:
            yield Trouble(
                ERROR, node.node, f"does not let this user do {', '.join(fatal)}: locks need that", remedy
            )
        costs: dict[str, list[str]] = {}
        for one in node.denied:
            if one in bearable:
                costs.setdefault(bearable[one], []).append(one)
        for cost, commands in costs.items():
            yield Trouble(WARNING, node.node, f"does not let this user do {', '.join(commands)}: {cost}", remedy)


CHECKS = (Check("rights", rights, "this user may do all that locks need", on_nodes(lambda node: node.up)),)
