"""Looks a fleet over, and says what is wrong with it and what to do.

Facts are gathered first (`gathering`), and then judged: each check is a function over facts, which asks nobody
anything. Checks are in a file per concern; `CHECKS` is the order in which they are told.
"""

from __future__ import annotations

from typing import Any

from .findings import OK, Finding

__all__ = ["Finding", "acl_lines", "examine"]


def examine(locks: Any, seconds: float = 2.0) -> list[Finding]:
    """What there is to say of the engine of a Locker; nodes are watched for so many seconds."""
    engine = locks.engine
    if engine.name == "redis":
        from . import agreement, gathering, rights, servers, timing, transport, versions

        fleet = gathering.gather(engine, seconds)
        parts = (servers, agreement, timing, rights, versions, transport)
        return [found for part in parts for check in part.CHECKS for found in check.findings(fleet)]
    if engine.name == "sqlite":
        from . import files

        file = files.gather(engine.path, lambda: locks.nodes()[0])
        return [found for check in files.CHECKS for found in check.findings(file)]
    if engine.name != "memory":
        from . import stores

        store = stores.gather(locks)
        return [found for check in stores.CHECKS for found in check.findings(store)]
    return [Finding("engine", OK, None, f"{engine.name} lives in one process: there is nothing to look over")]


def acl_lines(locks: Any, user: str) -> list[tuple[str, list[str], list[str]]]:
    """Lines for ACL SETUSER, each with the nodes that it is for, and with remarks."""
    from . import gathering
    from .needs import setuser

    engine = locks.engine
    wire, lines = engine.wire, dict[str, tuple[list[str], list[str]]]()
    for label, found in zip(engine.labels, gathering.lacking(engine), strict=True):
        version, without = found or ((), frozenset())
        remarks = [f"{label} does not tell which commands it has: all of them are listed"] if found is None else []
        if version and version < (6, 2):
            remarks.append(f"{label} is too old for this line: rights to channels came with 6.2")
        if without:
            remarks.append(f"{label} does not know {', '.join(sorted(without))}: left out")
        line = setuser(
            user, wire.prefix, wire.channel, without=without, select="/" in label and label[:5] != "unix:"
        )
        nodes, told = lines.setdefault(line, ([], []))
        nodes.append(label)
        told += remarks
    return [(line, nodes, told) for line, (nodes, told) in lines.items()]
