"""The guard of Redis keys: what is accepted, what is refused, and what is left when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError, ResponseError
from redis.retry import Retry

import quorumlock
from quorumlock import ConfigurationError, EngineError, StaleFence
from quorumlock.guards import MAX_FENCE, AsyncRedisGuard, Claim, RedisGuard
from quorumlock.lab.servers import Server, Servers
from tests.support.waiting import eventually

from .fronts import Blocking, example

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

MARK = "ql:guard:{report}"
PAUSED, CURRENT, NEXT = Claim("report", 7), Claim("report", 8), Claim("report", 9)

Make = Callable[..., Any]


@pytest.fixture
def store(servers: Servers) -> Iterator[redis.Redis]:
    """A client that is not the guard's."""
    with redis.Redis(port=servers[0].port) as client:
        yield client


@pytest.fixture(params=["threads", "asyncio"])
def make(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Make]:
    """Guards on one of the two fronts, each with a client of its own: `make(decode_responses=True)`."""
    loop = asyncio.new_event_loop()
    clients: list[Any] = []

    def made(*, prefix: str = "", mark_ttl: float | None = None, port: int | None = None, **options: Any) -> Any:
        options["port"] = port or servers[0].port
        if request.param == "threads":
            clients.append(redis.Redis(**options))
            return RedisGuard(clients[-1], prefix=prefix, mark_ttl=mark_ttl)
        client = redis.asyncio.Redis(**options)
        clients.append(Blocking(client, loop))
        return Blocking(AsyncRedisGuard(client, prefix=prefix, mark_ttl=mark_ttl), loop)

    yield made
    for client in clients:
        client.aclose() if isinstance(client, Blocking) else client.close()
    loop.close()


@pytest.fixture
def guard(make: Make) -> Any:
    return make()


def content(store: redis.Redis) -> dict[bytes, bytes | None]:
    keys: Any = store.keys()
    return {key: store.dump(key) for key in keys}


