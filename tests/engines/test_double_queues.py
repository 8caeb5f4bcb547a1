"""The double against real servers, for queues: the same answers, the same tickets, the same announcements."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from quorumlock.core.requests import Acquire, AcquireAll, Leave, Release, Request, Ticket
from quorumlock.engines.redis.wire import Wire
from quorumlock.lab.servers import Servers
from tests.support.waiting import eventually

from .test_double import NAMES, SEEDS, TOKENS, Pair, Real, stored_alike

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

LASTS_MS = (5_000, 60_000, 90_000)
"""For how long tickets are good."""
LOCKERS = ("l1", "l2", "l3", "")
"""Of the last nobody can be told anything: it polls."""


class Ear:
    """A Locker that listens at the real server, and at the double; or does not."""

    def __init__(self, pair: Pair, port: int, locker: str) -> None:
        self.channel = f"p:ql:wake:{locker}"
        self.pair = pair
        self.listening = False
        self.real = Real(port)
        self.told_by_double: list[bytes] = []

    def listen(self, on: bool) -> None:
        if on != self.listening:
            self.real.execute(("SUBSCRIBE" if on else "UNSUBSCRIBE", self.channel))
            self.listening = on

    def told(self) -> tuple[list[bytes], list[bytes]]:
        """What each has announced since the last time: a server says it before it answers the ping."""
        heard: list[bytes] = []
        if self.listening:
            reply = self.real.execute(("PING",))
            while reply[0] == b"message":
                heard.append(reply[2])
                reply = self.real.read()  # type: ignore[attr-defined]
        double, self.told_by_double = self.told_by_double, []
        return heard, double


class Listening(Real):
    """A connection on which more may come than was asked for."""

    def read(self) -> Any:
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply


class Town:
    """A pair, and those who listen to it."""

    def __init__(self, real: Real, port: int, *, grace: float = 30.0) -> None:
        self.pair = Pair(real, quarantine=False)
        # Nobody is passed over by chance, while a slow machine is between the one answer and the other.
        self.pair.wire = Wire(
            prefix="p:", fleet="fleet", nodes=3, max_ttl=60, fence_ttl=240, durable=False, quarantine=False,
            node_timeout=grace,
        )  # fmt: skip
        self.pair.join()
        self.ears = {locker: Ear(self.pair, port, locker) for locker in LOCKERS if locker}
        for ear in self.ears.values():
            ear.real.close()
            ear.real = Listening(port)
        self.pair.double.on_publish = self._publish

    def _publish(self, channel: bytes, message: bytes) -> int:
        heard = [ear for ear in self.ears.values() if ear.listening and ear.channel.encode() == channel]
        for ear in heard:
            ear.told_by_double.append(message)
        return len(heard)

    def ask(self, request: Request) -> Any:
        """Asks both; what they answered, announced and stored must be the same. Gives the real one's answer."""
        mine, other = self.pair.ask(request)
        assert self.pair.alike(mine, other), f"{request!r}: {mine!r} and {other!r}"
        for locker, ear in self.ears.items():
            real, double = ear.told()
            assert real == double, f"{request!r}: {locker} was told {real} and {double}"
        assert not (differs := stored_alike(self.pair)), f"{request!r}: {differs}"
        for name in NAMES:
            assert not (differs := self.queues_differ(name)), f"{request!r}: {differs}"
        return mine

    def queues_differ(self, name: str) -> str:
        key = f"p:ql:queue:{{p:{name}}}"
        with self.pair.at_once():
            flat = self.pair.real.execute(("ZRANGE", key, "0", "-1", "WITHSCORES"))
            left_ms = self.pair.real.execute(("PTTL", key))
        real = {member: float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}
        double: Any = self.pair.double.get(key) or {}
        if real.keys() != double.keys():
            return f"{key}: {sorted(real)} and {sorted(double)}"
        for member, score in real.items():
            if not self.pair.near(int(score), int(double[member])):
                return f"{key}: {member!r} has {score} and {double[member]}"
        lives = left_ms, self.pair.double.pttl(key)
        # It is refreshed when it lives for less than a ticket is good: for one of the two it may just be time.
        near = self.pair.near
        if not near(*lives) and not any(near(min(lives), due) for due in LASTS_MS):
            return f"{key} lives for {lives[0]} and {lives[1]} ms"
        if real:  # from here on the very same, or ties would be broken differently
            self.pair.double.set(key, real, self.pair.double.pttl(key))
        return ""

    def close(self) -> None:
        for ear in self.ears.values():
            ear.real.close()


