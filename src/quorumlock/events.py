"""What happened, as typed values, for whoever subscribes.

A subscriber is called in the thread or task where it happened; what a keeper's thread finds out, in a thread beside
it. It cannot break a lock: what it raises is logged and dropped, and with threads it is not called while nodes are
being asked, whose time it would take. With no subscriber nothing is built and nothing is called.

Events of one thread are delivered in their order. Those of the keeper's thread may be overtaken by later ones of
another thread, which does not wait for them. What happened before a Locker was closed is delivered before its
close() returns, unless subscribers take longer than 2 s.

All events of one acquire, and of the lease that it led to, have the same `serial`, a number of this process; it is
0 where nobody listened when that lock was acquired. Fields that only say more about an event are not compared.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .core.votes import Tally
    from .errors import LossReason

__all__ = [
    "Acquired",
    "Broken",
    "Confirmed",
    "Event",
    "Extended",
    "FenceRefused",
    "GivenUp",
    "Healed",
    "Lost",
    "NodeDown",
    "NodeQuarantined",
    "NodeUp",
    "ReleaseRepeated",
    "Released",
    "ReleasedLate",
    "RenewalFailed",
    "Waiting",
]

logger = logging.getLogger("quorumlock")

next_serial = itertools.count(1).__next__

WHYS = ("held", "timeout", "no_quorum", "interrupted", "error")
"""Why an acquire is given up."""


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class Waiting(Event):
    """An acquire was refused, and begins to wait; told once. `Acquired` or `GivenUp` follows.

    As far as nodes told: `remaining`, the seconds that are left of the holder's time (None: unknown, or no majority
    could decide); `fence`, the holder's; `ahead`, how many wait in front.
    """

    name: str
    kind: str = "mutex"
    remaining: float | None = None
    fence: int | None = None
    ahead: int = 0
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class GivenUp(Event):
    """An acquire ended without the lock. `why`: held, timeout, no_quorum, interrupted or error.

    `waited` is 0 for one that was not to wait. `tally`: the votes of its last round, if there was one.
    """

    name: str
    why: str
    waited: float
    tally: Tally | None = None
    kind: str = field(default="mutex", compare=False)
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """`waited`: seconds since it was asked for. `kind`: mutex, read, write, slot, multi or leader."""

    name: str
    fence: int
    waited: float
    tally: Tally
    kind: str = field(default="mutex", compare=False)
    ttl: float = field(default=0.0, compare=False)
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The nodes had granted different fences, and a second round made them agree."""

    name: str
    fence: int
    nodes: int
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Extended(Event):
    """The lease was renewed, by its keeper or its holder. Of several locks, each is."""

    name: str
    fence: int
    tally: Tally
    ttl: float = field(default=0.0, compare=False)
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RenewalFailed(Event):
    """No majority could renew the lease. It is still valid, for `remaining` seconds, and is tried again."""

    name: str
    fence: int
    remaining: float
    why: str
    tally: Tally | None = None
    """The votes; None where the store itself failed."""
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Healed(Event):
    """Nodes that had forgotten a lease were given it again."""

    name: str
    fence: int
    nodes: tuple[str, ...]
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """`held`: for how many seconds it was ours."""

    name: str
    fence: int
    reason: LossReason
    held: float = field(default=0.0, compare=False)
    kind: str = field(default="mutex", compare=False)
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Released(Event):
    """`confirmed` is false when no majority answered. It is sent again then; `ReleaseRepeated` has the outcome.

    `held`: seconds from its acquire to its release.
    """

    name: str
    fence: int
    confirmed: bool
    held: float = field(default=0.0, compare=False)
    kind: str = field(default="mutex", compare=False)
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReleasedLate(Released):
    """It was given back `late` seconds after its validity had ended, or after it was lost: it may be another's."""

    reason: LossReason | None = field(default=None, compare=False)
    late: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class ReleaseRepeated(Event):
    """A release that no majority had confirmed was sent again in the background, until this outcome was known.

    `confirmed`: a majority has answered by now. False: the lock has expired by its `ttl`; or the Locker was closed,
    and it will. `after`: seconds since the release. While a Locker is being closed, it emits no such event for
    releases by other threads or tasks.
    """

    name: str
    fence: int
    confirmed: bool
    after: float = field(default=0.0, compare=False)
    kind: str = field(default="mutex", compare=False)
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Broken(Event):
    """Somebody forced the lock open; `by`: who, as host:pid and thread or task."""

    name: str
    tally: Tally
    by: str = ""


