"""The front for threads under the names of the asyncio front: what does I/O is awaited.

Every call runs in some worker thread, any of them: a lease thus wanders from thread to thread all the time. Only a
`with` block is entered and left by one thread, as it would be; and what `Stage.as_owner` runs is run by one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import quorumlock

T = TypeVar("T")

OWNER: ContextVar[ThreadPoolExecutor | None] = ContextVar("OWNER", default=None)
"""The one thread that runs what a task calls; None: any."""


async def in_thread(call: Callable[..., T], *args: Any, **options: Any) -> T:
    """What a call returns that is made by the owner's thread, or by some worker."""
    if (owner := OWNER.get()) is None:
        return await asyncio.to_thread(call, *args, **options)
    return await asyncio.get_running_loop().run_in_executor(owner, partial(call, *args, **options))


class LeaseOnThreads:
    """A Lease whose I/O is awaited."""

    def __init__(self, inner: quorumlock.Lease) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    async def extend(self, *args: Any) -> None:
        await in_thread(self.inner.extend, *args)

    async def release(self) -> None:
        await in_thread(self.inner.release)

    async def __aenter__(self) -> LeaseOnThreads:
        self.inner.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await in_thread(self.inner.__exit__, kind, error, traceback)


class LockOnThreads:
    """A Lock whose I/O is awaited."""

    def __init__(self, inner: quorumlock.Lock) -> None:
        self.inner = inner
        self._owners: list[ThreadPoolExecutor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def acquire(self, **options: Any) -> LeaseOnThreads:
        return LeaseOnThreads(await in_thread(self.inner.acquire, **options))

    async def acquire_in_passing(self) -> LeaseOnThreads:
        """By a thread that ends there."""
        with ThreadPoolExecutor(1) as passer_by:
            loop = asyncio.get_running_loop()
            return LeaseOnThreads(await loop.run_in_executor(passer_by, self.inner.acquire))

    async def enter_and_vanish(self) -> LeaseOnThreads:
        """By a thread that ends within its block, without leaving it."""
        with ThreadPoolExecutor(1) as owner:
            loop = asyncio.get_running_loop()
            return LeaseOnThreads(await loop.run_in_executor(owner, self.inner.__enter__))

    async def try_acquire(self) -> LeaseOnThreads | None:
        lease = await in_thread(self.inner.try_acquire)
        return None if lease is None else LeaseOnThreads(lease)

    async def locked(self) -> bool:
        return await in_thread(self.inner.locked)

    async def __aenter__(self) -> LeaseOnThreads:
        mine = OWNER.get()
        owner = mine or ThreadPoolExecutor(1)
        try:
            lease = await asyncio.get_running_loop().run_in_executor(owner, self.inner.__enter__)
        except BaseException:
            if owner is not mine:
                owner.shutdown()
            raise
        self._owners.append(owner)
        return LeaseOnThreads(lease)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        owner, leave = self._owners.pop(), self.inner.__exit__
        try:
            await asyncio.get_running_loop().run_in_executor(owner, leave, kind, error, traceback)
        finally:
            if owner is not OWNER.get():
                owner.shutdown()


class ReadWriteOnThreads:
    """A ReadWrite whose I/O is awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.read(**options))

    def write(self, **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.write(**options))

    async def downgrade(self, lease: LeaseOnThreads) -> LeaseOnThreads:
        return LeaseOnThreads(await in_thread(self.inner.downgrade, lease.inner))


class ElectionOnThreads:
    """An Election whose I/O is awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def leader(self) -> quorumlock.Holder | None:
        found: quorumlock.Holder | None = await in_thread(self.inner.leader)
        return found

    def lead(self, **options: Any) -> LeadingOnThreads:
        return LeadingOnThreads(self.inner.lead(**options))


class LeadingOnThreads:
    """Somebody who stands for election: one thread waits, leads and resigns."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._thread = ThreadPoolExecutor(1)

    async def _run(self, call: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def __aenter__(self) -> LeaseOnThreads:
        return LeaseOnThreads(await self._run(self.inner.__enter__))

    async def __aexit__(self, *error: Any) -> None:
        await self._run(self.inner.__exit__, *error)

    async def __aiter__(self) -> AsyncIterator[LeaseOnThreads]:
        terms = iter(self.inner)
        try:
            while True:
                yield LeaseOnThreads(await self._run(next, terms))
        finally:
            await self._run(terms.close)


class CellOnThreads:
    """A Cell whose I/O is awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def get(self) -> tuple[Any, int]:
        found: tuple[Any, int] = await in_thread(self.inner.get)
        return found

    async def set(self, *args: Any) -> int:
        return int(await in_thread(self.inner.set, *args))

    async def update(self, *args: Any, **options: Any) -> Any:
        return await in_thread(self.inner.update, *args, **options)


class LockerOnThreads:
    """A Locker whose I/O is awaited."""

    def __init__(self, inner: quorumlock.Locker) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    def lock(self, name: str, **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.lock(name, **options))

    def semaphore(self, name: str, permits: int, **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.semaphore(name, permits, **options))

    def multi(self, names: list[str], **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.multi(names, **options))

    def read_write(self, name: str) -> ReadWriteOnThreads:
        return ReadWriteOnThreads(self.inner.read_write(name))

    def election(self, name: str, **options: Any) -> ElectionOnThreads:
        return ElectionOnThreads(self.inner.election(name, **options))

    def cell(self, name: str, **options: Any) -> CellOnThreads:
        return CellOnThreads(self.inner.cell(name, **options))

    def locked(
        self, name: str | Callable[..., str], **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]:
        """Takes a plain function, and makes it one that is awaited."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
            decorated = self.inner.locked(name, **options)(function)

            async def call(*args: Any, **kwargs: Any) -> Any:
                return await in_thread(decorated, *args, **kwargs)

            return call

        return decorate

    async def break_(self, name: str, **options: Any) -> None:
        await in_thread(self.inner.break_, name, **options)

    async def inspect(self, name: str) -> quorumlock.Inspection:
        return await in_thread(self.inner.inspect, name)

    async def list(self, *args: Any, **options: Any) -> list[str]:
        return await in_thread(self.inner.list, *args, **options)

    async def init_fleet(self, **options: Any) -> None:
        await in_thread(self.inner.init_fleet, **options)

    async def aclose(self) -> None:
        await in_thread(self.inner.close)
