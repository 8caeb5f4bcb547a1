"""Kinds of locks beside the plain one: shared, one of several, several at once. They differ by what is asked for.

Rules, beside those of `redlock.py`:

1. Who shares a lock has a majority of nodes that list it among the readers, each with its own end. A majority of
   nodes without readers is needed to have it alone; two majorities meet. Its fence is that of the last who had it
   alone, or of an attempt to: readers need no order among themselves, so it is not raised for them; but a majority
   confirms it, so that who has it alone later has a higher one.
2. A semaphore is so many locks (*slots*), each kept by a majority. Every node gives the first that is free, in the
   order that the client says; only nodes that gave the same one count. (A counter on each node would be wrong:
   with three nodes and two permits, three clients get majorities.) What other nodes gave is released.
3. Several locks are set all or none, on each node in one script. Each has a fence; a node is confirmed if all of
   its fences are the highest.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import LossReason
from .effects import Round, Route, Steps
from .fleet import Fleet
from .owed import remember
from .redlock import Grant, Kind, release_grant
from .requests import (
    READER,
    Acquire,
    AcquireAll,
    AcquireAny,
    ConfirmAll,
    Downgrade,
    Leave,
    Release,
    Request,
    Ticket,
)
from .validity import valid_until
from .votes import Answer, Cause, Tally, Vote

SLOTS_MOST = 1000
NAMES_MOST = 100


class Write(Kind):
    """Alone, among others who would share it."""

    word = "write"


class Lead(Kind):
    """Alone, as a leader."""

    word = "leader"


class Read(Kind):
    """Beside others who share it."""

    plain = False
    word = "read"
    exclusive = False

    def token(self, fleet: Fleet, start: str) -> str:
        return READER + fleet.new_token(start)

    def request(
        self, name: str, token: str, ttl_ms: int, candidate_us: int, ticket: Ticket | None, strict: bool, card: str
    ) -> Request:
        return Acquire(name, token, ttl_ms, candidate_us, ticket, strict, card, shared=True)

    def settle(
        self, fleet: Fleet, name: str, token: str, tally: Tally, ttl: float, expires_at: float, route: Route
    ) -> Steps[tuple[int, int]]:
        fences, raised = yield from confirm_all(fleet, (name,), token, tally, ttl, route)
        return max(fences), raised

    def describe(self, grant: Grant) -> None:
        grant.exclusive = False


class AnyOf(Kind):
    """One slot of a semaphore."""

    plain = False
    word = "slot"
    exclusive = False

    def __init__(self, name: str, permits: int, first: int = 0) -> None:
        """`first`: with which slot to begin; clients that begin with different ones rarely meet."""
        self.names = tuple(f"{name}#{(first + i) % permits}" for i in range(permits))

    def tally(self, fleet: Fleet) -> Tally:
        return Alike(fleet.nodes, fleet.majority, reasoned=True)

    def request(
        self, name: str, token: str, ttl_ms: int, candidate_us: int, ticket: Ticket | None, strict: bool, card: str
    ) -> Request:
        return AcquireAny(self.names, name, token, ttl_ms, candidate_us, ticket, strict, card)

    def settle(
        self, fleet: Fleet, name: str, token: str, tally: Tally, ttl: float, expires_at: float, route: Route
    ) -> Steps[tuple[int, int]]:
        assert isinstance(tally, Alike)
        slot = self.names[tally.favourite]
        same = tally.only(tally.favourite)
        fence, raised = same.top, 0
        if same.at_top < fleet.majority:
            fence, raised = yield from super().settle(fleet, slot, token, same, ttl, expires_at, route)
        others = {node for node, _ in tally.granted()} - {node for node, _ in same.granted()}
        if fence and others:
            # Nobody has what they gave: a slot that would be missing on these nodes for a ttl. (What comes when it
            # is decided is released with the lease.)
            strays = Release(name, token, names=tuple(one for one in self.names if one != slot), line=name)
            requests = [strays if node in others else None for node in range(len(fleet.nodes))]
            heard = Tally(fleet.nodes, len(others), asked=len(others), any_answer=True)
            started_at = fleet.clock()
            yield Round(requests, heard, fleet.timeout(ttl), route, everyone=True)
            remember(fleet, requests, heard, ttl, expires_at, route, started_at)
        return fence, raised

    def describe(self, grant: Grant) -> None:
        assert isinstance(grant.tally, Alike)
        grant.line, grant.names = grant.name, self.names
        grant.name = self.names[grant.tally.favourite]
        grant.exclusive = False

    def undoing(self, name: str, token: str) -> Release:
        return Release(name, token, names=self.names, line=name)

    def leaving(self, name: str, ticket: str) -> Leave:
        return Leave(name, ticket, self.names, name)


class Alike(Tally):
    """Grants count together only if they are of the same choice."""

    favourite = 0
    """The choice that most nodes made."""

    def _can_be_decided(self) -> bool:
        counts: dict[int, int] = {}
        for answer in self.answers:
            if answer is not None and answer.vote is Vote.GRANTED:
                counts[answer.choice] = counts.get(answer.choice, 0) + 1
        self.favourite = max(counts, key=lambda choice: (counts[choice], -choice), default=0)
        self.heard = counts.get(self.favourite, 0)
        return super()._can_be_decided()

    def only(self, choice: int) -> Tally:
        """The votes, as if those who chose otherwise had refused."""
        same = Tally(self.nodes, self.needed, patient=True)
        for node, answer in enumerate(self.answers):
            if answer is not None:
                other = answer.vote is Vote.GRANTED and answer.choice != choice
                same.cast(node, Answer(Vote.REFUSED, Cause.HELD) if other else answer)
        return same


class AllOf(Kind):
    """Several locks at once."""

    plain = False
    word = "multi"

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._fences: dict[str, tuple[int, ...]] = {}

    def request(
        self, name: str, token: str, ttl_ms: int, candidate_us: int, ticket: Ticket | None, strict: bool, card: str
    ) -> Request:
        return AcquireAll(self.names, token, ttl_ms, candidate_us, ticket, card)

    def settle(
        self, fleet: Fleet, name: str, token: str, tally: Tally, ttl: float, expires_at: float, route: Route
    ) -> Steps[tuple[int, int]]:
        fences, raised = yield from confirm_all(fleet, self.names, token, tally, ttl, route)
        self._fences[token] = fences
        return max(fences), raised

    def describe(self, grant: Grant) -> None:
        grant.line, grant.names = grant.name, self.names
        fences = zip(self.names, self._fences.pop(grant.token), strict=True)
        grant.parts = tuple(replace(grant, name=name, fence=fence, line="", names=()) for name, fence in fences)

    def undoing(self, name: str, token: str) -> Release:
        self._fences.pop(token, None)
        return Release(name, token, names=self.names)

    def leaving(self, name: str, ticket: str) -> Leave:
        return Leave(name, ticket, self.names)


def confirm_all(
    fleet: Fleet, names: tuple[str, ...], token: str, tally: Tally, ttl: float, route: Route
) -> Steps[tuple[tuple[int, ...], int]]:
    """As `redlock.confirm`, for all fences of a node together; fences of 0: a majority did not confirm them."""
    raised: set[int] = set()
    asked: set[int] = set()
    top = highest(tally)
    while len(raised | {node for node, fences in granted(tally).items() if fences == top}) < fleet.majority:
        behind = {node: fences for node, fences in granted(tally).items() if below(fences, top)}
        todo = {node: fences for node, fences in behind.items() if node not in asked}
        if not todo:
            return (0,) * len(names), len(raised)
        asked |= todo.keys()
        requests: list[Request | None] = [None] * len(fleet.nodes)
        for node, fences in todo.items():
            requests[node] = ConfirmAll(names, token, fences, top)
        votes = fleet.tally(len(todo), asked=len(todo))
        yield Round(requests, votes, fleet.timeout(ttl), route, everyone=True)
        raised |= {node for node, _ in votes.granted()}
    return top, len(raised)


def granted(tally: Tally) -> dict[int, tuple[int, ...]]:
    """Nodes that granted, each with the fences, or the one."""
    found = [(node, a) for node, a in enumerate(tally.answers) if a is not None and a.vote is Vote.GRANTED]
    return {node: answer.fences or (answer.fence,) for node, answer in found}


def highest(tally: Tally) -> tuple[int, ...]:
    """For each lock the highest fence that any node granted."""
    return tuple(max(fences) for fences in zip(*granted(tally).values(), strict=True))


def below(fences: tuple[int, ...], top: tuple[int, ...]) -> bool:
    """Can they be raised to that?"""
    return fences != top and all(fence <= most for fence, most in zip(fences, top, strict=True))


def downgrade(fleet: Fleet, grant: Grant) -> Steps[Grant | LossReason]:
    """Shares a lock that was somebody's alone; or it is lost, and why."""
    token, ttl = READER + fleet.new_token(""), grant.ttl
    tally = Tally(fleet.nodes, fleet.majority)
    started_at = fleet.clock()
    request = Downgrade(grant.name, grant.token, round((ttl + grant.lock_delay) * 1000), token, grant.ticket)
    try:
        yield Round(fleet.to_all(request), tally, fleet.timeout(ttl), grant.route)
        now, until = fleet.clock(), valid_until(started_at, ttl, fleet.drift)
        if tally.won and now < min(until, grant.valid_until):
            # A node that has not done so (another's there, or it must learn the script first) would keep the lock.
            done = {node for node, _ in tally.granted()}
            rest = Release(grant.name, grant.token, True, ticket=grant.ticket)
            requests: list[Request | None] = [None if node in done else rest for node in range(len(fleet.nodes))]
            if len(done) < len(fleet.nodes):
                said = Tally.said(fleet.nodes)
                yield Round(requests, said, fleet.timeout(ttl), grant.route, everyone=True)
                longest = ttl + grant.lock_delay
                remember(fleet, requests, said, longest, grant.expires_at, grant.route, now)
            return Grant(
                grant.name, token, grant.fence, ttl, until, tally, grant.route, asked_at=started_at,
                exclusive=False, lock_delay=grant.lock_delay, since=started_at, room=grant.room, kind=Read.word,
            )  # fmt: skip
    except BaseException:
        yield from _release_both(fleet, grant, token)
        raise
    yield from _release_both(fleet, grant, token)
    if now >= grant.valid_until:
        return LossReason.EXPIRED
    left = len(fleet.nodes) - len(tally.caused(Cause.CHANGED))
    return LossReason.TAKEN if left < fleet.majority else LossReason.UNREACHABLE


def _release_both(fleet: Fleet, grant: Grant, reader: str) -> Steps[None]:
    """Whatever a node made of it."""
    for token, ticket in ((grant.token, grant.ticket), (reader, "")):
        request = Release(grant.name, token, True, ticket)
        yield from release_grant(fleet, grant, request)
