"""Clocks that a test drives: both fronts on `memory://`, and clients of real servers whose own clock is ahead."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import quorumlock
from quorumlock import AsyncLocker
from quorumlock.clocks import boot_time
from quorumlock.engines.memory import MemoryEngine
from quorumlock.engines.redis.engine import RedisEngine
from tests.support.waiting import eventually_async

from .sides import Side

TTL = 30.0
"""It passes only where a test says so."""

_numbers = itertools.count()


class DrivenSide(Side):
    """Three nodes in this process whose clock stands at the test's disposal, and one of the two fronts."""

    def __init__(self, name: str) -> None:
        super().__init__(name, [])
        self.url = f"memory://hazards-{next(_numbers)}?nodes=3"
        self._ready = True
        self._first = quorumlock.connect(self.url, fleet="side")
        """Keeps the nodes in being while no other locker does."""
        assert isinstance(self._first.engine, MemoryEngine)
        self.clock = self._first.engine.clock
        self.doubles = self._first.engine.servers

    @asynccontextmanager
    async def locker(self, urls: list[str] | None = None, **options: Any) -> AsyncIterator[AsyncLocker]:
        assert urls is None
        async with super().locker([self.url], **({"max_ttl": 60} | options)) as locks:
            yield locks

    def close(self) -> None:
        self._first.close()

    def slip(self, seconds: float) -> None:
        """Time passes, and nobody is woken: neither keepers nor waiters find out by themselves."""
        self.clock._ahead += seconds

    async def a_third_later(self, *leases: Any) -> None:
        """A third of the ttl passes, and keepers renew these leases."""
        self.clock.advance(TTL / 3)

        def renewed() -> bool:
            return all(lease.remaining() > 0.9 * TTL for lease in leases)

        assert await eventually_async(renewed), "not renewed"

    def steal(self, name: str) -> None:
        """Somebody deletes the lock on all nodes, and somebody else takes it."""
        for double in self.doubles:
            double.set(name, b"a thief", 3_600_000)

    def lock_keys(self) -> set[str]:
        """Every key on any node that is a lock."""
        return {key for double in self.doubles for key in double.keys() if "ql:" not in key}  # noqa: SIM118


@pytest.fixture(params=["threads", "asyncio"])
def driven(request: pytest.FixtureRequest) -> Iterator[DrivenSide]:
    side = DrivenSide(str(request.param))
    yield side
    side.close()


@pytest.fixture
def driven_threads() -> Iterator[DrivenSide]:
    """Where a hazard is one of threads alone."""
    side = DrivenSide("threads")
    yield side
    side.close()


@pytest.fixture
def driven_tasks() -> Iterator[DrivenSide]:
    """Where a hazard is one of asyncio alone."""
    side = DrivenSide("asyncio")
    yield side
    side.close()


class ClockAhead:
    """The clock of clients of real servers, which a test puts forward. The servers' own clocks go on as ever."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return boot_time() + self._seconds

    def advance(self, seconds: float, locks: Any) -> None:
        """Wakes the keeper of this locker, too."""
        self._seconds += seconds
        getattr(locks, "inner", locks)._keeper.wake()


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> ClockAhead:
    clock = ClockAhead()
    monkeypatch.setattr(RedisEngine, "clock", staticmethod(clock))
    return clock
