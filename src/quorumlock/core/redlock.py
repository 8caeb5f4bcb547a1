"""The quorum protocol: acquire, confirm, release, break, look. (Extend and heal are in `renewal.py`.)

Rules, numbered because the proofs lean on them:

 1. A majority is of the configured nodes, never of the reachable ones.
 2. A token is new for every attempt, so a node can tell a resent request from a new one.
 3. UNKNOWN is not REFUSED: a node that did not answer may have executed the request.
 4. The clock is read before the first request and after the last answer; the difference is spent validity.
 5. A lease's fence is confirmed by a majority (see `fence.py`) before anybody is told of it.
 6. What was not acquired is released on all nodes, behind the requests being undone, also when cancelled.
 7. No request makes a node forget a lock earlier than it was told before, except for its release.
 8. Healing follows a successful extension and never counts towards it.
 9. Extend, confirm and release change a node only while it names the token: never somebody else's lock.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from .effects import Round, Route, Steps
from .fence import behind, confirmed
from .fleet import Fleet, muster, refuse_misfits
from .owed import Outcome, remember
from .requests import Acquire, Break, Confirm, Leave, Look, Release, Request, Ticket
from .validity import valid_until
from .votes import UNSENT, Answer, Cause, Tally, Vote

if TYPE_CHECKING:
    from .room import Room


@dataclass(slots=True)
class Grant:
    """A lock that a majority agreed on: what a lease is made of."""

    won: ClassVar[Literal[True]] = True

    name: str
    token: str = field(repr=False)
    fence: int
    ttl: float
    valid_until: float
    tally: Tally
    route: Route
    confirmed: int = 0
    """How many nodes had to be raised to the fence in a second round."""
    over: bool = False
    """Set before a release is sent, and when the lease is lost: from then on nothing is renewed or healed."""
    extending: bool = False
    """Is its holder extending it? Its keeper stands back then."""
    extensions: int = 0
    """How often its holder has begun to."""
    healed: bool = False
    """Was any node given the lock after the acquire?"""
    asked_at: float = 0.0
    """When it was first asked for."""
    heard: Tally | None = None
    """The votes of its holder's last extension; those of a slow minority come when it is over."""
    on_probation: frozenset[int] = frozenset()
    """Nodes that were healed, and do not count until those that justified it have been heard again."""
    lock_delay: float = 0.0
    """For how long the nodes keep it closed beyond its ttl."""
    expires_at: float = 0.0
    """The latest time at which it expires on a node, if it was ever extended; else 0."""
    since: float = 0.0
    """When the attempt began that won."""
    ticket: str = ""
    """Its place in the queues of nodes, which it keeps until it is released."""
    room: Room | None = None
    """Whose waiters are told when it is over."""
    exclusive: bool = True
    """Does nobody else have it?"""
    line: str = ""
    """Under which name it is waited for, if not its own."""
    names: tuple[str, ...] = ()
    """All names that its token may have been set for, if not only its own."""
    parts: tuple[Grant, ...] = ()
    """If it is of several locks: one for each."""
    kind: str = "mutex"
    serial: int = 0
    """By which onlookers know it; 0: there were none."""


@dataclass(slots=True)
class Refusal:
    """Why an attempt ended without a lock."""

    won: ClassVar[Literal[False]] = False

    tally: Tally
    busy: bool
    linger: bool
    why: str = ""

    @property
    def wait_ms(self) -> int:
        """When enough nodes will be free, if nobody renews what they hold; 0: unknown.

        Not when the last of them will: one may hold what its owner has lost.
        """
        waits = sorted(a.wait_ms for a in self.tally.answers if a and a.cause is Cause.HELD)
        free = len(self.tally.answers) - len(waits)
        return waits[max(0, min(self.tally.needed - free, len(waits)) - 1)] if waits else 0

    @property
    def holder(self) -> int | None:
        """The fence of who has it, if a majority names the same."""
        fences = [a.fence for a in self.tally.answers if a is not None and a.cause is Cause.HELD]
        return next((one for one in fences if one and fences.count(one) >= self.tally.needed), None)

    @property
    def place(self) -> int:
        """How many wait in front of us, as far as nodes told."""
        return max((a.place for a in self.tally.answers if a and a.cause is Cause.HELD), default=0)

    @property
    def split(self) -> bool:
        """Does no majority name the same holder? Then nobody can have had it, and nobody will announce anything."""
        fences = [a.fence for a in self.tally.answers if a is not None and a.cause is Cause.HELD]
        return all(fences.count(fence) < self.tally.needed for fence in fences)


