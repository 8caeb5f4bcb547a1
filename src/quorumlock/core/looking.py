"""Looking at locks without touching them: who holds one, and which there are."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NoQuorum
from .effects import Round, Route, Steps
from .fleet import Fleet, muster
from .requests import Inspect, InspectMany, Past, Refused, Request, Scan
from .votes import Tally

STEP = 1000
"""Keys that a server looks at in one step: it answers others in between."""
AT_ONCE = 200
"""Locks that a server looks at in one step: a millisecond or so."""


def inspect(fleet: Fleet, name: str) -> Steps[Tally]:
    """Asks every node, and waits for all of them."""
    yield from muster(fleet)
    tally = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
    yield Round(fleet.to_all(Inspect(name)), tally, fleet.node_timeout, Route(), everyone=True)
    return tally


def survey(fleet: Fleet, pattern: str, limit: int) -> Steps[list[tuple[str, Tally]]]:
    """What all nodes say of each lock that is held on any, as `inspect` would have it; some hundred at a time.

    Raises NoQuorum where no majority could tell.
    """
    wanted = yield from names(fleet, pattern, limit)
    seen: list[tuple[str, Tally]] = []
    while len(seen) < len(wanted):
        some = tuple(wanted[len(seen) : len(seen) + AT_ONCE])
        whole = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
        yield Round(fleet.to_all(InspectMany(some)), whole, 10 * fleet.node_timeout, Route(), everyone=True)
        told = sorted(len(answer.parts) for answer in whole.answers if answer is not None and answer.parts)
        if len(told) < fleet.majority:
            raise NoQuorum(f"no majority could tell who holds locks: {whole.describe()}", whole)
        seen += [(name, _part(whole, at)) for at, name in enumerate(some[: told[0]])]
    return seen


def _part(whole: Tally, at: int) -> Tally:
    """What was said of one lock, in a round about several."""
    part = Tally(whole.nodes, whole.needed, any_answer=True, patient=True)
    for node, answer in enumerate(whole.answers):
        if answer is not None:
            part.cast(node, answer.parts[at] if answer.parts else answer)
    return part


def history(fleet: Fleet, after: Sequence[str], limit: int) -> Steps[Tally]:
    """What each node has written down behind an id of its own; raises NoQuorum where none of them tells."""
    yield from muster(fleet)
    tally = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
    requests = [Past(one, limit) for one in after]
    yield Round(requests, tally, 10 * fleet.node_timeout, Route(), everyone=True)
    if all(answer is None or answer.history is None for answer in tally.answers):
        raise NoQuorum(f"no node could tell what was written down: {tally.describe()}", tally)
    return tally


def report(fleet: Fleet, name: str, fence: int, detail: str) -> Steps[Tally]:
    """Has every node write down that a guard refused a fence."""
    yield from muster(fleet)
    tally = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
    request = Refused(name, fence, fleet.new_token(""), detail)
    yield Round(fleet.to_all(request), tally, fleet.node_timeout, Route(), everyone=True)
    return tally


def names(fleet: Fleet, pattern: str, limit: int) -> Steps[list[str]]:
    """The names that are held on any node, in order; each node is searched step by step to its end.

    Raises NoQuorum where a majority could not be searched.
    """
    yield from muster(fleet)
    found: set[str] = set()
    unheard: set[int] = set()
    cursors: list[str | None] = ["0"] * len(fleet.nodes)
    while any(cursor is not None for cursor in cursors) and len(found) < limit:
        requests: list[Request | None] = [
            None if cursor is None else Scan(pattern, cursor, STEP) for cursor in cursors
        ]
        asked = sum(request is not None for request in requests)
        needed = min(asked, fleet.majority)
        tally = Tally(fleet.nodes, needed, asked=asked, any_answer=True, patient=True)
        yield Round(requests, tally, 10 * fleet.node_timeout, Route(), everyone=True)
        for node, answer in enumerate(tally.answers):
            if requests[node] is not None:
                cursors[node] = None
                if answer is not None and answer.names is not None:
                    cursor, *more = answer.names
                    found.update(name for name in more if not name.startswith("ql:"))  # locks of our own
                    cursors[node] = None if cursor == "0" else cursor
                else:
                    unheard.add(node)
        if len(fleet.nodes) - len(unheard) < fleet.majority:
            raise NoQuorum(f"no majority could tell which locks are held: {tally.describe()}", tally)
    return sorted(found)[:limit]
