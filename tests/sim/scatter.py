"""A network of datagrams: messages come late, in any order, twice or not at all, and clocks say what they like.

The production core runs over server doubles, as in `runners/virtual.py`, but without connections: what TCP rules
out happens here. One sequence of bytes decides everything, so a story can be replayed, and shrunk.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlock.core import redlock, renewal
from quorumlock.core.effects import Round, Steps
from quorumlock.core.fleet import Fleet
from quorumlock.core.requests import Break, Extend, Heal, Join, Release, Request
from quorumlock.core.votes import Answer
from quorumlock.engines.memory.locks import fence_of
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.engines.redis import scripts
from quorumlock.engines.redis.answers import decode, decode_many, decode_release
from quorumlock.engines.redis.resp import new_reader
from quorumlock.engines.redis.wire import Wire

NAME = "x"
FENCE = "ql:fence:{x}"
TTL = 10.0
YEAR = 365 * 86400.0
NOW = 1_800_000_000.0
SKEWS = (0.0, 1e-6, -1e-6, 7200.0, -7200.0, 1e9, -NOW)
"""By how much a client's wall clock is wrong: hours, decades, or all of it."""


class Over(Exception):
    """The story has ended."""


class Reply(NamedTuple):
    """An answer on its way back."""

    client: Client
    round: Round
    node: int
    answer: Answer


class Lease(NamedTuple):
    """An acquisition that ended with a lock: from which step of the story to which, and its fence."""

    began: int
    ended: int
    fence: int


class Node:
    """A server double whose clock is at everybody's mercy."""

    def __init__(self, index: int, wire: Wire) -> None:
        self.now = NOW
        self.server = ServerDouble(lambda: self.now, f"run-{index}")
        self.wire = wire
        for source in scripts.SOURCES.values():
            self.server.execute([b"SCRIPT", b"LOAD", source.encode()])
        hello = self._execute(wire.encode(Join(enter=True)))
        self.tail = wire.tail(hello[1])

    def _execute(self, packed: bytes) -> list[bytes]:
        reader = new_reader()
        reader.feed(packed)
        reply: list[bytes] = self.server.execute(reader.gets())
        return reply

    def ask(self, request: Request) -> Answer:
        packed = self.wire.encode(request)
        reply = self._execute(packed if isinstance(request, Release) else packed + self.tail)
        if isinstance(request, (Extend, Heal)):
            return decode_many(reply, len(request.leases))
        return decode_release(reply) if isinstance(request, Release) else decode(reply)


@dataclass
class Client:
    """A client that takes the lock again and again; its rounds of late, the last of which it waits for."""

    fleet: Fleet
    steps: Steps[None]
    skew: float = 0.0
    rounds: deque[Round] = field(default_factory=lambda: deque(maxlen=3))


