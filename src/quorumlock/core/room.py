"""Where the waiters of one process wait: who of them asks the nodes, and who is told that a lock is free.

Rules:

1. Of those who wait for one name, one asks the nodes: the *contender*. The others stand in line behind it, and the
   first of them takes its place when it leaves, with or without the lock.
2. While a lease of this room is valid, nobody else can have the lock: the contender waits for its end, too.
3. Whoever is *fair* has a place in the queue of the nodes, and stands in no line here.
4. A lock that is given back while others wait for it elsewhere is theirs: this process may hand it on to itself
   `HANDOVERS` times; from then on, and at once if nobody was waiting here, it stands behind them (`polite`).
5. A watch is rung by nodes that announce its ticket, and called from within the process. It may be rung for
   nothing: whoever is, asks.

All of this may be used by several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .effects import Route
from .redlock import Grant

HANDOVERS = 4
KNOWN_MOST = 1000
"""Names of which is remembered that others wait for them."""


class Watch:
    """Somebody who waits for a name."""

    # What few of them ever change is said once, for all: one is made for every acquire.
    rung: set[int] | frozenset[int] = frozenset()
    """Nodes that have announced its ticket."""
    called = False
    """Is there something to do, whatever the nodes say?"""
    on_ring: Callable[[], object] | None = None
    queued = False
    """May nodes have its ticket?"""
    ticket = ""
    member = ""
    """What stands in those queues."""
    route: Route | None = None
    """Of the last attempt: what undoes it travels behind it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def arm(self) -> None:
        """What is rung from now on counts."""
        self.rung = set()
        self.called = False

    def ring(self, node: int) -> None:
        self.rung = {*self.rung, node}
        self._tell()

    def call(self) -> None:
        self.called = True
        self._tell()

    def _tell(self) -> None:
        if (on_ring := self.on_ring) is not None:
            on_ring()


