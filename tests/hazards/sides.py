"""Both fronts under the names of asyncio's: a hazard that threads and tasks have in common is told once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import quorumlock
from quorumlock import AsyncLocker, Jitter
from quorumlock.lab.servers import Server

VERBS = {"acquire", "try_acquire", "locked", "extend", "release", "break_", "init_fleet"}


class Awaited:
    """Something of the front for threads, whose verbs are awaited: each is called in some worker thread."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name == "lock":
            return lambda *args, **options: Awaited(found(*args, **options))
        return functools.partial(_awaited, found) if name in VERBS else found

    async def aclose(self) -> None:
        await asyncio.to_thread(self.inner.close)


async def _awaited(verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
    result = await asyncio.to_thread(verb, *args, **options)
    return Awaited(result) if isinstance(result, quorumlock.Lease) else result


class Side:
    """Some nodes, and lockers on them: for threads, or for asyncio."""

    def __init__(self, name: str, nodes: list[Server]) -> None:
        self.name = name
        self.nodes = nodes
        self.threads = name == "threads"
        self._ready = False

    @asynccontextmanager
    async def locker(self, urls: list[str] | None = None, **options: Any) -> AsyncIterator[AsyncLocker]:
        """A locker of this side, closed at the end; the first one makes the fleet ready."""
        urls = [node.url for node in self.nodes] if urls is None else urls
        options = {"max_ttl": 1, "node_timeout": 0.1, "retry": Jitter(0.02), "fleet": "side"} | options
        connect: Callable[..., Any] = quorumlock.connect if self.threads else quorumlock.connect_async
        made = connect(urls, **options)
        locks = cast(AsyncLocker, Awaited(made) if self.threads else made)
        try:
            if not self._ready:
                await locks.init_fleet()
                self._ready = True
            yield locks
        finally:
            await locks.aclose()
