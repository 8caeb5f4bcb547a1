"""The keeper's order of business: who is due when, in how many messages, and what is told of each lease."""

from __future__ import annotations

import pytest

from quorumlock.core import keeper
from quorumlock.core.effects import Round, Route, Sleep
from quorumlock.core.keeper import CHUNK, CHUNK_WHEN_LATE, NEVER, Roster, tend
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import Extension
from quorumlock.core.requests import Extend, Release
from quorumlock.core.votes import Cause, of_each
from quorumlock.errors import LossReason

from .driver import ABSENT, DONE, HELD, SILENT, World, everyone, only, votes


class Lease:
    """A lease, as a keeper sees it, which remembers what it was told."""

    def __init__(self, grant: Grant, *, keep: bool = True) -> None:
        self.grant = grant
        self.keep = keep
        self.fate = LossReason.EXPIRED
        self.due_at = grant.valid_until - (grant.ttl * 2 / 3 if keep else 0)
        self.told: list[Extension | LossReason] = []

    def renewable(self, now: float) -> bool:
        return self.keep

    def renewed(self, extension: Extension) -> None:
        self.fate = LossReason.EXPIRED
        self.told.append(extension)

    def doubt(self) -> None:
        self.fate = LossReason.UNREACHABLE

    def expire(self) -> None:
        self.lost(self.fate)

    def lost(self, reason: LossReason) -> None:
        self.told.append(reason)
        self.grant.over = True


class House:
    """A world of three nodes, and a keeper in it."""

    def __init__(self, *, random: float = 0.0) -> None:
        self.world = World(3, random=random)
        self.roster = Roster(self.world.fleet.clock, self.world.fleet.random)
        self.count = 0

    def lease(self, *, ttl: float = 9.0, keep: bool = True) -> Lease:
        """A lease that was acquired this instant, of a fleet without drift."""
        self.count += 1
        name = str(self.count)
        grant = Grant(name, name, 1, ttl, self.world.now + ttl, self.world.fleet.tally(), Route())
        lease = Lease(grant, keep=keep)
        self.roster.add(lease)
        return lease

    def tend(self, *performers: object) -> list[int]:
        """Lets the keeper do what is due; the size of each message."""
        self.roster.rise()
        self.world.effects.clear()
        self.world.run(tend(self.world.fleet, self.roster), performers)  # type: ignore[arg-type]
        self.roster.settle()
        return [
            len(only(one, Extend)[0].leases) for one in self.world.rounds if isinstance(one.requests[0], Extend)
        ]


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


def test_nothing_is_renewed_after_its_release() -> None:
    house = House()
    dropped, over = house.lease(), house.lease()
    house.roster.settle()  # into the heap, from where nothing is dropped
    over.grant.over = True
    dropped.grant.over = True
    house.roster.drop(dropped)
    house.world.now += 3.0
    assert house.tend() == []
    assert house.roster.wake_at == NEVER


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


def test_a_lease_that_is_not_kept_only_has_its_end_announced() -> None:
    house = House()
    lease = house.lease(ttl=9.0, keep=False)
    house.world.now += 8.9
    assert house.tend() == []
    assert lease.told == []
    house.world.now += 0.1
    assert house.tend() == []
    assert lease.told == [LossReason.EXPIRED]
    assert house.roster.wake_at == NEVER


def test_a_lease_that_is_not_renewed_any_more_ends_with_the_reason() -> None:
    house = House()
    lease = house.lease(ttl=9.0)
    house.world.now += 3.0
    lease.keep, lease.fate = False, LossReason.MAX_HOLD
    assert house.tend() == []
    assert lease.told == [], "it is still valid"
    house.world.now += 6.0
    house.tend()
    assert lease.told == [LossReason.MAX_HOLD]


def test_the_keeper_stands_back_while_the_holder_extends() -> None:
    house = House()
    lease = house.lease()
    house.world.now += 3.0
    lease.grant.extending = True
    assert house.tend() == []
    assert house.roster.wake_at - house.world.now <= 0.1
    lease.grant.extending = False
    house.world.now = house.roster.wake_at
    assert house.tend(everyone(DONE)) == [1]


def test_what_cannot_be_told_is_asked_again_while_validity_lasts() -> None:
    house = House(random=0.5)
    lease = house.lease(ttl=9.0)
    house.world.now += 3.0
    asked = 0
    while not lease.told:
        asked += sum(house.tend(everyone(SILENT)))
        assert house.world.now < house.roster.wake_at <= lease.grant.valid_until
        house.world.now = house.roster.wake_at
        if house.world.now >= lease.grant.valid_until:
            assert house.tend() == []
    assert lease.told == [LossReason.UNREACHABLE]
    assert 20 < asked < 200, "again and again, but not in a frenzy"


def test_one_answer_makes_up_for_all_that_went_before() -> None:
    house = House()
    lease = house.lease(ttl=9.0)
    house.world.now += 3.0
    house.tend(everyone(SILENT))
    house.world.now = house.roster.wake_at
    house.tend(everyone(DONE))
    assert isinstance(lease.told[0], Extension)
    house.world.now += 100.0
    house.tend()
    assert lease.told[-1] is LossReason.EXPIRED, "not UNREACHABLE: it was we who slept"


@pytest.mark.parametrize(("answer", "reason"), [(HELD, LossReason.TAKEN), (ABSENT, LossReason.BROKEN)])
def test_a_lease_that_the_nodes_call_gone_is_lost_at_once(answer: object, reason: LossReason) -> None:
    house = House()
    lease = house.lease()
    house.world.now += 3.0
    house.tend(everyone(answer))  # type: ignore[arg-type]
    assert lease.told == [reason]
    assert house.roster.wake_at == NEVER


def test_what_a_minority_has_just_renewed_is_released() -> None:
    house = House()
    lease = house.lease()
    house.world.now += 3.0
    house.tend(votes(DONE, ABSENT, ABSENT), everyone(DONE))
    assert lease.told == [LossReason.BROKEN]
    assert set(only(house.world.rounds[-1], Release)) == {0, 1, 2}


def test_one_lost_lease_does_not_disturb_the_others() -> None:
    house = House()
    leases = [house.lease() for _ in range(3)]
    house.world.now += 3.0
    order = [charge.grant.name for charge in house.roster.charges()]
    house.roster.settle()
    gone = of_each([Cause.HELD if i == 1 else Cause.AGREED for i in range(3)])
    house.tend(everyone(gone))
    assert sorted(type(lease.told[0]).__name__ for lease in leases) == ["Extension", "Extension", "LossReason"]
    assert len(order) == 3


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("a disk"), KeyboardInterrupt()])
def test_whatever_goes_wrong_in_a_round_its_leases_are_due_again(error: BaseException) -> None:
    house = House()
    lease = house.lease()
    house.world.now += 3.0
    steps = tend(house.world.fleet, house.roster)
    next(steps)
    with pytest.raises(type(error)):
        steps.throw(error)
    house.roster.settle()
    assert house.world.now < house.roster.wake_at < house.world.now + 1
    house.world.now = house.roster.wake_at
    assert house.tend(everyone(DONE)) == [1]
    assert isinstance(lease.told[0], Extension)


def test_a_callback_that_raises_leaves_the_other_leases_in_care() -> None:
    house = House()
    leases = [house.lease() for _ in range(3)]
    house.world.now += 3.0

    def fail(extension: Extension) -> None:
        raise RuntimeError("a subscriber")

    leases[1].renewed = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        house.tend(everyone(DONE))
    house.roster.settle()
    assert {charge.grant.name for charge in house.roster.charges()} == {"1", "2", "3"}


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
