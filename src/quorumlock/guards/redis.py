"""A guard of what lies in Redis or Valkey: mark, check and write are one script, and one round trip.

    guard = RedisGuard(redis.Redis(...))
    with locks.lock("report") as lease:
        guard.enter(lease)                                  # before reading
        total = client.get("report:total")
        guard.set(lease, "report:total", int(total) + 1)    # StaleFence if a newer holder was seen

The mark lies at `<prefix>ql:guard:{<resource>}` on the same server as what it guards. Its limits:

1. It is as durable as the server. What a crash, a failover to a replica, FLUSHALL or an eviction takes away is
   forgotten, and older fences pass again: guard with `noeviction`, and persistence where it matters.
2. It orders holders, not the writes of one holder. redis-py resends a command whose answer did not come (ten times
   by default since version 8), and the same fence is accepted again. To `set`, `delete` and `hset` that is nothing
   unless the holder writes a key twice within that time; a script given to `call` may run twice. Give the
   client `retry=Retry(NoBackoff(), 0)`, or write scripts that may be repeated. And where a command was sent again,
   StaleFence does not say that nothing was written: the first may have been accepted before the newer holder came.
3. An error inside a script ends it without undoing what it did. The mark is raised before the write, so what is
   left is at worst a mark without its write, which harms nobody.
4. In a Redis Cluster the keys must share the mark's slot: write `{<resource>}` in their names.

Errors of the client and the server (connection, WRONGTYPE, OOM, a script's own) pass through as redis-py's.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

from ..errors import ConfigurationError, EngineError, LockError, StaleFence
from .base import Fenced, claim, refused

RESOURCE_LONGEST = 1100
"""Characters. A lock's name has up to 1024 bytes, and a semaphore puts `#slot` behind it."""

Key = str | bytes
Value = str | bytes | int | float
Fields = Mapping[Any, Value]  # a mapping of text is none of "text or bytes", to a type checker

_SCRIPTS = Path(__file__).parent / "scripts"
_STALE = re.compile(r"STALEFENCE (\d{1,16})")


def _load(name: str) -> str:
    return (_SCRIPTS / f"{name}.lua").read_text(encoding="utf-8")


def _one_line(source: str) -> str:
    lines = (line.strip() for line in source.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("--"))


_ADMIT = _one_line(_load("admit"))
"""In one line, so that the lines that Redis names in its errors are those of the script behind it."""


class _Script:
    """A source behind the check, and its hash."""

    def __init__(self, source: str) -> None:
        self.source = f"{_ADMIT} {source}".encode()  # whatever the client's encoding is
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest()


_ENTER, _SET, _DELETE, _HSET = _Script(""), *(_Script(_load(name)) for name in ("set", "delete", "hset"))


@functools.lru_cache(maxsize=128)
def _users(source: str) -> _Script:
    return _Script(source)


@dataclass(frozen=True, slots=True)
class _Call:
    """One script with what it is given: the mark and the fence first."""

    script: _Script
    keys: Sequence[Key]
    args: Sequence[Value]
    resource: str
    fence: int
    lease: Fenced

    @property
    def arguments(self) -> tuple[Key | Value, ...]:
        return (len(self.keys), *self.keys, *self.args)

    def refusal(self, error: ResponseError) -> LockError | None:
        """What the check answered; None if the error is not of the check."""
        told = str(error)
        if stale := _STALE.fullmatch(told):
            seen = int(stale[1])
            message = f"{self.resource!r} has seen fence {seen}; {self.fence} is of an earlier holder"
            return refused(self.lease, StaleFence(message, fence=self.fence, seen=seen))
        if told.startswith("BADMARK"):
            return EngineError(f"the key {self.keys[0]!r} is the mark of {self.resource!r}, but holds no fence")
        return None


class _Calls:
    """What both fronts say to the server."""

    def __init__(self, client: Any, *, prefix: str = "", mark_ttl: float | None = None) -> None:
        if isinstance(client, redis.client.Pipeline | redis.asyncio.client.Pipeline):
            raise ConfigurationError(
                "a guard has to hear at once whether it was refused: give the client, no pipeline"
            )
        if not isinstance(prefix, str):
            raise ConfigurationError(f"prefix is to be a string, not {type(prefix).__name__}")
        if mark_ttl is not None and not 0.001 <= mark_ttl < 2**40:
            raise ConfigurationError(f"mark_ttl={mark_ttl!r} is to be None or a number of seconds, 0.001 at least")
        self._client = client
        self._prefix = prefix
        self._mark_ttl_ms = 0 if mark_ttl is None else round(mark_ttl * 1000)

    def _call(self, lease: Fenced, script: _Script, keys: Iterable[Key] = (), args: Iterable[Value] = ()) -> _Call:
        resource, fence = claim(lease, RESOURCE_LONGEST)
        try:
            mark = f"{self._prefix}ql:guard:{{{resource}}}".encode()
        except UnicodeEncodeError:
            raise ConfigurationError(f"the resource {resource!r} is no text that UTF-8 can write") from None
        if isinstance(keys, str | bytes):
            raise ConfigurationError(f"keys is to be a list of keys, not one: {keys!r}")
        keys = list(keys)
        if any(key == mark or (isinstance(key, str) and key.encode(errors="replace") == mark) for key in keys):
            raise ConfigurationError(f"the key {mark!r} is where the guard keeps its mark")
        return _Call(script, [mark, *keys], [fence, self._mark_ttl_ms, *args], resource, fence, lease)

    def _set(self, lease: Fenced, key: Key, value: Value, ex: int | None, px: int | None) -> _Call:
        if ex is not None and px is not None:
            raise ConfigurationError("ex and px are two units of one thing: give one of them")
        expiry: list[Value] = []
        for unit, number in (("EX", ex), ("PX", px)):
            if number is None:
                continue
            if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
                raise ConfigurationError(f"{unit.lower()}={number!r} is to be a whole number above 0")
            expiry += [unit, number]
        return self._call(lease, _SET, [key], [value, *expiry])

    def _delete(self, lease: Fenced, keys: Sequence[Key]) -> _Call:
        if not keys:
            raise ConfigurationError("delete needs a key")
        return self._call(lease, _DELETE, keys)

    def _hset(self, lease: Fenced, key: Key, mapping: Fields) -> _Call:
        if not mapping:
            raise ConfigurationError("hset needs a field")
        return self._call(lease, _HSET, [key], [word for pair in mapping.items() for word in pair])

    def _users(self, lease: Fenced, script: str, keys: Iterable[Key], args: Iterable[Value]) -> _Call:
        if not isinstance(script, str):
            raise ConfigurationError(f"script is to be Lua source, not {type(script).__name__}")
        if script.startswith("#!"):
            raise ConfigurationError("a script behind a guard's check cannot begin with #!: leave that line out")
        return self._call(lease, _users(script), keys, args)


