"""Guards: they sit at the resource, and refuse whoever comes with a fence of the past.

    from quorumlock.guards import SQLGuard

    guard = SQLGuard()
    with locks.lock("report") as lease, database:      # a transaction of yours
        guard.enter(database, lease)                   # before reading
        total = database.execute("SELECT …").fetchone()
        guard.admit(database, lease)                   # with the write, in the same transaction
        database.execute("UPDATE …")

Nothing is imported that is not used: a guard of files does not load a database client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import MAX_FENCE, Claim, Fenced, subscribe

if TYPE_CHECKING:
    from .file import AsyncFileGuard, FileGuard
    from .http import FencingAuth, FencingMiddleware, MemoryFences, RedisFences, SQLFences, fencing_headers
    from .redis import AsyncRedisGuard, RedisGuard
    from .sql import AsyncColumnGuard, AsyncSQLGuard, ColumnGuard, SQLGuard

__all__ = [
    "MAX_FENCE",
    "AsyncColumnGuard",
    "AsyncFileGuard",
    "AsyncRedisGuard",
    "AsyncSQLGuard",
    "Claim",
    "ColumnGuard",
    "Fenced",
    "FencingAuth",
    "FencingMiddleware",
    "FileGuard",
    "MemoryFences",
    "RedisFences",
    "RedisGuard",
    "SQLFences",
    "SQLGuard",
    "fencing_headers",
    "subscribe",
]

_HOMES = {
    "sql": ("SQLGuard", "AsyncSQLGuard", "ColumnGuard", "AsyncColumnGuard"),
    "redis": ("RedisGuard", "AsyncRedisGuard"),
    "file": ("FileGuard", "AsyncFileGuard"),
    "http": (
        "FencingAuth", "FencingMiddleware", "MemoryFences", "RedisFences", "SQLFences", "fencing_headers",
    ),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
