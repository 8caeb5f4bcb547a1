"""Which nodes and which front each case of the contract is run on.

Every case is run on every engine. Both fronts run every case in memory and on three servers of the first kind; on
the other nodes they take turns: a case that one engine runs with threads the next one runs on asyncio. The name of
the case decides where that begins, so about half of all cases are run by each front on each engine. With
QUORUMLOCK_LONG=1 both fronts run every case everywhere.

One, three and five nodes, and every kind of server, but not each with each: how many nodes there are is the core's
concern, and what a server does is its own. A case that takes time is run on fewer numbers of nodes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from quorumlock.lab.servers import BINARIES

FRONTS = ("threads", "asyncio")
SINGLE = ("sqlite", "postgresql", "mysql", "zookeeper", "etcd")
"""Engines that have one node, as far as a client knows."""


class Turn(NamedTuple):
    """One run of a case: on so many nodes of an engine, by one of the fronts."""

    engine: str
    nodes: int
    side: str


def is_long() -> bool:
    """Whether everything is to be run, however long that takes."""
    return bool(os.environ.get("QUORUMLOCK_LONG"))


def turns(case: str, marked: Collection[str], *, long: bool) -> list[Turn]:
    """The runs of a case of that name and with these markers."""
    offset = zlib.crc32(case.encode())
    found: list[Turn] = []
    for index, (engine, nodes, always_both) in enumerate(places(marked)):
        if "only_asyncio" in marked:
            fronts: Sequence[str] = ["asyncio"]
        else:
            fronts = FRONTS if always_both or long else [FRONTS[(offset + index) % 2]]
        found += [Turn(engine, nodes, front) for front in fronts]
    return [turn for turn in dict.fromkeys(found) if fits(turn, marked)]


def places(marked: Collection[str]) -> Iterator[tuple[str, int, bool]]:
    """Engines and numbers of nodes; and whether both fronts are always run there.

    A place has the same index for every case, whatever else it is run on.
    """
    first, *others = BINARIES
    yield first, 3, True
    yield "memory", 3 if "disagreement" in marked else 1, True
    for engine in SINGLE:
        yield engine, 1, False
    if "takes_time" not in marked:
        yield first, 1, False
        for other in others:
            yield other, 5, False
        yield "memory", 3, False


def fits(turn: Turn, marked: Collection[str]) -> bool:
    """Whether a case can be run there: it may be about Redis keys, or need more nodes than one."""
    return (turn.engine in BINARIES or "redis_keys" not in marked) and (
        turn.nodes > 1 or "disagreement" not in marked
    )
