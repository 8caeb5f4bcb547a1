"""The leases of etcd that our locks hang on: each lock on one of its own, so that it ends by itself.

**Seconds.** etcd counts leases in whole seconds, with a minimum of its own (of one and a half election timeouts).
So a lease there lives for the ttl, rounded up, or longer. A holder goes by its own ttl and its own clock, and so
never counts on a lease that has ended; after a crash others may wait up to that much longer.

**Late answers.** A request that was given up may be executed yet, and set a lock for which nobody is left. But it
can do so only on the lease that it names: that one is revoked with the lock's release, and then it fails. A lease
that no such request names is used again, after the release of its lock: to renew one is cheaper than to grant one,
which is written to disk by a majority.

**Old leaders.** A leader that was cut off and does not know it may answer a renewal which the new leader has never
heard of. So a renewal counts only together with a transaction behind it that was answered in the same term.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from .talk import EXISTS, NOT_FOUND, PRECONDITION, Question, Refusal, Steps, Talk

IDLE_MOST = 64
"""Leases without a lock that are kept for the next one, for each number of seconds."""
TERMS = 4
"""How often a renewal is repeated whose leader was another one than that of the transaction behind it."""
TICKETS_LAST = 5
"""Seconds for which the tickets of a client that is gone keep their places."""
MEMORY_USES = 1000
"""Keys on one lease: they all go at once, and should not be too many."""


DEEDS_MOST = 1000
"""How many tokens there may be before those are looked for that are over."""


def seconds_of(ttl_ms: int) -> int:
    return max(1, -(-ttl_ms // 1000))


class Deed:
    """By what a token has a lock: the lease, and what was said of it."""

    __slots__ = ("card", "clean", "id", "over_at", "seconds", "since_us", "ttl_ms")

    def __init__(self, id_: int, seconds: int, ttl_ms: int, since_us: int, card: str) -> None:
        self.id = id_
        self.seconds = seconds
        self.ttl_ms = ttl_ms
        self.since_us = since_us
        self.card = card
        self.clean = False
        """Is it certain that no request is under way that names this lease?"""
        self.over_at = 0.0
        """By then it is over, for certain, unless it was renewed."""


class Leases:
    """The leases of one client."""

    def __init__(self, talk: Talk, clock: Callable[[], float], fence_ttl: float) -> None:
        self._talk = talk
        self._clock = clock
        self._idle: dict[int, list[tuple[int, float]]] = {}
        self._ticket: tuple[int, float] = (0, 0.0)
        self._memory: tuple[int, float, int] = (0, 0.0, 0)
        self._fence_ttl = fence_ttl
        self.deeds: dict[str, dict[str, Deed]] = {}
        """Of each token, by the names of its locks."""
        self._deeds_most = DEEDS_MOST

    def forget(self) -> None:
        """In a forked child."""
        self._idle, self._ticket, self._memory, self.deeds = {}, (0, 0.0), (0, 0.0, 0), {}

    def enter(self, token: str, names: Iterable[str], deed: Deed) -> None:
        """From now on the token has its locks by this. What was never released is forgotten one day."""
        now = self._clock()
        deed.over_at = now + 2 * deed.seconds + 60
        self.deeds.setdefault(token, {}).update(dict.fromkeys(names, deed))
        if len(self.deeds) > self._deeds_most:
            for one, known in list(self.deeds.items()):  # in place: other threads are at it, too
                if all(other.over_at <= now for other in list(known.values())):
                    self.deeds.pop(one, None)
            self._deeds_most = max(DEEDS_MOST, 2 * len(self.deeds))

    def doubt(self, token: str) -> None:
        """One of the leases that this one's request named is gone: we were held up, or somebody has ended it."""
        self.deeds.pop(token, None)
        self._ticket, self._memory = (0, 0.0), (0, 0.0, 0)

    def obtain(self, seconds: int, until: float) -> Steps[tuple[int, int]]:
        """A lease that lasts so long from now on, and the term in which that was renewed; 0: it is new."""
        idle = self._idle.get(seconds)
        while idle:
            try:
                id_, since = idle.pop()
            except IndexError:  # another thread has taken the last
                break
            if self._clock() - since < seconds:
                alive, term = yield from self.renew([id_], until)
                if id_ in alive:
                    return id_, term
        return (yield from self.grant(seconds, until)), 0

    def grant(self, seconds: int, until: float) -> Steps[int]:
        while True:
            id_ = int.from_bytes(os.urandom(8), "big") >> 2 | 1
            question = Question("/v3/lease/grant", {"TTL": str(seconds), "ID": str(id_)})
            try:
                yield from self._talk.ask(question, until)
            except Refusal as refusal:
                if refusal.code not in (PRECONDITION, EXISTS):
                    raise
                if not question.doubtful:
                    continue  # somebody else's, by a chance that nobody will live to see
            return id_

    def renew(self, ids: Iterable[int], until: float) -> Steps[tuple[set[int], int]]:
        """Those of these leases that are alive, all asked for in one request; and the term."""
        asked = [{"ID": str(id_)} for id_ in ids]
        told = yield from self._talk.ask(Question("/v3/lease/keepalive", asked), until)
        results: list[dict[str, Any]] = told.get("results", [])
        alive = {int(one.get("ID", 0)) for one in results if int(one.get("TTL", 0)) > 0}
        terms = {int(one.get("header", {}).get("raft_term", 0)) for one in results}
        return alive, terms.pop() if len(terms) == 1 else -1

    def revoke(self, id_: int, until: float) -> Steps[None]:
        """Ends a lease, and whatever hangs on it; from now on nothing can be hung on it."""
        try:
            yield from self._talk.ask(Question("/v3/lease/revoke", {"ID": str(id_)}), until)
        except Refusal as refusal:
            if refusal.code != NOT_FOUND:
                raise

    def left(self, id_: int, until: float) -> Steps[int]:
        """Seconds that are left of a lease, rounded down; below 0: it is over."""
        told = yield from self._talk.ask(Question("/v3/lease/timetolive", {"ID": str(id_)}), until)
        return int(told.get("TTL", 0))

    def keep_idle(self, deed: Deed) -> None:
        """Its lock was released, for certain."""
        idle = self._idle.setdefault(deed.seconds, [])
        if len(idle) < IDLE_MOST:
            idle.append((deed.id, self._clock()))

    # Leases that are no lock's.

    def for_tickets(self, until: float, *, soon: bool = False) -> Steps[int]:
        """What our tickets hang on; renewed if it was not for a while. `soon`: at the next opportunity."""
        id_, renewed_at = self._ticket
        now = self._clock()
        if id_ and not soon and now - renewed_at < TICKETS_LAST / 3:
            return id_
        if id_ and now - renewed_at < TICKETS_LAST:
            alive, _ = yield from self.renew([id_], until)
            if id_ in alive:
                self._ticket = (id_, now)
                return id_
        fresh = yield from self.grant(TICKETS_LAST, until)
        if self._ticket[0] == id_:  # else another thread was faster, and its tickets are on that one
            self._ticket = (fresh, now)
        return self._ticket[0]

    def for_memory(self, until: float) -> Steps[int]:
        """What the fences of shared locks hang on: for `fence_ttl` at least after they were last used."""
        id_, granted_at, uses = self._memory
        now = self._clock()
        if not id_ or uses >= MEMORY_USES or now - granted_at > self._fence_ttl:
            id_, granted_at, uses = (yield from self.grant(round(2 * self._fence_ttl) + 1, until)), now, 0
        self._memory = (id_, granted_at, uses + 1)
        return id_
