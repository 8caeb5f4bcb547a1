"""Runs procedures in simulated time, over a simulated network: the same seed, the same story.

The production code runs down to the bytes: core, board, link and wire are the real ones. Only clocks, sockets
and servers are simulated. What may happen to a client is said here (it stops, its clocks are wrong, it is cut off
from nodes), to a connection in `virtual_network.py`, to a node in `virtual_world.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..core.effects import Effect, Listen, Sleep, Steps, Wait
from ..core.fleet import Fleet
from ..core.room import Room
from ..core.room import Watch as Watching
from ..core.votes import Cause, unknown
from ..engines.redis.ear import Ear
from ..engines.redis.link import Link
from ..engines.redis.node import Node, Terms
from ..engines.redis.wire import Wire
from ..events import Bus
from . import board
from .base import Watch, advance, ended
from .virtual_network import Connection, Way
from .virtual_world import DriftingClock, Event, VirtualNode, World

__all__ = ["Connection", "Procedure", "VirtualNode", "VirtualRunner", "World"]

TICK = 1e-9
"""By so much a timer is late: its client's clock, which counts otherwise than the world's, must have got there."""

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
        self.clock = DriftingClock(world, 0.0)
        """Counts seconds, perhaps faster or slower than the world does; nobody sets it."""
        self.wall_offset = 0.0
        self.latency = latency
        self.stalls: dict[int, float] = {}
        """Until when nothing passes between this client and a node."""
        self.one_way: dict[tuple[int, Way], float] = {}
        """The same of one direction."""
        self.connections: dict[Connection, None] = {}
        self.procedures: dict[Procedure[Any], None] = {}
        """Those that are under way."""
        self.asleep = False
        self._asleep_until = 0.0
        self._arrived: list[Event] = []
        self._due: list[Event] = []
        self.naps: list[tuple[int, float]] = []
        quarantined = len(nodes) >= 3 if quarantine is None else quarantine
        engine = VirtualEngine(
            self.clock, len(nodes), prefix=prefix, max_ttl=max_ttl, quarantine=quarantined, fence_ttl=fence_ttl,
            node_timeout=node_timeout,
        )  # fmt: skip
        self.fleet = Fleet(
            engine.labels, self.clock, self.wall, world.random.random, self._new_token, node_timeout, drift
        )
        self.bus = Bus()
        watch = Watch(engine, self.bus)
        self.board = board.Board(engine, watch, node_timeout, self, self._connect)
        self.room = Room(lambda: name)
        self.ears = board.Ears(self.board, self.room, self._connect_ear)
        self._tokens = 0

    def wall(self) -> float:
        """What this client believes the time of day is."""
        return self.world.wall() + self.wall_offset

    def delay(self, node: int) -> float:
        least, most = self.latency
        return least + (most - least) * self.world.random.random()

    # What may happen to it.

    def pause(self, seconds: float) -> None:
        """SIGSTOP: nothing is handled until then, and then all at once. Its clocks, and its sockets, go on."""
        self.asleep = True
        self._asleep_until = max(self._asleep_until, self.world.now + seconds)
        self.world.call_at(self._asleep_until, self._wake)

    def pause_after(self, callbacks: int, seconds: float) -> None:
        """The same, when so many more things have been handled: between any two lines, as it were."""
        self.naps.append((callbacks, seconds))

    def stall(self, node: int, seconds: float, *ways: Way) -> None:
        """A partition: nothing passes to the node, or back, or (without a way) both."""
        for way in ways:
            self.one_way[node, way] = self.world.now + seconds
        if not ways:
            self.stalls[node] = self.world.now + seconds

    def heal(self) -> None:
        """The network is well again."""
        self.stalls.clear()
        self.one_way.clear()
        for connection in list(self.connections):
            connection.flow()

    def opens_at(self, node: int, way: Way) -> float:
        return max(self.stalls.get(node, 0.0), self.one_way.get((node, way), 0.0))

    # What the world asks of it.

    def call_later(self, delay: float, callback: Callable[[], object]) -> Event:
        """By its own clock."""
        return self.world.call_at(self.world.now + delay / self.clock.rate + TICK, callback, self)

    def call_soon(self, callback: Callable[[], object]) -> Event:
        return self.world.call_at(self.world.now, callback, self)

    def hear(self, callback: Callable[..., object], *about: object) -> None:
        if self.asleep:
            self._arrived.append(Event(functools.partial(callback, *about), self))
        else:
            callback(*about)
            if self.naps:
                self.handled()

    def defer(self, event: Event) -> None:
        self._due.append(event)

    def handled(self) -> None:
        (left, seconds), *later = self.naps
        self.naps = [(left - 1, seconds), *later] if left > 1 else later
        if left <= 1:
            self.pause(seconds)

    def wake(self) -> None:
        """SIGCONT, before its time."""
        self._asleep_until = self.world.now
        self.naps.clear()
        self._wake()

    def _wake(self) -> None:
        if self.asleep and self.world.now >= self._asleep_until:
            self.asleep = False
            # An event loop reads its sockets before it looks at its timers.
            for event in self._arrived + self._due:
                self.world.put(event, self.world.now)
            self._arrived, self._due = [], []

    def joined(self, connection: Connection) -> None:
        self.connections[connection] = None

    def parted(self, connection: Connection) -> None:
        self.connections.pop(connection, None)

    # What it does.

    def run(self, steps: Steps[T]) -> T:
        """Drives a procedure to its end, letting the world go on meanwhile."""
        return self.spawn(steps).result()

    def spawn(self, steps: Steps[T]) -> Procedure[T]:
        """Starts a procedure; the world has to be driven for it to go on."""
        procedure = Procedure(self, steps)
        self.procedures[procedure] = None
        procedure.resume(None)
        return procedure

    def _connect(self, on: board.Board, node: int) -> None:
        self._reach(
            node,
            lambda: on.connected(Connection(self, self.nodes[node], on.engine.new_link(node), on)),
            lambda why: on.not_connected(node, unknown(Cause.UNREACHABLE, why)),
        )

    def _connect_ear(self, ears: board.Ears, node: int) -> None:
        self._reach(
            node,
            lambda: ears.connected(Connection(self, self.nodes[node], ears.new_ear(node), self.board)),
            lambda _: ears.not_connected(node),
        )

    def _reach(self, node: int, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Asks for a connection, which takes the way to the node and back."""
        given_up_at = self.world.now + self.board.engine.connect_timeout

        def arrive() -> None:
            opens_at = max(self.opens_at(node, "to"), self.opens_at(node, "back"))
            if opens_at > given_up_at:
                self.world.call_at(given_up_at, lambda: failed("timed out"), self)
            elif opens_at > self.world.now:
                self.world.call_at(opens_at, arrive)
            elif self.nodes[node].up:
                self.hear(connected)
            else:
                self.hear(lambda: failed("connection refused"))

        self.world.call_later(2 * self.delay(node), arrive)

    def _new_token(self, _: str) -> str:
        self._tokens += 1
        return f"{self.name}-{self._tokens}"