class Room:
    """The waiters of one process, or of one event loop."""

    def __init__(
        self, new_id: Callable[[], str] = lambda: "", mutex: AbstractContextManager[Any] | None = None
    ) -> None:
        self.id = new_id()
        """What nodes announce to."""
        self.ears: set[int] = set()
        """Nodes whose announcements are heard here."""
        self.deaf = False
        """Will nodes never announce anything?"""
        self.ordered = False
        """Does what is asked later arrive later? Then a lock that is being given back is as good as free."""
        self.held: dict[str, Grant] = {}
        self.broken: dict[str, float] = {}
        """Names on which no majority could decide, and since when."""
        self._mutex = nullcontext() if mutex is None else mutex
        self._contenders: dict[str, Watch] = {}
        self._lines: dict[str, deque[Watch]] = {}
        self._tickets: dict[str, Watch] = {}
        self._aside: dict[str, dict[Watch, None]] = {}
        """For each name those with a ticket who stand in no line here, in the order they came."""
        self._polite: dict[str, int] = {}
        """How often a name was handed on here while others waited for it elsewhere."""

    # Who is next.

    def enter(self, watch: Watch) -> None:
        """Becomes the contender for its name, or stands in line."""
        if self._contenders.setdefault(watch.name, watch) is watch:
            return
        with self._mutex:
            line = self._lines.setdefault(watch.name, deque())
            line.append(watch)
            if self._contenders.setdefault(watch.name, watch) is watch:  # the other has left meanwhile
                line.remove(watch)
                self._tidy(watch.name)

    def leave(self, watch: Watch) -> None:
        """Waits no more; the next in line is the contender then."""
        name = watch.name
        if watch.ticket:
            self._tickets.pop(watch.ticket, None)
            if name in self._aside:
                self._not_aside(watch)
        if self._contenders.get(name) is watch:
            del self._contenders[name]
            if name in self._lines:
                self._promote(name)
            elif self.broken:
                self.broken.pop(name, None)
        elif name in self._lines:
            with self._mutex:
                if watch in (line := self._lines.get(name, deque())):
                    line.remove(watch)
                elif self._contenders.get(name) is watch:  # promoted a moment ago
                    del self._contenders[name]
                self._promote(name)  # also if an interrupt kept us from it, when we left before

    def contends(self, watch: Watch) -> bool:
        return self._contenders.get(watch.name) is watch

    def _promote(self, name: str) -> None:
        with self._mutex:
            line = self._lines.get(name)
            if line:
                following = line[0]
                if self._contenders.setdefault(name, following) is following:
                    following.call()  # first: an interrupt must not leave a contender that nobody woke
                    line.popleft()
            self._tidy(name)

    def _tidy(self, name: str) -> None:
        if not self._lines.get(name, True):
            del self._lines[name]

    # What becomes of locks.

    def holds(self, name: str, now: float) -> float:
        """Until when a lease of this room is certainly valid; 0: there is none."""
        grant = self.held.get(name)
        if grant is None:
            return 0.0
        if now >= grant.valid_until or (grant.over and self.ordered):
            self.forget(grant)
            return 0.0
        return grant.valid_until

    def granted(self, grant: Grant) -> None:
        if grant.exclusive:
            for one in grant.parts or (grant,):
                self.held[one.name] = one
        if self.broken:
            self.broken.pop(grant.line or grant.name, None)

    def forget(self, grant: Grant) -> None:
        """The lease is over."""
        for one in grant.parts or (grant,):
            if self.held.get(one.name) is one:
                self.held.pop(one.name, None)

    def ended(self, grant: Grant) -> None:
        """The lease is lost."""
        self.forget(grant)
        for one in grant.parts or (grant,):
            self._tell(one.line or one.name)

    def freed(self, grant: Grant, others: bool) -> None:
        """A lock was given back; `others`: somebody else was told."""
        self.forget(grant)
        for one in grant.parts or (grant,):
            self._freed(one.line or one.name, others)

    def contended(self, name: str) -> bool:
        return name in self._contenders

    def _freed(self, name: str, others: bool) -> None:
        contender = self._contenders.get(name)
        if others:
            count = self._polite.get(name, 0) + 1
            if len(self._polite) >= KNOWN_MOST:
                self._polite.clear()
            self._polite[name] = count if contender is not None else HANDOVERS + 1
        elif self._polite:
            self._polite.pop(name, None)
        self._tell(name)

    def _tell(self, name: str) -> None:
        """A lock of this room is free: the nodes leave it to us to tell our own."""
        if (contender := self._contenders.get(name)) is not None:
            contender.call()
        if name in self._aside:
            with self._mutex:
                first = next(iter(self._aside.get(name, ())), None)
            if first is not None:
                first.call()

    def polite(self, name: str) -> bool:
        """Is it the turn of others?"""
        return self._polite.get(name, 0) > HANDOVERS

    def stood_back(self, name: str) -> None:
        """We stand in the queue like everybody else."""
        self._polite.pop(name, None)

    # What nodes say.

    def expect(self, watch: Watch, ticket: str) -> None:
        """Its turn is announced by this ticket."""
        watch.ticket = ticket
        self._tickets[ticket] = watch
        if self._contenders.get(watch.name) is not watch:
            with self._mutex:
                self._aside.setdefault(watch.name, {})[watch] = None

    def _not_aside(self, watch: Watch) -> None:
        with self._mutex:
            aside = self._aside.get(watch.name, {})
            aside.pop(watch, None)
            if not aside:
                self._aside.pop(watch.name, None)

    def announced(self, node: int, ticket: str) -> None:
        """It is this ticket's turn. One that is not known here was taken away a moment ago."""
        watch = self._tickets.get(ticket)
        if watch is not None:
            watch.ring(node)

    def hears(self, node: int) -> None:
        """Announcements of a node are heard, perhaps again: what was said meanwhile is lost, so everybody asks."""
        with self._mutex:
            self.ears.add(node)
            waiting = list(self._tickets.values())
        for watch in waiting:
            watch.call()

    def deafened(self, node: int) -> None:
        with self._mutex:
            self.ears.discard(node)

    @property
    def waiting(self) -> bool:
        """Does anybody wait to be told?"""
        return bool(self._tickets)

    def stir(self) -> None:
        """The world has changed: everybody asks."""
        for watch in [*self._contenders.values(), *self._tickets.values()]:
            watch.call()
