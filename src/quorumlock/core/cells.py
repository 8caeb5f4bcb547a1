"""A small value beside the locks, changed by whoever has seen its last version.

One store compares and sets. On several nodes there is nobody who could compare for all, so a cell is set under a
lock of its own, and its version is that lock's fence. The lock alone would not do: its holder may be held up.

    A (fence 5) reads version 3, is stopped · its lock expires · B (fence 6) reads version 3 · A sets, then B: lost

So whoever is going to set it *enters* first: a majority of nodes notes its fence, and what an earlier one sets
later is refused by that majority. A read asks a majority and takes the highest version. Where not yet a majority
has it, somebody was interrupted half way, or is just setting it: then the reader enters, too, and sets what it
found, as a new version. So what was once read is not unread later.

Limit: a node that loses its memory forgets its cells, and gets them back when they are set again. What must not be
lost belongs into a database.
"""

from __future__ import annotations

from ..errors import EngineError, NoQuorum, VersionConflict
from .effects import Round, Route, Sleep, Steps
from .fleet import Fleet, muster
from .redlock import Grant, release_grant
from .requests import CellEnter, CellGet, CellPut, CellSwap, Release, Request
from .room import Room
from .votes import Cause, Tally, Vote
from .waiting import Wish, obtain

PATIENCE = 10
"""Node timeouts: a value may be large."""


class Cell:
    """Which cell, and the wish for the lock under which several nodes are written."""

    __slots__ = ("fleet", "name", "room", "ttl_ms", "wish")

    def __init__(self, fleet: Fleet, room: Room, name: str, ttl_ms: int, wish: Wish) -> None:
        self.fleet = fleet
        self.room = room
        self.name = name
        self.ttl_ms = ttl_ms
        self.wish = wish


def read(cell: Cell) -> Steps[tuple[bytes, int]]:
    """The value and its version; version 0: there is none."""
    fleet, name = cell.fleet, cell.name
    absent = yield from muster(fleet)
    if absent is not None:
        raise NoQuorum(f"no majority could tell what is in the cell {name!r}: {absent.describe()}", absent)
    value, version, agreeing = yield from _asked(cell, CellGet(name))
    if not version or agreeing >= fleet.majority:
        return value, version
    yield Sleep(fleet.random() * fleet.node_timeout)  # most probably it is being set
    value, version, agreeing = yield from _asked(cell, CellGet(name))
    if agreeing >= fleet.majority:
        return value, version
    grant = yield from obtain(fleet, cell.room, cell.wish)
    try:
        value, version, _ = yield from _asked(cell, CellEnter(name, grant.fence, cell.ttl_ms))
        if not version:
            return b"", 0
        yield from _ask(cell, CellPut(name, value, grant.fence, cell.ttl_ms), f"the cell {name!r} was not mended")
        return value, grant.fence
    finally:
        yield from _done(fleet, grant)


def write(cell: Cell, value: bytes, version: int) -> Steps[int]:
    """Sets the value if the cell still has this version; gives the new one, or raises VersionConflict."""
    fleet, name = cell.fleet, cell.name
    if len(fleet.nodes) == 1:
        return (yield from _swap(cell, value, version))
    grant = yield from obtain(fleet, cell.room, cell.wish)
    try:
        _, known, _ = yield from _asked(cell, CellEnter(name, grant.fence, cell.ttl_ms))
        if known != version:
            raise _conflict(name, version, known)
        what = f"the cell {name!r} may or may not have been set: read it again"
        yield from _ask(cell, CellPut(name, value, grant.fence, cell.ttl_ms), what)
        return grant.fence
    finally:
        yield from _done(fleet, grant)


def _swap(cell: Cell, value: bytes, version: int) -> Steps[int]:
    fleet, name = cell.fleet, cell.name
    yield from muster(fleet)
    tally = Tally(fleet.nodes, 1, any_answer=True)
    request = CellSwap(name, value, version, cell.ttl_ms)
    yield Round([request], tally, PATIENCE * fleet.node_timeout, Route(), everyone=True)
    answer = tally.answers[0]
    if answer is not None and answer.vote is Vote.GRANTED:
        return answer.fence
    if answer is not None and answer.cause is Cause.CHANGED:
        raise _conflict(name, version, answer.fence)
    if answer is not None and answer.cause is Cause.OTHER_KIND:
        raise EngineError(f"the cell {name!r} was not set: another kind of key is there", fleet.nodes[0])
    refused = answer is not None and answer.vote is Vote.REFUSED
    fate = "was not set" if refused else "may or may not have been set, read it again"
    raise NoQuorum(f"the cell {name!r} {fate}: {tally.describe()}", tally)


def _asked(cell: Cell, request: CellGet | CellEnter) -> Steps[tuple[bytes, int, int]]:
    """The value of the highest version that a majority knows of, that version, and how many have it."""
    tally = yield from _ask(cell, request, f"no majority could tell what is in the cell {cell.name!r}")
    found = [answer for answer in tally.answers if answer is not None and answer.vote is Vote.GRANTED]
    best = max(found, key=lambda answer: answer.fence)
    return best.value, best.fence, sum(answer.fence == best.fence for answer in found)


def _ask(cell: Cell, request: Request, otherwise: str) -> Steps[Tally]:
    fleet = cell.fleet
    tally = fleet.tally()
    yield Round(fleet.to_all(request), tally, PATIENCE * fleet.node_timeout, Route())
    tally.freeze()  # another thread may read late answers, while we judge those we have
    if not tally.won:
        if kinds := tally.caused(Cause.OTHER_KIND):
            raise EngineError(f"{otherwise}: another kind of key is there", fleet.nodes[kinds[0]])
        if len(tally.caused(Cause.CHANGED)) > len(fleet.nodes) - fleet.majority:
            raise VersionConflict(f"the cell {cell.name!r} was changed meanwhile: it took us too long")
        raise NoQuorum(f"{otherwise}: {tally.describe()}", tally)
    return tally


def _done(fleet: Fleet, grant: Grant) -> Steps[None]:
    grant.over = True
    request = Release(grant.name, grant.token, True, grant.ticket)
    tally = yield from release_grant(fleet, grant, request)
    if grant.room is not None:
        grant.room.freed(grant, any(answer is not None and answer.place for answer in tally.answers))


def _conflict(name: str, version: int, known: int) -> VersionConflict:
    return VersionConflict(f"the cell {name!r} has version {known}, not {version}: it was changed meanwhile")
