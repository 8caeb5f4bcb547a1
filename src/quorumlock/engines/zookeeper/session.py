"""One session with the ensemble: what this process has there, and whom to tell what becomes of it.

**States.** CONNECTED: requests are sent. SUSPENDED: the connection is gone, the session perhaps not; nothing is
known until it is back, and what was asked for is UNKNOWN. LOST: the session is over, and with it every node that it
made: its leases are lost (`Cause.ENDED`), whatever time they had. `epoch` counts sessions.

**Whose time is it?** The server keeps what a session made until the session is over. `ttl` is kept by this process:
a lease that nobody has renewed in time is deleted by whoever made it (`janitor.py`), and by the end of the session
if that cannot do so any more. So `ttl` must be well below the session timeout: a server counts that from the last
time it heard of us, which may be half a tick before the answer that we count from, and in an ensemble the leader
hears of it from another server. We ask for `SHARE`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]
from kazoo.protocol.states import EventType, KazooState, KeeperState  # type: ignore[import-untyped]

from ...clocks import boot_time
from ...core.requests import Ticket
from ...core.room import Room
from ...errors import ConfigurationError, EngineError
from . import transport
from .address import Address

T = TypeVar("T")
Talk = Generator[Any, Any, T]
"""Talks to the server: yields what kazoo will answer (in a `Wrote`, if it changes anything), is sent the answer."""

SHARE = 0.6
"""Of the session: the longest ttl."""
FREE_MOST = 1000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Wrote(NamedTuple):
    """What changes something on the server: without an answer, nobody knows whether it has."""

    result: Any


class Lease:
    """Something that this process keeps on the server for a while."""

    __slots__ = ("card", "closed", "ends_at", "epoch", "fence", "name", "over", "path", "since_us", "token",
                 "ttl_ms", "version")  # fmt: skip

    def __init__(self, name: str, token: str, path: str, ttl_ms: int, card: str, epoch: int) -> None:
        self.name = name
        self.token = token
        self.path = path
        self.ttl_ms = ttl_ms
        self.card = card
        self.epoch = epoch
        self.since_us = time.time_ns() // 1000
        self.ends_at = boot_time() + ttl_ms / 1000
        self.fence = 0
        self.version = -1
        """Of its gate, at the grant."""
        self.over = False
        """Is it to be deleted?"""


class Bell:
    """Rings for those who wait for a node to go."""

    __slots__ = ("tickets",)

    def __init__(self) -> None:
        self.tickets: set[tuple[str, str]] = set()


class Session:
    """What an engine has open; usable by any thread."""

    def __init__(self, address: Address, client: KazooClient | None) -> None:
        self.address = address
        self._theirs = client
        self._pid = os.getpid()
        self.mutex = threading.RLock()
        self.client: KazooClient | None = None
        self.connected = False
        self.met = False
        """Was it ever connected?"""
        self.denied = False
        self.checked = False
        """Was it seen that the path is ours?"""
        self.epoch = 0
        self.granted: float | None = None
        """The session timeout that the server granted, in seconds."""
        self.offset_ms = 0
        """A lower bound of the server's clock minus ours."""
        self.offset_most_ms = 0
        """An upper bound of it."""
        self.offset_known = False
        self.leases: dict[tuple[str, str], Lease] = {}
        self.tickets: dict[tuple[str, str], str] = {}
        """Where those who wait here stand, by queue and member."""
        self.owed: set[tuple[str, str]] = set()
        """Those who have left, but may still stand there."""
        self.free: dict[str, int] = {}
        """Names that nobody has, if their gate still has this version."""
        self.rooms: weakref.WeakValueDictionary[str, Room] = weakref.WeakValueDictionary()
        self._bells: dict[str, Bell] = {}
        self._waiting: list[Callable[[], None]] = []
        self._unhear: Callable[[], None] = lambda: None
        self._ready: Any = None
        self.changed = threading.Condition(self.mutex)
        """For the janitor."""
        self.closing = False
        self.closed = threading.Event()

    @property
    def ttl_most(self) -> float:
        """The longest ttl that it carries, as far as is known."""
        asked = self._theirs._session_timeout / 1000 if self._theirs is not None else self.address.session
        return SHARE * (self.granted if self.granted is not None else asked)

    # The connection.

    def start(self) -> KazooClient:
        """The client; it connects, or is connected."""
        with self.mutex:
            if self.client is not None:
                return self.client
            if self.closing:
                raise ConfigurationError("this Locker is closed")
            if self._theirs is not None and self._pid != os.getpid():
                raise EngineError(
                    "the kazoo client was made before this process was forked, and belongs to the parent; make "
                    "one, and a Locker on it, in the child",
                    "zookeeper",
                )
            client = self.client = self._theirs if self._theirs is not None else transport.new_client(self.address)
            self._ready = client.handler.async_result()
            client.add_listener(self._heard_state)
            self._unhear = transport.on_hearing(client, self._heard)
            if client.connected:
                self._heard_state(KazooState.CONNECTED)
            elif client._stopped.is_set():
                client.start_async()
            return client

    def ready(self) -> Any:
        """What is answered when there is a connection."""
        with self.mutex:
            return self._ready

    def _heard(self, granted: float) -> None:
        self.granted = granted

    def _heard_state(self, state: str) -> None:
        """In kazoo's own thread."""
        client = self.client
        if client is None:
            return
        with self.mutex:
            rooms, told = list(self.rooms.values()), []
            if state == KazooState.CONNECTED:
                self.connected = self.met = True
                self._ready.set(True)
                told, self._waiting = self._waiting, []
            else:
                if self.connected:
                    self.connected = False
                    self._ready = client.handler.async_result()
                self._bells.clear()
                self.free.clear()
                if state == KazooState.LOST:
                    self.epoch += 1
                    self.tickets.clear()
                    self.owed.clear()
                    self.denied = client._state == KeeperState.AUTH_FAILED
            self.changed.notify_all()
        for room in rooms:
            if state == KazooState.CONNECTED:
                room.hears(0)
            else:
                room.deafened(0)
        for tell in told:
            tell()

    @property
    def stopped(self) -> bool:
        """By its owner, who is not us."""
        return self.client is not None and bool(self.client._stopped.is_set())

    def complaints(self) -> str:
        """Why hosts cannot be reached, as far as that is known."""
        known = dict(getattr(self.client.handler, "complaints", {})) if self.client is not None else {}
        return "; ".join(f"{host}: {why}" for host, why in sorted(known.items()))

    def refuse_long(self, ttl_ms: int) -> None:
        """A lease must end before its session may."""
        granted = self.granted
        if granted is not None and ttl_ms > granted * SHARE * 1000 + 1:
            asked = self.client._session_timeout / 1000 if self.client is not None else 0.0
            enough = f"{ttl_ms / 1000 / SHARE:.3g}"
            how = f"…?session_timeout={enough}" if self._theirs is None else f"KazooClient(timeout={enough})"
            remedy = (
                f"session_timeout={asked:g} was asked for, and the server allows no more: raise its "
                "maxSessionTimeout, or use a shorter ttl"
                if granted < asked
                else f"ask for more ({how}, within the server's maxSessionTimeout), or use a shorter ttl"
            )
            raise ConfigurationError(
                f"a ttl (with its lock_delay) of {ttl_ms / 1000:g} s is more than three fifths of the session "
                f"timeout of {granted:g} s that ZooKeeper granted; {remedy}"
            )

    # The server's clock.

    def tick(self, server_ms: int, sent_ms: int) -> None:
        """The server wrote this time after our wall clock showed `sent_ms`, and before now."""
        self.offset_ms = server_ms - wall_ms()
        self.offset_most_ms = server_ms - sent_ms
        self.offset_known = True

    def server_ms(self) -> int:
        """What has ended by this time has ended by the server's clock."""
        return wall_ms() + self.offset_ms

    def server_ms_at_most(self) -> int:
        """For an end that must not come too early by the server's clock."""
        return wall_ms() + self.offset_most_ms

    # Who is told of what.

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        with self.mutex:
            self.rooms[room.id] = room
            if not self.connected:
                self._waiting.append(done)
                return
        if 0 not in room.ears:
            room.hears(0)
        done()

    def watch(self, paths: Sequence[str], ticket: Ticket) -> Talk[bool]:
        """Has the ticket announced when any of these nodes goes; False: one has gone."""
        gone = False
        for path, bell, result in [self._watched(path, ticket) for path in paths]:
            try:
                gone = (yield result) is None or gone
            except NoNodeError:
                self._drop(path, bell)
                gone = True
            except BaseException:
                self._drop(path, bell)
                raise
        return not gone

    def _watched(self, path: str, ticket: Ticket) -> tuple[str, Bell, Any]:
        client = self.client
        assert client is not None
        with self.mutex:
            bell = self._bells.get(path)
            known = bell is not None
            if bell is None:
                bell = self._bells[path] = Bell()
            bell.tickets.add((ticket.locker, ticket.id))
        if known:
            return path, bell, client.exists_async(path)
        rung = partial(self._gone, path, bell)
        # Of its children, of which it has none: of its data it would be told with every renewal, too.
        return path, bell, client.get_children_async(path, watch=rung)

    def _drop(self, path: str, bell: Bell) -> None:
        with self.mutex:
            if self._bells.get(path) is bell:
                del self._bells[path]

    def _gone(self, path: str, bell: Bell, event: Any) -> None:
        self._drop(path, bell)
        if event.type == EventType.NONE:
            return  # the connection went; everybody asks when it is back
        for locker, ticket in bell.tickets:
            if (room := self.rooms.get(locker)) is not None:
                room.announced(0, ticket)

    # What is kept.

    def keep(self, lease: Lease) -> None:
        with self.mutex:
            self.leases[lease.name, lease.token] = lease
            self.changed.notify_all()

    def drop(self, lease: Lease) -> None:
        with self.mutex:
            if self.leases.get((lease.name, lease.token)) is lease:
                del self.leases[lease.name, lease.token]

    def expire(self, token: str) -> None:
        """What was to be released, and could not be, goes as soon as possible."""
        with self.mutex:
            for lease in self.leases.values():
                if lease.token == token:
                    lease.ends_at = boot_time()
            self.changed.notify_all()

    def owe(self, queues: Sequence[str], member: str) -> None:
        """Whoever left these queues, and perhaps still stands there, goes as soon as possible."""
        with self.mutex:
            self.owed.update((queue, member) for queue in queues)
            self.changed.notify_all()

    def is_free(self, name: str, version: int) -> None:
        with self.mutex:
            if len(self.free) >= FREE_MOST:
                self.free.clear()
            self.free[name] = version

    def end(self) -> None:
        """Lets the client go; what it had on the server goes with it, if the client is ours."""
        with self.mutex:
            client, self.client = self.client, None
            self.connected = False
        if client is not None:
            self._unhear()
            client.remove_listener(self._heard_state)
            if self._theirs is None:
                with suppress(
                    Exception
                ):  # its threads do not end in time, or its socket is gone: so is the session
                    client.stop()
                    client.close()
        self.closed.set()
