"""Who is due when, in how many messages, and who wakes the keeper."""

from __future__ import annotations

import pytest

from quorumlock.core import keeper
from quorumlock.core.effects import Round, Sleep
from quorumlock.core.keeper import CHUNK, CHUNK_WHEN_LATE, NEVER
from quorumlock.core.renewal import Extension
from quorumlock.core.requests import Extend

from .driver import DONE, everyone, only
from .house import House, Lease


def test_a_lease_is_renewed_when_a_third_of_its_ttl_is_over() -> None:
    house = House(random=1.0)
    lease = house.lease(ttl=9.0)
    house.roster.settle()
    assert house.roster.wake_at == pytest.approx(house.world.now + 3.0)
    assert house.tend() == []
    house.world.now += 3.0
    assert house.tend(everyone(DONE)) == [1]
    assert house.roster.wake_at == pytest.approx(house.world.now + 3.0, rel=0.1)
    assert isinstance(lease.told[0], Extension)


@pytest.mark.parametrize("random", [0.0, 0.3, 1.0])
def test_chance_makes_it_a_little_earlier_but_never_later(random: float) -> None:
    house = House(random=random)
    house.lease(ttl=9.0)
    house.world.now += 3.0
    house.tend(everyone(DONE))
    assert 0.75 * 3.0 <= house.roster.wake_at - house.world.now <= 3.0


def test_leases_that_are_due_together_are_renewed_together() -> None:
    house = House()
    for _ in range(7):
        house.lease()
    house.world.now += 3.0
    assert house.tend(everyone(DONE)) == [7]


def test_a_lease_that_is_nearly_due_goes_with_one_that_is() -> None:
    house = House()
    house.lease()
    house.world.now += 0.02
    house.lease()
    house.world.now += 0.5
    house.lease()
    house.world.now = 1000.0 + 9.0 / 3
    assert house.tend(everyone(DONE)) == [2]


def test_many_are_renewed_in_chunks_with_a_pause_behind_each() -> None:
    house = House()
    for _ in range(3 * CHUNK):
        house.lease()
    house.world.now += 3.0
    slow = house.world.takes(0.001, everyone(DONE))
    assert house.tend(slow, slow, slow) == [CHUNK] * 3
    kinds = [type(effect) for effect in house.world.effects]
    assert kinds == [Round, Sleep, Round, Sleep, Round]
    assert all(0 < pause <= keeper.PAUSE_MOST for pause in house.world.sleeps)


def test_a_keeper_that_is_late_makes_bigger_chunks() -> None:
    house = House()
    for _ in range(CHUNK_WHEN_LATE + 1):
        house.lease()
    house.world.now += 5.0
    assert house.tend(everyone(DONE), everyone(DONE)) == [CHUNK_WHEN_LATE, 1]


def test_most_leases_never_get_into_the_heap() -> None:
    house = House()
    lease = house.lease()
    house.roster.drop(lease)
    assert house.roster.charges() == []
    assert not house.roster._fresh
    assert not house.roster._heap


def test_the_keeper_is_told_of_a_lease_that_is_due_before_it_wakes() -> None:
    house = House()
    assert house.roster.add(Lease(house.world.grant(ttl=9.0, left=9.0)))
    assert not house.roster.add(Lease(house.world.grant(ttl=12.0, left=12.0))), "it wakes for another before that"
    assert house.roster.add(Lease(house.world.grant(ttl=3.0, left=3.0)))
    assert house.roster.wake_at == pytest.approx(house.world.now + 1.0)
    house.roster.rise()
    assert not house.roster.add(Lease(house.world.grant(ttl=0.1, left=0.1))), "while it is awake it looks itself"
    house.roster.settle()
    assert house.roster.wake_at <= house.world.now + 0.04


def test_a_lease_that_comes_while_the_keeper_settles_is_seen() -> None:
    """It was added after the sorting, by a thread that saw the keeper awake and did not tell."""
    house = House()
    late = Lease(house.world.grant(ttl=3.0, left=3.0))
    sort_in = house.roster._sort_in

    def sort_in_then_add() -> None:
        sort_in()
        assert not house.roster.add(late)

    house.roster._sort_in = sort_in_then_add  # type: ignore[method-assign]
    house.roster.rise()
    house.roster.settle()
    assert house.roster.wake_at == late.due_at


def test_two_who_tell_at_a_time_do_not_hide_the_earlier_lease() -> None:
    house = House()
    soon = Lease(house.world.grant(ttl=3.0, left=3.0))
    house.roster.add(soon)
    house.roster.wake_at = house.world.now + 100  # the other thread compared before, and wrote after
    house.roster.hurry()
    assert house.roster.wake_at == soon.due_at


def test_a_lease_that_was_shortened_is_due_earlier_and_once() -> None:
    house = House()
    lease = house.lease(ttl=9.0)
    house.roster.settle()
    lease.grant.ttl, lease.grant.valid_until = 0.9, house.world.now + 0.9
    lease.due_at = house.world.now + 0.3
    assert house.roster.add(lease)
    house.world.now += 0.3
    assert house.tend(everyone(DONE)) == [1]
    assert house.roster.wake_at - house.world.now <= 0.3
    lease.grant.ttl, lease.grant.valid_until = 9.0, house.world.now + 9.0
    lease.due_at = house.world.now + 3.0
    house.roster.add(lease)
    house.world.now += 3.0
    assert house.tend(everyone(DONE)) == [1], "what the heap knew of it before does not count"


def test_leases_that_were_taken_together_are_first_renewed_apart() -> None:
    house = House()
    numbers = iter([0.0, 0.5, 1.0])
    house.roster._random = lambda: next(numbers)
    for lease in [house.lease() for _ in range(3)]:
        lease.due_at = house.world.now + 1.5
    house.roster.settle()
    assert sorted(due_at - house.world.now for due_at, _, _ in house.roster._heap) == pytest.approx(
        [1.5, 2.25, 3.0]
    )


def test_a_forked_child_renews_nothing() -> None:
    house = House()
    early = house.lease()
    house.roster.settle()
    fresh = house.lease()
    house.roster.forget()
    house.world.now += 3.0
    assert house.tend() == []
    assert early.grant.over
    assert fresh.grant.over


def test_a_lease_of_a_short_ttl_does_not_wait_behind_others() -> None:
    house = House()
    for _ in range(2 * CHUNK):
        house.lease(ttl=9.0)
    house.world.now += 3.0
    hasty = house.lease(ttl=0.3)
    house.world.now += 0.1
    slow = house.world.takes(0.01, everyone(DONE))
    house.tend(*[slow] * 3)
    assert isinstance(hasty.told[0], Extension)
    assert [one.name for one in only(house.world.rounds[0], Extend)[0].leases] == ["101"]


def test_a_wake_up_that_was_lost_is_found_in_the_heap() -> None:
    house = House()
    house.lease(ttl=3.0)
    house.roster.settle()
    due_at = house.roster.wake_at
    house.roster.wake_at = NEVER  # a thread that compared long ago has just written what it found then
    house.roster.hurry()
    assert house.roster.wake_at == due_at
