"""`memory://`: the doubles that simulations run on, behind the normal API, for tests and documentation.

Nothing is stubbed on the way: what a client says is what it would say to real servers, byte for byte, and every
node of the fleet answers at once. What differs is that time can be made to pass, and memory be tampered with:

    locks.engine.clock.advance(30)      # as if the machine had been suspended
    locks.engine.force_lose("orders")   # as an operator's DEL would, and the holder is told at once
    locks.engine.servers[0].flush()     # what a node forgets

It lives in one process. A forked child has a copy of it: what either does from then on, the other does not see.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl

from ... import options
from ...clocks import boot_time
from ...core.effects import Round
from ...core.requests import Initialise, Request, Survey
from ...core.room import Room
from ...core.states import NodeState
from ...core.votes import Answer, Cause, Tally
from ...errors import ConfigurationError
from ...options import Settings
from ..redis.link import Link
from ..redis.node import Hello, Node, Terms
from ..redis.resp import new_reader
from ..redis.states import states
from ..redis.visiting import Sighting, Trip
from ..redis.wire import Wire
from .server import ServerDouble, encode
from .world import Keeper, shared

NODES_MOST = 9
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HINT = "write memory:// or memory://some-name, and ?nodes=3 behind it for a fleet of three"


class MemoryEngine:
    """A fleet of doubles in this process."""

    name = "memory"
    blocking = False

    def __init__(self, url: str, settings: Settings) -> None:
        world_name, count = _parsed(url)
        quarantine = count >= 3 if settings.quarantine is None else settings.quarantine
        told = settings.fleet if settings.fleet is not None else "memory"
        fleet = hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()[:12]
        terms = Terms(fleet, count, settings.max_ttl, settings.durable, quarantine)
        self._wire = Wire(
            prefix=settings.prefix,
            fleet=terms.fleet,
            nodes=count,
            max_ttl=settings.max_ttl,
            fence_ttl=settings.fence_ttl,
            durable=settings.durable,
            quarantine=quarantine,
            node_timeout=settings.node_timeout,
            journal=settings.journal,
        )
        self._world = world = shared.enter(world_name, count, self)
        self.clock = world.clock
        """Seconds, for clients and nodes alike; `advance(seconds)` makes them jump."""
        self.servers: Sequence[ServerDouble] = world.servers
        """The nodes, to tamper with: `flush()`, `restart(run_id)`, `get(key)`, `set(key, value, ttl_ms)`, …"""
        self._news: list[tuple[_Node, float]] = []
        self.nodes = [_Node(index, label, terms, self._news) for index, label in enumerate(world.labels)]
        for node in self.nodes:
            node.mates = list(self.nodes)
        self._lines: list[_Line | None] = [None] * count
        self._make_ready()

    @property
    def labels(self) -> tuple[str, ...]:
        return self._world.labels

    def __repr__(self) -> str:
        return f"<MemoryEngine {', '.join(self.labels)}>"

    def force_lose(self, name: str) -> None:
        """Deletes a lock on all nodes, whoever holds it, as an operator's DEL would; quiet if nobody does.

        Its holder knows when this returns; on asyncio, as soon as its loop runs.
        """
        self._world.lose(self._wire.prefix, options.name(name))

    # What a Locker and its runner call.

    def attend(self, keeper: Keeper) -> None:
        """Tells this keeper when the clock jumps, and when a lock is forced open."""
        self._world.attend(self._wire.prefix, keeper)

    def perform(self, round_: Round) -> None:
        """Asks all nodes at a time; all of them answer."""
        with self._world.talk():
            self._ask(round_.requests, round_.tally)
            news = self._news[:]
            self._news.clear()
        for node, left in news:
            if node.on_quarantine is not None:
                node.on_quarantine(node.label, left)

    def meet(self, room: Room) -> None:
        """Stirs this room when the clock jumps, or a lock is lost on purpose."""
        self._world.meet(room)

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        """Lets the nodes announce to this room."""
        self._world.listen(self._wire.channel + room.id, room)
        done()

    def states(self, samples: int) -> tuple[NodeState, ...]:
        """How the doubles are doing: as servers would be judged."""
        seen = []
        with self._world.talk():
            for server in self.servers:
                reader, started = new_reader(), boot_time()
                reader.feed(self._wire.encode(Survey(), source=True))
                survey = server.execute(reader.gets())
                trip = Trip(boot_time() - started, server.clock() - time.time(), started, server.clock())
                info = {"master_replid": server._replication_id().decode(), "role": server.role}
                seen.append(Sighting(survey, info, (trip,)))
        return tuple(dataclasses.replace(one, server="memory") for one in states(self.nodes, seen))

    def close(self) -> None:
        """Leaves the world; a shared one ends when nobody is left in it."""
        self._world.leave(self)

    def forget(self) -> None:
        """In a forked child: the world is a copy, and so is what other threads were just saying to it."""
        self._world.forget()
        self._lines = [None] * len(self._lines)
        self._news.clear()

    def _make_ready(self) -> None:
        """A new fleet does not wait for locks that nobody can have taken."""
        with self._world.talk():
            if self._wire.prefix in self._world.initialised:
                return
            self._world.initialised.add(self._wire.prefix)
            tally = Tally(self.labels, len(self.labels), patient=True)
            self._ask([Initialise(force=False)] * len(self.labels), tally)

    def _ask(self, requests: Sequence[Request | None], tally: Tally) -> None:
        """Carries bytes to and fro, a step on each line after the other, until nothing is left to say."""
        now = self.clock()
        under_way: dict[int, bytes] = {}
        try:
            for index, request in enumerate(requests):
                if request is not None:
                    line = self._line(index, now)
                    under_way[index] = line.link.submit(request, self._wire.encode(request), tally, now)
            while under_way := {index: data for index, data in under_way.items() if data}:
                for index, data in under_way.items():
                    under_way[index] = self._line(index, now).say(data)
        except BaseException as error:  # an interrupt: what was said is done, but nobody knows what was answered
            for index in under_way:
                line_, self._lines[index] = self._lines[index], None
                if line_ is not None:
                    line_.link.fail(Cause.DISCONNECTED, type(error).__name__)
            raise

    def _line(self, index: int, now: float) -> _Line:
        line, server = self._lines[index], self.servers[index]
        if line is None or line.run_id != server.run_id:  # a server that restarts has lost its connections
            line = self._lines[index] = _Line(Link(self.nodes[index], self._wire), server)
            data = line.link.begin(now)
            while data:
                data = line.say(data)
        return line


class _Line:
    """A connection to a double, with both of its ends."""

    def __init__(self, link: Link, server: ServerDouble) -> None:
        self.link = link
        self.run_id = server.run_id
        self._server = server
        self._reader = new_reader()

    def say(self, data: bytes) -> bytes:
        """Carries bytes there and the answers back; gives what is to be said in turn."""
        self._reader.feed(data)
        answers = b""
        while (command := self._reader.gets()) is not False:
            answers += encode(self._server.execute(command))
        return self.link.receive(answers)


class _Node(Node):
    """A node that keeps its news until nobody is talking."""

    def __init__(self, index: int, label: str, terms: Terms, news: list[tuple[_Node, float]]) -> None:
        super().__init__(index, label, terms)
        self._news = news

    def meet(self, hello: Hello) -> Answer | None:
        told, self.on_quarantine = self.on_quarantine, lambda _, left: self._news.append((self, left))
        try:
            return super().meet(hello)
        finally:
            self.on_quarantine = told


def _parsed(url: str) -> tuple[str, int]:
    """The name of the world, or nothing, and the number of nodes."""
    rest = url.removeprefix("memory://")
    world_name, _, query = rest.partition("?")
    if world_name and not _NAME.fullmatch(world_name):
        raise ConfigurationError(
            "the name in a memory:// URL is made of letters, digits and . _ - (it is no address and has no path, "
            f"user or password): {_HINT}"
        )
    given = parse_qsl(query, keep_blank_values=True)
    for parameter, _ in given:
        if parameter != "nodes":
            raise ConfigurationError(f"memory:// does not know the option {parameter[:20]!r}: {_HINT}")
    values = [value for _, value in given] or ["1"]
    if len(values) > 1:
        raise ConfigurationError(f"memory:// was given nodes {len(values)} times: {_HINT}")
    if not re.fullmatch(rf"[1-{NODES_MOST}]", values[0]):
        raise ConfigurationError(f"nodes={values[0][:20]!r} must be an integer of 1 to {NODES_MOST}: {_HINT}")
    return world_name, int(values[0])
