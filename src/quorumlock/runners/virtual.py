"""Runs procedures in simulated time, over a simulated network: the same seed, the same story.

The production code runs down to the bytes: core, board, link and wire are the real ones. Only clocks, sockets
and servers are simulated. The network is one of connections, as TCP is: bytes arrive late, or not until a
partition heals, or not at all because the connection broke; but never out of order, and never twice.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..core.effects import Effect, Sleep, Steps
from ..core.fleet import Fleet
from ..engines.memory.server import ServerDouble, encode
from ..engines.redis.link import Link
from ..engines.redis.node import Node, Terms
from ..engines.redis.resp import new_reader
from ..engines.redis.wire import Wire
from ..events import Bus
from . import board
from .base import Watch, advance, ended

T = TypeVar("T")


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
        self.connections: dict[int, Connection] = {}
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
        self.up = True
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP: what arrives waits in the sockets."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for connection in list(self.connections.values()):
            connection.serve()

    def kill_client(self, client_id: int) -> None:
        victim = self.connections.get(client_id)
        if victim is not None:
            victim.cut()


class Connection(board.Strand):
    """A connection from a client to a node, with both of its ends."""

    def __init__(self, client: VirtualRunner, node: VirtualNode, link: Link, on: board.Board) -> None:
        super().__init__(node.index, link, on)
        self.client = client
        self.to = node
        self.open = True
        self.client_id = node.new_client_id()
        node.connections[self.client_id] = self
        self._reader = new_reader()
        self._inbox = b""
        self._there_at = 0.0
        self._back_at = 0.0

    def transmit(self, data: bytes) -> None:
        world = self.to.world
        self._there_at = max(self._there_at, world.now + self.client.delay(self.node))
        world.call_at(self._there_at, lambda: self._arrive(data))

    def hang_up(self) -> None:
        """The client closes; what it has sent before still arrives, unless the server ends the connection."""

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
            self._back_at = max(self._back_at, self.to.world.now + self.client.delay(self.node))
            self.to.world.call_at(self._back_at, lambda reply=reply: self._answer(reply))  # type: ignore[misc]

    def _answer(self, reply: bytes) -> None:
        wait = self.client.stalled(self.node)
        if wait > 0 and self.open:
            self.to.world.call_later(wait, lambda: self._answer(reply))
        elif self.open and not self.link.dead:
            self.received(reply)


class VirtualEngine:
    """What a board asks of an engine, for one simulated client."""

    name = "virtual"
    connect_timeout = 0.5

    def __init__(
        self,
        clock: Callable[[], float],
        count: int,
        *,
        prefix: str,
        max_ttl: float,
        quarantine: bool,
        fence_ttl: float,
    ) -> None:
        self.clock = clock
        terms = Terms("virtual", count, max_ttl, durable=False, quarantine=quarantine)
        self.nodes = [Node(index, f"node-{index}", terms) for index in range(count)]
        for node in self.nodes:
            node.mates = self.nodes
        self.labels = tuple(node.label for node in self.nodes)
        self.wire = Wire(
            prefix=prefix, fleet=terms.fleet, nodes=count, max_ttl=max_ttl, fence_ttl=fence_ttl, durable=False,
            quarantine=quarantine,
        )  # fmt: skip

    def new_link(self, index: int) -> Link:
        return Link(self.nodes[index], self.wire)

    def open(self, index: int) -> Any:
        raise NotImplementedError("a simulated node is connected to by its client")

    async def open_async(self, index: int) -> Any:
        raise NotImplementedError("a simulated node is connected to by its client")


class VirtualRunner:
    """One client of the world; runs any number of procedures at a time."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[VirtualNode],
        *,
        name: str = "client",
        max_ttl: float = 10.0,
        quarantine: bool | None = None,
        fence_ttl: float = 86400.0,
        node_timeout: float = 0.05,
        drift: float = 0.01,
        prefix: str = "",
        latency: tuple[float, float] = (0.0002, 0.002),
    ) -> None:
        self.world = world
        self.name = name
        self.nodes = nodes
        self.wall_offset = 0.0
        self.latency = latency
        self.stalls: dict[int, float] = {}
        """Until when nothing passes between this client and a node."""
        quarantined = len(nodes) >= 3 if quarantine is None else quarantine
        engine = VirtualEngine(
            world.clock, len(nodes), prefix=prefix, max_ttl=max_ttl, quarantine=quarantined, fence_ttl=fence_ttl
        )
        self.fleet = Fleet(
            engine.labels, world.clock, self.wall, world.random.random, self._new_token, node_timeout, drift
        )
        self.bus = Bus()
        watch = Watch(engine, self.bus)
        self.board = board.Board(engine, watch, node_timeout, world, self._connect)
        self._tokens = 0

    def wall(self) -> float:
        """What this client believes the time of day is."""
        return self.world.wall() + self.wall_offset

    def delay(self, node: int) -> float:
        least, most = self.latency
        return least + (most - least) * self.world.random.random()

    def stalled(self, node: int) -> float:
        """How long nothing passes to or from this node; 0: it passes."""
        return max(0.0, self.stalls.get(node, 0.0) - self.world.now)

    def run(self, steps: Steps[T]) -> T:
        """Drives a procedure to its end, letting the world go on meanwhile."""
        return self.spawn(steps).result()

    def spawn(self, steps: Steps[T]) -> Procedure[T]:
        """Starts a procedure; the world has to be driven for it to go on."""
        procedure = Procedure(self, steps)
        procedure.resume(None)
        return procedure

    def _connect(self, on: board.Board, node: int) -> None:
        def arrive() -> None:
            wait = self.stalled(node)
            if wait > 0:
                self.world.call_later(wait, arrive)
            elif self.nodes[node].up:
                on.connected(Connection(self, self.nodes[node], on.engine.new_link(node), on))  # type: ignore[arg-type]
            else:
                on.not_connected(node, "connection refused")

        self.world.call_later(2 * self.delay(node), arrive)

    def _new_token(self) -> str:
        self._tokens += 1
        return f"{self.name}-{self._tokens}"


