"""Scripts of the user's behind the check: what they see, what they answer, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from quorumlock import StaleFence
from quorumlock.guards import Claim, RedisGuard
from quorumlock.lab.servers import Servers

pytestmark = pytest.mark.live

MARK = "ql:guard:{report}"
EARLIER, CURRENT = Claim("report", 7), Claim("report", 8)


@pytest.fixture
def store(servers: Servers) -> Iterator[redis.Redis]:
    with redis.Redis(port=servers[0].port) as client:
        yield client


@pytest.fixture
def guard(store: redis.Redis) -> RedisGuard:
    return RedisGuard(store)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[2]}", [2, b"k1", b"k2", 2, b"a1", b"a2"]),
        ("local function first() return KEYS[1] end return first()", b"k1"),
        ("return", None),
        ("", None),
        ("-- nothing but words", None),
        ("return {1, {2, 'x'}, false}", [1, [2, b"x"], None]),
        ("return redis.status_reply('FINE')", b"FINE"),
        ("return tostring(seen) .. tostring(rawget(_G, 'fence'))", b"nilnil"),
        ("\n".join(f"local a{number} = {number}" for number in range(199)) + "\nreturn a198", 198),
        ("do return 5 end", 5),
    ],
)
def test_a_script_sees_its_own_and_answers_as_it_likes(guard: RedisGuard, script: str, answer: object) -> None:
    if "seen" in script:  # an unknown global is an error in Redis: ours must not be known
        with pytest.raises(ResponseError, match="nonexistent global variable 'seen'"):
            guard.call(CURRENT, script)
    else:
        assert guard.call(CURRENT, script, ["k1", "k2"], ["a1", "a2"]) == answer


def test_a_script_that_does_not_compile_does_nothing(guard: RedisGuard, store: redis.Redis) -> None:
    with pytest.raises(ResponseError, match="user_script:2"):
        guard.call(CURRENT, "local a = 1\nthis is no Lua")
    assert store.dbsize() == 0, "not even the mark"


def test_a_script_that_fails_leaves_what_it_did_behind_a_mark(guard: RedisGuard, store: redis.Redis) -> None:
    script = "redis.call('SET', KEYS[1], 1)\n\nredis.call('LPUSH', KEYS[1], 1)"
    with pytest.raises(ResponseError, match=r"WRONGTYPE.*user_script:3"):  # the line is the user's
        guard.call(CURRENT, script, ["total"])
    assert store.get("total") == b"1"
    with pytest.raises(StaleFence):
        guard.call(EARLIER, script, ["total"])


@pytest.mark.parametrize("error", ["MINE is this", "STALEFENCE yesterday", "STALEFENCE 12 apples"])
def test_an_error_of_the_script_is_the_scripts(guard: RedisGuard, error: str) -> None:
    with pytest.raises(ResponseError, match=error):
        guard.call(CURRENT, "return redis.error_reply(ARGV[1])", args=[error])


def test_a_script_that_is_repeated_runs_again(guard: RedisGuard) -> None:
    """What the docstring warns of: a client that resends does just this."""
    answers: list[Any] = [guard.call(CURRENT, "return redis.call('INCR', KEYS[1])", ["total"]) for _ in range(2)]
    assert answers == [1, 2]


def test_a_script_of_a_stale_holder_never_starts(guard: RedisGuard, store: redis.Redis) -> None:
    guard.enter(CURRENT)
    with pytest.raises(StaleFence):
        guard.call(EARLIER, "redis.call('SET', KEYS[1], 1) return 1", ["total"])
    assert store.keys() == [MARK.encode()]