class Procedure(Generic[T]):
    """A procedure that is under way in the world."""

    def __init__(self, runner: VirtualRunner, steps: Steps[T]) -> None:
        self.done = False
        self._runner = runner
        self._steps = steps
        self._value: T | None = None
        self.error: BaseException | None = None
        """What it raised."""
        self._pending: board.Pending | None = None
        self._timer: Event | None = None
        self._wake: Event | None = None
        self._watch: Watching | None = None

    def result(self) -> T:
        """Drives the world until it is done; gives its result, or raises what it raised."""
        self._runner.world.run_until(lambda: self.done)
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def throw(self, error: BaseException) -> None:
        """Cancels it: the error is thrown in where it waits."""
        if not self.done:
            self._let_go()
            self.resume(error)

    def abandon(self) -> None:
        """The world ends: what it would still do is done by nobody. (A procedure is never closed.)"""
        if not self.done:
            self._let_go()
            try:
                self._steps.throw(KeyboardInterrupt())
                for _ in self._steps:
                    pass
            except BaseException as ended_by:
                self.error = ended_by
            self._end()

    def _end(self) -> None:
        self.done = True
        self._runner.procedures.pop(self, None)

    def resume(self, error: BaseException | None) -> None:
        """Goes on until it waits for something, or ends."""
        while not self.done:
            try:
                effect = advance(self._steps, error)
            except StopIteration as stop:
                self._value = stop.value
                self._end()
                return
            except BaseException as raised:
                if not ended(self._steps):
                    raise
                self.error = raised
                self._end()
                return
            if self._wait_for(effect):
                return
            error = None

    def _wait_for(self, effect: Effect) -> bool:
        """Starts an effect; False if it is over already."""
        runner = self._runner
        if isinstance(effect, Sleep):
            self._timer = runner.call_later(effect.seconds, self._go_on)
            return True
        if isinstance(effect, Wait):
            if effect.over:
                return False
            self._watch = effect.watch
            effect.watch.on_ring = lambda: self._decided() if effect.over and self._wake is None else None
            self._timer = runner.call_later(effect.seconds, self._go_on)
            return True
        if isinstance(effect, Listen):
            self._timer = runner.call_later(effect.timeout, self._go_on)
            runner.ears.listen(self._heard(self._timer))
            return True
        self._pending = runner.board.begin(effect, self._decided)
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
        self._wake = self._runner.call_soon(self._go_on)

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
