"""The locks of a chaos run, ours and the peers', as one shape; a peer is imported only where it is used.

A peer's lease is counted from before it was asked for: that is as long as its own arithmetic can promise, or less.
The peers are made as their own documentation makes them.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, Protocol

Acquired = tuple[float, int | None]


def clock() -> float:
    """One clock for all processes of a machine, which counts on while they are stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Client(Protocol):
    """One lock. `acquire` answers (until, fence), or None if it is refused; what it raises is an error."""

    def acquire(self, ttl: float) -> Acquired | None: ...

    def release(self) -> None: ...


class RedisPy:
    """redis-py's Lock knows one server: the first."""

    def __init__(self, urls: list[str], name: str) -> None:
        self._client = importlib.import_module("redis").Redis.from_url(urls[0])
        self._name = name
        self._lock: Any = None

    def acquire(self, ttl: float) -> Acquired | None:
        asked_at = clock()
        self._lock = self._client.lock(self._name, timeout=ttl)
        return (asked_at + ttl, None) if self._lock.acquire(blocking=False) else None

    def release(self) -> None:
        self._lock.release()


class Pottery:
    def __init__(self, urls: list[str], name: str) -> None:
        client = importlib.import_module("redis").Redis
        self._masters = {client.from_url(url) for url in urls}
        self._make = importlib.import_module("pottery").Redlock
        self._name = name
        self._lock: Any = None

    def acquire(self, ttl: float) -> Acquired | None:
        asked_at = clock()
        self._lock = self._make(key=self._name, masters=self._masters, auto_release_time=ttl)
        return (asked_at + ttl, None) if self._lock.acquire(blocking=False) else None

    def release(self) -> None:
        self._lock.release()


class RedlockNg:
    def __init__(self, urls: list[str], name: str) -> None:
        self._manager = importlib.import_module("redlock").Redlock(urls, retry_count=0)
        self._name = name
        self._lock: Any = None

    def acquire(self, ttl: float) -> Acquired | None:
        asked_at = clock()
        self._lock = self._manager.acquire(self._name, round(ttl * 1000))
        return (asked_at + ttl, None) if self._lock else None

    def release(self) -> None:
        self._manager.release(self._lock)


PEERS: dict[str, Callable[[list[str], str], Client]] = {
    "redis-py Lock": RedisPy,
    "pottery": Pottery,
    "redlock-ng": RedlockNg,
}
