"""How long a lease is valid, and which fence N nodes agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock.core.fence import behind, confirmed
from quorumlock.core.redlock import Grant, Refusal, acquire
from quorumlock.core.requests import Acquire, Release
from quorumlock.core.validity import valid_until

from ..unit.examples import examples
from .driver import DONE, HELD, SILENT, World, everyone, granted, only, votes

TTL = 10.0
VALIDITY = TTL - (TTL * 0.01 + 0.002)


@examples
@given(st.floats(0, 1e9), st.floats(0.01, 86_400), st.floats(0, 0.2))
def test_validity_is_the_ttl_less_the_drift_less_two_milliseconds(at: float, ttl: float, drift: float) -> None:
    assert valid_until(at, ttl, drift) == pytest.approx(at + ttl - ttl * drift - 0.002)


@pytest.mark.parametrize(("drift", "validity"), [(0.0, 9.998), (0.01, 9.898), (0.2, 7.998)])
def test_the_drift_of_the_fleet_is_what_counts(drift: float, validity: float) -> None:
    world = World(3)
    world.fleet.drift = drift
    grant = world.run(acquire(world.fleet, "job", TTL), [everyone(granted(1))])
    assert isinstance(grant, Grant)
    assert grant.valid_until == pytest.approx(world.now + validity)


@pytest.mark.parametrize("took", [0.0, 1.0, VALIDITY - 0.001])
def test_time_is_counted_from_before_the_first_request(took: float) -> None:
    world = World(3)
    began = world.now
    grant = world.run(acquire(world.fleet, "job", TTL), [world.takes(took, everyone(granted(1)))])
    assert isinstance(grant, Grant)
    assert grant.valid_until == pytest.approx(began + VALIDITY)


@pytest.mark.parametrize("took", [VALIDITY, TTL, 10 * TTL])
def test_a_round_that_took_longer_than_the_ttl_is_not_an_acquisition_and_is_released(took: float) -> None:
    world = World(3)
    slow = world.takes(took + 1e-9, everyone(granted(1)))
    refusal = world.run(acquire(world.fleet, "job", TTL), [slow, everyone(DONE)])
    assert isinstance(refusal, Refusal)
    assert not refusal.busy
    assert "longer than the ttl" in refusal.why
    assert set(only(world.rounds[1], Release)) == {0, 1, 2}


def test_validity_that_is_over_to_the_instant_is_over() -> None:
    world = World(1)
    world.now = 0.0
    world.fleet.drift = 0.0
    ends_at = valid_until(0.0, TTL, 0.0)
    slow = world.takes(ends_at, everyone(granted(1)))
    assert isinstance(world.run(acquire(world.fleet, "job", TTL), [slow, everyone(DONE)]), Refusal)


def test_the_time_that_confirming_took_counts_too() -> None:
    world = World(3)
    performers = [
        world.takes(5.0, votes(granted(1), granted(2), SILENT)),
        world.takes(5.0, everyone(DONE)),
        everyone(DONE),
    ]
    refusal = world.run(acquire(world.fleet, "job", TTL), performers)
    assert isinstance(refusal, Refusal)
    assert only(world.rounds[2], Release)


@pytest.mark.parametrize(
    ("ttl", "node_timeout", "waits"), [(10.0, 0.05, 0.05), (0.1, 0.05, 0.025), (1.0, 2.0, 0.25), (60.0, 2.0, 2.0)]
)
def test_a_node_is_waited_for_a_quarter_of_the_ttl_at_most(ttl: float, node_timeout: float, waits: float) -> None:
    world = World(3)
    world.fleet.node_timeout = node_timeout
    performers = [votes(granted(1), HELD, SILENT), everyone(DONE)]
    world.run(acquire(world.fleet, "job", ttl), performers)
    assert [round_.timeout for round_ in world.rounds] == [waits, waits]


@pytest.mark.parametrize(("ttl", "ttl_ms"), [(0.01, 10), (0.0299, 30), (1.0, 1000), (86_400.0, 86_400_000)])
def test_nodes_are_told_the_ttl_in_whole_milliseconds(ttl: float, ttl_ms: int) -> None:
    world = World(1)
    world.run(acquire(world.fleet, "job", ttl), [everyone(granted(1))])
    assert only(world.rounds[0], Acquire)[0].ttl_ms == ttl_ms


@examples
@given(st.floats(0.01, 86_400), st.floats(0, 0.2))
def test_rounding_to_milliseconds_never_outlives_what_the_node_was_told(ttl: float, drift: float) -> None:
    assert valid_until(0.0, ttl, drift) <= round(ttl * 1000) / 1000 * (1 - drift)


@examples
@given(st.lists(st.none() | st.integers(1, 4), min_size=1, max_size=9))
def test_the_highest_fence_splits_the_grants_into_confirmed_and_behind(fences: list[int | None]) -> None:
    tally = World(len(fences)).fleet.tally()
    for node, fence in enumerate(fences):
        tally.cast(node, HELD if fence is None else granted(fence))
    top = tally.top
    assert top == max((fence for fence in fences if fence), default=0)
    assert tally.at_top == sum(1 for fence in fences if fence and fence == top)
    assert confirmed(tally, top) == {n for n, fence in enumerate(fences) if fence and fence == top}
    assert behind(tally, top) == {n: fence for n, fence in enumerate(fences) if fence and fence < top}
