"""Runs procedures in simulated time, over a simulated network: the same seed, the same story.

The production code runs down to the bytes: core, board, link and wire are the real ones. Only clocks, sockets
and servers are simulated. The network is one of connections, as TCP is: bytes arrive late, or not until a
partition heals, or not at all because the connection broke; but never out of order, and never twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..core.effects import Effect, Listen, Sleep, Steps, Wait
from ..core.fleet import Fleet
from ..core.room import Room
from ..core.room import Watch as Watching
from ..engines.redis.ear import Ear
from ..engines.redis.link import Link
from ..engines.redis.node import Node, Terms
from ..engines.redis.wire import Wire
from ..events import Bus
from . import board
from .base import Watch, advance, ended
from .virtual_world import Connection, Event, VirtualNode, World

__all__ = ["Procedure", "VirtualNode", "VirtualRunner", "World"]

T = TypeVar("T")


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
        node_timeout: float,
    ) -> None:
        self.clock = clock
        terms = Terms("virtual", count, max_ttl, durable=False, quarantine=quarantine)
        self.nodes = [Node(index, f"node-{index}", terms) for index in range(count)]
        for node in self.nodes:
            node.mates = self.nodes
        self.labels = tuple(node.label for node in self.nodes)
        self.wire = Wire(
            prefix=prefix, fleet=terms.fleet, nodes=count, max_ttl=max_ttl, fence_ttl=fence_ttl, durable=False,
            quarantine=quarantine, node_timeout=node_timeout,
        )  # fmt: skip

    def new_link(self, index: int) -> Link:
        return Link(self.nodes[index], self.wire)

    def new_ear(self, index: int, room: Room) -> Ear:
        return Ear(index, room, self.wire.channel)

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
            world.clock, len(nodes), prefix=prefix, max_ttl=max_ttl, quarantine=quarantined, fence_ttl=fence_ttl,
            node_timeout=node_timeout,
        )  # fmt: skip
        self.fleet = Fleet(
            engine.labels, world.clock, self.wall, world.random.random, self._new_token, node_timeout, drift
        )
        self.bus = Bus()
        watch = Watch(engine, self.bus)
        self.board = board.Board(engine, watch, node_timeout, world, self._connect)
        self.room = Room(lambda: name)
        self.ears = board.Ears(self.board, self.room, self._connect_ear)
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
                on.connected(Connection(self, self.nodes[node], on.engine.new_link(node), on))
            else:
                on.not_connected(node, "connection refused")

        self.world.call_later(2 * self.delay(node), arrive)

    def _connect_ear(self, ears: board.Ears, node: int) -> None:
        def arrive() -> None:
            wait = self.stalled(node)
            if wait > 0:
                self.world.call_later(wait, arrive)
            elif self.nodes[node].up:
                ears.connected(Connection(self, self.nodes[node], ears.new_ear(node), self.board))
            else:
                ears.not_connected(node)

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
        self._watch: Watching | None = None

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
        if isinstance(effect, Wait):
            if effect.over:
                return False
            self._watch = effect.watch
            effect.watch.on_ring = lambda: self._decided() if effect.over and self._wake is None else None
            self._timer = world.call_later(effect.seconds, self._go_on)
            return True
        if isinstance(effect, Listen):
            self._timer = world.call_later(effect.timeout, self._go_on)
            self._runner.ears.listen(self._heard(self._timer))
            return True
        self._pending = self._runner.board.begin(effect, self._decided)
        if effect.tally.decided:
            self._let_go()
            return False
        return True

    def _heard(self, timer: Event) -> Callable[[], None]:
        """To be called when nodes announce to the room, unless it is too late for that."""

        def heard() -> None:
            if self._timer is timer and self._wake is None:
                self._decided()

        return heard

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
        if self._watch is not None:
            self._watch.on_ring = None
        self._pending = self._timer = self._wake = self._watch = None
