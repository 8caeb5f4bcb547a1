"""The circuit breaker: who is suspected, for how long, and who is left out of a round."""

from __future__ import annotations

from itertools import product

import pytest

from quorumlock.core.effects import Round, Route
from quorumlock.core.health import FIRST_PROBE, LAST_PROBE, Health, give_up, leave_out
from quorumlock.core.requests import Look, Request
from quorumlock.core.votes import Cause, Vote

from .driver import HELD, World, granted

NOW = 100.0


def a_round(count: int, *, everyone: bool = False, unasked: frozenset[int] = frozenset()) -> Round:
    fleet = World(count).fleet
    requests: list[Request | None] = [None if i in unasked else Look("job") for i in range(count)]
    tally = fleet.tally(asked=count - len(unasked))
    return Round(requests, tally, 0.05, Route(), everyone)


def healths(suspected: tuple[bool, ...]) -> list[Health]:
    result = [Health() for _ in suspected]
    for health, suspect in zip(result, suspected, strict=True):
        if suspect:
            health.failed(NOW)
    return result


def test_a_new_node_is_not_suspected() -> None:
    assert not Health().suspect(NOW)


def test_a_silent_node_is_suspected_until_its_probe_is_due() -> None:
    health = Health()
    assert health.failed(NOW), "this is news"
    assert health.suspect(NOW)
    assert health.suspect(NOW + FIRST_PROBE - 0.001)
    assert not health.suspect(NOW + FIRST_PROBE)


def test_probes_of_a_node_that_stays_silent_become_rarer_up_to_a_limit() -> None:
    health = Health()
    pauses = []
    for attempt in range(2000):
        assert health.failed(NOW) is (attempt == 0), "only the first failure is news"
        pauses.append(health.probe_at - NOW)
    assert pauses == sorted(pauses)
    assert pauses[:4] == pytest.approx([FIRST_PROBE, 2 * FIRST_PROBE, 4 * FIRST_PROBE, 8 * FIRST_PROBE])
    assert pauses[-1] == pytest.approx(LAST_PROBE)


def test_one_answer_clears_a_node() -> None:
    health = Health()
    assert not health.answered(), "no news"
    health.failed(NOW)
    health.failed(NOW)
    assert health.answered()
    assert not health.suspect(NOW)
    assert health.failed(NOW)
    assert health.probe_at == pytest.approx(NOW + FIRST_PROBE), "and it starts anew"


@pytest.mark.parametrize("count", range(1, 8))
def test_suspects_are_left_out_but_a_majority_is_always_asked(count: int) -> None:
    majority = count // 2 + 1
    for suspected in product((False, True), repeat=count):
        round_ = a_round(count)
        leave_out(round_, healths(suspected), majority, NOW)
        left_out = round_.tally.caused(Cause.LEFT_OUT)
        assert all(suspected[node] for node in left_out)
        assert len(left_out) == min(sum(suspected), count - majority)
        assert not round_.tally.decided, "the rest can still decide"
        assert all(answer is None or answer.vote is Vote.UNKNOWN for answer in round_.tally.answers)


def test_a_node_whose_probe_is_due_is_asked() -> None:
    round_ = a_round(3)
    leave_out(round_, healths((True, True, True)), 2, NOW + FIRST_PROBE)
    assert round_.tally.answers == [None] * 3


def test_nobody_is_left_out_of_a_round_for_everyone() -> None:
    round_ = a_round(5, everyone=True)
    leave_out(round_, healths((True,) * 5), 3, NOW)
    assert round_.tally.answers == [None] * 5


def test_nodes_that_are_not_asked_anyway_do_not_count_as_spare() -> None:
    round_ = a_round(5, unasked=frozenset({0, 1}))
    leave_out(round_, healths((True,) * 5), 3, NOW)
    assert round_.tally.answers == [None] * 5


def test_giving_up_makes_silence_a_vote_of_those_who_were_asked() -> None:
    round_ = a_round(5, unasked=frozenset({4}))
    round_.tally.cast(0, granted())
    assert give_up(round_) == [1, 2, 3]
    assert round_.tally.caused(Cause.SILENT) == [1, 2, 3]
    assert round_.tally.answers[4] is None
    assert "did not answer in time (50 ms)" in round_.tally.describe()
    assert round_.tally.decided
    assert round_.tally.closed


def test_after_a_decision_nobody_is_blamed_for_not_having_answered_yet() -> None:
    round_ = a_round(3)
    round_.tally.cast(0, HELD)
    round_.tally.cast(1, HELD)
    assert give_up(round_) == []
    assert round_.tally.answers[2] is None
    assert round_.tally.closed