class RedisGuard(_Calls):
    """Guards keys of one Redis or Valkey server; the head of the module says what that is worth.

    `mark_ttl` (seconds) lets marks expire after their last use, for resources without end. Its price: a holder that
    was stopped for longer than that, and wakes, finds no mark and is accepted. By default marks stay for ever.
    """

    def __init__(self, client: redis.Redis, *, prefix: str = "", mark_ttl: float | None = None) -> None:
        if isinstance(client, redis.asyncio.Redis):
            raise ConfigurationError("this client is asyncio's: use AsyncRedisGuard")
        super().__init__(client, prefix=prefix, mark_ttl=mark_ttl)

    def enter(self, lease: Fenced) -> None:
        """Raises the mark, before its holder reads: earlier holders are refused from now on."""
        self._run(self._call(lease, _ENTER))

    def set(self, lease: Fenced, key: Key, value: Value, *, ex: int | None = None, px: int | None = None) -> None:
        """SET, with an expiry in seconds (`ex`) or milliseconds (`px`) if it is to have one."""
        self._run(self._set(lease, key, value, ex, px))

    def delete(self, lease: Fenced, *keys: Key) -> int:
        """DEL; how many of the keys there were."""
        return int(self._run(self._delete(lease, keys)))

    def hset(self, lease: Fenced, key: Key, mapping: Fields) -> int:
        """HSET of all fields at once; how many of them are new."""
        return int(self._run(self._hset(lease, key, mapping)))

    def call(self, lease: Fenced, script: str, keys: Iterable[Key] = (), args: Iterable[Value] = ()) -> Any:
        """Runs Lua behind the check, in the same script; KEYS and ARGV are those given here.

        What varies belongs into `keys` and `args`: a server remembers every script that it has seen. A script may
        run twice where the client resends commands: see the second limit at the head of the module.
        """
        return self._run(self._users(lease, script, keys, args))

    def _run(self, call: _Call) -> Any:
        try:
            try:
                return self._client.evalsha(call.script.sha, *call.arguments)
            except NoScriptError:
                return self._client.eval(call.script.source, *call.arguments)
        except ResponseError as error:
            if refusal := call.refusal(error):
                raise refusal from None
            raise


class AsyncRedisGuard(_Calls):
    """Guards keys of one Redis or Valkey server; the head of the module says what that is worth.

    `mark_ttl` (seconds) lets marks expire after their last use, for resources without end. Its price: a holder that
    was stopped for longer than that, and wakes, finds no mark and is accepted. By default marks stay for ever.
    """

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str = "", mark_ttl: float | None = None) -> None:
        if isinstance(client, redis.Redis):
            raise ConfigurationError("this client is not asyncio's: use RedisGuard")
        super().__init__(client, prefix=prefix, mark_ttl=mark_ttl)

    async def enter(self, lease: Fenced) -> None:
        """Raises the mark, before its holder reads: earlier holders are refused from now on."""
        await self._run(self._call(lease, _ENTER))

    async def set(
        self, lease: Fenced, key: Key, value: Value, *, ex: int | None = None, px: int | None = None
    ) -> None:
        """SET, with an expiry in seconds (`ex`) or milliseconds (`px`) if it is to have one."""
        await self._run(self._set(lease, key, value, ex, px))

    async def delete(self, lease: Fenced, *keys: Key) -> int:
        """DEL; how many of the keys there were."""
        return int(await self._run(self._delete(lease, keys)))

    async def hset(self, lease: Fenced, key: Key, mapping: Fields) -> int:
        """HSET of all fields at once; how many of them are new."""
        return int(await self._run(self._hset(lease, key, mapping)))

    async def call(self, lease: Fenced, script: str, keys: Iterable[Key] = (), args: Iterable[Value] = ()) -> Any:
        """Runs Lua behind the check, in the same script; KEYS and ARGV are those given here.

        What varies belongs into `keys` and `args`: a server remembers every script that it has seen. A script may
        run twice where the client resends commands: see the second limit at the head of the module.
        """
        return await self._run(self._users(lease, script, keys, args))

    async def _run(self, call: _Call) -> Any:
        try:
            try:
                return await self._client.evalsha(call.script.sha, *call.arguments)
            except NoScriptError:
                return await self._client.eval(call.script.source, *call.arguments)
        except ResponseError as error:
            if refusal := call.refusal(error):
                raise refusal from None
            raise
