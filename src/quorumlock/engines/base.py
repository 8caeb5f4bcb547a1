"""What runners ask of an engine and of its links. An engine need not derive from anything.

There are two kinds. Most are a way to servers: nodes, connections, bytes (`WireEngine`). A *store* answers by
itself, in the thread that asks (`Store`): there is nothing to connect to and nothing to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..core.effects import Round
from ..core.health import Health
from ..core.requests import Extend, Request
from ..core.room import Room
from ..core.states import NodeState
from ..core.votes import GRANTED, Answer, Cause, History, Tally

T = TypeVar("T")
Visit = Generator[bytes | float, bytes, T]
"""Talks to one node by itself: yields bytes to send, and is given what comes; or seconds, for which to wait."""


class Node(Protocol):
    """One server, as this client knows it."""

    index: int
    label: str
    health: Health
    met: bool
    on_quarantine: Callable[[str, float], None] | None

    def missed(self, request: Request) -> None: ...


class Link(Protocol):
    """One connection to one node, without the socket."""

    dead: bool

    def begin(self, now: float) -> bytes: ...
    def submit(self, request: Request, packed: bytes, tally: Tally, now: float) -> bytes: ...
    def receive(self, data: bytes) -> bytes: ...
    def fail(self, cause: Cause, detail: str) -> None: ...
    def overdue(self, now: float, timeout: float) -> bool: ...
    def stale(self, now: float, timeout: float) -> bool: ...
    @property
    def owes(self) -> bool: ...
    def overfull(self, now: float, timeout: float) -> bool: ...


class EarLink(Link, Protocol):
    """One subscription to one node, without the socket."""

    up: bool
    refused: str
    on_up: Callable[[], None] | None

    def ping(self, now: float) -> bytes: ...


class Encoder(Protocol):
    def encode(self, request: Request) -> bytes: ...


class Engine(Protocol):
    """What keeps the locks, as far as a Locker is concerned."""

    name: str

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds that never jump: what `remaining()` is measured with."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...


@runtime_checkable
class Store(Engine, Protocol):
    """An engine that answers by itself."""

    blocking: bool
    """May an answer take so long that an event loop should not wait for it?"""

    def perform(self, round_: Round) -> None:
        """Casts a vote for every request of the round, or raises EngineError or ConfigurationError.

        Called by any thread, also by several at a time. What raises may have been executed all the same, and is
        undone by the caller; where that is out of the question, UNREACHABLE is cast before.
        """

    def states(self, samples: int) -> tuple[NodeState, ...]:
        """How its nodes are doing; raises nothing for a node that is down."""

    def close(self) -> None:
        """Lets go of what is open; may be called while other threads are in `perform`."""

    def forget(self) -> None:
        """In a forked child: what is open belongs to the parent, and is neither used nor closed."""


@runtime_checkable
class LoopStore(Store, Protocol):
    """A store that answers on an event loop by itself, and not in a thread."""

    async def perform_async(self, round_: Round) -> None:
        """As `perform`. It is never cancelled: whoever does not wait any more undoes it, behind it."""

    async def states_async(self, samples: int) -> tuple[NodeState, ...]: ...
    async def close_async(self) -> None:
        """Lets go of what is open in the running loop."""


@runtime_checkable
class Announcer(Store, Protocol):
    """A store that tells whose turn it is."""

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        """Lets the room hear of turns, soon; `done` is called then, or when that has failed, in any thread.

        Called again and again, by any thread; where an event loop runs, in that loop.
        """


@runtime_checkable
class Restless(Store, Protocol):
    """A store whose clock may be moved: those who wait are to look at it then."""

    def meet(self, room: Room) -> None:
        """Stirs this room whenever it is, for as long as anybody has it."""


def no_past() -> Answer:
    """What an engine without a journal has written down; whoever asks looks for itself."""
    return Answer(GRANTED, Cause.AGREED, history=History(time.time_ns() // 1000, 0, ()))


class WireEngine(Engine, Protocol):
    """Nodes, and ways to them."""

    connect_timeout: float
    """For how long a round may wait for a first connection; a connection may take longer, behind its back."""

    @property
    def wire(self) -> Encoder: ...
    def new_link(self, index: int) -> Link: ...
    def new_ear(self, index: int, room: Room) -> EarLink: ...
    def open(self, index: int) -> Any: ...
    async def open_async(self, index: int) -> Any: ...


@runtime_checkable
class Visitable(Engine, Protocol):
    """Servers that can be looked at, each over a connection that is made for it."""

    visit_timeout: float
    """For how long a node may be silent during a visit."""

    def open(self, index: int) -> Any: ...
    async def open_async(self, index: int) -> Any: ...
    def look(self, samples: int) -> Visit[Any]: ...
    def judged(self, seen: Sequence[Any]) -> tuple[NodeState, ...]:
        """What the visits come to, one for each node; a text says why there was none."""


def renewal_patience(request: Extend, least: float, most: float) -> float:
    """For how many seconds a renewal may take: a quarter of the shortest ttl.

    Its keeper asks again, and has to be back in time to announce a loss.
    """
    return max(least, min(most, min(kept.ttl_ms for kept in request.leases) / 4000))
