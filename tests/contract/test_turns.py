"""Which case is run where: no engine and no front leaves one out."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlock.lab.servers import BINARIES

from .conftest import MARKERS, SERVED, pytest_generate_tests
from .turns import FRONTS, SINGLE, Turn, is_long, turns

FIRST = next(iter(BINARIES))
ENGINES = {FIRST, "memory", "sqlite", "postgresql", "mysql", "zookeeper", "etcd"}
"""Written down once more: an engine that is left out of the list there is missed here."""


def cases() -> Iterator[tuple[str, frozenset[str]]]:
    """Every case of the contract: its name, and its markers that matter here."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = import_module(f".{path.stem}", __package__)
        of_all = marks(module)
        for name, test in vars(module).items():
            if name.startswith("test_") and "stage" in getattr(test, "__annotations__", {}):
                yield name, frozenset((of_all | marks(test)) & MARKERS.keys())


def marks(marked: object) -> set[str]:
    found = getattr(marked, "pytestmark", [])
    return {mark.name for mark in (found if isinstance(found, list) else [found])}


CASES = list(dict.fromkeys(cases()))
EVERYWHERE = [(name, marked) for name, marked in CASES if not marked & {"redis_keys", "disagreement"}]
ON_BOTH_FRONTS = [(name, marked) for name, marked in CASES if "only_asyncio" not in marked]


def test_there_are_cases_of_every_kind() -> None:
    assert len(EVERYWHERE) > 150
    assert len(ON_BOTH_FRONTS) > 150
    assert MARKERS.keys() == set().union(*(marked for _, marked in CASES))
    assert {*SERVED} == {*SINGLE} - {"sqlite"}, "every server has a ground"


@pytest.mark.parametrize("long", [False, True])
def test_every_case_is_run_on_every_engine(long: bool) -> None:
    for name, marked in EVERYWHERE:
        assert {turn.engine for turn in turns(name, marked, long=long)} >= ENGINES, name


def test_every_case_that_takes_no_time_is_run_on_every_kind_of_server() -> None:
    for name, marked in EVERYWHERE:
        if "takes_time" not in marked:
            assert {turn.engine for turn in turns(name, marked, long=False)} == ENGINES | {*BINARIES}, name


def test_cases_about_several_nodes_are_run_on_several_nodes() -> None:
    for name, marked in CASES:
        if "disagreement" in marked:
            found = turns(name, marked, long=False)
            assert {turn.engine for turn in found} >= {FIRST, "memory"}, name
            assert all(turn.nodes >= 3 for turn in found), name


def test_cases_about_redis_keys_are_run_on_redis_alone() -> None:
    for name, marked in CASES:
        if "redis_keys" in marked:
            found = {turn.engine for turn in turns(name, marked, long=False)}
            assert FIRST in found, name
            assert found <= {*BINARIES}, name


def test_both_fronts_run_every_case() -> None:
    """On three servers of the first kind; and in memory, unless it is about servers."""
    for name, marked in ON_BOTH_FRONTS:
        found = set(turns(name, marked, long=False))
        assert {Turn(FIRST, 3, front) for front in FRONTS} <= found, name
        if "redis_keys" not in marked:
            assert {turn.side for turn in found if turn.engine == "memory"} == {*FRONTS}, name


def test_cases_about_tasks_are_run_on_asyncio_alone() -> None:
    for name, marked in CASES:
        if "only_asyncio" in marked:
            assert {turn.side for turn in turns(name, marked, long=False)} == {"asyncio"}, name


@pytest.mark.parametrize("engine", SINGLE)
def test_on_other_engines_fronts_take_turns(engine: str) -> None:
    """One front for each case; each front has about half of them, also of those that take time."""
    for part in (EVERYWHERE, [(name, marked) for name, marked in EVERYWHERE if "takes_time" in marked]):
        sides = []
        for name, marked in part:
            found = [turn.side for turn in turns(name, marked, long=False) if turn.engine == engine]
            assert len(found) == 1, name
            sides += found if "only_asyncio" not in marked else []
        assert 0.3 < sides.count("threads") / len(sides) < 0.7


def test_neighbours_in_the_list_of_engines_do_not_run_a_case_on_the_same_front() -> None:
    for name, marked in ON_BOTH_FRONTS:
        sides = {turn.engine: turn.side for turn in turns(name, marked, long=False) if turn.engine in SINGLE}
        for engine, other in itertools.pairwise(SINGLE):
            assert engine not in sides or sides[engine] != sides[other], name


def test_the_long_form_is_the_full_product() -> None:
    for name, marked in CASES:
        short, long = turns(name, marked, long=False), turns(name, marked, long=True)
        assert {*short} <= {*long}, name
        assert len({*long}) == len(long), name
        fronts = ["asyncio"] if "only_asyncio" in marked else FRONTS
        assert {*long} == {turn._replace(side=front) for turn in short for front in fronts}, name


def test_the_environment_asks_for_the_long_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUORUMLOCK_LONG", raising=False)
    assert not is_long()
    monkeypatch.setenv("QUORUMLOCK_LONG", "1")
    assert is_long()


def test_turns_are_the_same_in_every_process() -> None:
    """They hang on the name alone, and not on the seed of Python's own hashes."""
    offset = zlib.crc32(b"test_a") % 2
    assert turns("test_a", (), long=False)[4] == Turn("sqlite", 1, FRONTS[offset])


class Collected:
    """What pytest asks for the parameters of a test."""

    fixturenames = ("stage",)

    def __init__(self, name: str, marked: Collection[str]) -> None:
        self.definition = self
        self.function = SimpleNamespace(__name__=name)
        self._marks = [getattr(pytest.mark, one) for one in marked]
        self.turns: list[Turn] = []

    def iter_markers(self) -> Iterator[Any]:
        return iter(self._marks)

    def parametrize(self, names: tuple[str, ...], params: list[Any]) -> None:
        assert names == ("engine", "count", "side")
        self.turns = [Turn(*param.values) for param in params]


@pytest.mark.parametrize("long", [False, True])
def test_pytest_collects_what_was_planned(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    monkeypatch.setenv("QUORUMLOCK_LONG", "1" if long else "")
    for name, marked in CASES:
        collected: Any = Collected(name, marked)
        pytest_generate_tests(collected)
        assert collected.turns == turns(name, marked, long=long), name
