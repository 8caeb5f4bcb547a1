"""What runners ask of an engine and of its links. An engine need not derive from anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.health import Health
from ..core.requests import Request
from ..core.votes import Cause, Tally


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
    @property
    def owes(self) -> bool: ...
    @property
    def overfull(self) -> bool: ...


class Encoder(Protocol):
    def encode(self, request: Request) -> bytes: ...


class Engine(Protocol):
    """Nodes, and ways to them."""

    name: str
    connect_timeout: float
    """For how long a round may wait for a first connection; a connection may take longer, behind its back."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def wire(self) -> Encoder: ...
    def new_link(self, index: int) -> Link: ...
    def open(self, index: int) -> Any: ...
    async def open_async(self, index: int) -> Any: ...
