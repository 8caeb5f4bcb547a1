"""Retry strategies: bounded, random, composable."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock import ConfigurationError, Exponential, Jitter, Limit

from .examples import examples

seconds = st.floats(0.001, 3600.0)
drawn = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 1_000_000)


def always(value: float) -> Callable[[], float]:
    return lambda: value


@examples
@given(seconds, attempts, drawn)
def test_jitter_stays_between_a_tenth_and_the_whole(most: float, attempt: int, draw: float) -> None:
    delay = Jitter(most).delay(attempt, always(draw))
    assert delay is not None
    assert 0.1 * most <= delay * (1 + 1e-12)
    assert delay <= most


@examples
@given(seconds)
def test_jitter_covers_its_whole_range(most: float) -> None:
    assert Jitter(most).delay(1, always(0.0)) == pytest.approx(0.1 * most)
    assert Jitter(most).delay(1, always(1.0)) == pytest.approx(most)


@examples
@given(seconds, seconds, attempts, drawn)
def test_exponential_stays_within_half_and_whole_of_a_doubling_delay(
    one: float, other: float, attempt: int, draw: float
) -> None:
    first, most = sorted((one, other))
    delay = Exponential(first, most).delay(attempt, always(draw))
    assert delay is not None
    ceiling = min(most, first * 2.0 ** min(attempt - 1, 40))
    assert 0.5 * ceiling <= delay <= ceiling


def test_exponential_doubles_up_to_its_most() -> None:
    delays = [Exponential(0.5, 3.0).delay(attempt, always(1.0)) for attempt in range(1, 6)]
    assert delays == [0.5, 1.0, 2.0, 3.0, 3.0]


@examples
@given(st.integers(0, 1000), attempts)
def test_a_limit_passes_its_inner_on_and_then_gives_up(retries: int, attempt: int) -> None:
    delay = Limit(Jitter(0.2), retries).delay(attempt, always(0.5))
    assert delay == (Jitter(0.2).delay(attempt, always(0.5)) if attempt <= retries else None)


def test_limits_nest_and_the_smaller_one_counts() -> None:
    strategy = Limit(Limit(Exponential(), 2), 5)
    assert [strategy.delay(n, always(0.5)) is None for n in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize("strategy", [Jitter(1.0), Exponential(1.0, 1.0), Limit(Jitter(1.0), 9)])
def test_two_contenders_do_not_meet_again_at_the_same_instant(strategy: Jitter) -> None:
    assert strategy.delay(1, always(0.1)) != strategy.delay(1, always(0.9))


@pytest.mark.parametrize("strategy", [Jitter(0.2), Exponential(), Limit(Jitter(0.2), 3)])
def test_strategies_are_values(strategy: object) -> None:
    again = eval(repr(strategy), {"Jitter": Jitter, "Exponential": Exponential, "Limit": Limit})
    assert strategy == again
    assert hash(strategy) == hash(again)


@pytest.mark.parametrize(
    ("build", "parameter"),
    [
        (lambda bad: Jitter(bad), "most"),
        (lambda bad: Exponential(first=bad), "first"),
        (lambda bad: Exponential(most=bad), "most"),
    ],
)
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "1", None, 4000])
def test_a_delay_that_makes_no_sense_is_refused_by_name(
    build: Callable[[object], object], parameter: str, bad: object
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{parameter}="):
        build(bad)


def test_exponential_does_not_shrink() -> None:
    with pytest.raises(ConfigurationError, match=r"most=1\.0 must be within 2 and 3600"):
        Exponential(2.0, 1.0)


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3", None, 10**10, pytest.param(10**5000, id="5000 digits")])
def test_a_number_of_retries_that_makes_no_sense_is_refused_by_name(bad: int) -> None:
    with pytest.raises(ConfigurationError, match=r"^retries="):
        Limit(Jitter(0.2), bad)


@pytest.mark.parametrize("bad", [0.2, None, "Jitter", 3])
def test_a_limit_of_something_that_is_no_strategy_is_refused_at_once(bad: Jitter) -> None:
    """`Limit(0.2, 3)` is how one writes the classic retry_delay and retry_count by mistake."""
    with pytest.raises(ConfigurationError, match=r"^inner="):
        Limit(bad, 3)
