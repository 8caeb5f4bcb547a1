"""What happened, as typed values, for whoever subscribes.

A subscriber is called in the thread or task where it happened. It cannot break a lock: what it raises is
logged and dropped. With no subscriber nothing is built and nothing is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
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
    "Healed",
    "Lost",
    "NodeDown",
    "NodeQuarantined",
    "NodeUp",
    "Released",
]

logger = logging.getLogger("quorumlock")


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    name: str
    fence: int
    waited: float
    tally: Tally


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The nodes had granted different fences, and a second round made them agree."""

    name: str
    fence: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Extended(Event):
    name: str
    fence: int
    tally: Tally


@dataclass(frozen=True, slots=True)
class Healed(Event):
    """Nodes that had forgotten a lease were given it again."""

    name: str
    fence: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lost(Event):
    name: str
    fence: int
    reason: LossReason


@dataclass(frozen=True, slots=True)
class Released(Event):
    """`confirmed` is false when no majority answered: the rest ends by its ttl."""

    name: str
    fence: int
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Broken(Event):
    """Somebody forced the lock open; `by`: who, as host:pid and thread or task."""

    name: str
    tally: Tally
    by: str = ""


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

    __slots__ = ("_subscribers", "listening")

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()
        self.listening = False
        """Is anybody there? Ask before building an event."""

    def subscribe(self, callback: Callable[[Event], object]) -> Callable[[], None]:
        """Adds `callback`; what is returned takes it away again."""
        subscriber = Subscriber(callback)
        self._subscribers = (*self._subscribers, subscriber)
        self.listening = True

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)
            self.listening = bool(self._subscribers)

        return unsubscribe

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber.callback(event)
            except Exception:
                # A subscriber is an onlooker; the lock it looks at must not suffer from it.
                logger.exception("a subscriber failed on %s", type(event).__name__)
