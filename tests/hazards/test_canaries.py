"""Every canary is found out by the tests it names, and every hazard test has a canary: it has been seen failing."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repeats import LEAST_FORGIVEN, Repeats

from . import canaries
from .aviary import ALLOWED, UNBROKEN, Aviary, Flight

pytestmark = [pytest.mark.live, pytest.mark.real_time]

CANARIES = canaries.load()
FOUND_OUT = {"AssertionError", "Failed"}
"""A failed assertion, or something that should have been raised and was not."""


class Flights:
    """All canaries that were selected, under way a few at a time."""

    def __init__(self, aviary: Aviary, names: list[str]) -> None:
        self._aviary = aviary
        self._under_way = {name: aviary.fly(name) for name in names}

    def of(self, name: str) -> Flight:
        return self._under_way[name].result() if name in self._under_way else self.another(name)

    def another(self, name: str) -> Flight:
        return self._aviary.fly(name).result()


@pytest.fixture(scope="module")
def flights(request: pytest.FixtureRequest) -> Iterator[Flights]:
    """Where tests run side by side nobody knows beforehand which of them will be run here: each canary flies when
    it is asked for, and others elsewhere."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with Aviary(hands=1) as aviary:
            yield Flights(aviary, [])
        return
    here = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    names = [str(item.callspec.params["name"]) for item in here if hasattr(item, "callspec")]
    with Aviary() as aviary:
        yield Flights(aviary, names)


def missed(bird: canaries.Canary, flight: Flight) -> str:
    """What is wrong with how the tests of a canary ended; nothing, if all of them have found it out."""
    called = [told for told in flight.outcomes if told["when"] == "call"]
    if len(called) != sum(told["when"] == "setup" for told in flight.outcomes):
        return "a test was not set up"
    for test in bird.caught_by:
        function, _, part = test.rstrip("]").partition("[")
        mine = [told for told in called if told["test"].partition("[")[0] == function and part in told["test"]]
        if not mine:
            return f"{test} did not run"
        for told in mine:
            if told["outcome"] != "failed":
                return f"{told['test']} does not see that: {bird.broken}"
            if told["error"] not in FOUND_OUT | {*bird.dies_of}:
                return f"{told['test']}: {told['error']}: {told['text']}"
            if told["text"].startswith("Timeout"):
                return f"{told['test']} ended by its timeout"
    return ""


def stalled(config: pytest.Config, flight: Flight) -> bool:
    """Whether the machine stood still during a flight, which is over before its test here begins."""
    repeats: Repeats | None = config.pluginmanager.get_plugin("repeats")
    stall = None if repeats is None else repeats.longest(flight.started_at, flight.ended_at)
    return stall is not None and stall.seconds > LEAST_FORGIVEN


@pytest.mark.timeout(10 * ALLOWED)
@pytest.mark.parametrize("name", CANARIES)
def test_a_canary_is_found_out(flights: Flights, name: str, request: pytest.FixtureRequest) -> None:
    bird, flight = CANARIES[name], flights.of(name)
    if missed(bird, flight) and stalled(request.config, flight):
        flight = flights.another(name)
    assert not (what := missed(bird, flight)), f"{what}\n{flight.output}"


SAMPLE = (
    "test_identity::test_a_late_release_leaves_the_next_holder_alone",
    "test_parameters::test_a_bad_name_is_refused_at_the_call",
    "test_quorum::test_an_even_number_is_warned_of",
    "test_server_states::test_out_of_memory",
    "test_fork::test_a_child_does_not_own_its_parents_lease",
    "test_network::test_a_lost_answer_is_undone_and_not_believed",
)
"""A test of each kind that canaries name: alone, on servers of its own, forked, behind a proxy."""


@pytest.mark.timeout(10 * ALLOWED)
def test_the_same_tests_pass_where_nothing_is_broken(flights: Flights) -> None:
    """Otherwise it would be the way in which canaries are run that makes tests fail."""
    flight = flights.of(UNBROKEN + " ".join(SAMPLE))
    assert {told["test"].partition("[")[0] for told in flight.outcomes} == set(SAMPLE), flight.output
    assert {told["outcome"] for told in flight.outcomes} == {"passed"}, flight.output


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        f"{file.stem}::{node.name}"
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def test_every_hazard_test_has_a_canary() -> None:
    here = Path(__file__)
    tests = set().union(*(functions(file) for file in here.parent.glob("test_*.py") if file != here))
    named = {test.partition("[")[0] for bird in CANARIES.values() for test in bird.caught_by}
    assert named - tests == set(), "no such tests"
    assert tests - named == set(), "tests that no canary has made fail"
