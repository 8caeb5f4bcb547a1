"""The front for threads under the names of the asyncio front: what does I/O is awaited.

Every call runs in some worker thread, any of them: a lease thus wanders from thread to thread all the time. Only a
`with` block is entered and left by one thread, as it would be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import quorumlock


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
    """A Lock whose I/O is awaited."""

    def __init__(self, inner: quorumlock.Lock) -> None:
        self.inner = inner
        self._owners: list[ThreadPoolExecutor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def acquire(self, **options: Any) -> LeaseOnThreads:
        return LeaseOnThreads(await asyncio.to_thread(self.inner.acquire, **options))

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
        lease = await asyncio.to_thread(self.inner.try_acquire)
        return None if lease is None else LeaseOnThreads(lease)

    async def locked(self) -> bool:
        return await asyncio.to_thread(self.inner.locked)

    async def __aenter__(self) -> LeaseOnThreads:
        owner = ThreadPoolExecutor(1)
        try:
            lease = await asyncio.get_running_loop().run_in_executor(owner, self.inner.__enter__)
        except BaseException:
            owner.shutdown()
            raise
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

    def __repr__(self) -> str:
        return repr(self.inner)

    def lock(self, name: str, **options: Any) -> LockOnThreads:
        return LockOnThreads(self.inner.lock(name, **options))

    def locked(
        self, name: str | Callable[..., str], **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]:
        """Takes a plain function, and makes it one that is awaited."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
            decorated = self.inner.locked(name, **options)(function)

            async def call(*args: Any, **kwargs: Any) -> Any:
                return await asyncio.to_thread(decorated, *args, **kwargs)

            return call

        return decorate

    async def break_(self, name: str) -> None:
        await asyncio.to_thread(self.inner.break_, name)

    async def init_fleet(self, **options: Any) -> None:
        await asyncio.to_thread(self.inner.init_fleet, **options)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.inner.close)
