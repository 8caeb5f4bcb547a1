"""Is each node there, is it a server of its own, and does it remember what it should?"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.states import DOWN
from ..engines.redis.states import mode_of
from .facts import FleetFacts, NodeFacts, on_nodes
from .findings import ERROR, WARNING, Check, Trouble

NEARLY_FULL = 0.8


def unreachable(fleet: FleetFacts) -> Iterator[Trouble]:
    for node in fleet.nodes:
        if node.state.state == DOWN:
            why = node.state.detail
            remedy = "start it; check its address, the firewall between, and bind in its configuration"
            if any(word in why.lower() for word in ("noauth", "wrongpass", "password", "authentication")):
                remedy = "correct the user or the password in the URL"
            elif "noperm" in why.lower() or "permissions" in why.lower():
                remedy = "let this user do what locks need: `quorumlock doctor --acl` prints the line"
            elif "did not answer" in why or "timeout" in why.lower():
                remedy = "it hangs, is overloaded, or is behind a firewall: look at its process and the way to it"
            yield Trouble(ERROR, node.node, f"cannot be used: {why}", remedy)


def same_server(fleet: FleetFacts) -> Iterator[Trouble]:
    """By run id: a server that is listed twice would vote twice, and fake a majority."""
    known: dict[str, str] = {}
    for node in fleet.answering:
        run_id = node.info.get("run_id", "")
        if run_id and run_id in known:
            yield Trouble(
                ERROR,
                node.node,
                f"and {known[run_id]} are one server: it would vote twice",
                "list every server once; a fleet needs servers that fail one by one",
            )
        known.setdefault(run_id, node.node)


def roles(fleet: FleetFacts) -> Iterator[Trouble]:
    for node in fleet.answering:
        mode, role = mode_of(node.info), node.info.get("role", "master")
        if mode not in ("", "standalone"):
            remedy = "use independent masters: locks over a cluster, or behind Sentinel, are not safe"
            yield Trouble(ERROR, node.node, f"runs in {mode} mode", remedy)
        elif role != "master":
            remedy = "list the master in its place, or make it one of its own: REPLICAOF NO ONE"
            yield Trouble(ERROR, node.node, "is a replica: what it knows of locks is somebody else's", remedy)
        elif replicas := node.number("connected_slaves"):
            yield Trouble(
                WARNING,
                node.node,
                f"has {replicas} {'replica' if replicas == 1 else 'replicas'}. The first one to attach looks like "
                "a restart, and one that is promoted may lack the last locks",
                "take them away (REPLICAOF NO ONE there): a fleet needs none; for backups BGSAVE is enough",
            )


def persistence(fleet: FleetFacts) -> Iterator[Trouble]:
    """None is needed where a node that restarts is quarantined. Where it is trusted, it must not have forgotten."""
    terms = fleet.terms
    trusted = (
        "durable=True trusts a node that restarts" if terms.durable else "without quarantine a restart is trusted"
    )
    if not _trusts(fleet):
        return
    for node in fleet.answering:
        lacks = _lacks(node)
        if lacks == "unknown":
            yield Trouble(
                WARNING,
                node.node,
                f"does not let this user run CONFIG GET, and {trusted}: nobody knows whether it keeps every write",
                "allow +config|get for this check, or look yourself for appendonly yes and appendfsync always",
            )
        elif lacks:
            yield Trouble(
                ERROR,
                node.node,
                f"has {lacks}, and {trusted}: it may come back without locks that are held, and grant them again",
                "set appendonly yes and appendfsync always"
                + (
                    "; or connect without durable"
                    if terms.durable
                    else "; or leave quarantine on, as it is by default"
                ),
            )


def _trusts(fleet: FleetFacts) -> bool:
    terms = fleet.terms
    return terms.durable or not (terms.quarantine or terms.nodes == 1)


def _lacks(node: NodeFacts) -> str:
    appends, policy = node.info.get("aof_enabled") or node.config.get("appendonly"), node.config.get("appendfsync")
    if appends in ("0", "no"):
        return "appendonly no"
    if not appends or not policy:
        return "unknown"
    return "" if policy == "always" else f"appendfsync {policy}"


def disk(fleet: FleetFacts) -> Iterator[Trouble]:
    """A server that cannot save refuses writes, and locks are writes."""
    for node in fleet.answering:
        for field, what in (("rdb_last_bgsave_status", "snapshot"), ("aof_last_write_status", "append-only file")):
            if node.info.get(field, "ok") != "ok":
                stops = what != "snapshot" or node.config.get("stop-writes-on-bgsave-error", "yes") == "yes"
                yield Trouble(
                    ERROR if stops else WARNING,
                    node.node,
                    f"could not write its {what}" + (": it refuses writes, locks among them" if stops else ""),
                    "look into its log: a full disk, or a folder that is gone; no persistence is needed for locks",
                )


def memory(fleet: FleetFacts) -> Iterator[Trouble]:
    for node in fleet.answering:
        limit, used = node.number("maxmemory"), node.number("used_memory")
        policy = node.info.get("maxmemory_policy", "noeviction")
        if limit and policy != "noeviction":
            yield Trouble(
                ERROR if fleet.count >= 3 else WARNING,
                node.node,
                f"may evict locks: maxmemory-policy is {policy}",
                "set maxmemory-policy noeviction, or give locks a server of their own",
            )
        if limit and used > NEARLY_FULL * limit:
            full = used >= limit
            yield Trouble(
                ERROR if full else WARNING,
                node.node,
                f"uses {_mega(used)} of maxmemory {_mega(limit)}"
                + (": locks are refused with OOM" if full and policy == "noeviction" else ""),
                "raise maxmemory, or let other tenants use another server",
            )


def _mega(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


TOLD = on_nodes(lambda node: node.info)
CHECKS = (
    Check("reachable", unreachable, "every node answers"),
    Check("same server", same_server, "no two that answer are the same", TOLD),
    Check("role", roles, "all that answer are masters without replicas", TOLD),
    Check(
        "persistence",
        persistence,
        "what nodes keep on disk suits this fleet: who is quarantined needs nothing",
        lambda fleet: [node.up or not _trusts(fleet) for node in fleet.nodes],
    ),
    Check("disk", disk, "no node has failed to write to its disk", TOLD),
    Check("memory", memory, "no node may evict a lock, and none is nearly full", TOLD),
)
