"""What a keeper does with a lease that is due, and what it tells of it."""

from __future__ import annotations

import pytest

from quorumlock.core.keeper import NEVER, tend
from quorumlock.core.renewal import Extension
from quorumlock.core.requests import Release
from quorumlock.core.votes import Cause, of_each
from quorumlock.errors import LossReason

from .driver import ABSENT, DONE, HELD, LOST_LINE, SILENT, everyone, only, votes
from .house import House


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


def test_a_loss_that_cannot_be_told_does_not_cost_the_others_theirs() -> None:
    house = House()
    leases = [house.lease(keep=False) for _ in range(4)]

    def fail() -> None:
        leases[1].grant.over = True
        raise SystemExit("a subscriber")

    leases[1].expire = fail  # type: ignore[method-assign]
    house.world.now += 9.0
    with pytest.raises(SystemExit):
        house.tend()
    house.roster.settle()
    house.world.now = house.roster.wake_at
    house.tend()
    assert [len(lease.told) for lease in leases] == [1, 0, 1, 1]


@pytest.mark.parametrize("node_timeout", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("ttl", [0.03, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("random", [0.0, 1.0])
def test_one_error_does_not_cost_a_lease(ttl: float, node_timeout: float, random: float) -> None:
    house = House(random=random)
    house.world.fleet.node_timeout = node_timeout
    house.world.fleet.drift = 0.0
    lease = house.lease(ttl=ttl)
    house.world.now += ttl / 3
    house.tend(everyone(LOST_LINE))
    house.world.now = house.roster.wake_at
    house.tend(everyone(DONE))
    assert isinstance(lease.told[0], Extension), "the second attempt came too late"
