"""Releases that are owed to nodes: sent again until every node has answered, or its lock has ended by its ttl.

A release returns when a majority has answered. A node that has not answered may still hold the lock: its
connection was cut, or packets vanish on it and nobody is told. Every client remembers such releases, and its keeper
sends them again when they are due; connections that are cut or silent are replaced by the runner on the way.

Rules:

1. A release is sent again with the same token, on the same route: compare-and-delete touches nobody else's lock,
   and it travels behind the request that it undoes.
2. It is sent again only to nodes that were asked and have not answered, and until the lock has expired on all of
   them by itself: one `ttl` (and `lock_delay`) after the release, or later, if the lease was extended for longer
   before. Nodes never shorten a lock: `acquire(ttl=20)`, `extend(1)`, and they keep it for 20 seconds.
3. A lock that is to stay closed for a while (`stay_ms`) stays closed until the same instant: what has passed since
   the release is subtracted.
4. In one pass a node that does not answer is asked once, for however many releases: a pass takes one timeout or
   two.
5. Most releases are answered by the last node a moment after the majority. Those are only looked at again later,
   and are forgotten then: no thread is started for them, and nothing is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from .effects import Round, Route, Steps
from .requests import Release, Request
from .votes import Answer, Tally, Vote

if TYPE_CHECKING:
    from .fleet import Fleet

NEVER = float("inf")
OWED_MOST = 1000
"""So many releases are remembered; then the oldest is forgotten."""
ANSWERED_MOST = 32
"""When so many are remembered, those that have been answered are forgotten."""
LOOK_AFTER = 0.5
"""Seconds after which it is looked whether the last nodes have answered."""
FIRST_PAUSE = 0.1
LAST_PAUSE = 1.0
"""Seconds between two attempts: twice as many every time, from the first to the last."""
SILENT_FOR = 4
"""Node timeouts after which a connection that does not answer is replaced when it is used again."""

Outcome = Callable[[bool, float], object]
"""Called with whether a majority has confirmed a release by now, and the seconds since it was first sent."""


class Debt:
    """One release, and the nodes that have not answered it."""

    __slots__ = ("again_at", "asked", "on_outcome", "route", "sent_at", "tally", "tries", "ttl", "until")

    def __init__(
        self,
        requests: Sequence[Request | None],
        tally: Tally,
        ttl: float,
        until: float,
        route: Route,
        now: float,
        on_outcome: Outcome | None = None,
    ) -> None:
        self.asked = requests
        """What was sent to each node; None: it does not know the token."""
        self.tally = tally
        """Answers to all attempts are entered here, also late ones."""
        self.ttl = ttl
        """Bounds how long an attempt waits for a node."""
        self.until = until
        """When the lock has expired on every node. The client then forgets the release."""
        self.route = route
        self.sent_at = now
        self.again_at = now
        self.tries = 0
        self.on_outcome = on_outcome
        """Set only if no majority had confirmed it."""

    @property
    def certain(self) -> bool:
        """Is it known that a node was not reached, or is a majority missing? Else the last nodes are only slow."""
        return self.tally.against > 0 or not self.tally.won

    def nodes(self) -> list[int]:
        """Who has not answered."""
        return [node for node, request in enumerate(self.asked) if request and _open(self.tally.answers[node])]

    def again(self, node: int, now: float) -> Request | None:
        """The release to repeat to a node.

        At first the client asks nodes not to notify a waiter of this process, which it wakes itself. If the release
        did not arrive, that waiter found the lock held and waits again, so a repeated release lets nodes notify it.
        """
        request = self.asked[node]
        if not isinstance(request, Release):
            return request
        passed_ms = round((now - self.sent_at) * 1000) if request.stay_ms else 0
        return request._replace(stay_ms=max(0, request.stay_ms - passed_ms), locker="")

    def tell(self, now: float, told: list[Callable[[], object]]) -> None:
        """Adds what is to be called, now that the outcome is known; once, and only if somebody wants to know."""
        on_outcome, self.on_outcome = self.on_outcome, None
        if on_outcome is not None:
            confirmed, after = self.tally.won, now - self.sent_at
            told.append(lambda: on_outcome(confirmed, after))


def _open(answer: Answer | None) -> bool:
    return answer is None or answer.vote is Vote.UNKNOWN


class Attempt(Tally):
    """The votes of one attempt. Those that come when nobody waits for them any more count all the same."""

    def __init__(self, debt: Debt, asked: int) -> None:
        super().__init__(debt.tally.nodes, asked, asked=asked, any_answer=True, patient=True)
        self._debt = debt

    def cast(self, node: int, answer: Answer) -> None:
        super().cast(node, answer)
        self._debt.tally.cast(node, answer)


class Owed:
    """What one client owes. `add` may be called by any thread, everything else by one at a time."""

    def __init__(
        self,
        clock: Callable[[], float],
        random: Callable[[], float],
        node_timeout: float,
        mutex: AbstractContextManager[Any],
    ) -> None:
        self.wake_at = NEVER
        """When the first of them is due."""
        self.ended = False
        """The client is being closed: nothing is added, and a pass ends with the round that is under way."""
        self._clock = clock
        self._random = random
        self._first_pause = max(FIRST_PAUSE, SILENT_FOR * node_timeout)
        self._look_after = max(LOOK_AFTER, SILENT_FOR * node_timeout)
        self._mutex = mutex
        self._debts: deque[Debt] = deque()
        self._full = ANSWERED_MOST
        self._forgotten: deque[Debt] = deque(maxlen=OWED_MOST)
        """Those for which there was no room: their outcome is told, and that is all."""

    def __bool__(self) -> bool:
        return bool(self._debts)

    def add(self, debt: Debt) -> bool:
        """Remembers a release; true if that is due before anything else."""
        debt.again_at = min(debt.until, debt.sent_at + (self._first_pause if debt.certain else self._look_after))
        with self._mutex:
            if self.ended:
                return False
            if len(self._debts) >= self._full:
                self._forget_answered()
            self._debts.append(debt)
            if debt.again_at >= self.wake_at:
                return False
            self.wake_at = debt.again_at
            return True

    def _forget_answered(self) -> None:
        """Makes room, so rarely that it costs each release next to nothing."""
        self._keep(lambda debt: bool(debt.on_outcome or debt.nodes()))
        while len(self._debts) >= OWED_MOST:
            debt = self._debts.popleft()
            if debt.on_outcome:
                self._forgotten.append(debt)
        self._full = min(OWED_MOST, max(ANSWERED_MOST, 2 * len(self._debts)))

    def _keep(self, wanted: Callable[[Debt], bool]) -> None:
        """Removes the others one at a time: a signal handler, or the collector, may add one in between."""
        for _ in range(len(self._debts)):
            try:
                debt = self._debts.popleft()
            except IndexError:
                return  # an `add` that ran in between has removed the debts that nodes had answered
            keep = True
            try:
                keep = wanted(debt)
            finally:  # an interrupt must not lose it
                if keep:
                    self._debts.append(debt)

    def sweep(self) -> list[Callable[[], object]]:
        """Forgets what is not owed any more; gives what is to be called, since an outcome is known."""
        now = self._clock()
        told: list[Callable[[], object]] = []

        def wanted(debt: Debt) -> bool:
            over = now >= debt.until or not debt.nodes()
            if over or debt.tally.won:
                debt.tell(now, told)
            return not over

        with self._mutex:
            while self._forgotten:
                self._forgotten.popleft().tell(now, told)
            self._keep(wanted)
            self._set_alarm()
        return told

    def _set_alarm(self) -> None:
        self.wake_at = NEVER  # first: one that is added in between brings it forward
        due_at = min((min(debt.again_at, debt.until) for debt in self._debts.copy()), default=NEVER)
        if due_at < self.wake_at:
            self.wake_at = due_at

    def end(self) -> list[Callable[[], object]]:
        """Forgets everything: what is owed then ends by its ttl."""
        told = self.sweep()
        now = self._clock()
        with self._mutex:
            while self._debts:
                self._debts.popleft().tell(now, told)
            self.wake_at = NEVER
        return told

    def due(self) -> list[Debt]:
        """What is to be sent again now."""
        now = self._clock()
        with self._mutex:
            return [debt for debt in self._debts.copy() if debt.again_at <= now < debt.until]

    def all(self) -> list[Debt]:
        with self._mutex:
            return list(self._debts)

    def postpone(self, debt: Debt) -> None:
        """It has been sent again, or cannot be now."""
        pause = min(max(LAST_PAUSE, self._first_pause), self._first_pause * 2.0 ** min(debt.tries, 10))
        debt.tries += 1
        debt.again_at = self._clock() + pause * (0.75 + 0.5 * self._random())

    def postpone_all(self) -> None:
        """Nothing can be sent now."""
        for debt in self.due():
            self.postpone(debt)
        with self._mutex:
            self._set_alarm()


def remember(
    fleet: Fleet,
    requests: Sequence[Request | None],
    tally: Tally,
    ttl: float,
    expires_at: float,
    route: Route,
    started_at: float,
    on_outcome: Outcome | None = None,
) -> None:
    """Hands a release to the keeper, after its round, if a node has not answered.

    The keeper repeats it until one `ttl` after `started_at`, or until `expires_at`, whichever is later.
    """
    if fleet.owe is not None and (tally.missing or tally.against):
        until = max(expires_at, started_at + ttl)
        fleet.owe(Debt(requests, tally, ttl, until, route, started_at, None if tally.won else on_outcome))


def repeat(fleet: Fleet, owed: Owed) -> Steps[None]:
    """Sends again what is due, one release after another, until the client is closed."""
    away: set[int] = set()
    for debt in owed.due():
        if owed.ended:
            return
        yield from _again(fleet, owed, debt, away)


def last_attempt(fleet: Fleet, owed: Owed) -> Steps[None]:
    """Sends everything once more, due or not."""
    away: set[int] = set()
    for debt in owed.all():
        yield from _again(fleet, owed, debt, away)


def _again(fleet: Fleet, owed: Owed, debt: Debt, away: set[int]) -> Steps[None]:
    """Sends one again, but not to nodes that are `away`; those that do not answer are so from now on."""
    owed.postpone(debt)
    nodes = [node for node in debt.nodes() if node not in away]
    if nodes:
        requests: list[Request | None] = [None] * len(fleet.nodes)
        now = fleet.clock()
        for node in nodes:
            requests[node] = debt.again(node, now)
        attempt = Attempt(debt, len(nodes))
        try:
            yield Round(requests, attempt, fleet.timeout(debt.ttl), debt.route, everyone=True)
        except EngineError:
            pass  # a store that fails, as it did before; it is asked again later
        away |= {node for node in nodes if _open(attempt.answers[node])}