@pytest.fixture
def port(servers: Servers) -> int:
    return servers[0].port


@pytest.fixture
def real(port: int) -> Iterator[Real]:
    connection = Real(port)
    yield connection
    connection.close()


@pytest.fixture
def town(real: Real, port: int) -> Iterator[Town]:
    made = Town(real, port)
    yield made
    made.close()


def ticket(index: int, *, patience_ms: int = 60_000, late: float = 0.0, again: bool = True) -> Ticket:
    """The same place for the same index, wherever and whenever it is shown."""
    order_us = START_US + int(late * 1e6) + index
    return Ticket(f"t{index}@host:1", LOCKERS[index % len(LOCKERS)], order_us, patience_ms, again)


START_US = int(time.time() * 1_000_000)


def random_request(rng: random.Random) -> Request:
    name, token = rng.choice(NAMES), rng.choice(TOKENS)
    late, patience_ms = rng.choice([0, 0, 0, 3600, -3600]), rng.choice([60_000, 90_000])
    mine = ticket(rng.randrange(9), late=late, patience_ms=patience_ms, again=rng.random() < 0.6)
    kind = rng.choice(["acquire", "acquire", "acquire", "release", "release", "leave"])
    if kind == "acquire":
        shown = mine if rng.random() < 0.8 else None
        return Acquire(
            name, token, rng.choice([5_000, 60_000]), int(time.time() * 1e6), ticket=shown,
            strict=rng.random() < 0.5,
        )  # fmt: skip
    if kind == "leave":
        return Leave(name, mine.member)
    own = mine.member if rng.random() < 0.5 else ""
    locker, stay_ms = rng.choice(["", "", "l1", "l2"]), rng.choice([0, 0, 0, 20_000])
    return Release(name, token, wake=rng.random() < 0.8, ticket=own, locker=locker, stay_ms=stay_ms)


def random_request_for_several(rng: random.Random) -> Request:
    names, token = tuple(rng.sample(NAMES, 2)), rng.choice(TOKENS)
    mine = ticket(rng.randrange(9))
    kind = rng.choice(["acquire", "acquire", "release", "leave"])
    if kind == "acquire":
        shown = mine if rng.random() < 0.8 else None
        return AcquireAll(names, token, rng.choice([5_000, 60_000]), int(time.time() * 1e6), shown)
    if kind == "leave":
        return Leave(names[0], mine.member, names)
    own = mine.member if rng.random() < 0.5 else ""
    return Release(names[0], token, wake=rng.random() < 0.8, ticket=own, names=names)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_queues_get_the_same_answers_and_announcements(town: Town, seed: int) -> None:
    rng = random.Random(seed)
    for step in range(150):
        if rng.random() < 0.15:
            rng.choice(list(town.ears.values())).listen(rng.random() < 0.6)
        if rng.random() < 0.05:
            town.pair.plain("DEL", f"p:{rng.choice(NAMES)}")
        try:
            town.ask(random_request_for_several(rng) if rng.random() < 0.3 else random_request(rng))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {step}: {error}") from None


def test_the_random_queues_are_of_every_kind(town: Town) -> None:
    """Or the comparison would say less than it seems to: everything that can happen to a ticket has happened."""
    rng = random.Random(11)
    seen: set[str] = set()
    told = 0
    for _ in range(400):
        if rng.random() < 0.15:
            rng.choice(list(town.ears.values())).listen(rng.random() < 0.6)
        if rng.random() < 0.05:
            town.pair.plain("DEL", f"p:{rng.choice(NAMES)}")
        before = {name: set(tickets_of(town, name)) for name in NAMES}
        request = random_request(rng)
        mine, _ = town.pair.ask(request)
        told += sum(len(ear.told()[0]) for ear in town.ears.values())
        lost = before[request.name] - set(tickets_of(town, request.name))  # type: ignore[union-attr]
        kind = type(request).__name__
        seen.add(f"{kind} {mine[0] if isinstance(mine, list) else mine}")
        if isinstance(request, Acquire) and mine[0] == 0 and len(mine) > 3:
            seen.add("behind" if mine[3:] != [0] else "first")
        if lost - {getattr(request, "ticket", "").encode() if isinstance(request, (Leave, Release)) else b""}:
            seen.add("dropped, for nobody hears it")
    assert told > 5
    assert seen >= {
        "Acquire 0", "Acquire 1", "Release 0", "Release 1", "Release 2", "Release -3", "Leave 0", "Leave -3",
        "first", "behind", "dropped, for nobody hears it",
    }  # fmt: skip


