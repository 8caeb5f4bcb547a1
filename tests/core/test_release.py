"""Release, the undoing of attempts, break and look."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from quorumlock.core.effects import Route
from quorumlock.core.redlock import Refusal, acquire, break_, broken, look, release
from quorumlock.core.requests import Break, Join, Look, Release
from quorumlock.core.votes import Answer, Cause, Vote
from quorumlock.errors import ConfigurationError

from .driver import (
    ABSENT,
    DONE,
    HELD,
    LEFT_OUT,
    LOST_LINE,
    QUARANTINE,
    SILENT,
    UNREACHABLE,
    World,
    asked,
    everyone,
    granted,
    only,
    refused,
    then,
    votes,
)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_release_goes_to_all_nodes_and_returns_when_a_majority_has_answered(count: int) -> None:
    for said in product((DONE, HELD, ABSENT), repeat=count):
        world = World(count)
        route = Route()
        tally = world.run(release(world.fleet, "job", "mine", 10.0, route), [votes(*said)])
        assert asked(world.effects[0]) == dict.fromkeys(range(count), Release("job", "mine"))
        assert world.rounds[0].route is route, "behind what it undoes"
        assert world.rounds[0].everyone, "suspected nodes too"
        assert tally.won
        assert sum(one is not None for one in tally.answers) == count // 2 + 1, "whatever they answered"


def test_a_release_that_no_majority_answered_is_quiet_but_says_so() -> None:
    world = World(3)
    tally = world.run(release(world.fleet, "job", "mine", 10.0, Route()), [votes(DONE, SILENT, SILENT)])
    assert not tally.won
    assert len(world.rounds) == 1


def test_a_release_into_connections_that_had_just_ended_is_said_once_more_to_those_nodes() -> None:
    world = World(5)
    route = Route()
    said = [votes(DONE, LOST_LINE, LOST_LINE, LOST_LINE, SILENT), everyone(LOST_LINE)]
    assert not world.run(release(world.fleet, "job", "mine", 10.0, route), said).won
    assert set(only(world.rounds[1], Release)) == {1, 2, 3}
    assert world.rounds[1].route is route
    assert world.rounds[1].everyone
    assert len(world.rounds) == 2, "and not a third time"


def test_a_release_that_a_majority_heard_is_not_said_again() -> None:
    world = World(3)
    assert world.run(release(world.fleet, "job", "mine", 10.0, Route()), [votes(LOST_LINE, DONE, ABSENT)]).won


def test_a_release_that_is_said_again_counts_who_heard_it_either_time() -> None:
    world = World(5)
    said = [votes(DONE, DONE, LOST_LINE, LOST_LINE, SILENT), votes(None, None, DONE, SILENT, None)]
    assert world.run(release(world.fleet, "job", "mine", 10.0, Route()), said).won


def test_a_release_that_is_said_again_still_needs_a_majority_to_be_confirmed() -> None:
    """One node of five has heard it: the four others were silent, and that is not forgotten."""
    world = World(5)
    said = [votes(LOST_LINE, SILENT, SILENT, SILENT, SILENT), votes(DONE, None, None, None, None)]
    assert not world.run(release(world.fleet, "job", "mine", 10.0, Route()), said).won


def refusal_of(world: World, *rounds: tuple[Answer | None, ...]) -> Refusal:
    outcome = world.run(acquire(world.fleet, "job", 10.0), [votes(*said) for said in rounds])
    assert isinstance(outcome, Refusal)
    return outcome


@pytest.mark.parametrize("unheard", [SILENT, UNREACHABLE])
def test_an_attempt_may_linger_where_the_answer_to_its_release_never_came(unheard: Answer | None) -> None:
    assert refusal_of(World(3), (granted(1), HELD, LOST_LINE), (unheard, SILENT, DONE)).linger
    assert refusal_of(World(1), (LOST_LINE,), (unheard,)).linger


def test_an_attempt_may_linger_where_its_release_was_lost_twice() -> None:
    said = (granted(1), HELD, LOST_LINE)
    assert refusal_of(World(3), said, (LOST_LINE, SILENT, DONE), (SILENT, None, None)).linger
    assert not refusal_of(World(3), said, (LOST_LINE, SILENT, DONE), (DONE, None, None)).linger


def test_a_release_that_is_said_again_elsewhere_does_not_hide_who_was_silent() -> None:
    """Node 0 has granted and did not answer the release; only node 2, whose connection broke, is told again."""
    said = (granted(1), HELD, LOST_LINE)
    assert refusal_of(World(3), said, (SILENT, DONE, LOST_LINE), (None, None, DONE)).linger


@pytest.mark.parametrize("silent", [SILENT, LOST_LINE])
def test_an_attempt_may_linger_on_a_node_that_answered_neither_the_request_nor_the_release(
    silent: Answer | None,
) -> None:
    """The release is decided by the two others. The third may have taken the token: nothing was heard of it."""
    assert refusal_of(World(3), (granted(1), HELD, silent), (DONE, DONE, SILENT)).linger


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_an_attempt_does_not_linger_where_every_release_was_heard(order: tuple[int, ...]) -> None:
    world = World(3)
    performers = [votes(granted(1), HELD, QUARANTINE, order=order), everyone(DONE)]
    outcome = world.run(acquire(world.fleet, "job", 10.0), performers)
    assert isinstance(outcome, Refusal)
    assert not outcome.linger


def test_a_node_that_refused_cannot_have_the_token_even_if_its_release_was_not_heard() -> None:
    assert not refusal_of(World(3), (granted(1), HELD, HELD), (DONE, SILENT, SILENT)).linger


def test_a_node_that_was_never_asked_cannot_have_the_token() -> None:
    world = World(3)
    assert not refusal_of(world, (LEFT_OUT, HELD, HELD), (None, DONE, DONE)).linger
    assert set(only(world.rounds[1], Release)) == {1, 2}


def test_nothing_is_released_where_no_node_was_reached() -> None:
    world = World(1)
    outcome = world.run(acquire(world.fleet, "job", 10.0), [votes(UNREACHABLE)])
    assert isinstance(outcome, Refusal)
    assert not outcome.linger
    assert not outcome.busy


def test_one_round_trip_where_every_node_says_that_it_is_held() -> None:
    world = World(1)
    outcome = world.run(acquire(world.fleet, "job", 10.0), [everyone(HELD)])
    assert isinstance(outcome, Refusal)
    assert outcome.busy
    assert outcome.wait_ms == 900


def test_an_answer_that_comes_during_the_clean_up_does_not_change_what_is_said() -> None:
    """Else an error could say that two of three agreed, and that this was not enough."""
    world = World(3)

    def late() -> None:
        world.rounds[0].tally.cast(2, granted(2))

    performers = [votes(granted(1), HELD, LOST_LINE), then(everyone(DONE), late)]
    outcome = world.run(acquire(world.fleet, "job", 10.0), performers)
    assert isinstance(outcome, Refusal)
    assert outcome.tally.heard == 1
    assert "node2 closed the connection" in outcome.tally.describe()


def test_the_holders_time_is_only_told_by_nodes_that_say_it_is_held() -> None:
    world = World(3)
    outcome = world.run(acquire(world.fleet, "job", 10.0), [votes(QUARANTINE, QUARANTINE, SILENT), everyone(DONE)])
    assert isinstance(outcome, Refusal)
    assert outcome.wait_ms == 0


@pytest.mark.parametrize("misfits", [1, 2, 3])
def test_a_fleet_that_was_changed_under_us_is_an_error_once_no_majority_is_left_without_it(misfits: int) -> None:
    world = World(3)
    strange = Answer(Vote.REFUSED, Cause.MISFIT, detail="other terms")
    said = [strange] * misfits + [HELD] * (3 - misfits)
    if misfits == 1:
        outcome = world.run(acquire(world.fleet, "job", 10.0), [votes(*said)])
        assert isinstance(outcome, Refusal)
        return
    with pytest.raises(ConfigurationError, match="other terms"):
        world.run(acquire(world.fleet, "job", 10.0), [votes(*said)])


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_break_goes_to_all_nodes_and_waits_for_all_of_them(count: int) -> None:
    world = World(count)
    seen = votes(*[refused(Cause.HELD)._replace(fence=17 + index) for index in range(count)])
    tally = world.run(break_(world.fleet, "job"), [seen, everyone(ABSENT)])
    assert asked(world.effects[0]) == dict.fromkeys(range(count), Look("job"))
    assert asked(world.effects[1]) == dict.fromkeys(range(count), Break("job", 16 + count))
    assert all(round_.everyone for round_ in world.rounds)
    assert tally.won
    assert None not in tally.answers
    assert tally.needed == count // 2 + 1


@pytest.mark.parametrize(("fence", "raised"), [(5, 5), (17, 17), (18, 18), (19, 18)])
def test_a_break_of_one_hold_raises_no_fence_above_what_is_known(fence: int, raised: int) -> None:
    """Leases that are newer than that one can still be healed."""
    world = World(3)
    seen = votes(*[refused(Cause.HELD)._replace(fence=number) for number in (17, 18, 17)])
    since = Answer(Vote.REFUSED, Cause.CHANGED, 18)
    tally = world.run(break_(world.fleet, "job", "me", fence), [seen, votes(DONE, since, since)])
    assert asked(world.effects[1]) == dict.fromkeys(range(3), Break("job", raised, "me", fence))
    assert not broken(tally)


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("failing", [LOST_LINE, UNREACHABLE, SILENT])
def test_a_break_needs_a_majority_and_not_all_nodes_whoever_answers_first(
    failing: Answer | None, order: tuple[int, ...]
) -> None:
    world = World(3)
    tally = world.run(
        break_(world.fleet, "job"), [votes(failing, failing, failing), votes(failing, DONE, ABSENT, order=order)]
    )
    assert tally.won


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_lock_is_broken_when_it_is_gone_from_a_majority(count: int) -> None:
    kinds = (DONE, ABSENT, refused(Cause.OTHER_KIND), refused(Cause.STRANGER), LOST_LINE)
    for said in product(kinds, repeat=min(count, 3)):
        answers = (*said, *[DONE] * (count - len(said)))
        world = World(count)
        tally = world.run(break_(world.fleet, "job"), [everyone(granted(5)), votes(*answers)])
        assert broken(tally) is (sum(one in (DONE, ABSENT) for one in answers) > count // 2)


def test_a_break_without_a_majority_says_so() -> None:
    world = World(3)
    said = votes(DONE, LOST_LINE, LOST_LINE)
    assert not world.run(break_(world.fleet, "job"), [said, said]).won


def test_a_break_meets_the_nodes_first_and_goes_on_without_a_majority() -> None:
    world = World(3, mustered=False)
    world.run(break_(world.fleet, "job"), [everyone(LOST_LINE), everyone(LOST_LINE), everyone(DONE)])
    assert only(world.effects[0], Join)
    assert only(world.effects[1], Look)
    assert only(world.effects[2], Break)


def test_a_look_asks_in_one_round_and_changes_nothing() -> None:
    world = World(5)
    tally = world.run(look(world.fleet, "job"), [everyone(granted(0))])
    assert asked(world.effects[0]) == dict.fromkeys(range(5), Look("job"))
    assert not world.rounds[0].everyone
    assert tally.won
    assert not world.tokens


@pytest.mark.parametrize(
    ("said", "won", "able"),
    [
        ((DONE, DONE, HELD), True, True),
        ((HELD, HELD, DONE), False, True),
        ((HELD, QUARANTINE, DONE), False, True),
        ((QUARANTINE, LOST_LINE, HELD), False, False),
        ((refused(Cause.OTHER_KIND), LOST_LINE, DONE), False, False),
    ],
)
def test_a_look_tells_free_from_held_and_held_from_unable(
    said: tuple[Answer | None, ...], won: bool, able: bool
) -> None:
    world = World(3)
    tally = world.run(look(world.fleet, "job"), [votes(*said)])
    assert (tally.won, tally.able) == (won, able)


def test_a_look_at_a_fleet_that_cannot_be_met_ends_there() -> None:
    world = World(3, mustered=False)
    tally = world.run(look(world.fleet, "job"), [everyone(LOST_LINE)])
    assert not tally.won
    assert not tally.able