class Procedure(Generic[T]):
    """A procedure that is under way in the world."""

    def __init__(self, runner: VirtualRunner, steps: Steps[T]) -> None:
        self.done = False
        self._runner = runner
        self._steps = steps
        self._value: T | None = None
        self._error: BaseException | None = None
        self._pending: board.Pending | None = None
        self._timer: Event | None = None
        self._wake: Event | None = None

    def result(self) -> T:
        """Drives the world until it is done; gives its result, or raises what it raised."""
        self._runner.world.run_until(lambda: self.done)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def throw(self, error: BaseException) -> None:
        """Cancels it: the error is thrown in where it waits."""
        if not self.done:
            self._let_go()
            self.resume(error)

    def resume(self, error: BaseException | None) -> None:
        """Goes on until it waits for something, or ends."""
        while not self.done:
            try:
                effect = advance(self._steps, error)
            except StopIteration as stop:
                self.done, self._value = True, stop.value
                return
            except BaseException as raised:
                if not ended(self._steps):
                    raise
                self.done, self._error = True, raised
                return
            if self._wait_for(effect):
                return
            error = None

    def _wait_for(self, effect: Effect) -> bool:
        """Starts an effect; False if it is over already."""
        world = self._runner.world
        if isinstance(effect, Sleep):
            self._timer = world.call_later(effect.seconds, self._go_on)
            return True
        self._pending = self._runner.board.begin(effect, self._decided)
        if effect.tally.decided:
            self._let_go()
            return False
        return True

    def _decided(self) -> None:
        # Not at once: the link is in the middle of its replies.
        self._wake = self._runner.world.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._let_go()
        self.resume(None)

    def _let_go(self) -> None:
        if self._pending is not None:
            self._pending.end()
        for event in (self._timer, self._wake):
            if event is not None:
                event.cancel()
        self._pending = self._timer = self._wake = None
