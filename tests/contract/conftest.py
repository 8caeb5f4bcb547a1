"""The stages of the contract: which engines, with how many nodes, on which of the two fronts.

More stages show more only up to a point: a case that takes time is played on fewer of them, and one that is about
Redis keys, or about nodes that disagree, only where there are any.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from quorumlock.lab.servers import BINARIES, Servers, kinds
from tests.conftest import server_kinds

from .grounds import Ground, MemoryGround, RedisGround, SqliteGround
from .stage import Stage

SERVED = [one for one in ("postgresql", "mysql", "zookeeper", "etcd") if find_spec(f"{__package__}.ground_{one}")]
"""Engines on servers of their own, each with a module `ground_…` here."""

MARKERS = {
    "takes_time": "waits for something to expire or to be renewed",
    "redis_keys": "is about the keys on a Redis server",
    "disagreement": "needs more nodes than one",
    "only_asyncio": "is about tasks, and has no counterpart for threads",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def served(engine: str) -> Any:
    """The module of such an engine.

    `missing()`: programs that it needs and are not here. `plays(marked, side)`: is a case with these markers played
    on it? `servers()`: a context manager, for a session. `ground(servers)`: empty, for a case.
    """
    return import_module(f".ground_{engine}", __package__)


def stages(marked: set[str], side: str) -> list[tuple[str, int]]:
    """Engines and numbers of nodes for a case with these markers, on one of the fronts.

    One, three and five nodes, and every kind of server, but not each with each: how many there are is the core's
    concern, and what a server does is its own.
    """
    first, *others = BINARIES
    doubles = 3 if "disagreement" in marked else 1
    if "takes_time" in marked:
        chosen = [(first, 3)]
    else:
        chosen = [(first, 1), *((other, 3) for other in others), (first, 5)]
        doubles = doubles if side == "threads" else 3
    chosen += [("memory", doubles), ("sqlite", 1), *((engine, 1) for engine in SERVED)]
    return [
        (engine, count)
        for engine, count in chosen
        if (engine in BINARIES or "redis_keys" not in marked) and (count > 1 or "disagreement" not in marked)
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" not in metafunc.fixturenames:
        return
    server_kinds()  # complains where CI would skip
    marked = {mark.name for mark in metafunc.definition.iter_markers()}
    params = []
    for side in ["asyncio"] if "only_asyncio" in marked else ["threads", "asyncio"]:
        for engine, count in stages(marked, side):
            if engine not in SERVED or served(engine).plays(marked, side):
                params.append(
                    pytest.param(engine, count, side, marks=_marks(engine), id=f"{side}-{engine}-{count}")
                )
    metafunc.parametrize(("engine", "count", "side"), params)


def _marks(engine: str) -> list[Any]:
    if engine not in BINARIES and engine not in SERVED:
        return []
    missing = served(engine).missing() if engine in SERVED else [engine] * (engine not in kinds())
    if missing and os.environ.get("CI"):
        raise pytest.UsageError(f"CI must not skip: no {', '.join(missing)}")
    return [pytest.mark.live, *([pytest.mark.skip(reason=f"no {', '.join(missing)} here")] if missing else [])]


@pytest.fixture(scope="session")
def home() -> Iterator[Callable[[str], Any]]:
    """The servers of an engine, started when they are first asked for."""
    with ExitStack() as stack:
        yield functools.cache(lambda engine: stack.enter_context(served(engine).servers()))


@pytest.fixture
def stage(
    crowd: Callable[[str], Servers],
    home: Callable[[str], Any],
    engine: str,
    count: int,
    side: str,
    tmp_path: Path,
) -> Stage:
    ground: Ground
    if engine == "memory":
        ground = MemoryGround(count)
    elif engine == "sqlite":
        ground = SqliteGround(tmp_path)
    elif engine in SERVED:
        ground = served(engine).ground(home(engine))
    else:
        ground = RedisGround(crowd(engine).servers[:count])
    return Stage(ground, side)