class Kind:
    """One lock, alone. Other kinds (`family.py`) ask for something else, and differ in what answers mean."""

    plain = True
    """Is a majority of grants all there is to it, if their fences agree?"""
    word = "mutex"
    exclusive = True
    """Does nobody else have it then?"""
    names: tuple[str, ...] = ()
    """If it is of several locks."""

    def token(self, fleet: Fleet, start: str) -> str:
        return fleet.new_token(start)

    def tally(self, fleet: Fleet) -> Tally:
        return Tally(fleet.nodes, fleet.majority, reasoned=True)

    def request(
        self, name: str, token: str, ttl_ms: int, candidate_us: int, ticket: Ticket | None, strict: bool, card: str
    ) -> Request:
        return Acquire(name, token, ttl_ms, candidate_us, ticket, strict, card)

    def settle(
        self, fleet: Fleet, name: str, token: str, tally: Tally, ttl: float, expires_at: float, route: Route
    ) -> Steps[tuple[int, int]]:
        """The fence that a majority agrees on, and how many nodes had to be raised to it; a fence of 0: none.

        `expires_at`: when the lock expires on the nodes that have granted it.
        """
        return (yield from confirm(fleet, name, token, tally, ttl, route))

    def describe(self, grant: Grant) -> None:
        """Enters what is special about a grant of this kind."""

    def undoing(self, name: str, token: str) -> Release:
        return Release(name, token)

    def leaving(self, name: str, ticket: str) -> Leave:
        return Leave(name, ticket)


ALONE = Kind()


def acquire(
    fleet: Fleet,
    name: str,
    ttl: float,
    *,
    lock_delay: float = 0.0,
    ticket: Ticket | None = None,
    ears: Container[int] = frozenset(),
    strict: bool = False,
    route: Route | None = None,
    card: str = "",
    kind: Kind | None = None,
) -> Steps[Grant | Refusal]:
    """One attempt: one round trip, and a second one only where nodes granted different fences.

    A `ticket` is shown to those nodes alone whose announcements are heard (`ears`): others would drop it. What is
    asked for, and what the answers mean, is the `kind`'s (default: one lock, alone).
    """
    kind = kind or ALONE
    if not fleet.mustered:
        absent = yield from muster(fleet)
        if absent is not None:
            return Refusal(absent, busy=False, linger=False)
    # By how it begins one can tell whose ticket it is that stands in the queue until the release.
    token = kind.token(fleet, "" if ticket is None else ticket.id[:8])
    route = route or Route()
    tally = kind.tally(fleet)
    started_at = fleet.clock()
    ttl_ms, candidate_us = round((ttl + lock_delay) * 1000), int(fleet.wall() * 1_000_000)
    request = kind.request(name, token, ttl_ms, candidate_us, None, strict, card)
    requests = [request] * len(fleet.nodes)
    if ticket is not None:
        shown = kind.request(name, token, ttl_ms, candidate_us, ticket, strict, card)
        requests = [shown if node in ears else request for node in range(len(fleet.nodes))]
    try:
        yield Round(requests, tally, fleet.timeout(ttl), route)
        if tally.won:
            fence, raised = tally.top, 0
            if not kind.plain or tally.at_top < fleet.majority:
                expires_at = started_at + ttl + lock_delay
                fence, raised = yield from kind.settle(fleet, name, token, tally, ttl, expires_at, route)
            until = valid_until(started_at, ttl, fleet.drift)
            if fence and fleet.clock() < until:
                grant = Grant(
                    name, token, fence, ttl, until, tally, route, raised, asked_at=started_at,
                    lock_delay=lock_delay, since=started_at, ticket="" if ticket is None else ticket.member,
                    kind=kind.word,
                )  # fmt: skip
                if not kind.plain:
                    kind.describe(grant)
                return grant
            why = "collecting votes took longer than the ttl" if fence else "the fence was not confirmed"
        else:
            why = ""
    except BaseException:
        yield from undo(fleet, kind.undoing(name, token), tally, ttl + lock_delay, route)
        raise
    tally.freeze()
    linger = yield from undo(fleet, kind.undoing(name, token), tally, ttl + lock_delay, route)
    if len(fleet.nodes) - len(tally.caused(Cause.MISFIT)) < fleet.majority:
        refuse_misfits(tally)  # the fleet was changed under us: that is no outage to wait for
    return Refusal(tally, busy=tally.able and not why, linger=linger, why=why)


def confirm(fleet: Fleet, name: str, token: str, tally: Tally, ttl: float, route: Route) -> Steps[tuple[int, int]]:
    """The fence that a majority confirmed, and how many nodes were raised to it; a fence of 0: none was.

    Grants that arrive late take part: as confirmed, or as further nodes to ask.
    """
    fence = tally.top
    raised: set[int] = set()
    asked: set[int] = set()
    while len(sure := confirmed(tally, fence) | raised) < fleet.majority:
        todo = {node: granted for node, granted in behind(tally, fence).items() if node not in asked}
        if not todo:
            return 0, len(raised)
        asked |= todo.keys()
        requests: list[Request | None] = [None] * len(fleet.nodes)
        for node, granted in todo.items():
            requests[node] = Confirm(name, token, granted, fence)
        votes = fleet.tally(min(fleet.majority - len(sure), len(todo)), asked=len(todo))
        yield Round(requests, votes, fleet.timeout(ttl), route, everyone=True)
        raised |= {node for node, _ in votes.granted()}
    return fence, len(raised)


