"""The network of a simulation: connections as TCP makes them, and everything that TCP lets happen to them.

Bytes of one connection arrive in order and once, but perhaps late, or never because it broke. Two connections know
nothing of one another: what was sent on an old one may arrive after what was sent on its successor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from ..engines.base import Link
from ..engines.memory.server import encode
from ..engines.redis.resp import new_reader
from . import board
from .virtual_world import Event, VirtualNode, World

Way = Literal["to", "back"]
"""To the node, or back to its client."""


class Client(Protocol):
    """Whose connection it is."""

    def delay(self, node: int) -> float: ...
    def opens_at(self, node: int, way: Way) -> float:
        """When the way between this client and a node is open: in the past, if it is."""

    def hear(self, callback: Callable[..., object], *about: object) -> None:
        """Something has arrived: handles it, or lets it wait while the client is stopped."""

    def joined(self, connection: Connection) -> None: ...
    def parted(self, connection: Connection) -> None: ...


class Pipe:
    """One way of a connection: what is put in comes out in that order, later, or not at all."""

    def __init__(
        self,
        world: World,
        delay: Callable[[], float],
        opens_at: Callable[[], float],
        deliver: Callable[[bytes], None],
        exhausted: Callable[[], None],
    ) -> None:
        self.held_until = 0.0
        """Until when nothing comes out of this one, whatever others do."""
        self.silent = False
        """Is nothing delivered any more, although nobody is told?"""
        self.left: int | None = None
        """How many bytes pass before the connection breaks, if it is to."""
        self._world = world
        self._delay = delay
        self._opens_at = opens_at
        self._deliver = deliver
        self._exhausted = exhausted
        self._items: deque[tuple[float, bytes]] = deque()
        self._last_at = 0.0
        self._waiting = False

    def put(self, data: bytes) -> None:
        """Sends; no bytes at all are the end of the connection."""
        world = self._world
        at = world.now + self._delay()
        if at < self._last_at:
            at = self._last_at
        else:
            self._last_at = at
        self._items.append((at, data))
        world.put(Event(self.flow), at)

    def clear(self) -> None:
        """What is under way is lost."""
        self._items.clear()

    def flow(self) -> None:
        """Delivers what has arrived, if it may pass."""
        items, now = self._items, self._world.now
        while items and items[0][0] <= now:
            at = max(self.held_until, self._opens_at())
            if at > now:
                if not self._waiting:
                    self._waiting = True
                    self._world.call_at(at, self._again)
                return
            data = items.popleft()[1]
            if self.left is not None and data and not self.silent:
                self._pass_the_last(data, self.left)
            elif not self.silent:
                self._deliver(data)

    def _pass_the_last(self, data: bytes, left: int) -> None:
        self.left = left - len(data)
        if data[:left]:
            self._deliver(data[:left])
        if self.left < 0:
            self._exhausted()

    def _again(self) -> None:
        self._waiting = False
        self.flow()


class Connection(board.Strand):
    """A connection from a client to a node, with both of its ends."""

    def __init__(self, client: Client, node: VirtualNode, link: Link, on: board.Board) -> None:
        super().__init__(node.index, link, on)
        self.client = client
        self.to = node
        self.open = True
        """Has the server's end not ended?"""
        self.client_id = node.new_client_id()
        node.connections[self.client_id] = self
        client.joined(self)
        self._reader = new_reader()
        self._inbox: list[bytes] = []
        self._closed = False
        """Has the client hung up, as far as the server's end knows?"""
        index, world = self.node, node.world

        def delay() -> float:
            return client.delay(index)

        self.pipes: dict[Way, Pipe] = {
            "to": Pipe(world, delay, lambda: client.opens_at(index, "to"), self._arrived, self.cut),
            "back": Pipe(world, delay, lambda: client.opens_at(index, "back"), self._answered, self.cut),
        }

    # What may happen to it.

    def cut(self) -> None:
        """It breaks; what is under way is lost, and the client is told as soon as anything passes."""
        if self.open:
            self._end()
            for pipe in self.pipes.values():
                pipe.clear()
            self.pipes["back"].left = None
            self.pipes["back"].put(b"")

    def silence(self, *ways: Way) -> None:
        """Nothing passes any more, and neither end is told: it is half open, or not open at all."""
        for way in ways or ("to", "back"):
            self.pipes[way].silent = True

    def break_after(self, way: Way, size: int = 0) -> None:
        """It breaks when so many more bytes have passed: the next request, or the next answer, is lost."""
        self.pipes[way].left = size

    def hold(self, way: Way, seconds: float) -> None:
        """What is sent on this connection is late; what is sent on another one is not."""
        pipe = self.pipes[way]
        pipe.held_until = max(pipe.held_until, self.to.world.now + seconds)

    def flow(self) -> None:
        """The network is well again."""
        for pipe in self.pipes.values():
            pipe.held_until = 0.0
            pipe.flow()

    # The client's end.

    def transmit(self, data: bytes) -> None:
        self.pipes["to"].put(data)

    def hang_up(self) -> None:
        """The client closes; what it has sent before still arrives, unless the server ends the connection."""
        self.pipes["to"].put(b"")

    def _answered(self, data: bytes) -> None:
        self.client.hear(self._heard, data)

    def _heard(self, data: bytes) -> None:
        if data and not self.link.dead:
            self.received(data)
        elif not data:
            self.broken("closed by the server")
            self.client.parted(self)

    # The server's end.

    def _arrived(self, data: bytes) -> None:
        if not self.open:
            return
        if data:
            self._inbox.append(data)
        else:
            self._closed = True
        self.serve()

    def serve(self) -> None:
        """The server reads what has arrived, and answers."""
        if not self.open or self.to.paused or not self.to.up:
            return
        inbox, self._inbox = self._inbox, []
        reader, execute = self._reader, self.to.execute
        for data in inbox:
            reader.feed(data)
            while (command := reader.gets()) is not False:
                self.answer_later(encode(execute(command, self.client_id)))
        if self._closed:
            self._end()

    def answer_later(self, reply: bytes) -> None:
        if self.open:  # a client may have ended its own connection by CLIENT KILL
            self.pipes["back"].put(reply)

    def _end(self) -> None:
        self.open = False
        self.to.connections.pop(self.client_id, None)
        if self.link.dead:
            self.client.parted(self)
