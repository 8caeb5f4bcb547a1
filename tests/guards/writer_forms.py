"""What each writer of the fifty does with its guard; and guards with a fault that the check has to find."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quorumlock import StaleFence
from quorumlock.guards import (
    AsyncFileGuard,
    AsyncRedisGuard,
    Claim,
    Fenced,
    FileGuard,
    RedisGuard,
    fencing_headers,
)

from .writers import Attempt, TornError, entries, extended, pause

PUSH = "return redis.call('RPUSH', KEYS[1], ARGV[1])"


# Redis: three resources, each written in its own way.


def hash_of(fields: dict[bytes, bytes], fence: int) -> dict[bytes, bytes]:
    """The next content of the hash, in which all fields belong together."""
    if len(set(fields.values())) > 1:
        raise TornError("the fields are of several writers")
    chain = extended(fields.get(b"one", b""), fence)
    return {b"one": chain, b"two": chain, b"three": chain}


def redis_attempts(url: str, number: int, guard_type: type[RedisGuard] = RedisGuard) -> dict[str, Attempt]:
    import redis

    client = redis.Redis.from_url(url)
    guard = guard_type(client)

    def by_set(claim: Claim) -> None:
        guard.enter(claim)
        chain: Any = client.get("chain")
        pause()
        guard.set(claim, "chain", extended(chain or b"", claim.fence))

    def by_hset(claim: Claim) -> None:
        guard.enter(claim)
        fields: Any = client.hgetall("hash")
        pause()
        guard.hset(claim, "hash", hash_of(fields, claim.fence))

    def by_call(claim: Claim) -> None:
        guard.call(claim, PUSH, ["list"], [claim.fence])

    return {"set": by_set, "hset": by_hset, "call": by_call}


def async_redis_attempts(url: str, number: int) -> dict[str, Attempt]:
    import redis.asyncio

    loop = asyncio.new_event_loop()
    client = redis.asyncio.Redis.from_url(url)
    guard = AsyncRedisGuard(client)

    async def by_set(claim: Claim) -> None:
        await guard.enter(claim)
        chain: Any = await client.get("chain")
        pause()
        await guard.set(claim, "chain", extended(chain or b"", claim.fence))

    async def by_hset(claim: Claim) -> None:
        await guard.enter(claim)
        reading: Any = client.hgetall("hash")
        fields = await reading
        pause()
        await guard.hset(claim, "hash", hash_of(fields, claim.fence))

    async def by_call(claim: Claim) -> None:
        await guard.call(claim, PUSH, ["list"], [claim.fence])

    return {
        "set": lambda claim: loop.run_until_complete(by_set(claim)),
        "hset": lambda claim: loop.run_until_complete(by_hset(claim)),
        "call": lambda claim: loop.run_until_complete(by_call(claim)),
    }


class TwoTrips(RedisGuard):
    """The fault: check and write are two commands each, as in code that was written by hand."""

    def _check(self, lease: Fenced) -> None:
        seen = int(self._client.get(f"ql:guard:{{{lease.resource}}}") or 0)
        if lease.fence < seen:
            raise StaleFence("stale", fence=lease.fence, seen=seen)
        self._client.set(f"ql:guard:{{{lease.resource}}}", lease.fence)
        pause()

    def set(self, lease: Fenced, key: Any, value: Any, **options: Any) -> None:
        self._check(lease)
        self._client.set(key, value)

    def hset(self, lease: Fenced, key: Any, mapping: Any) -> int:
        self._check(lease)
        for name, value in mapping.items():
            self._client.hset(key, name, value)
        return 0

    def call(self, lease: Fenced, script: str, keys: Any = (), args: Any = ()) -> Any:
        self._check(lease)
        return self._client.eval(script, len(keys), *keys, *args)


# Files.


def file_attempts(path: str, number: int, guard_type: type[FileGuard] = FileGuard) -> dict[str, Attempt]:
    guard = guard_type(path)

    def attempt(claim: Claim) -> None:
        entries(content(path))  # who does not ask the guard sees a whole file too
        guard.enter(claim)
        chain = content(path)
        with guard.replace(claim) as file:
            written = extended(chain, claim.fence)
            file.write(written[:-30])
            file.flush()
            pause()
            file.write(written[-30:])

    return {"file": attempt}


def async_file_attempts(path: str, number: int) -> dict[str, Attempt]:
    loop = asyncio.new_event_loop()
    guard = AsyncFileGuard(path)

    async def attempt(claim: Claim) -> None:
        await guard.enter(claim)
        chain = content(path)
        pause()
        await guard.write(claim, extended(chain, claim.fence))

    return {"file": lambda claim: loop.run_until_complete(attempt(claim))}


def content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""


class Unlocked(FileGuard):
    """The fault: nobody else is kept out between the check and the rename."""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        yield

    def _sweep(self) -> None:
        """Left out: it would find drafts that are not locked yet."""

    def _admit(self, resource: str, fence: int) -> None:
        super()._admit(resource, fence)
        pause()


class CheckedOnce(FileGuard):
    """The fault: the mark is checked when the writing begins, and not when it ends."""

    def _commit(self, draft: Any, lease: Fenced) -> None:
        draft.finish()
        os.rename(draft.path, self.path)


class InPlace(FileGuard):
    """The fault: all is checked under the lock, but the file is written where it lies."""

    def _commit(self, draft: Any, lease: Fenced) -> None:
        draft.finish()
        written = Path(draft.path).read_bytes()
        with self._locked():
            self._admit(lease.resource, lease.fence)
            with open(self.path, "wb", buffering=0) as file:
                for start in range(0, len(written), 100):
                    file.write(written[start : start + 100])
                    time.sleep(random.random() * 0.004)


FILE_FAULTS: dict[str, type[FileGuard]] = {"unlocked": Unlocked, "checked-once": CheckedOnce, "in-place": InPlace}


# HTTP: light clients; the service carries the chain on.


def http_attempts(where: str, number: int) -> dict[str, Attempt]:
    """`where` says, for each resource, which services carry it on: `one=host:port;two=host:port,host:port`."""
    named = [each.partition("=") for each in where.split(";")]
    return {name: http_attempt(services.split(","), number) for name, _, services in named}


def http_attempt(services: list[str], number: int) -> Attempt:
    def attempt(claim: Claim) -> None:
        connection = http.client.HTTPConnection(services[number % len(services)], timeout=30)
        connection.request("PUT", "/chain", headers=fencing_headers(Claim("http", claim.fence)))
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        if answer.status == 412:
            problem = json.loads(said)
            raise StaleFence(problem["detail"], fence=problem["fence"], seen=problem["seen"])
        if answer.status == 409:
            raise TornError(said)
        assert answer.status == 204, (answer.status, said)

    return attempt


def prepare(form: str) -> None:
    """Imports what the writers need, and others need not wait for, before they are forked."""
    if form.startswith("redis"):
        importlib.import_module("redis.asyncio")


FORMS: dict[str, Callable[[str, int], dict[str, Attempt]]] = {
    "redis": lambda where, number: (async_redis_attempts if number % 2 else redis_attempts)(where, number),
    "redis-two-trips": lambda where, number: redis_attempts(where, number, TwoTrips),
    "file": lambda where, number: (async_file_attempts if number % 2 else file_attempts)(where, number),
    "file-faults": lambda where, number: {
        name: file_attempts(f"{where}-{name}", number, guard_type)["file"]
        for name, guard_type in FILE_FAULTS.items()
    },
    "http": http_attempts,
}
