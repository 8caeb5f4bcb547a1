"""Where these tests play: on real servers, on doubles and in a file, seen through the grounds of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock.lab.servers import BINARIES, Servers
from tests.conftest import server_kinds
from tests.contract.grounds import Ground, MemoryGround, RedisGround, SqliteGround

FIRST, *OTHERS = BINARIES
PLACES = [(FIRST, 1), (FIRST, 3), *((other, 3) for other in OTHERS), ("memory", 1), ("memory", 3), ("sqlite", 1)]
FLEETS = [place for place in PLACES if place[1] > 1]


def named(place: tuple[str, int]) -> str:
    return f"{place[0]}-{place[1]}"


class Place:
    """Some empty nodes, and Lockers on them that are closed at the end."""

    def __init__(self, ground: Ground, engine: str) -> None:
        self.ground = ground
        self.count = ground.count
        self.engine = engine
        self.made: list[quorumlock.Locker] = []

    def connect(self, **options: Any) -> quorumlock.Locker:
        options = {"max_ttl": 30.0, "node_timeout": 1.0} | options
        locker = quorumlock.connect(self.ground.urls, **options)
        if not self.made:
            if isinstance(self.ground, RedisGround):
                locker.init_fleet()
            elif isinstance(self.ground, MemoryGround):
                self.ground.servers = locker.engine.servers
            else:
                locker.lock("makes the file").locked()
        self.made.append(locker)
        return locker


@pytest.fixture(params=PLACES, ids=named)
def place(request: pytest.FixtureRequest, crowd: Callable[[str], Servers], tmp_path: Path) -> Iterator[Place]:
    engine, count = request.param
    ground: Ground
    if engine == "memory":
        ground = MemoryGround(count)
    elif engine == "sqlite":
        ground = SqliteGround(tmp_path)
    elif engine in server_kinds():
        ground = RedisGround(crowd(engine).servers[:count])
    else:
        pytest.skip(f"no {engine} server here")
    made = Place(ground, engine)
    yield made
    for locker in made.made:
        locker.close()
