"""Where the stream of events is looked at: every engine, on both fronts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from quorumlock.lab.servers import BINARIES, Servers, kinds
from quorumlock.observing import book
from tests.contract.grounds import Ground, MemoryGround, RedisGround, SqliteGround
from tests.contract.stage import Stage

SERVER = next(iter(BINARIES))
ENGINES = [
    "memory",
    "sqlite",
    pytest.param(
        SERVER,
        marks=[pytest.mark.live, pytest.mark.skipif(SERVER not in kinds(), reason=f"no {SERVER} server here")],
    ),
]


class BookClock:
    """What books of leases read."""

    now = 1000.0


@pytest.fixture
def book_clock(monkeypatch: pytest.MonkeyPatch) -> BookClock:
    clock = BookClock()
    monkeypatch.setattr(book, "boot_time", lambda: clock.now)
    return clock


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(crowd: Callable[[str], Servers], engine: str, side: str, tmp_path: Path) -> Stage:
    ground: Ground
    if engine == "memory":
        ground = MemoryGround(3)
    elif engine == "sqlite":
        ground = SqliteGround(tmp_path)
    else:
        ground = RedisGround(crowd(engine).servers[:3])
    return Stage(ground, side)
