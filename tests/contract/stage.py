"""Where a contract case plays: an engine, a number of nodes, and one of the two fronts.

A case is written once, as a coroutine over the names of the asyncio front. On the other side the front for threads
is called from worker threads; see `on_threads.py`. What a case wants to know of the nodes themselves it asks the
ground; see `grounds.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, TypeVar, cast

import quorumlock
from quorumlock import AsyncLease, AsyncLock, AsyncLocker, Jitter, NoQuorum
from quorumlock.events import Event
from tests.live.attribution import only_slow

from .grounds import Ground
from .on_threads import OWNER, LockerOnThreads, LockOnThreads

T = TypeVar("T")

MAX_TTL = 1.0
WITHIN = 3.0
"""How long a busy machine may take for what happens at once."""


class Stage:
    """Some empty nodes, and as many lockers on them as a case wants."""

    def __init__(self, ground: Ground, side: str) -> None:
        self.ground = ground
        self.count = ground.count
        self.side = side
        self._lockers: list[AsyncLocker] = []
        self._prefixes: set[str] = set()
        self._waiters: list[asyncio.Task[AsyncLease]] = []

    async def connect(self, **options: Any) -> AsyncLocker:
        """Another locker; the first one with its prefix makes the fleet ready."""
        options.setdefault("max_ttl", MAX_TTL)
        options.setdefault("node_timeout", 0.3)
        options.setdefault("retry", Jitter(0.02))
        if self.side == "asyncio":
            locker = quorumlock.connect_async(self.ground.urls, **options)
        else:
            locker = cast(AsyncLocker, LockerOnThreads(quorumlock.connect(self.ground.urls, **options)))
        self._lockers.append(locker)
        if (prefix := options.get("prefix", "")) not in self._prefixes:
            self._prefixes.add(prefix)
            await self.ground.prepare(locker)
        return locker

    async def connect_patient(self, **options: Any) -> AsyncLocker:
        """A locker that asks once an hour unless it is told to: what it gets in time it was told of.

        Where nobody is told anything, it asks as often as usual.
        """
        if self.ground.announces:
            options["retry"] = Jitter(3600)
        return await self.connect(**{"max_ttl": 30.0, "node_timeout": 2.0} | options)

    async def until(self, condition: Callable[[], object], within: float = WITHIN) -> bool:
        """True as soon as `condition` holds; False if it does not within that many seconds."""
        end = time.monotonic() + within
        while not condition():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.005)
        return True

    async def wait_for_waiters(self, name: str, count: int, *, fair: bool = True) -> None:
        """Fails unless so many come to wait for this lock. Where nobody is told, others than fair ones just ask."""
        if not self.ground.announces and not fair:
            await asyncio.sleep(0.05)
            return
        end = time.monotonic() + WITHIN
        while len((seen := await self._lockers[0].inspect(name)).waiters) != count:
            assert time.monotonic() < end, seen
            await asyncio.sleep(0.005)

    async def queue(
        self, lock: AsyncLock, place: int, *, line: str = "", timeout: float = 30
    ) -> asyncio.Task[AsyncLease]:
        """Somebody who waits for this lock, and is so many-th in its queue (counted from 1)."""
        waiter = asyncio.create_task(lock.acquire(timeout=timeout))
        self._waiters.append(waiter)
        await self.wait_for_waiters(line or lock.name, place, fair=lock._options.fair)
        assert not waiter.done(), waiter
        return waiter

    async def as_owner(self, told: Callable[[], Awaitable[T]]) -> T:
        """Plays this as one task; for threads all that it calls is called by one thread, which is its own."""

        async def play() -> T:
            with ThreadPoolExecutor(1) as thread:
                OWNER.set(thread)
                return await told()

        return await asyncio.create_task(play())

    async def agrees(self, name: str, token: str | None) -> None:
        """Fails unless all nodes come to name this token: a majority has answered, the rest is under way."""
        assert await self.until(lambda: set(self.ground.holders(name)) == {token}), self.ground.holders(name)

    async def spread(self, lease: AsyncLease) -> None:
        """Extends until every node has the lock: an extension heals those whose absence it hears of in time."""
        end = time.monotonic() + WITHIN
        while set(self.ground.holders(lease.name)) != {lease.token}:
            assert time.monotonic() < end, self.ground.holders(lease.name)
            await lease.extend()

    async def acquire_in_passing(self, lock: AsyncLock) -> AsyncLease:
        """A lease that was acquired by a thread or task which is over."""
        if isinstance(lock, LockOnThreads):
            return cast(AsyncLease, await lock.acquire_in_passing())
        return await asyncio.create_task(lock.acquire())

    async def enter_and_vanish(self, lock: AsyncLock) -> AsyncLease:
        """A lease whose thread or task ended in its block, without leaving it."""
        if isinstance(lock, LockOnThreads):
            return cast(AsyncLease, await lock.enter_and_vanish())

        async def vanish() -> AsyncLease:
            return await lock.__aenter__()

        return await asyncio.create_task(vanish())

    def function(self, plain: Callable[..., Any]) -> Any:
        """A function of the kind that this front decorates."""
        if self.side == "threads":
            return plain

        @wraps(plain)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs)

        return coroutine

    def play(self, case: Callable[[Stage], Awaitable[None]]) -> None:
        asyncio.run(self._play(case))

    async def _play(self, case: Callable[[Stage], Awaitable[None]]) -> None:
        try:
            await case(self)
        finally:
            for waiter in self._waiters:
                waiter.cancel()  # without effect unless the case has failed
            for locker in self._lockers:
                await locker.aclose()
            await asyncio.gather(*self._waiters, return_exceptions=True)


def case(told: Callable[[Stage], Awaitable[None]]) -> Callable[[Stage], None]:
    """Makes a test of a case: every engine, every number of nodes, both fronts."""

    @wraps(told)
    def test(stage: Stage) -> None:
        stage.play(told)

    return test


async def held(lock: AsyncLock) -> AsyncLease:
    """A lease that must be had at once.

    A short ttl leaves the nodes little time to answer. On a busy machine that is tried again: what the attempt
    before may have left on a node is being released.
    """
    slow, end = False, time.monotonic() + WITHIN
    while True:
        try:
            lease = await lock.try_acquire()
        except NoQuorum as broken:
            if not only_slow(broken) or time.monotonic() > end:
                raise
            slow = True
            continue
        if lease is not None:
            return lease
        assert slow, f"{lock.name!r} is held"
        assert time.monotonic() < end, f"{lock.name!r} stays held"
        await asyncio.sleep(0.01)


def listen(locks: AsyncLocker) -> list[Event]:
    """The events of a locker, from now on."""
    story: list[Event] = []
    locks.subscribe(story.append)
    return story
