"""A small value beside the locks, changed by whoever has seen its last version.

One store compares and sets. On several nodes there is nobody who could compare for all, so a cell is set under a
lock of its own, and its version is that lock's fence: the value is written to a majority, and a node takes it only
if its version is higher than what it has. A read asks a majority, takes the highest version, and writes it back
where not yet a majority has it: what was once read is not unread later.

Limit: a node that loses its memory forgets its cells, and nobody heals them but the next who reads. What must not
be lost belongs into a database.
"""

from __future__ import annotations

from ..errors import EngineError, NoQuorum, VersionConflict
from .effects import Round, Route, Steps
from .fleet import Fleet, muster
from .redlock import Grant, release
from .requests import CellGet, CellPut, CellSwap, Release, Request
from .room import Room
from .votes import Cause, Tally, Vote
from .waiting import Wish, obtain

PATIENCE = 10
"""Node timeouts: a value may be large."""


def read(fleet: Fleet, name: str, ttl_ms: int) -> Steps[tuple[bytes, int]]:
    """The value and its version; version 0: there is none."""
    absent = yield from muster(fleet)
    if absent is not None:
        raise NoQuorum(f"no majority could tell what is in the cell {name!r}: {absent.describe()}", absent)
    tally = yield from _ask(fleet, CellGet(name), f"no majority could tell what is in the cell {name!r}")
    found = [answer for answer in tally.answers if answer is not None and answer.vote is Vote.GRANTED]
    best = max(found, key=lambda answer: answer.fence)
    agreeing = sum(answer.fence == best.fence for answer in found)
    if best.fence and agreeing < fleet.majority:
        yield from _ask(fleet, CellPut(name, best.value, best.fence, ttl_ms), f"the cell {name!r} was not mended")
    return best.value, best.fence


def write(fleet: Fleet, room: Room, wish: Wish, name: str, value: bytes, version: int, ttl_ms: int) -> Steps[int]:
    """Sets the value if the cell still has this version; gives the new one, or raises VersionConflict.

    `wish`: for the lock under which several nodes are written.
    """
    if len(fleet.nodes) == 1:
        return (yield from _swap(fleet, name, value, version, ttl_ms))
    grant = yield from obtain(fleet, room, wish)
    try:
        _, known = yield from read(fleet, name, ttl_ms)
        if known != version:
            raise _conflict(name, version, known)
        what = f"the cell {name!r} may or may not have been set: read it again"
        yield from _ask(fleet, CellPut(name, value, grant.fence, ttl_ms), what)
        return grant.fence
    finally:
        yield from _done(fleet, grant)


def _swap(fleet: Fleet, name: str, value: bytes, version: int, ttl_ms: int) -> Steps[int]:
    yield from muster(fleet)
    tally = Tally(fleet.nodes, 1, any_answer=True)
    request = CellSwap(name, value, version, ttl_ms)
    yield Round([request], tally, PATIENCE * fleet.node_timeout, Route(), everyone=True)
    answer = tally.answers[0]
    if answer is not None and answer.vote is Vote.GRANTED:
        return answer.fence
    if answer is not None and answer.cause is Cause.CHANGED:
        raise _conflict(name, version, answer.fence)
    raise NoQuorum(f"the cell {name!r} may or may not have been set, read it again: {tally.describe()}", tally)


def _ask(fleet: Fleet, request: Request, otherwise: str) -> Steps[Tally]:
    tally = fleet.tally()
    yield Round(fleet.to_all(request), tally, PATIENCE * fleet.node_timeout, Route())
    if not tally.won:
        if kinds := tally.caused(Cause.OTHER_KIND):
            raise EngineError(f"{otherwise}: another kind of key is there", fleet.nodes[kinds[0]])
        raise NoQuorum(f"{otherwise}: {tally.describe()}", tally)
    return tally


def _done(fleet: Fleet, grant: Grant) -> Steps[None]:
    grant.over = True
    request = Release(grant.name, grant.token, True, grant.ticket)
    tally = yield from release(fleet, grant.name, grant.token, grant.ttl, grant.route, request=request)
    if grant.room is not None:
        grant.room.freed(grant, any(answer is not None and answer.place for answer in tally.answers))


def _conflict(name: str, version: int, known: int) -> VersionConflict:
    return VersionConflict(f"the cell {name!r} has version {known}, not {version}: it was changed meanwhile")
