"""What the engines on databases share: links to the server, taken for one request and given back.

A request is a visit (`visits.py`); a *link* carries its batches. When a link is silent for too long, or is cut,
what it was asked may still be executed. So it is given up, and whoever asks next first has the server end it
(`bury`): what is undone afterwards is undone behind it. Requests that are known by their token are then said again,
once:

    A: acquire (token t) ──▶ granted ──✕ the answer is lost
    A: a new link, the old one is ended; acquire (token t) ──▶ "it is yours already", with the same fence
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from ...clocks import boot_time
from ...core.requests import Extend, Release, Request
from ...core.states import DOWN, MISFIT, READY, NodeState, median
from ...errors import LockError
from ...options import Settings
from .batches import Again, Batch, Cut, NoTables, Result, Trouble
from .visits import NOT_TWICE

LINKS_MOST = 8
"""At a time, of one process or event loop: databases do not have many to give."""
PATIENCE = 1.0
"""Seconds, or more, for which a database may think about a request."""
AGAIN_WITHIN = 0.01
OWED_MOST = 100


class Link(Protocol):
    """One connection, in the hands of one request at a time."""

    server_id: Any
    """What the server knows it by; None: it cannot be told to end it."""
    version: str

    def alive(self) -> bool:
        """Was it still there when we looked?"""

    def close(self) -> None: ...


class SyncLink(Link, Protocol):
    def run(self, batch: Batch, due: float) -> Sequence[Result]:
        """Raises Trouble. `due`: an instant of the boot clock."""


class AsyncLink(Link, Protocol):
    async def run(self, batch: Batch, due: float) -> Sequence[Result]: ...


class Shelf:
    """The idle links of a process, or of an event loop."""

    def __init__(self, seats: Any) -> None:
        self.seats = seats
        """A semaphore."""
        self.idle: list[Any] = []
        self.lost: list[Any] = []
        """What the server knows those by that were given up, until it has ended them."""
        self.owed: dict[Request, None] = {}
        """Releases that did not get through."""
        self.closed = False

    def owe(self, request: Request) -> None:
        """What a server that is silent for a while has heard, it does when it goes on.

        A release that keeps its lock closed for a while is not kept: said later, it would do so for longer.
        (`core/owed.py` sends it again, with what is left of that while.)
        """
        if isinstance(request, Release) and not request.stay_ms and len(self.owed) < OWED_MOST:
            self.owed[request] = None

    def give_back(self, link: Any) -> None:
        if link is None:
            return
        if self.closed:
            link.close()
        else:
            self.idle.append(link)

    def give_up(self, link: Any) -> None:
        if link is None:
            return
        if link.server_id is not None:
            self.lost.append(link.server_id)
        link.close()

    def buried(self, server_id: Any) -> None:
        with suppress(ValueError):  # another was faster
            self.lost.remove(server_id)

    def empty(self) -> None:
        """Closes what is idle."""
        while self.idle:
            with suppress(IndexError):  # another was faster
                self.idle.pop().close()


class Hub:
    """What threads and loops have to agree on."""

    version = ""
    """Of the server that we met last."""

    def __init__(self, name: str, label: str, settings: Settings) -> None:
        self.name = name
        self.label = label
        self._patience = max(PATIENCE, 10 * settings.node_timeout)

    def bury(self, server_id: Any) -> Batch:
        """What has the server end a link."""
        raise NotImplementedError

    def due(self, request: Request | None) -> float:
        # Whoever renews asks again, and should know soon that it fails.
        return boot_time() + (self._patience / 2 if type(request) is Extend else self._patience)

    def hopeless(self, error: Trouble, request: Request | None, tries: int, due: float) -> bool:
        """Is it of no use to begin again?"""
        if boot_time() >= due:
            return True
        if isinstance(error, NoTables):
            return tries > 2
        if isinstance(error, Cut):
            return tries > 1 or isinstance(request, NOT_TWICE)
        return not isinstance(error, Again)

    def told(self, took: list[float], error: Exception | None, offset: float | None) -> NodeState:
        """How the server is doing."""
        if error is not None:
            state = MISFIT if isinstance(error, LockError) else DOWN
            detail = str(error).removeprefix(self.label).lstrip(": ")
            return NodeState(self.label, state, detail, None, self.name, None, None, None, 0.0)
        return NodeState(self.label, READY, "", None, self.name, self.version, median(took), offset, 0.0)
