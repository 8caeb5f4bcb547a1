"""Renewal of many leases at once: what a round means for each of them, and who is healed."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from quorumlock.core.effects import Round, Route, Steps
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import Extension, extend, renew
from quorumlock.core.requests import Extend, Heal, Kept, Release
from quorumlock.core.votes import Answer, Cause, of_each
from quorumlock.errors import LossReason

from .driver import ABSENT as GONE
from .driver import DONE, LOST_LINE, QUARANTINE, SILENT, World, everyone, only, then, votes

YES, NO, ABSENT, KIND = Cause.AGREED, Cause.HELD, Cause.ABSENT, Cause.OTHER_KIND


def grants(world: World, count: int, *, ttl: float = 10.0, left: float = 5.0) -> list[Grant]:
    return [
        Grant(f"job-{i}", f"token-{i}", i + 1, ttl, world.now + left, world.fleet.tally(), Route())
        for i in range(count)
    ]


def said(*causes: Cause) -> Answer:
    """What a node says of each lease."""
    return of_each(causes)


def test_every_node_gets_one_message_about_all_of_them() -> None:
    world = World(3)
    leases = grants(world, 4)
    extensions = world.run(renew(world.fleet, leases), [everyone(DONE)])
    wanted = Extend(tuple(Kept(f"job-{i}", f"token-{i}", 10_000, i + 1) for i in range(4)))
    assert only(world.effects[0], Extend) == dict.fromkeys(range(3), wanted)
    until = pytest.approx(world.now + 10.0 - 0.102)
    assert [one.valid_until for one in extensions] == [until] * 4
    assert [grant.valid_until for grant in leases] == [until] * 4
    assert len(world.rounds) == 1


def outcome(extension: Extension) -> str:
    if extension.valid_until is not None:
        return "renewed"
    return "unknown" if extension.reason is None else extension.reason.name


def expected(column: tuple[Cause | None, ...]) -> str:
    """By counting only: what the votes of all nodes on one lease mean."""
    majority = len(column) // 2 + 1
    if column.count(YES) >= majority:
        return "renewed"
    gone = sum(cause in (NO, ABSENT, KIND) for cause in column)
    if len(column) - gone >= majority:
        return "unknown"
    return "TAKEN" if NO in column else "BROKEN"


def test_each_lease_is_judged_by_the_votes_on_itself() -> None:
    """Three nodes, two leases: everything each node can say of both, or its silence."""
    sayings = [None, *itertools.product((YES, NO, ABSENT, KIND), repeat=2)]
    for told in itertools.product(sayings, repeat=3):
        world = World(3)
        columns = [tuple(None if one is None else one[lease] for one in told) for lease in range(2)]
        forgotten = any(ABSENT in column and expected(column) == "renewed" for column in columns)
        answers = votes(*(LOST_LINE if one is None else said(*one) for one in told))
        performers = [answers, everyone(DONE)] if forgotten else [answers]
        extensions = world.run(renew(world.fleet, grants(world, 2)), performers)
        assert [outcome(one) for one in extensions] == [expected(column) for column in columns], told


def test_every_node_heals_what_it_has_forgotten_and_nothing_else() -> None:
    world = World(5)
    leases = grants(world, 3)
    answers = votes(said(YES, ABSENT, YES), said(ABSENT, ABSENT, YES), said(YES, YES, NO), DONE, DONE)
    healing = votes(DONE, said(YES, NO), None, None, None)
    extensions = world.run(renew(world.fleet, leases), [answers, healing])
    kept = [Kept(f"job-{i}", f"token-{i}", 10_000, i + 1) for i in range(3)]
    assert only(world.effects[1], Heal) == {0: Heal((kept[1],)), 1: Heal((kept[0], kept[1]))}
    assert [one.healed for one in extensions] == [("node1",), ("node0",), ()]
    assert [grant.healed for grant in leases] == [True, True, False]


def test_a_lost_lease_is_not_healed() -> None:
    world = World(3)
    leases = grants(world, 2)
    answers = votes(said(ABSENT, YES), said(ABSENT, YES), said(YES, YES))
    extensions = world.run(renew(world.fleet, leases), [answers])
    assert [outcome(one) for one in extensions] == ["BROKEN", "renewed"]


def test_the_keeper_waits_for_a_slow_node_so_that_it_is_healed_too() -> None:
    world = World(5)
    leases = grants(world, 1)
    answers = votes(DONE, DONE, DONE, DONE, said(ABSENT))
    extensions = world.run(renew(world.fleet, leases), [answers, everyone(DONE)])
    assert extensions[0].healed == ("node4",)


def test_a_silent_minority_changes_nothing() -> None:
    world = World(5)
    extensions = world.run(renew(world.fleet, grants(world, 2)), [votes(DONE, SILENT, DONE, SILENT, DONE)])
    assert [outcome(one) for one in extensions] == ["renewed"] * 2


@pytest.mark.parametrize("left", [0.5, 1.0])
def test_an_answer_that_comes_after_validity_has_ended_is_too_late(left: float) -> None:
    world = World(3)
    first, second = grants(world, 1, left=left)[0], grants(world, 1, left=5.0)[0]
    extensions = world.run(renew(world.fleet, [first, second]), [world.takes(1.0, everyone(DONE))])
    assert [one.reason for one in extensions] == [LossReason.EXPIRED, None]
    assert first.valid_until <= world.now


def meddling(change: Callable[[Grant], None]) -> tuple[World, Grant, Extension]:
    """What a renewal came to while the holder did something."""
    world = World(3)
    (grant,) = grants(world, 1)
    (extension,) = world.run(renew(world.fleet, [grant]), [then(everyone(DONE), lambda: change(grant))])
    return world, grant, extension


def test_a_lease_that_its_holder_shortened_meanwhile_stays_short() -> None:
    def shorten(grant: Grant) -> None:
        grant.extensions += 1
        grant.valid_until -= 4.0

    world, grant, extension = meddling(shorten)
    assert grant.valid_until == pytest.approx(world.now + 1.0)
    assert extension.valid_until == grant.valid_until


def test_a_lease_that_its_holder_extended_meanwhile_stays_long() -> None:
    def lengthen(grant: Grant) -> None:
        grant.extensions += 1
        grant.valid_until += 40.0

    world, grant, _ = meddling(lengthen)
    assert grant.valid_until == pytest.approx(world.now + 45.0)


def test_what_is_released_while_others_are_healed_is_released_again_on_those_nodes() -> None:
    world = World(3)
    leases = grants(world, 2)

    def release() -> None:
        leases[1].over = True

    performers = [votes(said(ABSENT, ABSENT), DONE, DONE), then(everyone(DONE), release), everyone(DONE)]
    world.run(renew(world.fleet, leases), performers)
    assert only(world.effects[2], Release) == {0: Release("job-1", "token-1")}


def test_a_release_travels_behind_a_healing_that_is_still_under_way() -> None:
    world = World(3)
    leases = grants(world, 2)

    def owes(round_: Round) -> None:
        everyone(SILENT)(round_)
        round_.route.taken = "a cable"

    world.run(renew(world.fleet, leases), [votes(said(YES, ABSENT), DONE, DONE), owes])
    assert leases[1].route is world.rounds[1].route
    assert leases[0].route is not world.rounds[1].route


def test_what_the_keeper_hears_while_its_holder_shortens_the_lease_does_not_count() -> None:
    """Keeper asks for 10 s, holder for 5: the nodes keep 10, but the holder wants 5."""
    world = World(3)
    (grant,) = grants(world, 1, ttl=10.0, left=9.0)
    holders = extend(world.fleet, grant, 5.0)
    keepers = renew(world.fleet, [grant])
    keepers_round, holders_round = next(keepers), next(holders)
    assert isinstance(keepers_round, Round)
    assert isinstance(holders_round, Round)
    everyone(DONE)(holders_round)
    with pytest.raises(StopIteration):
        next(holders)
    everyone(DONE)(keepers_round)
    with pytest.raises(StopIteration):
        next(keepers)
    assert grant.valid_until == pytest.approx(world.now + 5.0 - 0.052)
    assert grant.ttl == 5.0


def test_what_the_keeper_heard_before_an_extension_began_heals_nothing() -> None:
    """Else a lock that was broken on all nodes would be given to them again, whoever has had it since."""
    world = World(3)
    (grant,) = grants(world, 1)

    def extend_now() -> None:
        grant.extensions += 1

    world.run(renew(world.fleet, [grant]), [then(everyone(said(ABSENT)), extend_now)])
    assert len(world.rounds) == 1


def test_an_extension_is_counted_before_it_changes_anything() -> None:
    """The keeper is another thread: from the first change on, nothing that it heard may count."""
    world = World(3)
    counts: list[int] = []

    class Watched(Grant):
        def __setattr__(self, name: str, value: object) -> None:
            if name in ("valid_until", "ttl") and hasattr(self, "asked_at"):
                counts.append(self.extensions)
            object.__setattr__(self, name, value)

    grant = Watched("a", "t", 1, 10.0, world.now + 5.0, world.fleet.tally(), Route())
    world.run(extend(world.fleet, grant, 1.0), [everyone(DONE)])
    assert counts
    assert set(counts) == {1}


def test_an_answer_that_comes_while_the_keeper_judges_changes_nothing() -> None:
    world = World(3)
    leases = grants(world, 3)
    steps = renew(world.fleet, leases)
    round_ = next(steps)
    assert isinstance(round_, Round)
    votes(said(YES, YES, NO), said(YES, YES, YES), SILENT)(round_)
    clock = world.fleet.clock

    def another_thread_reads() -> float:
        round_.tally.cast(2, said(YES, NO, NO))
        return clock()

    world.fleet.clock = another_thread_reads
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert [outcome(one) for one in done.value.value] == ["renewed", "renewed", "unknown"]


def test_a_node_that_was_healed_counts_once_those_that_justified_it_were_heard_again() -> None:
    """Between the renewal and its healing the lock may have been deleted elsewhere."""
    world = World(3)
    grant = world.grant()
    world.run(renew(world.fleet, [grant]), [votes(GONE, DONE, DONE), everyone(DONE)])
    assert grant.on_probation == {0}
    (extension,) = world.run(renew(world.fleet, [grant]), [votes(DONE, GONE, DONE)])
    assert extension.reason is LossReason.BROKEN
    (extension,) = world.run(renew(world.fleet, [grant]), [votes(DONE, None, DONE)])
    assert (extension.reason, extension.valid_until) == (None, None), "nobody can tell"
    (extension,) = world.run(renew(world.fleet, [grant]), [everyone(DONE)])
    assert extension.valid_until is not None
    assert grant.on_probation == set()
    (extension,) = world.run(renew(world.fleet, [grant]), [votes(DONE, GONE, DONE), everyone(DONE)])
    assert extension.valid_until is not None, "it counts again"
    assert grant.on_probation == {1}


def test_probation_lasts_until_the_node_was_heard_in_a_renewal_that_succeeded() -> None:
    world = World(5)
    grant = world.grant()
    world.run(renew(world.fleet, [grant]), [votes(GONE, DONE, DONE, DONE, DONE), everyone(DONE)])
    world.run(renew(world.fleet, [grant]), [votes(None, DONE, DONE, DONE, DONE)])
    assert grant.on_probation == {0}
    (extension,) = world.run(extend_steps(world, grant), [votes(DONE, DONE, DONE, LOST_LINE, LOST_LINE)])
    assert extension.valid_until is None, "two are sure, and three are needed"
    (extension,) = world.run(extend_steps(world, grant), [votes(DONE, DONE, DONE, DONE, LOST_LINE)])
    assert extension.valid_until is not None
    assert grant.on_probation == set()


def extend_steps(world: World, grant: Grant) -> Steps[list[Extension]]:
    """The holder's extension, in the form of the keeper's."""
    return [(yield from extend(world.fleet, grant, 10.0))]


def test_the_probation_of_a_node_in_quarantine_is_over_before_it_votes() -> None:
    """So that nodes which restart one after another are not held up."""
    world = World(3)
    grant = world.grant()
    missing = said(Cause.FORGOTTEN)
    world.run(renew(world.fleet, [grant]), [votes(missing, DONE, DONE), everyone(DONE)])
    assert grant.on_probation == {0}
    world.run(renew(world.fleet, [grant]), [votes(QUARANTINE, DONE, DONE)])
    assert grant.on_probation == set(), "it has the lock, and is not healed again"
    (extension,) = world.run(renew(world.fleet, [grant]), [votes(DONE, missing, DONE), everyone(DONE)])
    assert extension.valid_until is not None


@pytest.mark.parametrize(("wait_ms", "reason"), [(4_900, None), (5_100, LossReason.UNREACHABLE)])
def test_nodes_in_quarantine_are_waited_for_if_it_ends_before_the_lease_does(
    wait_ms: int, reason: LossReason | None
) -> None:
    world = World(3)
    forgot = said(Cause.FORGOTTEN)._replace(wait_ms=60_000)
    here = QUARANTINE._replace(wait_ms=wait_ms)
    (extension,) = world.run(renew(world.fleet, [world.grant(left=5.0)]), [votes(forgot, here, DONE)])
    assert (extension.reason, extension.valid_until) == (reason, None)
