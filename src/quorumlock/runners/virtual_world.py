"""The world of a simulation: time, chance, servers, and the connections to them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, Protocol

from ..engines.base import Link
from ..engines.memory.server import ServerDouble, encode
from ..engines.redis.resp import new_reader
from . import board


class Event:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """Time, chance, and what is going to happen. An event loop, as far as a board is concerned."""

    def __init__(self, seed: int = 0, *, started_at: float = 1_800_000_000.0) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.started_at = started_at
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0

    def clock(self) -> float:
        """The clock of a client: seconds since the world began."""
        return self.now

    def wall(self) -> float:
        """The true time of day, which nobody in the world need know exactly."""
        return self.started_at + self.now

    def call_at(self, at: float, callback: Callable[[], object]) -> Event:
        event = Event(callback)
        self._count += 1
        heapq.heappush(self._events, (max(at, self.now), self._count, event))
        return event

    def call_later(self, delay: float, callback: Callable[[], object]) -> Event:
        return self.call_at(self.now + delay, callback)

    def call_soon(self, callback: Callable[[], object]) -> Event:
        return self.call_at(self.now, callback)

    def step(self) -> bool:
        """Lets the next thing happen; False when nothing is left."""
        while self._events:
            at, _, event = heapq.heappop(self._events)
            if event.cancelled:
                continue
            self.now = at
            event.callback()
            return True
        return False

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Lets things happen until the condition holds."""
        while not condition():
            if not self.step():
                raise RuntimeError(f"nothing is left to happen (seed {self.seed})")

    def advance(self, seconds: float) -> None:
        """Lets everything happen that is due within `seconds`."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self.now = end


class VirtualNode:
    """A server in the world: its own clock, its own ups and downs."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.offset = 0.0
        self.rate = 1.0
        self.up = True
        self.paused = False
        self.restarts = 0
        self.server = ServerDouble(self.time, f"node-{index}-0")
        self.server.on_kill = self.kill_client
        self.server.on_publish = self.publish
        self.connections: dict[int, Connection] = {}
        self.subscribers: dict[bytes, set[int]] = {}
        """For each channel the connections that listen to it."""
        self._clients = 0

    def time(self) -> float:
        """What the node believes the time is."""
        return self.world.started_at + self.world.now * self.rate + self.offset

    def new_client_id(self) -> int:
        self._clients += 1
        return self._clients

    def crash(self) -> None:
        """The process is gone, and with it every connection."""
        self.up = False
        for connection in list(self.connections.values()):
            connection.cut()

    def restart(self, disk: Any = None) -> None:
        """Comes back with what the disk holds (default: nothing)."""
        if self.up:
            self.crash()
        self.restarts += 1
        self.server.restart(f"node-{self.index}-{self.restarts}", disk)
        self._clients = 0
        self.subscribers.clear()
        self.up = True
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP: what arrives waits in the sockets."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for connection in list(self.connections.values()):
            connection.serve()

    def publish(self, channel: bytes, message: bytes) -> int:
        heard = [one for one in self.subscribers.get(channel, ()) if one in self.connections]
        for client_id in heard:
            self.connections[client_id].answer_later(encode([b"message", channel, message]))
        return len(heard)

    def kill_client(self, client_id: int) -> None:
        victim = self.connections.get(client_id)
        if victim is not None:
            victim.cut()


class Client(Protocol):
    """Whose connection it is."""

    def delay(self, node: int) -> float: ...
    def stalled(self, node: int) -> float: ...


class Connection(board.Strand):
    """A connection from a client to a node, with both of its ends."""

    def __init__(self, client: Client, node: VirtualNode, link: Link, on: board.Board) -> None:
        super().__init__(node.index, link, on)
        self.client = client
        self.to = node
        self.open = True
        self.client_id = node.new_client_id()
        node.connections[self.client_id] = self
        self._reader = new_reader()
        self._inbox = b""
        self._closed = False
        """Has the client hung up, as far as the server's end knows?"""
        self._there_at = 0.0
        self._back_at = 0.0

    def transmit(self, data: bytes) -> None:
        world = self.to.world
        self._there_at = max(self._there_at, world.now + self.client.delay(self.node))
        world.call_at(self._there_at, lambda: self._arrive(data))

    def hang_up(self) -> None:
        """The client closes; what it has sent before still arrives, unless the server ends the connection."""
        world = self.to.world
        self._there_at = max(self._there_at, world.now + self.client.delay(self.node))
        world.call_at(self._there_at, self._end_arrives)

    def _end_arrives(self) -> None:
        if (wait := self.client.stalled(self.node)) > 0:
            self.to.world.call_later(wait, self._end_arrives)
            return
        self._closed = True
        self.serve()

    def cut(self) -> None:
        """The connection breaks, on both sides; what is under way is lost."""
        if self.open:
            self.open = False
            self.to.connections.pop(self.client_id, None)
            self.to.world.call_later(self.client.delay(self.node), lambda: self.broken("closed by the server"))

    def _arrive(self, data: bytes) -> None:
        if not self.open:
            return
        wait = self.client.stalled(self.node)
        if wait > 0:
            self.to.world.call_later(wait, lambda: self._arrive(data))
            return
        self._inbox += data
        self.serve()

    def serve(self) -> None:
        """The server reads what has arrived, and answers."""
        if not self.open or self.to.paused or not self.to.up:
            return
        self._reader.feed(self._inbox)
        self._inbox = b""
        while (command := self._reader.gets()) is not False:
            reply = encode(self.to.server.execute(command, self.client_id))
            if command[0] == b"SUBSCRIBE":
                self.to.subscribers.setdefault(bytes(command[1]), set()).add(self.client_id)
            self.answer_later(reply)
        if self._closed:
            self.open = False
            self.to.connections.pop(self.client_id, None)

    def answer_later(self, reply: bytes) -> None:
        self._back_at = max(self._back_at, self.to.world.now + self.client.delay(self.node))
        self.to.world.call_at(self._back_at, lambda: self._answer(reply))

    def _answer(self, reply: bytes) -> None:
        wait = self.client.stalled(self.node)
        if wait > 0 and self.open:
            self.to.world.call_later(wait, lambda: self._answer(reply))
        elif self.open and not self.link.dead:
            self.received(reply)
