"""Extend and heal, driven by hand through every combination of answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import pytest

from quorumlock.core import renewal
from quorumlock.core.effects import Round, Steps
from quorumlock.core.fleet import Fleet
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import Extension, extend, heal, kept
from quorumlock.core.requests import Extend, Heal, Kept, Release
from quorumlock.core.votes import Answer, Cause, Tally
from quorumlock.errors import LossReason

from .driver import (
    ABSENT,
    DONE,
    HELD,
    LEFT_OUT,
    LOST_LINE,
    SILENT,
    World,
    asked,
    everyone,
    only,
    refused,
    then,
    votes,
)

OTHER_KIND = refused(Cause.OTHER_KIND)
LEASE = Kept("job", "mine", 8000, 9)
SAID: tuple[Answer | None, ...] = (DONE, HELD, ABSENT, OTHER_KIND, LOST_LINE, SILENT, LEFT_OUT)


def entered(said: Sequence[Answer | None], order: Sequence[int]) -> dict[int, Answer]:
    """The answers that come before the round is decided, by counting only."""
    majority = len(said) // 2 + 1
    result: dict[int, Answer] = {}
    missing = len(said) - sum(one is LEFT_OUT for one in said)
    for node in order:
        yes = sum(one is DONE for one in result.values())
        answer = said[node]
        if yes >= majority or yes + missing < majority:
            break
        if answer is not None and answer is not LEFT_OUT:
            result[node] = answer
            missing -= 1
    return result


def check(said: Sequence[Answer | None], order: Sequence[int]) -> str:
    """One extension; gives what it came to."""
    count = len(said)
    majority = count // 2 + 1
    world = World(count)
    grant = world.grant(ttl=10.0, left=5.0, fence=9)
    before = grant.valid_until
    known = entered(said, order)
    yes = [n for n, one in known.items() if one is DONE]
    forgot = {n for n, one in known.items() if one is ABSENT}
    gone = [n for n, one in known.items() if one in (HELD, ABSENT, OTHER_KIND)]
    performers = [votes(*said, order=order)]
    if len(yes) >= majority and forgot:
        performers.append(everyone(DONE))
    extension = world.run(extend(world.fleet, grant, 8.0), performers)

    assert asked(world.effects[0]) == dict.fromkeys(range(count), Extend((LEASE,)))
    assert all(round_.route is grant.route for round_ in world.rounds)
    if len(yes) >= majority:
        until = pytest.approx(world.now + 8.0 - 0.082)
        assert extension.valid_until == until
        assert grant.valid_until == until
        assert grant.ttl == 8.0
        assert extension.reason is None
        assert extension.healed == tuple(world.fleet.nodes[n] for n in sorted(forgot))
        if forgot:
            assert asked(world.effects[1]) == dict.fromkeys(forgot, Heal((LEASE,)))
            assert world.rounds[1].everyone
        return "extended"
    assert extension.valid_until is None
    assert extension.healed == ()
    assert (grant.valid_until, grant.ttl) == (before, 10.0)
    if count - len(gone) < majority:
        taken = any(one is HELD for one in known.values())
        assert extension.reason is (LossReason.TAKEN if taken else LossReason.BROKEN)
        return "taken" if taken else "broken"
    assert extension.reason is None
    return "unknown"


@pytest.mark.parametrize("count", [1, 3])
def test_every_combination_of_answers_ends_as_the_rules_say(count: int) -> None:
    outcomes = set()
    for said in product(SAID, repeat=count):
        if said.count(LEFT_OUT) <= count - (count // 2 + 1):
            outcomes |= {check(said, order) for order in permutations(range(count))}
    assert outcomes == {"extended", "taken", "broken", "unknown"}


def test_five_nodes_need_three() -> None:
    assert check((DONE, DONE, DONE, HELD, HELD), (3, 4, 0, 1, 2)) == "extended"
    assert check((DONE, DONE, HELD, ABSENT, ABSENT), (0, 1, 2, 3, 4)) == "taken"
    assert check((DONE, DONE, ABSENT, ABSENT, OTHER_KIND), (0, 1, 2, 3, 4)) == "broken"
    assert check((DONE, DONE, ABSENT, ABSENT, SILENT), (0, 1, 2, 3, 4)) == "unknown"


def test_silence_is_not_a_loss() -> None:
    assert check((SILENT,) * 5, range(5)) == "unknown"
    assert check((LOST_LINE, LOST_LINE, LOST_LINE, HELD, HELD), range(5)) == "unknown"


def healing_first(fleet: Fleet, grant: Grant, ttl: float) -> Steps[Extension]:
    """A canary: heals before it knows that the extension succeeded."""
    tally = fleet.tally()
    request = Extend((kept(grant, ttl),))
    yield Round(fleet.to_all(request), tally, fleet.timeout(ttl), grant.route)
    yield from heal(fleet, [grant], [Extension(tally, valid_until=1e9)], grant.route)
    return Extension(tally, reason=LossReason.EXPIRED)


def test_the_check_catches_healing_without_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check.__globals__, "extend", healing_first)
    with pytest.raises(AssertionError):
        check((ABSENT, ABSENT, DONE), (0, 1, 2))


def test_the_check_catches_healing_that_counts_towards_the_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(tally: Tally) -> bool:
        return len(tally.caused(Cause.ABSENT)) + tally.heard >= tally.needed

    monkeypatch.setattr(Tally, "won", property(generous))
    with pytest.raises(AssertionError):
        check((ABSENT, ABSENT, DONE), (0, 1, 2))


@pytest.mark.parametrize("late_by", [0.0, 0.001, 100.0])
def test_a_lease_that_is_over_is_not_asked_for_again(late_by: float) -> None:
    world = World(3)
    grant = world.grant(left=-late_by)
    extension = world.run(extend(world.fleet, grant, 10.0), [])
    assert extension.reason is LossReason.EXPIRED


def test_yes_of_a_majority_that_comes_after_the_old_validity_is_too_late() -> None:
    world = World(3)
    grant = world.grant(left=1.0)
    extension = world.run(extend(world.fleet, grant, 10.0), [world.takes(1.0, everyone(DONE))])
    assert extension.reason is LossReason.EXPIRED
    assert grant.valid_until <= world.now


def test_the_new_validity_is_counted_from_before_the_round() -> None:
    world = World(3)
    grant = world.grant(left=1.0)
    began = world.now
    extension = world.run(extend(world.fleet, grant, 10.0), [world.takes(0.9, everyone(DONE))])
    assert extension.valid_until == pytest.approx(began + 10.0 - 0.102)


@pytest.mark.parametrize("said", [DONE, SILENT])
def test_a_shorter_ttl_counts_when_a_majority_said_yes_and_not_before(said: Answer) -> None:
    """Nodes take no time away from a lease: until then, and if nobody can tell, it is as long as it was."""
    world = World(3)
    grant = world.grant(left=9.0, ttl=10.0)
    before = grant.valid_until
    seen = []
    performer = then(everyone(said), lambda: seen.append(grant.valid_until))
    world.run(extend(world.fleet, grant, 2.0), [performer])
    assert seen == [before]
    shorter = (pytest.approx(world.now + 2.0 - 0.022), 2.0)
    assert (grant.valid_until, grant.ttl) == (shorter if said is DONE else (before, 10.0))


def test_a_longer_ttl_does_not_count_before_a_majority_said_yes() -> None:
    world = World(3)
    grant = world.grant(left=1.0)
    before = grant.valid_until
    world.run(extend(world.fleet, grant, 10.0), [everyone(SILENT)])
    assert grant.valid_until == before


@pytest.mark.parametrize("answer", [HELD, OTHER_KIND, LOST_LINE, SILENT])
def test_only_nodes_that_stored_the_lock_again_are_called_healed(answer: Answer | None) -> None:
    world = World(5)
    grant = world.grant()
    said = votes(ABSENT, ABSENT, DONE, DONE, DONE)
    extension = world.run(extend(world.fleet, grant, 10.0), [said, votes(DONE, answer, None, None, None)])
    assert extension.healed == ("node0",)
    assert extension.valid_until is not None, "healing has no say in it"


@pytest.mark.parametrize("answer", [HELD, LOST_LINE])
def test_healing_waits_for_all_it_asked_whoever_fails_first(answer: Answer) -> None:
    world = World(5)
    healing = votes(DONE, answer, None, None, None, order=(1, 0, 2, 3, 4))
    said = votes(ABSENT, ABSENT, DONE, DONE, DONE)
    assert world.run(extend(world.fleet, world.grant(), 10.0), [said, healing]).healed == ("node0",)


def test_nothing_is_healed_once_the_lease_is_released() -> None:
    """Else a release and a renewal that overlap would leave a lock that comes back."""
    world = World(3)
    grant = world.grant()

    def released() -> None:
        grant.over = True

    extension = world.run(extend(world.fleet, grant, 10.0), [then(votes(ABSENT, DONE, DONE), released)])
    assert extension.healed == ()
    assert len(world.rounds) == 1


def test_healing_follows_only_those_who_said_absent() -> None:
    world = World(5)
    said = votes(HELD, ABSENT, DONE, DONE, DONE)
    world.run(renewal.extend(world.fleet, world.grant(), 10.0), [said, everyone(DONE)])
    assert set(only(world.effects[1], Heal)) == {1}


def test_what_is_released_while_it_is_healed_is_released_behind_the_healing() -> None:
    """Another thread sent the release, over another connection; the node executed it before the healing."""
    world = World(3)
    grant = world.grant()

    def released() -> None:
        grant.over = True

    healing = then(everyone(DONE), released)
    world.run(extend(world.fleet, grant, 10.0), [votes(ABSENT, DONE, DONE), healing, everyone(DONE)])
    assert only(world.effects[2], Release) == {0: Release("job", "mine")}
    assert world.rounds[2].route is world.rounds[1].route


def test_the_keeper_is_told_while_its_holder_extends() -> None:
    world = World(3)
    grant = world.grant()
    seen = []
    world.run(extend(world.fleet, grant, 10.0), [then(everyone(DONE), lambda: seen.append(grant.extending))])
    assert seen == [True]
    assert not grant.extending
