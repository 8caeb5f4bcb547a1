"""Bad parameters of the family: refused at the call, by name, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError
from quorumlock.core.family import NAMES_MOST, SLOTS_MOST

from .test_options import NOWHERE, refused


@pytest.fixture(params=[quorumlock.connect, quorumlock.connect_async], ids=["threads", "asyncio"])
def locker(request: pytest.FixtureRequest) -> Any:
    return request.param(NOWHERE)


@pytest.mark.parametrize("permits", [0, -1, 1.0, 1.5, True, "3", None, [3], SLOTS_MOST + 1, 10**30])
def test_permits_are_a_whole_number_from_one(locker: Any, permits: Any) -> None:
    refused(lambda: locker.semaphore("s", permits), "permits", permits, "1", str(SLOTS_MOST))


@pytest.mark.parametrize("permits", [1, 2, SLOTS_MOST])
def test_permits_that_are_allowed(locker: Any, permits: int) -> None:
    assert locker.semaphore("s", permits).name == "s"


@pytest.mark.parametrize(
    "names", [[], (), "ab", b"ab", "", None, 7, {"a": 1}, {"a", "b"}, iter(["a"]), ["x"] * (NAMES_MOST + 1)],
    ids=["empty list", "empty tuple", "str", "bytes", "empty str", "None", "int", "dict", "set", "iterator",
         "too many"],
)  # fmt: skip
def test_names_are_a_list(locker: Any, names: Any) -> None:
    refused(lambda: locker.multi(names), "names", names, "list of 1 to", str(NAMES_MOST))


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b", "a"], ("b", "b")])
def test_names_are_given_once(locker: Any, names: Any) -> None:
    refused(lambda: locker.multi(names), "names", names, "more than once")


@pytest.mark.parametrize("bad", ["", None, 1, b"b", "ql:x", "a*", "{a}", "a\n", "x" * 1025, "\ud800"])
def test_each_name_is_the_name_of_a_lock(locker: Any, bad: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: locker.multi(["a", bad]),
        lambda: locker.multi([bad]),
        lambda: locker.semaphore(bad, 2),
        lambda: locker.read_write(bad),
        lambda: locker.election(bad),
        lambda: locker.cell(bad),
        lambda: locker.locked(bad)(lambda: None) if bad != "{a}" else locker.lock(bad),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="name="):
            call()


def test_as_many_names_as_are_allowed(locker: Any) -> None:
    names = [f"n{index}" for index in range(NAMES_MOST)]
    assert names[-1] in locker.multi(names).name
    assert locker.multi(tuple(names)).name == locker.multi(names).name


@pytest.mark.parametrize(
    "pattern", [None, 1, b"*", ["*"], "", "x" * 1025, "*" * 2000, "[a-z]", "a\\*", "a\0", "{a}"]
)
def test_patterns_are_text_with_stars(pattern: Any) -> None:
    locker = quorumlock.connect(NOWHERE)
    with pytest.raises(ConfigurationError, match="pattern="):
        locker.list(pattern)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", None, True, 10**9])
def test_limits_are_whole_numbers(limit: Any) -> None:
    locker = quorumlock.connect(NOWHERE)
    refused(lambda: locker.list("*", limit=limit), "limit", limit, "100000")


@pytest.mark.parametrize("name", ["", None, 1, "ql:x", "a*", "x" * 1025])
def test_only_locks_are_looked_at_and_broken(name: Any) -> None:
    locker = quorumlock.connect(NOWHERE)
    for call in (locker.inspect, locker.break_):
        with pytest.raises(ConfigurationError, match="name="):
            call(name)


@pytest.mark.parametrize("ttl", [0, 0.5, -1, "1", None, float("nan"), float("inf"), 1e12])
def test_a_cell_lives_for_a_second_at_least(locker: Any, ttl: Any) -> None:
    refused(lambda: locker.cell("c", ttl=ttl), "ttl", ttl)


@pytest.mark.parametrize("wrong", [1, "call me", [], object])
def test_callbacks_are_callable(locker: Any, wrong: Any) -> None:
    if callable(wrong):  # a class may be called
        locker.election("e", on_elected=wrong, on_lost=wrong)
        return
    for parameter in ("on_elected", "on_lost"):
        refused(lambda parameter=parameter: locker.election("e", **{parameter: wrong}), parameter, wrong)  # type: ignore[misc]
    for make in (locker.read_write("a").read, locker.read_write("a").write):
        refused(lambda make=make: make(on_lost=wrong), "on_lost", wrong)  # type: ignore[misc]


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
def test_whoever_stands_for_election_waits_for_some_time(locker: Any, timeout: Any) -> None:
    refused(lambda: locker.election("e").lead(timeout=timeout), "timeout", timeout)


def test_a_ttl_and_its_delay_fit_into_max_ttl(locker: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: locker.lock("a", ttl=40, lock_delay=30),
        lambda: locker.semaphore("a", 2, ttl=40, lock_delay=30),
        lambda: locker.multi(["a"], ttl=40, lock_delay=30),
        lambda: locker.read_write("a").write(ttl=40, lock_delay=30),
        lambda: locker.locked("a", ttl=40, lock_delay=30),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="ttl=40 and lock_delay=30 are more than max_ttl=60"):
            call()


@pytest.mark.parametrize("option", ["lock_delay", "at_least"])
@pytest.mark.parametrize("value", [-0.1, 60.5, float("nan"), "1", None, True])
def test_delays_are_seconds(locker: Any, option: str, value: Any) -> None:
    makers: list[Callable[..., object]] = [
        lambda **given: locker.lock("a", **given),
        lambda **given: locker.semaphore("a", 2, **given),
        lambda **given: locker.multi(["a"], **given),
    ]
    for make in makers:
        refused(lambda make=make: make(**{option: value}), option, value, "60")  # type: ignore[misc]
