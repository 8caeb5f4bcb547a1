"""A release that a store could not execute, or did not confirm, is sent again: the core does it for all engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock.core.effects import Round
from quorumlock.core.requests import Acquire, Release
from quorumlock.core.votes import Cause, unknown
from quorumlock.engines.sql.links import Shelf
from quorumlock.errors import EngineError
from quorumlock.events import Event, ReleaseRepeated
from tests.support.waiting import eventually, eventually_async

TTL = 20.0


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.fixture(params=["raises", "does not confirm"])
def failing(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fail(locks: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Releases fail until what is returned is called."""
    perform = locks.engine.perform
    works: list[bool] = []

    def failing(round_: Round) -> None:
        if works or not isinstance(round_.requests[0], Release):
            perform(round_)
        elif how == "raises":
            raise EngineError("the disk is full", "store")
        else:
            for node in range(len(round_.requests)):
                round_.tally.cast(node, unknown(Cause.DISCONNECTED))

    monkeypatch.setattr(locks.engine, "perform", failing)
    return lambda: works.append(True)


def test_threads(url: str, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Event] = []
    with quorumlock.connect(url) as locks:
        lease = locks.lock("a", ttl=TTL).acquire()
        works = fail(locks, failing, monkeypatch)
        locks.subscribe(heard.append)
        try:
            lease.release()
        except EngineError:
            assert failing == "raises"
        assert locks.lock("a").locked()
        works()
        assert eventually(lambda: not locks.lock("a").locked(), 10)
        assert eventually(lambda: heard[-1] == ReleaseRepeated("a", lease.fence, True), 10)


def test_asyncio(url: str, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        heard: list[Event] = []
        async with quorumlock.connect_async(url) as locks:
            lease = await locks.lock("a", ttl=TTL).acquire()
            works = fail(locks, failing, monkeypatch)
            locks.subscribe(heard.append)
            try:
                await lease.release()
            except EngineError:
                assert failing == "raises"
            assert await locks.lock("a").locked()
            works()

            async def free() -> bool:
                return not await locks.lock("a").locked()

            assert await eventually_async(free, 10)

            async def told() -> bool:
                return heard[-1] == ReleaseRepeated("a", lease.fence, True)

            assert await eventually_async(told, 10)

    asyncio.run(play())


def test_an_sql_store_keeps_no_release_that_would_close_a_lock_for_longer() -> None:
    shelf = Shelf(object())
    for request in (Release("a", "token", stay_ms=500), Acquire("a", "token", 1000, 1), Release("b", "token")):
        shelf.owe(request)
    assert list(shelf.owed) == [Release("b", "token")]
