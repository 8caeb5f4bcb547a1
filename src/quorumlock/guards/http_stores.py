"""Where a service remembers the fences it has seen: in its memory, in a database, in Redis.

A store has one method, `hold(claim)`: an asynchronous context manager that refuses with StaleFence, or admits and
keeps newer holders out until the request is done. Any object with such a method is a store.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ConfigurationError, StaleFence
from .base import Claim, claim, refused

if TYPE_CHECKING:
    import redis.asyncio

    from .sql import AsyncSQLGuard


class Unstorable(ConfigurationError):
    """A resource that a store cannot keep: the client's mistake, not the service's."""


class Fences(Protocol):
    """A store."""

    def hold(self, claimed: Claim, /) -> AbstractAsyncContextManager[object]:
        """Raises StaleFence, or admits; while it is held, nobody newer is admitted."""
        ...


class _Room:
    """Who is inside for one resource: requests of one fence, side by side; the others wait, or are sent away."""

    def __init__(self) -> None:
        self.fence = 0
        self.inside = 0
        self.visitors = 0
        self.changed = asyncio.Event()

    def ring(self) -> None:
        """Whoever waits looks again."""
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryFences:
    """Remembers in this process: for a service that is one process, and one event loop.

    A newer holder's first request raises the mark at once, then waits until the requests of the earlier holder that
    are being handled have ended. Requests of one holder run side by side. A handler that hangs thus keeps newer
    holders waiting: give handlers a limit of time.

    The marks go with the process: after a restart the first fence that comes is believed. They take some hundred
    bytes per resource, for ever: let the service say which resources there are (`resource=` of the middleware).
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._rooms: dict[str, _Room] = {}

    @contextlib.asynccontextmanager
    async def hold(self, claimed: Claim, /) -> AsyncIterator[None]:
        resource, fence = claim(claimed)
        self._admit(resource, fence)
        room = self._rooms.setdefault(resource, _Room())
        room.visitors += 1
        try:
            while room.inside and room.fence != fence:
                await room.changed.wait()
                self._admit(resource, fence)
            room.fence = fence
            room.inside += 1
            try:
                yield
            finally:
                room.inside -= 1
                room.ring()
        finally:
            room.visitors -= 1
            if not room.visitors:
                del self._rooms[resource]

    def _admit(self, resource: str, fence: int) -> None:
        seen = self._marks.get(resource, 0)
        if fence < seen:
            message = f"{resource!r} has seen fence {seen}; {fence} is of an earlier holder"
            raise refused(Claim(resource, fence), StaleFence(message, fence=fence, seen=seen))
        if fence > seen:
            self._marks[resource] = fence
            if resource in self._rooms:
                self._rooms[resource].ring()  # those who wait with less are sent away now


class RedisFences:
    """Remembers in Redis or Valkey, for a service of many processes. It cannot hold: mind the gap.

        fence 7 is admitted, and its handler is about to write
        fence 8 is admitted by another process, and writes
        fence 7 writes

    So it refuses what is stale when it arrives, not what becomes stale while it is handled. Where that matters, the
    handler writes through a guard of its own with `scope["quorumlock.claim"]`: RedisGuard, SQLGuard, FileGuard.
    """

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str = "", mark_ttl: float | None = None) -> None:
        from .redis import AsyncRedisGuard

        self._guard = AsyncRedisGuard(client, prefix=prefix, mark_ttl=mark_ttl)

    @contextlib.asynccontextmanager
    async def hold(self, claimed: Claim, /) -> AsyncIterator[None]:
        await self._guard.enter(claimed)
        yield


class SQLFences:
    """Remembers in a database, for a service of many processes; newer holders wait while a request is handled.

    `connect` makes a connection: `lambda: psycopg.AsyncConnection.connect(...)`, `engine.connect`,
    `pool.connection`, `lambda: aiosqlite.connect(...)`. It is given back, or closed, when the request is done.
    The guard's table has to be there: `create()` makes it.

    Two transactions for a request: the first raises the mark and commits, so that it stands whatever becomes of the
    request; the second locks the mark's row until the request is done. A request thus occupies one connection, and
    a handler must not use the same row in a connection of its own (nor, in SQLite, write to the same database file
    at all): it would wait for itself. Nor should it take connections from the same pool: requests that wait for the
    row would have them all. Requests of one holder come one after another, too. What ends the connection while the
    handler runs ends the hold: to be sure even then, let the handler use an SQLGuard in the transaction that
    writes, with `scope["quorumlock.claim"]`, and RedisFences or MemoryFences here.
    """

    def __init__(self, connect: Callable[[], Any], guard: AsyncSQLGuard | None = None) -> None:
        if guard is None:
            from .sql import AsyncSQLGuard

            guard = AsyncSQLGuard()
        self._connect = connect
        self._guard = guard

    async def create(self) -> None:
        """Makes the guard's table unless it is there. Belongs to a deployment."""
        async with _opened(self._connect()) as connection:
            await self._guard.create(connection)
            await connection.commit()

    @contextlib.asynccontextmanager
    async def hold(self, claimed: Claim, /) -> AsyncIterator[None]:
        from .sql.table import LONGEST, storable

        try:
            storable(claim(claimed, LONGEST)[0])
        except ConfigurationError as error:
            raise Unstorable(str(error)) from None
        async with _opened(self._connect()) as connection:
            try:
                await self._guard.enter(connection, claimed)
                await connection.commit()
                await self._guard.admit(connection, claimed)
                yield
            finally:
                await connection.rollback()  # the second transaction holds a lock, and nothing else


@contextlib.asynccontextmanager
async def _opened(made: Any) -> AsyncIterator[Any]:
    """A connection from whatever a driver or a pool calls making one."""
    if hasattr(made, "__aenter__"):
        async with made as connection:
            yield connection
        return
    connection = await made if inspect.isawaitable(made) else made
    try:
        yield connection
    finally:
        closing = connection.close()
        if inspect.isawaitable(closing):
            await closing