def undo(fleet: Fleet, request: Release, tally: Tally, ttl: float, route: Route) -> Steps[bool]:
    """Releases an attempt on every node that may have granted it; true if a node may still name the token."""
    if tally.all_refused():
        return False  # every node has said, after executing the request, that it did not set the token
    heard = yield from release(fleet, request.name, request.token, ttl, route, tally, request)
    return any(_may_linger(asked, released) for asked, released in zip(tally.answers, heard.answers, strict=True))


def _may_linger(asked: Answer | None, released: Answer | None) -> bool:
    """May a node that answered so to a request and to its release still name the token?"""
    if asked is not None and (asked.vote is Vote.REFUSED or asked.cause in UNSENT):
        return False
    if released is None:  # under way, behind the request; a node that was silent before may be so again
        return asked is not None and asked.vote is Vote.UNKNOWN
    return released.vote is Vote.UNKNOWN


def release(
    fleet: Fleet,
    name: str,
    token: str,
    ttl: float,
    route: Route,
    tally: Tally | None = None,
    request: Release | None = None,
    on_outcome: Outcome | None = None,
    expires_at: float = 0.0,
) -> Steps[Tally]:
    """Deletes the lock wherever it is still ours; returns when a majority has answered.

    A node to which the request of `tally`'s round was never sent does not know the token and is left alone.
    Nobody is told of it, unless a `request` is given that says so. Nodes that have not answered are sent it again,
    in the background (`owed.py`); `on_outcome` is called then if no majority had answered. That ends when the lock
    has expired everywhere: after the `ttl` that nodes were given last (with the `lock_delay`), or at `expires_at`.
    """
    requests: list[Request | None] = fleet.to_all(request or Release(name, token))
    asked = len(requests)
    if tally is not None:
        for node, answer in enumerate(tally.answers):
            if answer is not None and answer.cause in UNSENT:
                requests[node] = None
                asked -= 1
    heard = Tally(fleet.nodes, min(fleet.majority, asked), asked=asked, any_answer=True)
    if not asked:
        return heard
    timeout = fleet.timeout(ttl)
    started_at = fleet.clock()
    try:
        try:
            yield Round(requests, heard, timeout, route, everyone=True)
        except BaseException:
            # Interrupted before all of it was sent, perhaps. Saying it twice does no harm.
            heard = Tally(fleet.nodes, heard.needed, asked=asked, any_answer=True)
            yield Round(requests, heard, timeout, route, everyone=True)
            raise
        if not heard.won and (cut := heard.caused(Cause.DISCONNECTED)):
            # Said into connections that had just ended: once more, over new ones.
            yield from _say_again(fleet, requests, heard, cut, timeout, route)
    finally:
        remember(fleet, requests, heard, ttl, expires_at, route, started_at, on_outcome)
    return heard


def release_grant(fleet: Fleet, grant: Grant, request: Release | None = None) -> Steps[Tally]:
    """Releases a lock that a majority has granted, on all nodes."""
    ttl = grant.ttl + grant.lock_delay
    return release(fleet, grant.name, grant.token, ttl, grant.route, request=request, expires_at=grant.expires_at)


def _say_again(
    fleet: Fleet, requests: list[Request | None], heard: Tally, cut: list[int], timeout: float, route: Route
) -> Steps[None]:
    """Sends a release to these nodes once more, and enters what they answer."""
    again = Tally(fleet.nodes, min(heard.needed - heard.heard, len(cut)), asked=len(cut), any_answer=True)
    some = [request if node in cut else None for node, request in enumerate(requests)]
    yield Round(some, again, timeout, route, everyone=True)
    for node, answer in enumerate(again.answers):
        if answer is not None:
            heard.cast(node, answer)


def break_(fleet: Fleet, name: str, by: str = "", only: int = 0) -> Steps[Tally]:
    """Deletes the lock on all nodes, whoever holds it, and raises its fence by one.

    With `only`, a fence, nodes that have granted it with a higher one since are left as they are.

    Nodes are looked at first: one that has forgotten the lock must learn its fence, to tell a healing of the broken
    lease, which may be under way, from one of a later lease.
    """
    yield from muster(fleet)
    seen = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
    yield Round(fleet.to_all(Look(name)), seen, fleet.node_timeout, Route(), everyone=True)
    known = max((answer.fence for answer in seen.answers if answer is not None), default=0)
    tally = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
    request = Break(name, min(known, only or known), by, only)
    yield Round(fleet.to_all(request), tally, fleet.node_timeout, Route(), everyone=True)
    return tally


def broken(tally: Tally) -> bool:
    """Is the lock gone from a majority of nodes, after that round?"""
    return len(tally.caused(Cause.AGREED)) + len(tally.caused(Cause.ABSENT)) >= tally.needed


def look(fleet: Fleet, name: str, shared: bool = False) -> Steps[Tally]:
    """Asks whether an attempt could succeed now: a majority of grants says that the lock is free."""
    absent = yield from muster(fleet)
    if absent is not None:
        return absent
    tally = Tally(fleet.nodes, fleet.majority, reasoned=True)
    yield Round(fleet.to_all(Look(name, shared)), tally, fleet.node_timeout, Route())
    return tally
