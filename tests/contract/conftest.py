"""The stages of the contract: servers, emptied for each case. Which case is run where: see `turns.py`."""

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
from .turns import SINGLE, is_long, turns

SERVED = [one for one in SINGLE if find_spec(f"{__package__}.ground_{one}")]
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

    `missing()`: programs that it needs and are not here. `servers()`: a context manager, for a session.
    `ground(servers)`: empty, for a case.
    """
    return import_module(f".ground_{engine}", __package__)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" not in metafunc.fixturenames:
        return
    server_kinds()  # complains where CI would skip
    marked = {mark.name for mark in metafunc.definition.iter_markers()}
    params = [
        pytest.param(*turn, marks=_marks(turn.engine, marked), id=f"{turn.side}-{turn.engine}-{turn.nodes}")
        for turn in turns(metafunc.function.__name__, marked, long=is_long())
    ]
    metafunc.parametrize(("engine", "count", "side"), params)


def _marks(engine: str, marked: set[str]) -> list[Any]:
    marks = [] if "real_time" in marked else _real_time(engine, marked)
    if engine not in BINARIES and engine not in SERVED:
        return marks
    missing = served(engine).missing() if engine in SERVED else [engine] * (engine not in kinds())
    if missing and os.environ.get("CI"):
        raise pytest.UsageError(f"CI must not skip: no {', '.join(missing)}")
    if missing:
        marks.append(pytest.mark.skip(reason=f"no {', '.join(missing)} here"))
    return [pytest.mark.live, *marks]


def _real_time(engine: str, marked: set[str]) -> list[Any]:
    """How long a stall a case forgives here. In memory, with long leases or a clock that is moved: none.

    The shortest ttl that is renewed is 0.3 s: a keeper that is held up for two thirds of it is too late.
    """
    if engine == "memory" and "takes_time" not in marked:
        return []
    return [pytest.mark.real_time(0.15 if "takes_time" in marked else 1.0)]


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
    return Stage(ground, side, counts_waiters=True)
