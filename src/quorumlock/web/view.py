"""Locks, nodes and events as the API shows them. No token is in it, not even its start."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Any, TypeAlias

from .. import Holder, Inspection

Json: TypeAlias = dict[str, Any]


def who(host: str | None, pid: int | None, foreign: bool = False) -> str:
    """host:pid; empty for holders that do not say who they are."""
    if foreign:
        return "foreign"
    return f"{host or '?'}:{pid or '?'}" if host or pid else ""


def row(found: Inspection) -> Json:
    """A lock in a list: only what changes with its holder, so that renewals change nothing."""
    first = found.holder
    return {
        "name": found.name,
        "state": found.state,
        "kind": found.kind,
        "who": who(first.host, first.pid, first.foreign) if first else "",
        "where": first.where if first else None,
        "since": first.since if first else None,
        "fence": first.fence if first else None,
        "note": first.note if first else None,
        "holders": len(found.holders),
        "waiting": len(found.waiters),
    }


def holder(one: Holder) -> Json:
    return {
        "who": who(one.host, one.pid, one.foreign),
        "where": one.where,
        "since": one.since,
        "remaining": one.remaining,
        "fence": one.fence,
        "note": one.note,
    }


def lock(found: Inspection) -> Json:
    """A lock on its own page."""
    letters: dict[str, str] = {}
    for view in found.nodes:
        if view.token and view.token not in letters:
            letters[view.token] = ascii_uppercase[len(letters) % 26]
    return {
        "name": found.name,
        "state": found.state,
        "kind": found.kind,
        "holders": [holder(one) for one in found.holders],
        "waiters": [{"who": who(one.host, one.pid), "shares": one.shares} for one in found.waiters],
        "nodes": [
            {
                "node": view.node,
                "says": view.says,
                "remaining": view.remaining,
                "fence": view.fence,
                # Nodes that name the same holder have the same letter; more of its token is nobody's business.
                "holder": letters.get(view.token or ""),
            }
            for view in found.nodes
        ],
    }


def node(one: Any, latencies: Iterable[float | None]) -> Json:
    """A node, and how quick it was of late."""
    return {
        "node": one.node,
        "state": one.state,
        "detail": one.detail,
        "role": one.role,
        "server": one.server,
        "version": one.version,
        "latency": one.latency,
        "clock_offset": one.clock_offset,
        "quarantine": one.quarantine,
        "latencies": list(latencies),
    }


def event(number: int, entry: Any) -> Json:
    """An entry of the journal, or what took its place; numbered in the order in which it was learnt."""
    return {
        "id": number,
        "at": entry.at,
        "what": entry.what,
        "name": entry.name,
        "fence": entry.fence,
        "who": entry.who,
        "detail": entry.detail,
    }
