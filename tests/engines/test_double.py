"""The double of a server against real ones: the same random commands, the same answers."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quorumlock.core.requests import (
    Acquire,
    Break,
    Close,
    Confirm,
    Extend,
    Heal,
    Initialise,
    Join,
    Kept,
    Look,
    Release,
    Request,
    Survey,
)
from quorumlock.engines.memory.locks import fence_of
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.engines.redis.resp import PlainReader, ReplyError, pack_plainly
from quorumlock.engines.redis.wire import FREE, Wire
from quorumlock.lab.servers import Servers
from tests.support.waiting import eventually

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

SEEDS = 12 if os.environ.get("QUORUMLOCK_LONG") else 3
SLACK_MS = 5
"""How far times of the two may lie apart besides what passed while the real server was asked: they are rounded."""


class Real:
    """A plain connection to a real server."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._reader = PlainReader()

    def execute(self, command: tuple[str | bytes | int, ...] | bytes) -> Any:
        self._socket.sendall(command if isinstance(command, bytes) else pack_plainly(command))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        self._socket.close()


class Pair:
    """A real server and its double, asked the same things."""

    def __init__(self, real: Real, *, quarantine: bool) -> None:
        self.real = real
        self.double = ServerDouble(lambda: self.now)
        self.wire = Wire(
            prefix="p:", fleet="fleet", nodes=3, max_ttl=60, fence_ttl=240, durable=False, quarantine=quarantine
        )
        self.markers: tuple[bytes, bytes] = (b"none", b"none")
        self.now = 0.0
        """The double's time stands still but for `tick`."""
        self.apart_ms = 0.0
        """The longest that asking the real server has taken: its time was not later than the double's by more."""
        self.real.execute(("FLUSHALL",))
        self.tick()

    def tick(self) -> float:
        """Sets the double's clock by the real server's, and says what time it was before."""
        before = self.now
        seconds, micros = self.real.execute(("TIME",))
        self.now = int(seconds) + int(micros) / 1_000_000
        return before

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What the real server is asked in here happens at the same time as what the double is asked hereafter."""
        self.tick()
        yield
        before = self.tick()
        self.apart_ms = max(self.apart_ms, (self.now - before) * 1000)

    def near(self, mine: Any, other: Any) -> bool:
        """Two numbers of an answer, or the letters of two. A time is kept at one moment and told at another."""
        if not isinstance(mine, int) or not isinstance(other, int):
            return bool(mine == other)
        return abs(mine - other) <= (2 * self.apart_ms + SLACK_MS) * (1000 if mine > 10**12 else 1)

    def alike(self, real: Any, double: Any) -> bool:
        """Same answer, letters included; times may lie apart a little, and so may fences taken from the clock."""
        if isinstance(real, ReplyError) or isinstance(double, ReplyError):
            return type(real) is type(double)
        if isinstance(real, list) and isinstance(double, list):
            if len(real) != len(double) or real[:1] != double[:1]:
                return False
            return all(self.near(mine, other) for mine, other in zip(real[1:], double[1:], strict=True))
        return bool(real == double)

    def ask(self, request: Request) -> tuple[Any, Any]:
        """Both replies."""
        packed = self.wire.encode(request, source=True)
        bare = isinstance(request, (*FREE, Join))
        to_real, to_double = (packed + (b"" if bare else self.wire.tail(marker)) for marker in self.markers)
        with self.at_once():
            real = self.real.execute(to_real)
        return real, self._double(to_double)

    def _double(self, packed: bytes) -> Any:
        reader = PlainReader()
        reader.feed(packed)
        return self.double.execute(reader.gets())

    def join(self) -> tuple[Any, Any]:
        real, double = self.ask(Join(enter=True))
        self.markers = (real[1], double[1])
        return real, double

    def plain(self, *words: str) -> None:
        """A command by an operator, done to both."""
        with self.at_once():
            self.real.execute(words)
        match words:
            case ["DEL", key]:
                self.double.delete(key)
            case ["HSET", key, *_]:
                self.double.set(key, {b"f": b"v"})
            case ["FLUSHALL"]:
                self.double.flush()
            case ["SET", key, value, "PX", ttl]:
                self.double.set(key, value.encode(), int(ttl))
            case _:
                raise AssertionError(words)


@pytest.fixture
def real(servers: Servers) -> Iterator[Real]:
    connection = Real(servers[0].port)
    yield connection
    connection.close()


def words(reply: Any) -> list[bytes]:
    """What of a join's answer must be the same: all but times and identity."""
    marker = reply[1].split()
    span_ms = [b"%d" % round(int(word), -3) for word in marker[1:2]]  # of a node that waits: what is left
    return [reply[0], *span_ms, *marker[2:8], *(word for word in marker[8:] if word.startswith(b"from:"))]