@dataclass(frozen=True, slots=True)
class FenceRefused(Event):
    """A guard refused a write: its resource has `seen` the fence of a newer holder.

    Told to subscribers of the lease's Locker. Who writes with a `Claim` has none: `quorumlock.guards.subscribe`.
    """

    name: str
    resource: str
    fence: int
    seen: int
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NodeDown(Event):
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class NodeUp(Event):
    node: str


@dataclass(frozen=True, slots=True)
class NodeQuarantined(Event):
    node: str
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Subscriber:
    """One subscription; the same callback may have several."""

    callback: Callable[[Event], object]


class Bus:
    """Calls the subscribers of one Locker."""

    __slots__ = ("_announcing", "_mutex", "_reports", "_subscribers", "_telling", "listening", "relay")

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()
        self._mutex = threading.RLock()  # a signal handler may subscribe, too
        self.listening = False
        """Is anybody there? Ask before building an event."""
        self.relay: Callable[[Callable[[Event], None], Event], None] | None = None
        """Who decides in which thread subscribers are called; None: in the one where it happens."""
        self._reports: deque[Event] = deque()
        self._telling: set[int] = set()
        """Threads that are telling reports: a subscriber may use the lock, and learn of more."""
        self._announcing: dict[object, int] = {}
        """Announcements that have begun and not ended, each with the thread in which it began."""

    def subscribe(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Adds `callback`; what is returned takes it away again."""
        subscriber = Subscriber(callback)
        with self._mutex:
            self._subscribers = (*self._subscribers, subscriber)
            self.listening = True

        def unsubscribe() -> None:
            with self._mutex:
                self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)
                self.listening = bool(self._subscribers)

        return unsubscribe

    def emit(self, event: Event) -> None:
        if self._reports:  # they were earlier
            self.catch_up()
        if self.relay is None:
            self.deliver(event)
        else:
            self.relay(self.deliver, event)

    def report(self, event: Event) -> None:
        """Like `emit`, of what happens while nodes are being asked: threads are told behind that, by `catch_up`."""
        if self.relay is None:
            self.deliver(event)
        else:
            self._reports.append(event)

    def catch_up(self) -> None:
        """Tells what was reported."""
        if not self._reports or (me := threading.get_ident()) in self._telling:
            return
        self._telling.add(me)
        try:
            with self.announcing():
                while self._reports:
                    try:
                        event = self._reports.popleft()
                    except IndexError:  # another thread was faster
                        return
                    self.emit(event)
        finally:
            self._telling.discard(me)

    def take_reports(self) -> list[Event]:
        """What was reported and not told: whoever takes it delivers it."""
        taken = []
        while self._reports:
            try:
                taken.append(self._reports.popleft())
            except IndexError:  # another thread was faster
                break
        return taken

    def forget(self) -> None:
        """In a forked child: drops the parent's events, which threads of the parent deliver."""
        self._mutex = threading.RLock()
        self._reports.clear()
        self._telling.clear()
        self._announcing.clear()

    # Whoever closes a Locker waits for what others are just telling.

    def begin(self) -> object:
        """Announces that something is about to happen, and to be told: before anybody can see it. See `end`."""
        mark = object()
        self._announcing[mark] = threading.get_ident()
        return mark

    def end(self, mark: object) -> None:
        """It has been told, or handed to whoever tells it."""
        self._announcing.pop(mark, None)

    @contextmanager
    def announcing(self) -> Iterator[None]:
        mark = self.begin()
        try:
            yield
        finally:
            self.end(mark)

    def begun_elsewhere(self) -> list[object]:
        """Announcements of other threads; one of this thread would wait for itself."""
        me = threading.get_ident()
        return [mark for mark, thread in list(self._announcing.items()) if thread != me]

    def untold(self, marks: list[object]) -> bool:
        return any(mark in self._announcing for mark in marks)

    def wait_until_told(self, due: float) -> bool:
        """Waits until what other threads have begun to announce is told; False if that takes until `due`."""
        marks = self.begun_elsewhere()
        while self.untold(marks):
            if time.monotonic() >= due:
                return False
            time.sleep(0.001)
        return True

    def deliver(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber.callback(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # also somebody else's CancelledError, which would be taken for ours
                # A subscriber is an onlooker; the lock it looks at must not suffer from it.
                logger.exception("a subscriber failed on %s", type(event).__name__)
