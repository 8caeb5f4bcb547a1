"""The world of a simulation: time, chance, and servers with clocks, disks and ups and downs of their own."""

from __future__ import annotations

import copy
import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..engines.memory.keys import Reply, Value
from ..engines.memory.server import ServerDouble, encode

if TYPE_CHECKING:
    from .virtual_network import Connection

Disk = dict[bytes, tuple[Value, int | None]]


class Owner(Protocol):
    """A client, whose events wait while it is stopped."""

    asleep: bool
    naps: list[tuple[int, float]]
    """After how many more events it is to sleep, and for how long."""

    def defer(self, event: Event) -> None: ...
    def handled(self) -> None: ...


class Event:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("callback", "cancelled", "owner")

    def __init__(self, callback: Callable[[], object], owner: Owner | None = None) -> None:
        self.callback = callback
        self.cancelled = False
        self.owner = owner
        """Who handles it, if it is not the world itself."""

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
        self.count = 0
        """How many events there were, or will be."""

    def clock(self) -> float:
        """The clock of a client: seconds since the world began."""
        return self.now

    def wall(self) -> float:
        """The true time of day, which nobody in the world need know exactly."""
        return self.started_at + self.now

    def call_at(self, at: float, callback: Callable[[], object], owner: Owner | None = None) -> Event:
        return self.put(Event(callback, owner), at)

    def put(self, event: Event, at: float) -> Event:
        self.count += 1
        heapq.heappush(self._events, (at if at > self.now else self.now, self.count, event))
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
            owner = event.owner
            if owner is None or not owner.asleep:
                event.callback()
                if owner is not None and owner.naps:
                    owner.handled()
            else:
                owner.defer(event)
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
            if self._events[0][2].cancelled:  # what is behind it may be due later
                heapq.heappop(self._events)
            else:
                self.step()
        self.now = end


class DriftingClock:
    """A clock that runs at a rate of its own, and may be set."""

    def __init__(self, world: World, origin: float) -> None:
        self._world = world
        self._since = world.now
        self._at = origin + world.now
        self.rate = 1.0

    def __call__(self) -> float:
        return self._at + (self._world.now - self._since) * self.rate

    def step(self, seconds: float) -> None:
        """Is set forward, or back."""
        self._at += seconds

    def run(self, rate: float) -> None:
        """Runs faster or slower from now on."""
        self._at, self._since, self.rate = self(), self._world.now, rate

    def correct(self, origin: float) -> None:
        """Shows the right time again, and keeps it."""
        self._at, self._since, self.rate = origin + self._world.now, self._world.now, 1.0


class VirtualNode:
    """A server in the world: its own clock, its own disk, its own ups and downs."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.time = DriftingClock(world, world.started_at)
        """What the node believes the time is."""
        self.up = True
        self.paused = False
        self.restarts = 0
        self.server = ServerDouble(self.time, f"node-{index}-0")
        self.server.on_kill = self.kill_client
        self.server.on_publish = self.publish
        self.connections: dict[int, Connection] = {}
        self.subscribers: dict[bytes, dict[int, None]] = {}
        """For each channel the connections that listen to it, in the order they came."""
        self.again: Callable[[list[bytes]], float | None] | None = None
        """Is a request executed twice? After how many seconds, if it is."""
        self.on_executed: Callable[[list[bytes], Reply], object] | None = None
        self._clients = 0

    def new_client_id(self) -> int:
        self._clients += 1
        return self._clients

    def execute(self, command: list[bytes], client_id: int) -> Reply:
        """What a client asked for."""
        reply = self.server.execute(command, client_id)
        word = command[0]
        if word == b"SUBSCRIBE":
            self.subscribers.setdefault(bytes(command[1]), {})[client_id] = None
        elif word.startswith(b"EVAL"):
            if self.on_executed is not None:
                self.on_executed(command, reply)
            if self.again is not None and (after := self.again(command)) is not None:
                self.world.call_later(after, lambda: self._execute_again(command))
        return reply

    def _execute_again(self, command: list[bytes]) -> None:
        """Somebody between has sent it twice; the second answer reaches nobody."""
        if self.up and not self.paused:
            reply = self.server.execute(command, 0)
            if self.on_executed is not None:
                self.on_executed(command, reply)

    def crash(self) -> None:
        """The process is gone, and with it every connection."""
        self.up = False
        for connection in list(self.connections.values()):
            connection.cut()

    def disk(self) -> Disk:
        """What a disk would hold now."""
        return copy.deepcopy(self.server.snapshot())

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