NAMES = ("a", "b", "c")
TOKENS = ("t1", "t2", "t3")
TTLS_MS = (20_000, 40_000, 60_000)
"""Longer than any of these tests: what expires just while it is asked for tells nothing."""


def random_request(rng: random.Random, fences: list[int]) -> Request:
    name, token, ttl_ms = rng.choice(NAMES), rng.choice(TOKENS), rng.choice(TTLS_MS)
    skew_us = rng.choice([0, 3_600_000_000, -3_600_000_000])
    candidate = int(time.time() * 1_000_000) + skew_us
    kind = rng.choice([Acquire, Acquire, Acquire, Confirm, Extend, Extend, Heal, Release, Release, Break, Look])
    if kind is Acquire:
        return Acquire(name, token, ttl_ms, candidate)
    if kind is Confirm:
        return Confirm(name, token, rng.choice(fences[-4:]), random_fence(rng, fences))
    if kind is Extend:
        return Extend(random_leases(rng, fences))
    if kind is Heal:
        return Heal(random_leases(rng, fences))
    if kind is Release:
        return Release(name, token)
    only = rng.choice([0, random_fence(rng, fences)])
    return Break(name, random_fence(rng, fences), only=only) if kind is Break else Look(name)


def random_leases(rng: random.Random, fences: list[int]) -> tuple[Kept, ...]:
    """One to three; two of them may be of one name, which no client would ask for."""
    return tuple(
        Kept(rng.choice(NAMES), rng.choice(TOKENS), rng.choice(TTLS_MS), random_fence(rng, fences))
        for _ in range(rng.randint(1, 3))
    )


def random_fence(rng: random.Random, fences: list[int]) -> int:
    return rng.choice(fences[-4:]) + rng.choice([0, 0, 0, 1, 5])


def stored_alike(pair: Pair) -> str:
    """What differs in the memories of the two, beyond the slack; nothing, as it should be."""
    keys = [key for name in NAMES for key in (f"p:{name}", f"p:ql:fence:{{p:{name}}}")]
    with pair.at_once():
        stored = {key: (pair.real.execute(("GET", key)), pair.real.execute(("PTTL", key))) for key in keys}
    for key, (mine, lives) in stored.items():
        other, other_lives = pair.double.get(key), pair.double.pttl(key)
        if isinstance(mine, ReplyError):
            if not isinstance(other, dict):
                return f"{key}: a hash, and {other!r}"
            continue
        if "fence" in key and mine is not None and isinstance(other, bytes):
            if not pair.near(fence_of(mine), fence_of(other)):
                return f"{key}: {mine!r} and {other!r}"
        elif mine != other:
            return f"{key}: {mine!r} and {other!r}"
        if not pair.near(lives, other_lives):
            return f"{key} lives for {lives} and {other_lives} ms"
    return ""


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("standing", ["ready", "quarantine", "stranger"])
def test_random_commands_get_the_same_answers(real: Real, seed: int, standing: str) -> None:
    rng = random.Random(seed)
    pair = Pair(real, quarantine=standing == "quarantine")
    if standing != "stranger":
        pair.join()
    fences = [1]
    for step in range(150):
        if rng.random() < 0.06:
            key = f"p:{rng.choice(NAMES)}"
            pair.plain("DEL", key)
            if rng.random() < 0.4:
                pair.plain("HSET", key, "f", "v")
        request = random_request(rng, fences)
        mine, other = pair.ask(request)
        told = f"seed {seed}, step {step}: {request!r}"
        assert pair.alike(mine, other), f"{told}: {mine!r} and {other!r}"
        assert not (differs := stored_alike(pair)), f"{told}: {differs}"
        for name in NAMES:
            # From here on both must hold the very same fence, or a confirm would not mean the same to them.
            key = f"p:ql:fence:{{p:{name}}}"
            if (stored := real.execute(("GET", key))) is not None:
                pair.double.set(key, stored, pair.double.pttl(key))
                fences.append(fence_of(stored))


def test_the_random_commands_are_of_every_kind_and_get_every_answer(real: Real) -> None:
    """Or the comparison would say less than it seems to."""
    asked: set[str] = set()
    letters: set[int] = set()
    rng = random.Random(7)
    pair = Pair(real, quarantine=False)
    pair.join()
    for step in range(400):
        if step % 40 == 20:
            pair.plain("DEL", "p:b")
            pair.plain("HSET", "p:b", "f", "v")
        elif step % 40 == 0:
            pair.plain("DEL", "p:b")
        request = random_request(rng, [1])
        mine, _ = pair.ask(request)
        asked.add(type(request).__name__)
        if isinstance(request, (Extend, Heal)):
            asked.add(f"{type(request).__name__} {len(request.leases)}")
            letters |= set(mine[1])
    kinds = {"Acquire", "Confirm", "Extend", "Heal", "Release", "Break", "Look"}
    assert asked == kinds | {f"{kind} {count}" for kind in ("Extend", "Heal") for count in (1, 2, 3)}
    assert letters == set(b"ynak")


