"""Renewal that goes on while validity lasts, and then says why the lease is lost."""

from __future__ import annotations

import pytest

from quorumlock.core.requests import Extend, Release
from quorumlock.core.votes import Answer
from quorumlock.core.waiting import extend_or_lose
from quorumlock.errors import LeaseLost, LossReason

from .driver import ABSENT, DONE, HELD, LOST_LINE, SILENT, Performer, World, everyone, only, votes


def lose(world: World, performers: list[Performer], left: float = 5.0) -> LeaseLost:
    grant = world.grant(left=left)
    with pytest.raises(LeaseLost) as lost:
        world.run(extend_or_lose(world.fleet, grant, 10.0), performers)
    assert grant.valid_until <= world.now, "a lost lease is valid for no further instant"
    return lost.value


def test_a_renewed_lease_takes_one_round() -> None:
    world = World(3)
    extension = world.run(extend_or_lose(world.fleet, world.grant(), 10.0), [everyone(DONE)])
    assert extension.valid_until == pytest.approx(world.now + 9.898)
    assert not world.sleeps


@pytest.mark.parametrize(
    ("said", "reason"),
    [((HELD, HELD, HELD), LossReason.TAKEN), ((ABSENT, HELD, HELD), LossReason.TAKEN),
     ((ABSENT, ABSENT, ABSENT), LossReason.BROKEN)],
)  # fmt: skip
def test_a_lease_that_the_nodes_call_gone_is_lost_at_once(said: tuple[Answer, ...], reason: LossReason) -> None:
    world = World(3)
    lost = lose(world, [votes(*said)])
    assert lost.reason is reason
    assert reason.value in str(lost)
    assert "'job'" in str(lost)
    assert len(world.effects) == 1


def test_one_transient_error_does_not_end_renewal() -> None:
    world = World(3)
    performers = [everyone(LOST_LINE), everyone(SILENT), everyone(DONE)]
    extension = world.run(extend_or_lose(world.fleet, world.grant(), 10.0), performers)
    assert extension.valid_until is not None
    assert [type(only(round_, Extend)[0]) for round_ in world.rounds] == [Extend] * 3
    assert world.sleeps == pytest.approx([0.05, 0.05])


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
def test_pauses_between_rounds_are_half_to_one_and_a_half_node_timeouts(drawn: float) -> None:
    world = World(1, random=drawn)
    world.run(extend_or_lose(world.fleet, world.grant(), 10.0), [everyone(LOST_LINE), everyone(DONE)])
    assert world.sleeps == [pytest.approx(0.05 * (0.5 + drawn))]


def test_silence_until_validity_ends_is_unreachable() -> None:
    world = World(3)
    lost = lose(world, [world.takes(0.05, everyone(SILENT))] * 30, left=0.48)
    assert lost.reason is LossReason.UNREACHABLE
    assert "node0 did not answer in time" in str(lost)
    assert 5 <= len(world.rounds) <= 15, "shorter pauses towards the end, but no frenzy"


def test_no_round_is_begun_after_validity_has_ended() -> None:
    world = World(3)
    assert lose(world, [], left=0.0).reason is LossReason.EXPIRED
    assert not world.effects


def test_an_answer_that_came_after_validity_had_ended_is_too_late_and_released() -> None:
    world = World(3)
    lost = lose(world, [world.takes(1.0, everyone(DONE)), everyone(DONE)], left=1.0)
    assert lost.reason is LossReason.EXPIRED
    assert only(world.rounds[1], Release) == dict.fromkeys(range(3), Release("job", "mine"))


@pytest.mark.parametrize("left", [5.0, 0.001])
def test_what_a_minority_has_just_renewed_is_released(left: float) -> None:
    world = World(3)
    others = ABSENT if left > 1 else LOST_LINE
    performers = [votes(DONE, others, others), everyone(DONE)]
    lost = lose(world, performers, left=left)
    assert lost.reason is (LossReason.BROKEN if left > 1 else LossReason.UNREACHABLE)
    assert set(only(world.rounds[-1], Release)) == {0, 1, 2}


def test_a_later_round_decides_whatever_earlier_ones_said() -> None:
    world = World(3)
    assert lose(world, [everyone(SILENT), everyone(HELD)]).reason is LossReason.TAKEN
