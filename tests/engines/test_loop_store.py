"""A store that answers on the event loop: rounds are tasks, and what undoes one comes behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorumlock import AsyncLocker
from quorumlock.core.effects import Round
from quorumlock.core.requests import Acquire, Release
from quorumlock.core.states import NodeState
from quorumlock.engines.memory import MemoryEngine
from quorumlock.options import Settings
from quorumlock.retry import DEFAULT_RETRY
from tests.support.waiting import eventually_async


class Slow(MemoryEngine):
    """Takes its time: what is asked when the gate is shut waits there, and what comes behind it does not."""

    blocking = True

    def __init__(self, settings: Settings) -> None:
        super().__init__("memory://", settings)
        self.shut, self.asked, self.gate = False, asyncio.Event(), asyncio.Event()
        self.said: list[str] = []

    async def perform_async(self, round_: Round) -> None:
        request = round_.requests[0]
        if self.shut:
            self.shut = False
            self.asked.set()
            await self.gate.wait()
        if isinstance(request, Acquire | Release):
            self.said.append(type(request).__name__)
        self.perform(round_)

    async def states_async(self, samples: int) -> tuple[NodeState, ...]:
        return self.states(samples)

    async def close_async(self) -> None:
        self.said.append("close")


@pytest.fixture
def settings() -> Settings:
    return Settings("", 0.05, 0.01, 60.0, None, False, 86400.0, True, DEFAULT_RETRY, 5.0, None, None, None)


def test_what_undoes_a_round_comes_behind_it(settings: Settings) -> None:
    async def main() -> None:
        engine = Slow(settings)
        async with AsyncLocker(engine, settings) as locks:
            assert (await locks.nodes())[0].state == "ready"
            async with locks.lock("a"):
                pass
            engine.said.clear()
            engine.shut = True
            attempt = asyncio.create_task(locks.lock("a").acquire())
            await engine.asked.wait()
            attempt.cancel()
            board: Any = locks._runner._board()
            assert await eventually_async(lambda: len(board._tasks) == 2)
            engine.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await attempt
            assert engine.said == ["Acquire", "Release"]
            assert not await locks.lock("a").locked()

    asyncio.run(main())


def test_closing_waits_for_what_is_under_way(settings: Settings) -> None:
    async def main() -> None:
        engine = Slow(settings)
        locks = AsyncLocker(engine, settings)
        lease = await locks.lock("a").acquire()
        engine.shut = True
        giving_back = asyncio.create_task(lease.release())
        await engine.asked.wait()
        closing = asyncio.create_task(locks.aclose())
        assert await eventually_async(lambda: locks._runner._closed)
        engine.gate.set()
        await closing
        await giving_back
        assert engine.said == ["Acquire", "Release", "close"]

    asyncio.run(main())


def test_an_error_is_told_once_to_whoever_waits(settings: Settings) -> None:
    class Failing(Slow):
        async def perform_async(self, round_: Round) -> None:
            raise OSError("no such luck")

    async def main() -> None:
        async with AsyncLocker(Failing(settings), settings) as locks:
            with pytest.raises(OSError, match="no such luck"):
                await locks.lock("a").acquire()

    asyncio.run(main())
