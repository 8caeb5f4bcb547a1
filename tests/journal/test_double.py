"""The double against real servers, with a journal: the same answers, and the same is written down."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from quorumlock.core.requests import (
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    Downgrade,
    InspectMany,
    Past,
    Refused,
    Release,
    Request,
    Ticket,
)
from quorumlock.engines.redis.answers import decode_history
from quorumlock.engines.redis.wire import Wire
from quorumlock.lab.servers import Servers
from tests.engines.test_double import Pair, Real

pytestmark = [pytest.mark.live, pytest.mark.real_time(1.0)]

NAMES = ("a", "b", "c")
TOKENS = tuple(f"{digit * 40}@host:{digit}" for digit in "123")
TTL_MS = 60_000


@pytest.fixture
def pair(servers: Servers) -> Iterator[Pair]:
    connection = Real(servers[0].port)
    made = Pair(connection, quarantine=False)
    made.wire = Wire(
        prefix="p:", fleet="fleet", nodes=3, max_ttl=60, fence_ttl=240, durable=False, quarantine=False,
        node_timeout=30.0, journal=10_000,
    )  # fmt: skip
    made.join()
    yield made
    connection.close()


def random_request(rng: random.Random) -> Request:
    name, token, now = rng.choice(NAMES), rng.choice(TOKENS), int(time.time() * 1e6)
    several = tuple(rng.sample(NAMES, 2))
    ticket = rng.choice([None, None, Ticket(f"t{rng.randrange(3)}", "room", now, TTL_MS)])
    wake = rng.random() < 0.7
    requests: list[Request] = [
        Acquire(name, token, TTL_MS, now, card="mutex main note"),
        Acquire(name, token, TTL_MS, now, ticket, card="mutex main note"),
        Acquire(name, f"r:{token}", TTL_MS, now, ticket, card="read main -", shared=True),
        AcquireAny(several, "s", token, TTL_MS, now, ticket, card="slot main -"),
        AcquireAll(several, token, TTL_MS, now, ticket, card="multi main -"),
        Downgrade(name, token, TTL_MS, f"r:{token}"),
        Release(name, token, wake),
        Release(name, f"r:{token}", wake),
        Release(several[0], token, wake, names=several),
        Break(name, 0, f"{token} main"),
        Refused(name, 7, token, "seen 8"),
        InspectMany(NAMES),
    ]
    return rng.choice(requests)


def written(pair: Pair) -> tuple[Any, Any]:
    """What both have written down, without the times."""
    sides = []
    for reply in pair.ask(Past("", 10_000)):
        history = decode_history(reply).history
        assert history is not None
        sides.append(
            [(row.what, row.name, bool(row.fence), row.by, words(row.what, row.detail)) for row in history.rows]
        )
    return sides[0], sides[1]


def words(what: str, detail: str) -> str:
    """Without the instant that stands in front of the details of some."""
    return " ".join(word for word in detail.split(" ") if not (word.isdecimal() and len(word) > 9))


def alike(pair: Pair, request: Request, mine: Any, other: Any) -> bool:
    if not isinstance(request, InspectMany):
        return pair.alike(mine, other)
    return mine[0] == other[0] == 2 and all(
        len(one) == len(two) and one[1] == two[1] and one[4][::2] == two[4][::2] and one[5] == two[5]
        for one, two in zip(mine[1], other[1], strict=True)
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_same_is_written_down(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    seen: set[str] = set()
    for step in range(200):
        if rng.random() < 0.1:
            pair.plain("DEL", f"p:{rng.choice(NAMES)}")  # it vanishes: the next grant notices
        request = random_request(rng)
        mine, other = pair.ask(request)
        told = f"seed {seed}, step {step}: {request!r}"
        assert alike(pair, request, mine, other), f"{told}: {mine!r} and {other!r}"
        real, double = written(pair)
        assert real == double, f"{told}: {real[-4:]} and {double[-4:]}"
        seen |= {what for what, *_ in real}
    assert seen == {"acquired", "released", "expired", "broken", "refused"}, "or it would say less than it seems to"


def test_pages_are_the_same(pair: Pair) -> None:
    for index in range(10):
        pair.ask(Refused(f"n{index}", index, TOKENS[0], ""))
    whole = [decode_history(reply).history for reply in pair.ask(Past("", 100))]
    for side, history in enumerate(whole):
        assert history is not None
        assert [row.name for row in history.rows] == [f"n{index}" for index in range(10)]
        for at in (0, 4, 9):
            rest = decode_history(pair.ask(Past(history.rows[at].id, 3))[side]).history
            assert rest is not None
            assert rest.rows == history.rows[at + 1 : at + 4]
        newest = decode_history(pair.ask(Past("", 3))[side]).history
        assert newest is not None
        assert newest.rows == history.rows[-3:]