@pytest.mark.parametrize("quarantine", [True, False])
def test_joining_means_the_same(real: Real, quarantine: bool) -> None:
    pair = Pair(real, quarantine=quarantine)
    new = (Survey(), Join(), Initialise(False), Survey(), Initialise(False), Initialise(True), Join())
    change = (Close(), Survey(), Join(), Close(), Initialise(True, 70_000), Initialise(True), Close())
    for request in (*new, *change, Initialise(True), Join(), Join(enter=True)):
        mine, other = pair.ask(request)
        assert words(mine) == words(other), request
    pair.plain("FLUSHALL")
    for request in (Join(), Join(enter=True), Join()):
        mine, other = pair.ask(request)
        assert words(mine) == words(other), request
    # Another client with other terms is told so, by both.
    other_terms: list[dict[str, Any]] = [
        {"nodes": 5}, {"fleet": "else"}, {"max_ttl": 30}, {"durable": True}, {"quarantine": not quarantine},
    ]  # fmt: skip
    for terms in other_terms:
        given: dict[str, Any] = {
            "prefix": "p:", "fleet": "fleet", "nodes": 3, "max_ttl": 60, "fence_ttl": 240, "durable": False,
            "quarantine": quarantine,
        }  # fmt: skip
        ours, theirs = Wire(**given), Wire(**(given | terms))
        pair.wire = theirs
        mine, other = pair.ask(Join())
        assert words(mine) == words(other), terms
        ignored = not quarantine and terms.keys() & {"max_ttl", "durable"}
        assert (mine[0] == b"misfit") != bool(ignored), terms
        # They change the fleet; somebody else comes between; and it is changed back.
        for pair.wire, request in (
            (theirs, Close()), (ours, Close()), (ours, Initialise(True)), (theirs, Close()),
            (theirs, Initialise(True)), (theirs, Join()), (ours, Close()), (ours, Survey()),
            (ours, Initialise(True)),
        ):  # fmt: skip
            mine, other = pair.ask(request)
            assert words(mine) == words(other), (terms, request)


def test_a_clock_that_stepped_back_does_not_prolong_quarantine(real: Real) -> None:
    pair = Pair(real, quarantine=True)
    pair.join()
    far = b"%d" % (int(pair.real.execute(("TIME",))[0]) * 1_000_000 + 3_600_000_000)
    for store, marker in ((real, pair.markers[0]), (None, pair.markers[1])):
        stepped = b" ".join([far, *marker.split()[1:]])
        if store is not None:
            store.execute(("SET", "p:ql:node", stepped))
        else:
            pair.double.set("p:ql:node", stepped)
    pair.markers = tuple(b" ".join([far, *marker.split()[1:]]) for marker in pair.markers)  # type: ignore[assignment]
    assert [reply[0] for reply in pair.ask(Look("a"))] == [-1, -1]
    mine, other = pair.join()
    assert mine[0] == other[0] == b"known"
    left_ms = [reply[1] for reply in pair.ask(Look("a"))]
    assert all(59_000 < left <= 60_000 for left in left_ms)


def test_a_healing_that_comes_late_leaves_a_later_holder_alone_also_in_quarantine(real: Real) -> None:
    pair = Pair(real, quarantine=True)
    pair.join()
    now = int(time.time() * 1_000_000)
    mine, later = Kept("a", "t1", 20_000, now), Kept("a", "t2", 20_000, now + 5)
    for lease, letters in ((mine, b"y"), (later, b"y"), (mine, b"n"), (later, b"y")):
        assert [reply[1] for reply in pair.ask(Heal((lease,)))] == [letters, letters]


def test_expiry_is_the_same(real: Real) -> None:
    pair = Pair(real, quarantine=False)
    pair.join()
    pair.ask(Acquire("a", "t1", 60, 1))

    def over() -> bool:
        pair.tick()
        return not real.execute(("EXISTS", "p:a")) and not pair.double.get("p:a")

    assert eventually(over)
    mine, other = pair.ask(Acquire("a", "t2", 60, 1))
    assert mine[0] == other[0] == 1
    assert real.execute(("PTTL", "p:a")) <= 60
    assert real.execute(("PTTL", "p:ql:fence:{p:a}")) > 200_000
