"""The stages of the contract: which engines, with how many nodes, on which of the two fronts.

More stages show more only up to a point: a case that takes time is played on fewer of them, and one that is about
Redis keys, or about nodes that disagree, only where there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorumlock.lab.servers import BINARIES, Servers, kinds
from tests.conftest import server_kinds

from .grounds import Ground, MemoryGround, RedisGround, SqliteGround
from .stage import Stage

MARKERS = {
    "takes_time": "waits for something to expire or to be renewed",
    "redis_keys": "is about the keys on a Redis server",
    "disagreement": "needs more nodes than one",
    "only_asyncio": "is about tasks, and has no counterpart for threads",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def stages(marked: set[str]) -> list[tuple[str, int]]:
    """Engines and numbers of nodes for a case with these markers."""
    first, *others = BINARIES
    if "takes_time" in marked:
        chosen = [(first, 3), ("memory", 3 if "disagreement" in marked else 1), ("sqlite", 1)]
    else:
        chosen = [(first, 1), (first, 3), (first, 5), *((other, 3) for other in others)]
        chosen += [("memory", 1), ("memory", 3), ("sqlite", 1)]
    return [
        (engine, count)
        for engine, count in chosen
        if (engine in BINARIES or "redis_keys" not in marked) and (count > 1 or "disagreement" not in marked)
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" not in metafunc.fixturenames:
        return
    server_kinds()  # complains where CI would skip
    present = kinds()
    marked = {mark.name for mark in metafunc.definition.iter_markers()}
    params = []
    for engine, count in stages(marked):
        marks: list[Any] = [pytest.mark.live] if engine in BINARIES else []
        if engine in BINARIES and engine not in present:
            marks.append(pytest.mark.skip(reason=f"no {engine} server here"))
        params.append(pytest.param(engine, count, marks=marks, id=f"{engine}-{count}"))
    metafunc.parametrize(("engine", "count"), params)
    metafunc.parametrize("side", ["asyncio"] if "only_asyncio" in marked else ["threads", "asyncio"])


@pytest.fixture
def stage(crowd: Callable[[str], Servers], engine: str, count: int, side: str, tmp_path: Path) -> Stage:
    ground: Ground
    if engine == "memory":
        ground = MemoryGround(count)
    elif engine == "sqlite":
        ground = SqliteGround(tmp_path)
    else:
        ground = RedisGround(crowd(engine).servers[:count])
    return Stage(ground, side)
