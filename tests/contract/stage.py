"""Where a contract case plays: an engine, a number of nodes, and one of the two fronts.

A case is written once, as a coroutine over the names of the asyncio front. On the other side the front for threads
is called from worker threads; see `on_threads.py`. What a case wants to know of the nodes themselves it asks the
ground; see `grounds.py`.

Leases are long (LONG), and nothing is waited for but events. Where time itself is the subject, a case asks the
stage for its ttls, and lets time pass through it: in memory the clock is moved, and nothing depends on the machine.
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
from quorumlock.clocks import boot_time
from quorumlock.engines.memory.world import Clock
from quorumlock.events import Acquired, Event, GivenUp, Waiting
from tests.live.attribution import only_slow
from tests.support.waiting import PATIENCE, eventually_async

from .grounds import Ground, MemoryGround
from .on_threads import OWNER, LockerOnThreads, LockOnThreads

T = TypeVar("T")

MAX_TTL = 30.0
LONG = 20.0
"""The ttl of leases that are not to end while a case runs, however busy the machine is."""


class Stage:
    """Some empty nodes, and as many lockers on them as a case wants."""

    def __init__(self, ground: Ground, side: str, *, counts_waiters: bool = False) -> None:
        """`counts_waiters`: lets cases wait for waiters where nodes do not know of them. Lockers have a subscriber
        then, of which they may take notice."""
        self.ground = ground
        self._counts_waiters = counts_waiters
        self.count = ground.count
        self.side = side
        self._lockers: list[AsyncLocker] = []
        self._prefixes: set[str] = set()
        self._waiters: list[asyncio.Task[AsyncLease]] = []
        self._waiting: dict[int, str] = {}
        """Names of locks by acquires that wait for them, as far as events are counted."""

    @property
    def clock(self) -> Clock | None:
        """The clock of nodes and clients, where it can be moved."""
        return self.ground.clock if isinstance(self.ground, MemoryGround) else None

    @property
    def ttl_to_expire(self) -> float:
        """The ttl of a lease that is to expire: no longer than it must be, since that time is waited for."""
        return LONG if self.clock else self.ground.shortest

    @property
    def ttl_to_renew(self) -> float:
        """The ttl of a lease that is renewed while a case waits: a busy machine must be able to do it in time."""
        return LONG if self.clock else 1.0

    async def connect(self, **options: Any) -> AsyncLocker:
        """Another locker; the first one with its prefix makes the fleet ready."""
        options.setdefault("max_ttl", MAX_TTL)
        options.setdefault("node_timeout", 2.0)
        # Who is told, or knows the end of the lease before, need not ask often.
        options.setdefault("retry", Jitter(0.1 if self.ground.announces else 0.02))
        if self.side == "asyncio":
            locker = quorumlock.connect_async(self.ground.urls, **options)
        else:
            locker = cast(AsyncLocker, LockerOnThreads(quorumlock.connect(self.ground.urls, **options)))
        self._lockers.append(locker)
        if self._counts_waiters and not self.ground.announces:
            locker.subscribe(self._count_waiting)
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
        return await self.connect(**options)

    async def until(self, condition: Callable[[], object], within: float = PATIENCE) -> bool:
        """True as soon as `condition` holds; False if it does not within that many seconds."""
        return await eventually_async(condition, within)

    def now(self) -> float:
        """By the clock that leases go by here."""
        return self.clock() if self.clock is not None else boot_time()

    async def pass_time(self, seconds: float) -> None:
        """Lets that much time pass; in memory at once."""
        end = self.now() + seconds
        await self.skip(seconds)
        assert await self.until(lambda: self.now() >= end, seconds + PATIENCE)

    async def skip(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Moves the clock on where it can be moved, by that much or `until` something has happened.

        It moves in steps, to when a lease is due or over, and its keeper comes in between as it would.
        Elsewhere nothing happens: what a case waits for next takes its time.
        """
        clock = self.clock
        if clock is None:
            return
        end = clock() + seconds
        while (now := clock()) < end and not until():
            clock.advance(min([end, *(at for at in self._due() if at > now)]) - now)
            assert await self.until(lambda: all(at > clock() for at in self._due())), "a keeper does not renew"

    def _due(self) -> list[float]:
        """When leases are to be renewed, or over."""
        return [hold.due_at for locker in self._lockers for hold in locker._keeper.charges()]

    async def lost(self, *leases: AsyncLease) -> None:
        """Waits until these leases are known to be lost, which their keeper finds out: by time, or from nodes."""
        events = [lease.lost for lease in leases]

        def all_are() -> bool:
            return all(event.is_set() for event in events)

        await self.skip(2 * max(lease.ttl for lease in leases), all_are)  # twice: it may be renewed once more
        assert await self.until(all_are), leases
        await asyncio.sleep(0)  # a block whose lease is lost is cancelled here, and not somewhere behind it

    def _count_waiting(self, event: Event) -> None:
        if isinstance(event, Waiting):
            self._waiting[event.serial] = event.name
        elif isinstance(event, Acquired | GivenUp):
            self._waiting.pop(event.serial, None)

    async def wait_for_waiters(self, name: str, count: int, *, fair: bool = True) -> None:
        """Fails unless so many come to wait for this lock. Where nobody is told, others than fair ones just ask."""
        if not self.ground.announces and not fair:

            def waiting() -> bool:
                return sum(name in told.split(", ") for told in list(self._waiting.values())) == count

            assert await self.until(waiting), (name, self._waiting)
            return

        async def seen() -> bool:
            return len((await self._lockers[0].inspect(name)).waiters) == count

        assert await self.until(seen), await self._lockers[0].inspect(name)

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
        end = time.monotonic() + PATIENCE
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
    """Makes a test of a case: every engine, every number of nodes, both fronts; see `turns.py`."""

    @wraps(told)
    def test(stage: Stage) -> None:
        stage.play(told)

    return test


async def held(lock: AsyncLock) -> AsyncLease:
    """A lease that must be had at once."""
    lease = await lock.try_acquire()
    assert lease is not None, f"{lock.name!r} is held"
    return lease


async def held_briefly(lock: AsyncLock) -> AsyncLease:
    """A lease of a short ttl, which leaves the nodes little time to answer.

    On a busy machine it is tried again: what the attempt before may have left on a node is being released.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await lock.acquire(timeout=PATIENCE)
        except NoQuorum as broken:
            if not only_slow(broken) or time.monotonic() > end:
                raise


def listen(locks: AsyncLocker) -> list[Event]:
    """The events of a locker, from now on."""
    story: list[Event] = []
    locks.subscribe(story.append)
    return story