@dataclass
class Scatter:
    """Some clients, some nodes, and everything that is under way between them."""

    story: bytes
    count: int = 3
    crowd: int = 2
    leases: list[Lease] = field(default_factory=list)
    confirmed: int = 0
    at: int = 0

    def __post_init__(self) -> None:
        wire = Wire(
            prefix="", fleet="f", nodes=self.count, max_ttl=60.0, fence_ttl=YEAR, durable=False, quarantine=False
        )
        self.calm = self.choose(2) == 0
        """With calm clocks fences lie close together, and may collide."""
        self.nodes = [Node(index, wire) for index in range(self.count)]
        for node in self.nodes:  # each has granted a different number of times, before the story begins
            node.server.set(FENCE, b"%d" % (NOW * 1_000_000 + self.choose(3)))
        self.replies: list[Reply] = []
        self.clients = [self._client(index) for index in range(self.crowd)]
        for client in self.clients:
            self._go_on(client)

    def _client(self, index: int) -> Client:
        tokens = (f"{index}-{turn}" for turn in itertools.count())
        fleet = Fleet(
            tuple(f"node{i}" for i in range(self.count)),
            clock=lambda: 0.0,  # no time passes for a client: nothing is refused for being late
            wall=lambda: NOW + client.skew,
            random=lambda: 0.5,
            new_token=lambda _: next(tokens),
        )
        fleet.mustered = True
        client = Client(fleet, self.life(fleet))
        return client

    def life(self, fleet: Fleet) -> Steps[None]:
        while True:
            began = self.at
            outcome = yield from redlock.acquire(fleet, NAME, TTL)
            if not outcome.won:
                continue
            self.leases.append(Lease(began, self.at, outcome.fence))
            self.confirmed += outcome.confirmed > 0
            for _ in range(self.choose(4) // 2):
                yield from renewal.extend(fleet, outcome, TTL)
            if self.choose(4):  # else it is forgotten
                yield from redlock.release(fleet, NAME, outcome.token, TTL, outcome.route)

    def choose(self, count: int) -> int:
        """The next byte of the story, as one of `count` ways to go on."""
        self.at += 1
        return self.story[self.at - 1] % count if self.at <= len(self.story) else 0

    def run(self) -> Scatter:
        ways = [self._ask] * 10 + [self._expire] * 5 + [self._answer, self._give_up]
        if not self.calm:
            ways += [self._step_clock, self._skew, self._break]
        while self.at < len(self.story):
            ways[self.choose(len(ways))]()
        for client in self.clients:
            self._end(client)
        return self

    def _ask(self) -> None:
        """A request arrives: of this round or an earlier one, for the first time or again."""
        client, node = self.clients[self.choose(self.crowd)], self.choose(self.count)
        round_ = client.rounds[-1 - min((0, 0, 0, 0, 1, 2)[self.choose(6)], len(client.rounds) - 1)]
        request = round_.requests[node]
        if request is None:
            return
        self.replies.append(Reply(client, round_, node, self.nodes[node].ask(request)))
        if self.choose(4):
            self._hear(self.replies.pop())

    def _answer(self) -> None:
        """An answer arrives late. Or never."""
        if self.replies:
            self._hear(self.replies.pop(self.choose(len(self.replies))))

    def _hear(self, reply: Reply) -> None:
        reply.round.tally.cast(reply.node, reply.answer)
        if reply.round is reply.client.rounds[-1] and reply.round.tally.decided:
            self._go_on(reply.client)

    def _expire(self) -> None:
        self.nodes[self.choose(self.count)].server.delete(NAME)

    def _step_clock(self) -> None:
        self.nodes[self.choose(self.count)].now += (0.000_001, TTL, 3600.0, -3600.0)[self.choose(4)]

    def _skew(self) -> None:
        self.clients[self.choose(self.crowd)].skew = SKEWS[self.choose(len(SKEWS))]

    def _give_up(self) -> None:
        """A client has waited for long enough."""
        self._go_on(self.clients[self.choose(self.crowd)])

    def _break(self) -> None:
        known = max(fence_of(node.server.get(FENCE)) for node in self.nodes)  # type: ignore[arg-type]
        for node in self.nodes:
            if self.choose(4):
                node.ask(Break(NAME, known))

    def _go_on(self, client: Client) -> None:
        effect = next(client.steps)
        while not isinstance(effect, Round):
            effect = next(client.steps)
        client.rounds.append(effect)

    def _end(self, client: Client) -> None:
        """A procedure that was started is never closed: it cleans up after itself."""
        try:
            client.steps.throw(Over())
            for _ in client.steps:
                pass
        except Over:
            pass


def twins(leases: Sequence[Lease]) -> list[tuple[Lease, Lease]]:
    """Leases with one fence."""
    ordered = sorted(leases, key=lambda lease: lease.fence)
    return [(a, b) for a, b in itertools.pairwise(ordered) if a.fence == b.fence]


def disorders(leases: Sequence[Lease]) -> list[tuple[Lease, Lease]]:
    """Leases of which one was there before the other was asked for, and whose fences say the contrary."""
    return [(a, b) for a, b in itertools.permutations(leases, 2) if a.ended < b.began and a.fence >= b.fence]
