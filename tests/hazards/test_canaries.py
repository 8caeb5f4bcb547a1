"""Every canary is found out by the tests it names, and every hazard test has a canary: it has been seen failing."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from . import canaries
from .aviary import ALLOWED, UNBROKEN, Aviary, Flight

pytestmark = [pytest.mark.live, pytest.mark.real_time]

CANARIES = canaries.load()
FOUND_OUT = {"AssertionError", "Failed"}
"""A failed assertion, or something that should have been raised and was not."""


@pytest.fixture(scope="module")
def fly(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Future[Flight]]]:
    """All canaries that were selected, under way a few at a time.

    Where tests run side by side nobody knows beforehand which of them will be run here: each flies when it is asked
    for, and others elsewhere.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        with Aviary(hands=1) as aviary:
            yield aviary.fly
        return
    here = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    names = [str(item.callspec.params["name"]) for item in here if hasattr(item, "callspec")]
    with Aviary() as aviary:
        flights = {name: aviary.fly(name) for name in names}
        yield lambda name: flights.get(name) or aviary.fly(name)


@pytest.mark.timeout(10 * ALLOWED)
@pytest.mark.parametrize("name", CANARIES)
def test_a_canary_is_found_out(fly: Callable[[str], Future[Flight]], name: str) -> None:
    bird, flight = CANARIES[name], fly(name).result()
    called = [told for told in flight.outcomes if told["when"] == "call"]
    assert len(called) == sum(told["when"] == "setup" for told in flight.outcomes), flight.output
    for test in bird.caught_by:
        function, _, part = test.rstrip("]").partition("[")
        mine = [told for told in called if told["test"].partition("[")[0] == function and part in told["test"]]
        assert mine, f"{test} did not run:\n{flight.output}"
        for told in mine:
            assert told["outcome"] == "failed", f"{told['test']} does not see that: {bird.broken}\n{flight.output}"
            assert told["error"] in FOUND_OUT | {*bird.dies_of}, f"{told['test']}: {told['error']}: {told['text']}"
            assert not told["text"].startswith("Timeout"), f"{told['test']} ended by its timeout"


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
def test_the_same_tests_pass_where_nothing_is_broken(fly: Callable[[str], Future[Flight]]) -> None:
    """Otherwise it would be the way in which canaries are run that makes tests fail."""
    flight = fly(UNBROKEN + " ".join(SAMPLE)).result()
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
