"""The peers, as their own documentation uses them; for `worker.py`, in environments of their own.

They are imported by name, when asked for: each environment has only one of them. Where a peer's lock object can
be used again, it is: making it is not what is measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from .worker import AsyncPair, Pair

NAME = "bench-lock"


def _clients(module: str, kind: str, urls: list[str]) -> list[Any]:
    client = getattr(importlib.import_module(module), kind)
    return [client.from_url(url) for url in urls]


def _refused() -> RuntimeError:
    return RuntimeError("the lock was free, and was not granted")


def _client_lock(module: str, kind: str) -> Callable[[list[str], float], Pair]:
    """redis-py and valkey-py: a lock on one server."""

    def opened(urls: list[str], ttl: float) -> Pair:
        lock = _clients(module, kind, urls)[0].lock(NAME, timeout=ttl)

        def run() -> None:
            if not lock.acquire():
                raise _refused()
            lock.release()

        return run

    return opened


def _async_client_lock(module: str, kind: str) -> Callable[[list[str], float], Awaitable[AsyncPair]]:
    async def opened(urls: list[str], ttl: float) -> AsyncPair:
        lock = _clients(module, kind, urls)[0].lock(NAME, timeout=ttl)

        async def run() -> None:
            if not await lock.acquire():
                raise _refused()
            await lock.release()

        return run

    return opened


def _redlock_ng(urls: list[str], ttl: float) -> Pair:
    manager = importlib.import_module("redlock").Redlock(urls)
    ttl_ms = round(ttl * 1000)

    def run() -> None:
        lock = manager.acquire(NAME, ttl_ms)
        if not lock:
            raise _refused()
        manager.release(lock)

    return run


async def _async_redlock_ng(urls: list[str], ttl: float) -> AsyncPair:
    manager = importlib.import_module("redlock").AsyncRedlock(urls)
    ttl_ms = round(ttl * 1000)

    async def run() -> None:
        lock = await manager.acquire(NAME, ttl_ms)
        if not lock:
            raise _refused()
        await manager.release(lock)

    return run


def _pyredlock(urls: list[str], ttl: float) -> Pair:
    clients = _clients("redis", "Redis", urls)
    manager = importlib.import_module("pyredlock").Redlock(clients, async_mode=False)
    ttl_ms = round(ttl * 1000)

    def run() -> None:
        granted, lock = manager.lock(NAME, ttl_ms)
        if not granted:
            raise _refused()
        manager.unlock(lock)

    return run


async def _async_pyredlock(urls: list[str], ttl: float) -> AsyncPair:
    clients = _clients("redis.asyncio", "Redis", urls)
    manager = importlib.import_module("pyredlock").Redlock(clients, async_mode=True)
    ttl_ms = round(ttl * 1000)

    async def run() -> None:
        granted, lock = await manager.alock(NAME, ttl_ms)
        if not granted:
            raise _refused()
        await manager.aunlock(lock)

    return run


def _pottery(urls: list[str], ttl: float) -> Pair:
    masters = set(_clients("redis", "Redis", urls))
    lock = importlib.import_module("pottery").Redlock(key=NAME, masters=masters, auto_release_time=ttl)

    def run() -> None:
        if not lock.acquire():
            raise _refused()
        lock.release()

    return run


async def _async_pottery(urls: list[str], ttl: float) -> AsyncPair:
    masters = set(_clients("redis.asyncio", "Redis", urls))
    lock = importlib.import_module("pottery").AIORedlock(key=NAME, masters=masters, auto_release_time=ttl)

    async def run() -> None:
        if not await lock.acquire():
            raise _refused()
        await lock.release()

    return run


SYNC: dict[str, Callable[[list[str], float], Pair]] = {
    "redis-py Lock": _client_lock("redis", "Redis"),
    "valkey-py Lock": _client_lock("valkey", "Valkey"),
    "redlock-ng": _redlock_ng,
    "pyredlock": _pyredlock,
    "pottery": _pottery,
}
ASYNC: dict[str, Callable[[list[str], float], Awaitable[AsyncPair]]] = {
    "redis-py Lock": _async_client_lock("redis.asyncio", "Redis"),
    "valkey-py Lock": _async_client_lock("valkey.asyncio", "Valkey"),
    "redlock-ng": _async_redlock_ng,
    "pyredlock": _async_pyredlock,
    "pottery": _async_pottery,
}
SINGLE = ("redis-py Lock", "valkey-py Lock")
"""These know one server only."""

PACKAGES = {
    "redis-py Lock": ("redis", "hiredis"),
    "valkey-py Lock": ("valkey", "libvalkey"),
    "redlock-ng": ("redlock-ng", "hiredis"),
    "pyredlock": ("pyredlock", "hiredis"),
    "pottery": ("pottery", "hiredis"),
}
"""What to install for each, the C parser included: the comparison is with their best."""
