"""The tally against an oracle that tries every way a round could still go."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock.core.fleet import Fleet
from quorumlock.core.votes import UNABLE, Answer, Cause, Tally, Vote, unknown

from ..unit.examples import examples
from .driver import HELD, QUARANTINE, World, granted

KINDS = (Vote.GRANTED, Vote.REFUSED, Vote.UNKNOWN)
SAYS = {
    Vote.GRANTED: granted(1),
    Vote.REFUSED: HELD,
    Vote.UNKNOWN: unknown(Cause.DISCONNECTED),
}


def labels(count: int) -> tuple[str, ...]:
    return tuple(f"node{i}" for i in range(count))


def wins(votes: tuple[Vote, ...], needed: int, any_answer: bool) -> bool:
    favourable = {Vote.GRANTED, Vote.REFUSED} if any_answer else {Vote.GRANTED}
    return sum(vote in favourable for vote in votes) >= needed


@cache
def certain(votes: tuple[Vote, ...], missing: int, needed: int, any_answer: bool) -> bool:
    """Is the outcome the same however the missing nodes vote? Every way is tried."""
    outcomes = {wins(votes + rest, needed, any_answer) for rest in product(KINDS, repeat=missing)}
    return len(outcomes) == 1


def check_against_oracle(kind: type[Tally], count: int, order: tuple[int, ...], any_answer: bool) -> None:
    """Every sequence of votes, one after the other: decided exactly when the outcome is certain."""
    needed = count // 2 + 1
    for votes in product(KINDS, repeat=count):
        tally = kind(labels(count), needed, any_answer=any_answer)
        told: list[bool] = []
        tally.on_decided = lambda told=told, tally=tally: told.append(tally.decided)
        assert not tally.decided
        for cast, node in enumerate(order, start=1):
            tally.cast(node, SAYS[votes[cast - 1]])
            seen = votes[:cast]
            expected = certain(tuple(sorted(seen, key=KINDS.index)), count - cast, needed, any_answer)
            assert tally.decided is expected, f"{seen} of {count}"
            assert tally.won is wins(seen, needed, any_answer)
            assert tally.heard + tally.against == cast
        assert told == [True]


@pytest.mark.parametrize("any_answer", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_it_decides_as_early_as_arithmetic_allows_and_never_earlier(count: int, any_answer: bool) -> None:
    for order in permutations(range(count)):
        check_against_oracle(Tally, count, order, any_answer)


@pytest.mark.parametrize("any_answer", [False, True])
def test_the_same_for_five_nodes_in_some_orders_of_arrival(any_answer: bool) -> None:
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 1, 0, 3)):
        check_against_oracle(Tally, 5, order, any_answer)


class Hasty(Tally):
    """A canary: decides one grant too early."""

    __slots__ = ()

    def cast(self, node: int, answer: Answer) -> None:
        if not self.decided and answer.vote is Vote.GRANTED and self.heard + 1 == self.needed - 1:
            self.decided = True
            if self.on_decided:
                self.on_decided()
        super().cast(node, answer)


class Patient(Tally):
    """A canary: waits for everybody."""

    __slots__ = ()

    def cast(self, node: int, answer: Answer) -> None:
        told, self.on_decided = self.on_decided, None
        super().cast(node, answer)
        self.on_decided = told
        if self.decided and None in self.answers:
            self.decided = False
        elif self.decided and told:
            told()


class Resigned(Tally):
    """A canary: takes the first refusal for the end."""

    __slots__ = ()

    def cast(self, node: int, answer: Answer) -> None:
        super().cast(node, answer)
        if not self.decided and answer.vote is not Vote.GRANTED:
            self.decided = True


@pytest.mark.parametrize("broken", [Hasty, Patient, Resigned])
def test_the_oracle_catches_a_tally_that_decides_at_the_wrong_time(broken: type[Tally]) -> None:
    with pytest.raises(AssertionError):
        check_against_oracle(broken, 3, (0, 1, 2), False)


@pytest.mark.parametrize(
    ("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)]
)
def test_a_majority_is_more_than_half_of_the_configured_nodes(count: int, majority: int) -> None:
    fleet = World(count).fleet
    assert fleet.majority == majority
    assert fleet.tally().needed == majority
    assert 2 * majority > count >= 2 * (majority - 1)


@pytest.mark.parametrize("count", range(1, 10))
def test_any_mixture_of_votes_wins_with_a_majority_of_grants_and_only_then(count: int) -> None:
    fleet = World(count).fleet
    for grants in range(count + 1):
        for refusals in range(count - grants + 1):
            tally = fleet.tally()
            kinds = [Vote.GRANTED] * grants + [Vote.REFUSED] * refusals
            kinds += [Vote.UNKNOWN] * (count - len(kinds))
            for node, vote in enumerate(kinds):
                tally.cast(node, SAYS[vote])
            assert tally.decided
            assert tally.won is (grants > count / 2)
            assert tally.able is (grants + refusals > count / 2)


@examples
@given(
    st.integers(1, 9),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(KINDS), st.integers(1, 9)), max_size=40),
)
def test_a_node_votes_once_and_only_unknown_is_replaced(
    count: int, any_answer: bool, casts: list[tuple[int, Vote, int]]
) -> None:
    tally = Tally(labels(count), count // 2 + 1, any_answer=any_answer)
    decisions: list[None] = []
    tally.on_decided = lambda: decisions.append(None)
    model: dict[int, Answer] = {}
    for node, vote, fence in casts:
        answer = Answer(vote, Cause.AGREED if vote is Vote.GRANTED else Cause.HELD, fence)
        decided_before = tally.decided
        tally.cast(node % count, answer)
        if model.get(node % count, unknown(Cause.SILENT)).vote is Vote.UNKNOWN:
            model[node % count] = answer
        assert tally.answers == [model.get(i) for i in range(count)]
        favourable = {Vote.GRANTED, Vote.REFUSED} if any_answer else {Vote.GRANTED}
        assert tally.heard == sum(answer.vote in favourable for answer in model.values())
        assert tally.against == len(model) - tally.heard
        assert dict(tally.granted()) == {i: a.fence for i, a in model.items() if a.vote is Vote.GRANTED}
        assert tally.decided >= decided_before, "a decision is never taken back"
    assert len(decisions) == tally.decided


def test_a_late_grant_can_still_win_what_looked_lost() -> None:
    tally = Tally(labels(3), 2)
    for node in (0, 1):
        tally.cast(node, unknown(Cause.SILENT))
    assert tally.decided
    assert not tally.won
    tally.close()
    tally.cast(0, granted(4))
    tally.cast(2, granted(5))
    assert tally.won
    assert dict(tally.granted()) == {0: 4, 2: 5}


def test_nobody_is_told_of_votes_after_the_round_was_closed() -> None:
    tally = Tally(labels(1), 1)
    tally.on_decided = lambda: pytest.fail("told although closed")
    tally.close()
    tally.cast(0, granted())
    assert tally.decided
    assert tally.closed


def test_a_frozen_tally_takes_no_vote_any_more() -> None:
    tally = Tally(labels(3), 2)
    tally.cast(0, unknown(Cause.SILENT))
    tally.freeze()
    tally.cast(0, granted())
    tally.cast(1, granted())
    assert tally.answers == [unknown(Cause.SILENT), None, None]
    assert (tally.heard, tally.against) == (0, 1)


def test_a_reasoned_tally_is_lost_only_when_it_is_known_whether_a_majority_was_able() -> None:
    """Every sequence of answers: won at once; lost when enough able nodes have spoken, or nobody is left."""
    says = (granted(1), HELD, QUARANTINE, unknown(Cause.LEFT_OUT))
    for count in (1, 3, 5):
        needed = count // 2 + 1
        for answers in product(says, repeat=count):
            tally = Tally(labels(count), needed, reasoned=True)
            for cast, answer in enumerate(answers, start=1):
                tally.cast(cast - 1, answer)
                seen = answers[:cast]
                grants = sum(one.vote is Vote.GRANTED for one in seen)
                able = sum(one.cause not in UNABLE for one in seen)
                lost = grants + count - cast < needed
                expected = grants >= needed or (lost and (able >= needed or cast == count))
                assert tally.decided is expected, f"{seen} of {count}"
                assert tally.able is (able >= needed)
                if expected:
                    break


def test_only_the_nodes_that_were_asked_are_waited_for() -> None:
    tally = Tally(labels(5), 2, asked=2)
    tally.cast(3, granted())
    assert not tally.decided
    tally.cast(4, HELD)
    assert tally.decided
    assert not tally.won


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_patient_tally_hears_everybody_out_who_was_asked(asked: int) -> None:
    for votes in product(KINDS, repeat=asked):
        tally = Tally(labels(3), 2, asked=asked, patient=True)
        told: list[None] = []
        tally.on_decided = lambda told=told: told.append(None)
        for node, vote in enumerate(votes):
            assert not tally.decided
            tally.cast(node, SAYS[vote])
        assert tally.decided
        assert len(told) == 1
        assert tally.won is wins(votes, 2, any_answer=False)


def test_a_fleet_asks_for_another_number_of_votes_where_told() -> None:
    fleet: Fleet = World(5).fleet
    assert fleet.tally(5).needed == 5
    assert fleet.tally(1, asked=1).needed == 1


@pytest.mark.parametrize("cause", list(Cause))
def test_a_cause_either_says_something_about_the_lock_or_that_the_node_was_unable(cause: Cause) -> None:
    tally = Tally(labels(1), 1)
    tally.cast(0, Answer(Vote.GRANTED if cause is Cause.AGREED else Vote.REFUSED, cause))
    speaks = {Cause.AGREED, Cause.HELD, Cause.ABSENT, Cause.CHANGED, Cause.ENDED}
    assert (cause in UNABLE) is (cause not in speaks)
    assert tally.able is (cause in speaks)
    assert tally.caused(cause) == [0]


def test_all_refused_needs_a_refusal_of_every_node() -> None:
    for kinds in product([None, *KINDS], repeat=3):
        tally = Tally(labels(3), 2)
        for node, vote in enumerate(kinds):
            if vote is not None:
                tally.cast(node, SAYS[vote])
        assert tally.all_refused() is (set(kinds) == {Vote.REFUSED})


def test_a_description_names_every_node_that_did_not_agree_and_why() -> None:
    tally = Tally(("a:1", "b:2", "c:3", "d:4", "e:5"), 3)
    tally.cast(0, granted())
    tally.cast(1, QUARANTINE)
    tally.cast(2, unknown(Cause.FAILED, "LOADING data"))
    tally.cast(3, HELD)
    text = tally.describe()
    assert text.startswith("1 of 5 agreed, 3 needed; ")
    assert "b:2 is in quarantine for 1.5 s more" in text
    assert "c:3 answered with an error (LOADING data)" in text
    assert "d:4 says it is held" in text
    assert "a:1" not in text
    assert "e:5" not in text, "it was not heard of"
    assert text in repr(tally)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.AGREED])
def test_every_cause_appears_in_the_description(cause: Cause) -> None:
    tally = Tally(("a:1",), 1)
    tally.cast(0, unknown(cause))
    assert f"a:1 {cause.value}" in tally.describe()