def tickets_of(town: Town, name: str) -> list[bytes]:
    found: list[bytes] = town.pair.real.execute(("ZRANGEBYSCORE", f"p:ql:queue:{{p:{name}}}", "0", "+inf"))
    return found


def acquire(index: int, *, strict: bool = False, patience_ms: int = 60_000, ttl_ms: int = 60_000) -> Acquire:
    shown = ticket(index, patience_ms=patience_ms)
    return Acquire("a", f"token-{index}", ttl_ms, int(time.time() * 1e6), ticket=shown, strict=strict)


def pass_time(pair: Pair, seconds: float) -> None:
    """Until the clocks of both have gone on by so much."""
    until = pair.now + seconds

    def passed() -> bool:
        pair.tick()
        return pair.now > until

    assert eventually(passed)


def test_who_does_not_come_back_is_forgotten_at_its_time_by_both(town: Town) -> None:
    town.ask(Acquire("a", "holder", 60_000, 1))
    town.ask(acquire(0, patience_ms=60))
    pass_time(town.pair, 0.065)
    assert town.ask(acquire(1))[3] == 0, "nobody is in front"
    assert tickets_of(town, "a") == [ticket(1).member.encode()]


def test_a_head_that_leaves_a_free_lock_is_passed_over_by_both(real: Real, port: int) -> None:
    town = Town(real, port, grace=0.15)
    try:
        for ear in town.ears.values():
            ear.listen(True)
        town.ask(Acquire("a", "holder", 60_000, 1))
        town.ask(acquire(0))
        town.ask(acquire(1))
        town.ask(Release("a", "holder", wake=True))
        refused = town.ask(acquire(1, strict=True))
        assert refused[0] == 0
        assert 0 < refused[1] <= 150
        pass_time(town.pair, 0.155)
        assert town.ask(acquire(1, strict=True))[0] == 1
    finally:
        town.close()


def test_a_granted_ticket_stays_until_its_lock_would_end(town: Town) -> None:
    assert town.ask(acquire(0, strict=True, ttl_ms=5_000))[0] == 1
    assert tickets_of(town, "a") == [ticket(0).member.encode()]
    score = float(town.pair.real.execute(("ZSCORE", "p:ql:queue:{p:a}", "u:" + ticket(0).member)))
    seconds, micros = town.pair.real.execute(("TIME",))
    left_ms = -score - (int(seconds) * 1000 + int(micros) // 1000)
    assert 3_000 < left_ms <= 5_000
    town.ask(Release("a", "token-0", wake=True, ticket=ticket(0).member))
    assert tickets_of(town, "a") == []


def is_over(town: Town, key: str) -> bool:
    """On both: the double has granted it a moment later."""
    with town.pair.at_once():
        there = town.pair.real.execute(("EXISTS", key))
    return there == 0 and town.pair.double.get(key) is None


def test_a_ticket_for_several_is_good_until_their_locks_would_end(town: Town) -> None:
    """A holder that dies leaves it: it would be told of every release, and nobody behind it."""
    town.ears["l1"].listen(True)
    town.ask(Acquire("b", "holder", 60_000, 1))
    assert town.ask(AcquireAll(("b", "a"), "token-0", 300, 1, ticket(0)))[0] == 0
    town.ask(Release("b", "holder", wake=True))
    assert town.ask(AcquireAll(("b", "a"), "token-0", 300, 1, ticket(0)))[0] == 1
    assert tickets_of(town, "b") == [ticket(0).member.encode()], "if it fails elsewhere, it is not behind others"
    assert eventually(lambda: is_over(town, "p:b")), "its locks are over"
    town.ask(Acquire("b", "holder", 60_000, 1))
    assert town.ask(AcquireAll(("b", "a"), "token-1", 60_000, 1, ticket(1)))[3] == 0, "nobody is in front"
    assert tickets_of(town, "b") == [ticket(1).member.encode()]


def test_a_lock_that_stays_closed_is_told_of_so_that_nobody_waits_for_the_old_end(town: Town) -> None:
    """Who waits has been told that the holder has a minute left; now it is a second."""
    town.ears["l1"].listen(True)
    town.ask(Acquire("a", "holder", 60_000, 1))
    assert town.ask(acquire(0))[1] > 50_000
    ear = town.ears["l1"]
    mine, other = town.pair.ask(Release("a", "holder", wake=True, stay_ms=1_000))
    assert town.pair.alike(mine, other)
    assert ear.told() == ([b"t0@host:1"], [b"t0@host:1"])
    assert town.ask(acquire(0))[1] <= 1_000
