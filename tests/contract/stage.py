"""Where a contract case plays: an engine, a number of nodes, and one of the two fronts.

A case is written once, as a coroutine over the names of the asyncio front. On the other side the front for threads
is called from worker threads, any of them for each call: a lease thus wanders from thread to thread all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from types import TracebackType
from typing import Any, cast

import quorumlock
from quorumlock import AsyncLease, AsyncLock, AsyncLocker, Jitter
from quorumlock.engines.redis import scripts
from quorumlock.lab.servers import Server, Servers
from tests.live.tools import eventually_async, get, keys

MAX_TTL = 1.0


class LeaseOnThreads:
    """A Lease whose I/O is awaited."""

    def __init__(self, inner: quorumlock.Lease) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    async def extend(self, *args: Any) -> None:
        await asyncio.to_thread(self.inner.extend, *args)

    async def release(self) -> None:
        await asyncio.to_thread(self.inner.release)

    async def __aenter__(self) -> LeaseOnThreads:
        self.inner.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.inner.__exit__, kind, error, traceback)


class LockOnThreads:
    """A Lock whose I/O is awaited. A `with` block is entered and left by one thread, as it would be."""

    def __init__(self, inner: quorumlock.Lock) -> None:
        self.inner = inner
        self._owners: list[ThreadPoolExecutor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def acquire(self, **options: Any) -> LeaseOnThreads:
        return LeaseOnThreads(await asyncio.to_thread(self.inner.acquire, **options))

    async def try_acquire(self) -> LeaseOnThreads | None:
        lease = await asyncio.to_thread(self.inner.try_acquire)
        return None if lease is None else LeaseOnThreads(lease)

    async def locked(self) -> bool:
        return await asyncio.to_thread(self.inner.locked)

    async def __aenter__(self) -> LeaseOnThreads:
        owner = ThreadPoolExecutor(1)
        lease = await asyncio.get_running_loop().run_in_executor(owner, self.inner.__enter__)
        self._owners.append(owner)
        return LeaseOnThreads(lease)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._owners.pop() as owner:
            leave = self.inner.__exit__
            await asyncio.get_running_loop().run_in_executor(owner, leave, kind, error, traceback)


class LockerOnThreads:
    """A Locker whose I/O is awaited."""

    def __init__(self, inner: quorumlock.Locker) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def lock(self, name: str, **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.lock(name, **options))

    async def break_(self, name: str) -> None:
        await asyncio.to_thread(self.inner.break_, name)

    async def init_fleet(self, **options: Any) -> None:
        await asyncio.to_thread(self.inner.init_fleet, **options)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.inner.close)


class Stage:
    """Some empty nodes, and as many lockers on them as a case wants."""

    def __init__(self, servers: Servers, count: int, side: str) -> None:
        self.nodes: list[Server] = servers.servers[:count]
        self.count = count
        self.side = side
        self._lockers: list[AsyncLocker] = []

    async def connect(self, **options: Any) -> AsyncLocker:
        """Another locker of the same fleet; the first one makes the fleet ready."""
        options.setdefault("max_ttl", MAX_TTL)
        options.setdefault("node_timeout", 0.2)
        options.setdefault("retry", Jitter(0.02))
        urls = [server.url for server in self.nodes]
        if self.side == "asyncio":
            locker = quorumlock.connect_async(urls, **options)
        else:
            locker = cast(AsyncLocker, LockerOnThreads(quorumlock.connect(urls, **options)))
        self._lockers.append(locker)
        if len(self._lockers) == 1:
            self._load_scripts()
            await locker.init_fleet()
        return locker

    async def everywhere(self, condition: Callable[[Server], bool]) -> None:
        """Fails unless `condition` comes true on every node: a majority has answered, the rest is under way."""
        for node in self.nodes:

            async def holds(node: Server = node) -> bool:
                return condition(node)

            assert await eventually_async(holds, within=0.5), f"not on {node.label}: {keys(node)}"

    async def spread(self, lease: AsyncLease) -> None:
        """Extends until every node has the lock: an extension heals those whose absence it hears of in time."""

        async def spread() -> bool:
            await lease.extend()
            return all(get(node, lease.name) == lease.token for node in self.nodes)

        assert await eventually_async(spread, within=1)

    def _load_scripts(self) -> None:
        """A node that learns a script after a round is decided gets no request of that round, and that is right:
        here every node shall take part in everything."""
        for script in vars(scripts).values():
            if isinstance(script, scripts.Script):
                for node in self.nodes:
                    node.command("SCRIPT", "LOAD", script.source)

    def play(self, case: Callable[[Stage], Awaitable[None]]) -> None:
        asyncio.run(self._play(case))

    async def _play(self, case: Callable[[Stage], Awaitable[None]]) -> None:
        try:
            await case(self)
        finally:
            for locker in self._lockers:
                await locker.aclose()


def case(told: Callable[[Stage], Awaitable[None]]) -> Callable[[Stage], None]:
    """Makes a test of a case: every kind of server, every number of nodes, both fronts."""

    @wraps(told)
    def test(stage: Stage) -> None:
        stage.play(told)

    return test


async def held(lock: AsyncLock) -> AsyncLease:
    """A lease that must be had at once."""
    lease = await lock.try_acquire()
    assert lease is not None, f"{lock.name!r} is held"
    return lease
