"""What a `memory://` URL leads to: some doubles of servers, the clock they and their clients go by, and its end.

Rules:

1. One thread at a time talks to the doubles of a world; nobody is called back meanwhile, since he may want to talk.
2. Clients and servers go by one clock: where it jumps, it jumps for all of them.
3. Whoever holds a lease that ended by a jump, or by force, is told before `advance` or `force_lose` returns. What a
   keeper is just about to renew it tells of itself, a moment later.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ...clocks import boot_time
from ...core.keeper import Charge
from ...core.room import Room
from ...errors import ConfigurationError, EngineError
from ...options import FOREVER, real
from .server import ServerDouble


class Clock:
    """The seconds of a world: those of this machine, and what was added to them by hand."""

    def __init__(self, on_jump: Callable[[], None]) -> None:
        self._ahead = 0.0
        self._on_jump = on_jump
        self._mutex = threading.Lock()

    def __call__(self) -> float:
        return boot_time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Jumps forward, as for a machine that was suspended: nothing is renewed, asked or told in between.

        Leases whose time is over are lost when this returns; their keepers renew the others. Whoever waits for a
        lock asks again at once.
        """
        seconds = real("seconds", seconds, 0.0, FOREVER)
        with self._mutex:
            self._ahead += seconds
        self._on_jump()

    def forget(self) -> None:
        """In a forked child: some other thread may have been advancing it."""
        self._mutex = threading.Lock()


class Keeper(Protocol):
    """Who renews the leases of one client."""

    def charges(self) -> Sequence[Charge]: ...
    def wake(self) -> None: ...
    def lose(self, name: str) -> None: ...


class World:
    """Some doubles of servers, and whoever uses them."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.clock = Clock(self._jumped)
        self.labels = tuple(f"{name or 'memory'}-{index}" for index in range(count))
        born_at, born_on = self.clock(), time.time()
        self.servers = [
            ServerDouble(lambda: born_on + self.clock() - born_at, f"{label}-run-0") for label in self.labels
        ]
        self.initialised: set[str] = set()
        """Prefixes whose fleets have been made ready. It happens once: what loses its marker later is suspect."""
        for index, server in enumerate(self.servers):
            server.on_publish = functools.partial(self._publish, index)
        self._rooms: weakref.WeakValueDictionary[bytes, Room] = weakref.WeakValueDictionary()
        """By channel."""
        self._met: weakref.WeakSet[Room] = weakref.WeakSet()
        self._announcements: list[tuple[Room, int, str]] = []
        self._members: weakref.WeakSet[object] = weakref.WeakSet()
        self._keepers: list[tuple[str, weakref.ref[Keeper]]] = []
        self._mutex = threading.RLock()
        self._talking = False

    @contextmanager
    def talk(self) -> Iterator[None]:
        """For whoever talks to the doubles."""
        with self._mutex:
            if self._talking:
                raise EngineError(
                    "a signal handler or a destructor has asked for a lock in the middle of another request "
                    "of its thread: it was not executed",
                    self.labels[0],
                )
            try:
                self._talking = True
                yield
            finally:
                self._talking = False
                told, self._announcements = self._announcements, []
        for room, node, ticket in told:
            room.announced(node, ticket)

    def attend(self, prefix: str, keeper: Keeper) -> None:
        """Tells this keeper of what happens to its leases."""
        with self._mutex:
            self._keepers = [known for known in self._keepers if known[1]() is not None]
            self._keepers.append((prefix, weakref.ref(keeper)))

    def listen(self, channel: str, room: Room) -> None:
        """Announces to this room, for as long as anybody has it."""
        with self._mutex:
            self._rooms[channel.encode()] = room
        for node in range(len(self.servers)):
            room.ears.add(node)

    def meet(self, room: Room) -> None:
        """Stirs this room, too, although nothing is announced to it."""
        with self._mutex:
            self._met.add(room)

    def _publish(self, node: int, channel: bytes, message: bytes) -> int:
        room = self._rooms.get(channel)
        if room is None:
            return 0
        self._announcements.append((room, node, message.decode()))
        return 1

    def lose(self, prefix: str, name: str) -> None:
        """Deletes a lock on all doubles, and tells whoever holds it."""
        with self.talk():
            for server in self.servers:
                server.delete(prefix + name)
        for known, keeper in self._all_keepers():
            if known == prefix:
                keeper.lose(name)
        self._stir()

    def _jumped(self) -> None:
        for _, keeper in self._all_keepers():
            charges = keeper.charges()
            for charge in charges:
                if self.clock() >= charge.grant.valid_until:
                    charge.expire()
            if charges:
                keeper.wake()
        self._stir()

    def _stir(self) -> None:
        """Whoever waits looks again: what it waits for may have changed without anybody's telling."""
        with self._mutex:
            rooms = {*self._rooms.values(), *self._met}
        for room in rooms:
            room.stir()

    def _all_keepers(self) -> list[tuple[str, Keeper]]:
        known = [(prefix, reference()) for prefix, reference in list(self._keepers)]
        return [(prefix, keeper) for prefix, keeper in known if keeper is not None]

    def enter(self, member: object) -> None:
        self._members.add(member)

    def leave(self, member: object) -> None:
        self._members.discard(member)

    @property
    def deserted(self) -> bool:
        """Has everybody left?"""
        return not self._members

    def forget(self) -> None:
        """In a forked child: this is a copy, and threads that may have been talking are not here."""
        self._mutex = threading.RLock()
        self._talking = False
        self.clock.forget()


class _Shared:
    """The worlds that have a name, as long as anybody is in them."""

    def __init__(self) -> None:
        self.worlds: weakref.WeakValueDictionary[str, World] = weakref.WeakValueDictionary()
        self.mutex = threading.Lock()

    def enter(self, name: str, count: int, member: object) -> World:
        if not name:
            return World(name, count)
        with self.mutex:
            world = self.worlds.get(name)
            if world is None or world.deserted:
                world = self.worlds[name] = World(name, count)
            elif len(world.servers) != count:
                raise ConfigurationError(
                    f"memory://{name} has nodes={len(world.servers)} already, not {count}: all Lockers of one "
                    "world must agree on it, or their majorities would not meet. A world of its own has no name"
                )
            world.enter(member)
            return world

    def forget(self) -> None:
        self.mutex = threading.Lock()


shared = _Shared()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared.forget)
