"""What no guard accepts as a lease, on either front; and that the two fronts are the same but for `await`."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

import quorumlock
import quorumlock.guards
from quorumlock import ConfigurationError
from quorumlock.guards import (
    MAX_FENCE,
    AsyncFileGuard,
    AsyncRedisGuard,
    Claim,
    FencingAuth,
    FileGuard,
    RedisGuard,
    fencing_headers,
)
from quorumlock.guards.base import claim
from quorumlock.lab.servers import Server, kinds

from .fronts import Blocking


def lease(fence: Any, resource: Any = "report") -> Any:
    return SimpleNamespace(resource=resource, fence=fence)


WRONG = {
    "no fence": (lease(None), "has no fence"),
    "no fence at all": (SimpleNamespace(resource="report"), "has no fence"),
    "zero": (lease(0), "between 1 and"),
    "negative": (lease(-1), "between 1 and"),
    "too large": (lease(MAX_FENCE + 1), "between 1 and"),
    "far too large": (lease(10**30), "between 1 and"),
    "text": (lease("7"), "an integer, not str"),
    "float": (lease(7.0), "an integer, not float"),
    "bool": (lease(True), "an integer, not bool"),
    "no resource": (lease(7, None), "does not name a resource"),
    "bytes": (lease(7, b"report"), "does not name a resource"),
    "nameless": (lease(7, ""), "does not name a resource"),
    "too long a name": (lease(7, "x" * 1101), "this guard stores 1100"),
    "a number": (7, "does not name a resource"),
    "nothing": (None, "does not name a resource"),
}
wrong = pytest.mark.parametrize(("given", "told"), WRONG.values(), ids=WRONG)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(kinds()[0]) as running:
        yield running


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def refused(use: Callable[..., object], *args: object, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        use(*args)


@wrong
def test_nothing_is_written_to_redis(
    server: Server, loop: asyncio.AbstractEventLoop, given: Any, told: str
) -> None:
    tasks = redis.asyncio.Redis(port=server.port)
    with redis.Redis(port=server.port) as client:
        for guard in (RedisGuard(client), Blocking(AsyncRedisGuard(tasks), loop)):
            refused(guard.enter, given, told=told)
            refused(guard.set, given, "key", 1, told=told)
            refused(guard.delete, given, "key", told=told)
            refused(guard.hset, given, "key", {"a": 1}, told=told)
            refused(guard.call, given, "return redis.call('SET', 'key', 1)", told=told)
        assert client.dbsize() == 0
    loop.run_until_complete(tasks.aclose())


def replaced(guard: Any, given: Any) -> None:
    with guard.replace(given) as file:
        file.write(b"x")


@wrong
def test_nothing_is_written_beside_a_file(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, given: Any, told: str
) -> None:
    path = tmp_path / "report"
    for guard in (FileGuard(path), Blocking(AsyncFileGuard(path), loop)):
        refused(guard.enter, given, told=told)
        refused(guard.write, given, "x", told=told)
        refused(replaced, guard, given, told=told)
    assert list(tmp_path.iterdir()) == []


@wrong
def test_nothing_is_sent(given: Any, told: str) -> None:
    refused(fencing_headers, given, told=told)
    refused(FencingAuth, given, told=told)


def test_a_lease_of_several_locks_is_not_one_claim() -> None:
    """Its highest fence orders it with nobody who has only one of them."""
    with quorumlock.connect("memory://") as locks, locks.multi(["x", "y"]) as lease:
        with pytest.raises(ConfigurationError, match=r"Claim\(name, fence\) for each"):
            claim(lease)
        assert [claim(Claim(name, fence)) for name, fence in lease.fences.items()] == list(lease.fences.items())


@pytest.mark.parametrize("fence", [0, -1, MAX_FENCE + 1, None, "7", True])
def test_a_claim_is_never_wrong(fence: Any) -> None:
    refused(Claim, "report", fence, told="fence")


def public(kind: type) -> dict[str, Any]:
    found = {name: one for name, one in vars(kind).items() if not name.startswith("_")}
    return found | {"__init__": kind.__init__}  # type: ignore[misc]


def signature(function: Any) -> str:
    told = str(inspect.signature(function)).replace("redis.asyncio.Redis", "redis.Redis")
    return told.replace("AsyncIterator", "Iterator").replace("Async", "")


@pytest.mark.parametrize(("threads", "tasks"), [(RedisGuard, AsyncRedisGuard), (FileGuard, AsyncFileGuard)])
def test_the_two_fronts_have_the_same_methods_parameters_and_words(threads: type, tasks: type) -> None:
    ours, theirs = public(threads), public(tasks)
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        other = theirs[name]
        assert signature(one) == signature(other)
        assert one.__doc__ == other.__doc__
        unwrapped = inspect.unwrap(other)
        awaited = inspect.iscoroutinefunction(unwrapped) or inspect.isasyncgenfunction(unwrapped)
        assert awaited == (name != "__init__"), name


@pytest.mark.parametrize(
    "names", ["Claim", "FileGuard, AsyncFileGuard", "FencingMiddleware, FencingAuth, SQLFences"]
)
def test_nothing_is_imported_that_is_not_used(names: str) -> None:
    program = f"import sys; from quorumlock.guards import {names}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & {"redis", "httpx", "requests", "psycopg", "sqlalchemy", "aiosqlite"} == set()
    assert "asyncio" not in loaded or "Fencing" in names


def test_every_name_that_is_promised_is_there() -> None:
    for name in quorumlock.guards.__all__:
        assert getattr(quorumlock.guards, name) is not None
    assert dir(quorumlock.guards) == sorted(quorumlock.guards.__all__)
    with pytest.raises(AttributeError):
        quorumlock.guards.Nothing  # noqa: B018