WRITES: dict[str, Callable[[Any, Claim], Any]] = {
    "set": lambda guard, claim: guard.set(claim, "total", "1"),
    "delete": lambda guard, claim: guard.delete(claim, "old", "none"),
    "hset": lambda guard, claim: guard.hset(claim, "row", {"a": "1", "b": 2}),
    "call": lambda guard, claim: guard.call(claim, "return redis.call('INCR', KEYS[1])", ["count"]),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def test_every_form_writes_and_answers(guard: Any, store: redis.Redis) -> None:
    store.set("old", 1)
    assert [write(guard, CURRENT) for write in WRITES.values()] == [None, 1, 2, 1]
    assert store.get("total") == b"1"
    assert not store.exists("old")
    assert store.hgetall("row") == {b"a": b"1", b"b": b"2"}
    assert store.get("count") == b"1"
    assert store.get(MARK) == b"8"
    assert store.ttl(MARK) == -1, "marks stay"


@writes
def test_a_holder_of_the_past_is_refused_and_writes_nothing(guard: Any, store: redis.Redis, write: Make) -> None:
    store.set("old", 1)
    guard.enter(CURRENT)
    before = content(store)
    with pytest.raises(StaleFence, match="'report' has seen fence 8; 7 is of an earlier holder") as refused:
        write(guard, PAUSED)
    assert (refused.value.fence, refused.value.seen) == (7, 8)
    assert content(store) == before


@writes
def test_a_write_raises_the_mark(guard: Any, store: redis.Redis, write: Make) -> None:
    write(guard, CURRENT)
    write(guard, CURRENT)
    write(guard, NEXT)
    with pytest.raises(StaleFence):
        guard.enter(CURRENT)
    assert store.get(MARK) == b"9"


def test_resources_are_guarded_apart_and_so_are_prefixes(make: Make, store: redis.Redis) -> None:
    make().enter(NEXT)
    make().set(Claim("other", 1), "total", 1)
    make(prefix="app:").set(PAUSED, "total", 2)
    assert store.get("app:" + MARK) == b"7"


def test_fences_up_to_the_largest_are_told_apart(guard: Any, store: redis.Redis) -> None:
    for fence in (MAX_FENCE - 2, MAX_FENCE - 1, MAX_FENCE):
        guard.set(Claim("report", fence), "total", fence)
        assert store.get(MARK) == str(fence).encode()
    with pytest.raises(StaleFence) as refused:
        guard.set(Claim("report", MAX_FENCE - 1), "total", 0)
    assert (refused.value.fence, refused.value.seen) == (MAX_FENCE - 1, MAX_FENCE)
    assert store.get("total") == str(MAX_FENCE).encode()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_one_round_trip(guard: Any, store: redis.Redis, name: str, servers: Servers) -> None:
    WRITES[name](guard, PAUSED)
    servers[0].command("CONFIG", "RESETSTAT")
    WRITES[name](guard, CURRENT)
    stats: Any = store.info("commandstats")
    calls = {command.removeprefix("cmdstat_"): told["calls"] for command, told in stats.items()}
    # What the script calls is counted too: the mark is read once and written once, and then there is the write.
    expected = {"evalsha": 1, "get": 1, "set": 1, "del": 0, "hset": 0, "incr": 0, "eval": 0, "script|load": 0}
    expected[{"set": "set", "delete": "del", "hset": "hset", "call": "incr"}[name]] += 1
    assert {command: calls.get(command, 0) for command in expected} == expected


def test_a_server_that_forgot_the_scripts_is_told_them_again(guard: Any, store: redis.Redis) -> None:
    for fence in (7, 8):
        store.script_flush()
        for write in WRITES.values():
            write(guard, Claim("report", fence))
    store.script_flush()
    with pytest.raises(StaleFence):
        guard.enter(PAUSED)


def test_a_key_of_another_type_is_left_as_it_is(guard: Any, store: redis.Redis) -> None:
    store.set("row", "text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        guard.hset(CURRENT, "row", {str(number): number for number in range(3000)})
    assert store.get("row") == b"text"
    with pytest.raises(StaleFence):  # a mark without its write harms nobody
        guard.set(PAUSED, "row", 1)


def test_a_full_server_takes_neither_write_nor_mark(make: Make, make_servers: Callable[..., Servers]) -> None:
    port = make_servers(1)[0].port
    guard = make(port=port)
    with redis.Redis(port=port) as store:
        guard.set(PAUSED, "total", 1)
        store.config_set("maxmemory", 1)
        for write in (WRITES["set"], WRITES["hset"], WRITES["call"]):
            with pytest.raises(OutOfMemoryError):
                write(guard, CURRENT)
        assert guard.delete(PAUSED, "total") == 1, "room can be made by who has entered"
        assert content(store).keys() == {MARK.encode()}
        assert store.get(MARK) == b"7"


@pytest.mark.parametrize("mark", [b"soon", b"-3", b"1e9", b"0x10", b"", b"nan", b"90071992547409930"])
def test_a_mark_that_is_no_fence_is_not_guessed_at(guard: Any, store: redis.Redis, mark: bytes) -> None:
    store.set(MARK, mark)
    for write in WRITES.values():
        with pytest.raises(EngineError, match="holds no fence"):
            write(guard, CURRENT)
    assert content(store).keys() == {MARK.encode()}


def test_a_mark_of_another_type_is_told_from_a_key_of_another_type(guard: Any, store: redis.Redis) -> None:
    store.lpush(MARK, 1)
    with pytest.raises(EngineError, match="holds no fence"):
        guard.enter(CURRENT)


def test_a_client_that_decodes_is_as_good(make: Make) -> None:
    guard = make(decode_responses=True)
    for write in WRITES.values():
        write(guard, CURRENT)
    assert guard.call(CURRENT, "return redis.call('GET', KEYS[1])", ["total"]) == "1"
    with pytest.raises(StaleFence):
        guard.enter(PAUSED)


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_of_redis_carry_it(make: Make, protocol: int) -> None:
    guard = make(protocol=protocol)
    for write in WRITES.values():
        write(guard, CURRENT)
    with pytest.raises(StaleFence) as refused:
        guard.enter(PAUSED)
    assert refused.value.seen == 8


def test_values_are_bytes(guard: Any, store: redis.Redis) -> None:
    every = bytes(range(256))
    guard.set(CURRENT, every, every)
    guard.hset(CURRENT, b"row", {every: every})
    guard.call(CURRENT, "redis.call('SET', KEYS[1], ARGV[1])", [b"\r\n\x00"], [every])
    assert store.get(every) == every
    assert store.hgetall("row") == {every: every}
    assert store.get(b"\r\n\x00") == every


def test_a_value_may_expire(guard: Any, store: redis.Redis) -> None:
    guard.set(CURRENT, "a", 1, ex=100)
    guard.set(CURRENT, "b", 1, px=100_000)
    assert 99_000 < int(store.pttl("a")) <= 100_000
    assert 99_000 < int(store.pttl("b")) <= 100_000
    guard.set(CURRENT, "a", 1)
    assert store.pttl("a") == -1


def test_marks_that_expire_forget(make: Make, store: redis.Redis) -> None:
    guard = make(mark_ttl=100)
    guard.set(CURRENT, "total", 1)
    with pytest.raises(StaleFence):
        guard.enter(PAUSED)
    assert 90_000 < int(store.pttl(MARK)) <= 100_000
    store.pexpire(MARK, 1)
    assert eventually(lambda: not store.exists(MARK))
    guard.set(PAUSED, "total", 2)  # the price that the docstring names
    assert store.get("total") == b"2"


def test_use_keeps_a_mark_alive(make: Make, store: redis.Redis) -> None:
    guard = make(mark_ttl=100)
    guard.enter(CURRENT)
    store.pexpire(MARK, 1000)
    guard.set(CURRENT, "total", 1)
    assert int(store.pttl(MARK)) > 90_000


def test_many_keys_and_many_fields(guard: Any, store: redis.Redis) -> None:
    assert guard.hset(CURRENT, "row", {f"field {number}": number for number in range(20_000)}) == 20_000
    assert store.hget("row", "field 19999") == b"19999"
    store.mset({f"key {number}": number for number in range(20_000)})
    assert guard.delete(CURRENT, *(f"key {number}" for number in range(20_001))) == 20_000
    assert store.dbsize() == 2


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda guard: guard.set(CURRENT, "a", 1, ex=1, px=1), "two units"),
        (lambda guard: guard.set(CURRENT, "a", 1, ex=0), "ex=0"),
        (lambda guard: guard.set(CURRENT, "a", 1, px=1.5), "px=1.5"),
        (lambda guard: guard.set(CURRENT, MARK, 1), "keeps its mark"),
        (lambda guard: guard.delete(CURRENT, MARK.encode()), "keeps its mark"),
        (lambda guard: guard.delete(CURRENT), "needs a key"),
        (lambda guard: guard.hset(CURRENT, "a", {}), "needs a field"),
        (lambda guard: guard.call(CURRENT, "return 1", "abc"), "list of keys"),
        (lambda guard: guard.call(CURRENT, b"return 1"), "Lua source"),
        (lambda guard: guard.call(CURRENT, "#!lua flags=no-writes\nreturn 1"), "cannot begin with #!"),
        (lambda guard: guard.enter(Claim("\ud800", 1)), "UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_told(guard: Any, store: redis.Redis, use: Make, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        use(guard)
    assert store.dbsize() == 0


def test_a_guard_wants_the_client_of_its_front(servers: Servers) -> None:
    client, tasks = redis.Redis(port=servers[0].port), redis.asyncio.Redis(port=servers[0].port)
    with pytest.raises(ConfigurationError, match="AsyncRedisGuard"):
        RedisGuard(tasks)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="use RedisGuard"):
        AsyncRedisGuard(client)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="pipeline"):
        RedisGuard(client.pipeline())
    with pytest.raises(ConfigurationError, match="pipeline"):
        AsyncRedisGuard(tasks.pipeline())
    with pytest.raises(ConfigurationError, match="mark_ttl"):
        RedisGuard(client, mark_ttl=0)
    client.close()


def test_a_server_that_is_gone_is_redis_pys_own_error(make: Make) -> None:
    with Server() as gone:
        guard = make(port=gone.port, retry=Retry(NoBackoff(), 0))
        guard.enter(CURRENT)
    with pytest.raises(redis.exceptions.ConnectionError):
        guard.set(CURRENT, "total", 1)


def test_two_holders_of_a_real_lock(guard: Any, store: redis.Redis) -> None:
    with quorumlock.connect("memory://") as locks:
        paused = locks.lock("report", keep=False).acquire()
        guard.enter(paused)
        locks.engine.clock.advance(60)
        with locks.lock("report") as lease:
            guard.set(lease, "total", "new")
            with pytest.raises(StaleFence) as refused:
                guard.set(paused, "total", "old")
    assert (refused.value.fence, refused.value.seen) == (paused.fence, lease.fence)
    assert store.get("total") == b"new"


def test_the_example_runs() -> None:
    assert "refused" in example("guard_redis.py")
