"""The peers as contenders, as their own documentation uses them; for `contest_worker.py`, in their environments."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from . import peers
from .contest_worker import AsyncTurn, Turn

Opened = Callable[[list[str], str, float], Callable[[], Turn]]
AsyncOpened = Callable[[list[str], str, float], Awaitable[Callable[[], AsyncTurn]]]

CONNECTIONS = 1000
"""More than there are contenders: a pool that is too small is not what is measured."""


def _clients(module: str, urls: list[str], **settings: Any) -> list[Any]:
    client = importlib.import_module(module).Redis
    return [client.from_url(url, max_connections=CONNECTIONS, **settings) for url in urls]


def _python_redis_lock(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    # It blocks in BLPOP for up to its ttl: a connection that gives up earlier would make an error of that.
    client = _clients("redis", urls, socket_timeout=None)[0]
    lock_class = importlib.import_module("redis_lock").Lock

    def contender() -> Turn:
        lock = lock_class(client, name, expire=round(ttl))

        def turn(inside: Callable[[], None]) -> None:
            with lock:
                inside()

        return turn

    return contender


def _redis_py(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    client = _clients("redis", urls)[0]

    def contender() -> Turn:
        lock = client.lock(name, timeout=ttl)

        def turn(inside: Callable[[], None]) -> None:
            with lock:
                inside()

        return turn

    return contender


async def _async_redis_py(urls: list[str], name: str, ttl: float) -> Callable[[], AsyncTurn]:
    client = _clients("redis.asyncio", urls)[0]

    def contender() -> AsyncTurn:
        lock = client.lock(name, timeout=ttl)

        async def turn(inside: Callable[[], Awaitable[None]]) -> None:
            async with lock:
                await inside()

        return turn

    return contender


def _redlock_ng(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    manager = importlib.import_module("redlock").Redlock(urls)
    ttl_ms = round(ttl * 1000)

    def turn(inside: Callable[[], None]) -> None:
        lock = manager.acquire(name, ttl_ms, blocking=True)
        try:
            inside()
        finally:
            manager.release(lock)

    return lambda: turn


async def _async_redlock_ng(urls: list[str], name: str, ttl: float) -> Callable[[], AsyncTurn]:
    manager = importlib.import_module("redlock").AsyncRedlock(urls)
    ttl_ms = round(ttl * 1000)

    async def turn(inside: Callable[[], Awaitable[None]]) -> None:
        lock = await manager.acquire(name, ttl_ms, blocking=True)
        try:
            await inside()
        finally:
            await manager.release(lock)

    return lambda: turn


def _pyredlock(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    manager = importlib.import_module("pyredlock").Redlock(_clients("redis", urls), async_mode=False)
    ttl_ms = round(ttl * 1000)

    def turn(inside: Callable[[], None]) -> None:
        granted, lock = manager.lock(name, ttl_ms)
        while not granted:  # its own retries are used up; it knows no waiting
            granted, lock = manager.lock(name, ttl_ms)
        try:
            inside()
        finally:
            manager.unlock(lock)

    return lambda: turn


async def _async_pyredlock(urls: list[str], name: str, ttl: float) -> Callable[[], AsyncTurn]:
    manager = importlib.import_module("pyredlock").Redlock(_clients("redis.asyncio", urls), async_mode=True)
    ttl_ms = round(ttl * 1000)

    async def turn(inside: Callable[[], Awaitable[None]]) -> None:
        granted, lock = await manager.alock(name, ttl_ms)
        while not granted:
            granted, lock = await manager.alock(name, ttl_ms)
        try:
            await inside()
        finally:
            await manager.aunlock(lock)

    return lambda: turn


def _pottery(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    masters = set(_clients("redis", urls))
    lock_class = importlib.import_module("pottery").Redlock

    def contender() -> Turn:
        lock = lock_class(key=name, masters=masters, auto_release_time=ttl)

        def turn(inside: Callable[[], None]) -> None:
            with lock:
                inside()

        return turn

    return contender


async def _async_pottery(urls: list[str], name: str, ttl: float) -> Callable[[], AsyncTurn]:
    masters = set(_clients("redis.asyncio", urls))
    lock_class = importlib.import_module("pottery").AIORedlock

    def contender() -> AsyncTurn:
        lock = lock_class(key=name, masters=masters, auto_release_time=ttl)

        async def turn(inside: Callable[[], Awaitable[None]]) -> None:
            async with lock:
                await inside()

        return turn

    return contender


def prepare() -> None:
    """Imports what there is: a fork that still has to does not take part in its contest yet."""
    for module in ("redis_lock", "redis", "redis.asyncio", "redlock", "pyredlock", "pottery"):
        try:
            importlib.import_module(module)
        except ImportError:
            pass  # each environment has only one of the peers


BLOCKING = "python-redis-lock"
SYNC: dict[str, Opened] = {
    BLOCKING: _python_redis_lock,
    "redis-py Lock": _redis_py,
    "redlock-ng": _redlock_ng,
    "pyredlock": _pyredlock,
    "pottery": _pottery,
}
ASYNC: dict[str, AsyncOpened] = {
    "redis-py Lock": _async_redis_py,
    "redlock-ng": _async_redlock_ng,
    "pyredlock": _async_pyredlock,
    "pottery": _async_pottery,
}
SIZES = {BLOCKING: 1, "redis-py Lock": 1, "redlock-ng": 5, "pyredlock": 5, "pottery": 5}
"""On how many nodes each is compared: locks of one server, and Redlocks."""
PACKAGES = {
    BLOCKING: ("python-redis-lock", "hiredis"),
    **{name: peers.PACKAGES[name] for name in SIZES if name in peers.PACKAGES},
}
