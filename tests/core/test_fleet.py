"""The first meeting with the nodes, and the initialisation of a new fleet."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from quorumlock.core.fleet import initialise, muster
from quorumlock.core.redlock import Refusal, acquire
from quorumlock.core.requests import Close, Initialise, Join, Survey
from quorumlock.core.votes import Answer, Cause, Member, Vote
from quorumlock.errors import ConfigurationError, NoQuorum, Unsupported

from .driver import DONE, LOST_LINE, SILENT, UNREACHABLE, World, asked, everyone, granted, votes

MISFIT = Answer(Vote.REFUSED, Cause.MISFIT, detail="node1 is a replica")
CLUSTER = Answer(Vote.REFUSED, Cause.UNSUPPORTED, detail="node1 is a Redis Cluster node")
MARKED = Answer(Vote.REFUSED, Cause.HELD, wait_ms=1500, detail="marked, ready")


def test_every_node_is_met_once_before_the_first_request() -> None:
    world = World(3, mustered=False)
    world.run(acquire(world.fleet, "job", 10.0), [everyone(DONE), everyone(granted(1))])
    assert asked(world.effects[0]) == dict.fromkeys(range(3), Join())
    assert world.rounds[0].everyone
    world.run(acquire(world.fleet, "job", 10.0), [everyone(granted(2))])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_majority_that_came_is_enough_in_whatever_order_it_came(count: int) -> None:
    """A node that refuses the connection is the first to be heard of; it must not end the meeting."""
    for said in product((DONE, LOST_LINE, UNREACHABLE, SILENT), repeat=count):
        came = sum(one is DONE for one in said)
        for order in {tuple(range(count)), tuple(range(count))[::-1]}:
            world = World(count, mustered=False)
            absent = world.run(muster(world.fleet), [votes(*said, order=order)])
            assert world.fleet.mustered is (came > count // 2), f"{said} in the order {order}"
            assert (absent is None) is world.fleet.mustered


def test_without_a_majority_the_attempt_ends_there_and_the_next_one_meets_them_again() -> None:
    world = World(3, mustered=False)
    outcome = world.run(acquire(world.fleet, "job", 10.0), [votes(LOST_LINE, SILENT, LOST_LINE)])
    assert isinstance(outcome, Refusal)
    assert not outcome.busy
    assert not outcome.linger
    assert outcome.tally.needed == 2, "the message counts towards a majority"
    assert not world.tokens
    world.run(acquire(world.fleet, "job", 10.0), [everyone(DONE), everyone(granted(1))])
    assert world.fleet.mustered


@pytest.mark.parametrize(("answer", "error"), [(MISFIT, ConfigurationError), (CLUSTER, Unsupported)])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_one_node_that_cannot_belong_to_the_fleet_is_the_callers_mistake(
    answer: Answer, error: type[Exception], order: tuple[int, ...]
) -> None:
    world = World(3, mustered=False)
    with pytest.raises(error, match="node1 is a"):
        world.run(muster(world.fleet), [votes(DONE, answer, DONE, order=order)])
    assert not world.fleet.mustered


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_misfit_is_found_whatever_else_fails(order: tuple[int, ...]) -> None:
    world = World(3, mustered=False)
    with pytest.raises(ConfigurationError, match="replica"):
        world.run(muster(world.fleet), [votes(LOST_LINE, MISFIT, DONE, order=order)])


def test_the_same_mistake_is_told_once() -> None:
    world = World(3, mustered=False)
    said = [MISFIT._replace(detail=f"node{index} is a replica") for index in range(3)]
    with pytest.raises(ConfigurationError) as raised:
        world.run(muster(world.fleet), [votes(*said)])
    assert str(raised.value) == "node0, node1, node2 is a replica"


@pytest.mark.parametrize("force", [False, True])
def test_a_new_fleet_is_surveyed_before_it_is_marked(force: bool) -> None:
    world = World(3)
    assert world.run(initialise(world.fleet, force), [everyone(DONE)] * (3 if force else 2)) == 0
    expected = [Survey(), Close(), Initialise(True)] if force else [Survey(), Initialise(False)]
    assert [asked(effect) for effect in world.effects] == [dict.fromkeys(range(3), one) for one in expected]
    assert all(round_.everyone for round_ in world.rounds)


@pytest.mark.parametrize("failing", [LOST_LINE, SILENT, UNREACHABLE])
@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_marked_unless_all_nodes_answer(failing: Answer | None, force: bool) -> None:
    for order in permutations(range(3)):
        world = World(3)
        with pytest.raises(NoQuorum, match=r"all nodes: 2 of 3 agreed.*node2"):
            world.run(initialise(world.fleet, force), [votes(DONE, DONE, failing, order=order)])
        assert len(world.effects) == 1


def test_a_fleet_in_use_is_not_initialised_again_and_the_message_says_who_is_marked() -> None:
    world = World(3)
    with pytest.raises(ConfigurationError, match=r"1 of 3 nodes .*node1: marked, ready.*force=True"):
        world.run(initialise(world.fleet, False), [votes(DONE, MARKED, DONE)])
    assert len(world.effects) == 1


def test_force_marks_a_fleet_in_use() -> None:
    world = World(3)
    closed = [Answer(Vote.GRANTED, Cause.AGREED, wait_ms=wait_ms) for wait_ms in (500, 1500, 0)]
    script = [votes(MARKED, MARKED, DONE), votes(*closed), votes(*closed)]
    assert world.run(initialise(world.fleet, True), script) == 1.5
    told = "a node that is new cannot know how long the locks of the old ones live"
    assert asked(world.effects[2]) == dict.fromkeys(range(3), Initialise(True, 1500)), told


@pytest.mark.parametrize("failing", [LOST_LINE, SILENT, MISFIT])
def test_no_node_begins_to_wait_before_all_are_closed(failing: Answer | None) -> None:
    """It would be ready while clients of the old fleet still extend on nodes that have not heard of the change."""
    world = World(3)
    expected = ConfigurationError if failing is MISFIT else NoQuorum
    with pytest.raises(expected, match="node1"):
        world.run(initialise(world.fleet, True), [everyone(MARKED), votes(DONE, failing, DONE)])
    assert len(world.effects) == 2


def of_fleet(name: str, nodes: int) -> Answer:
    return MARKED._replace(member=Member(name, nodes))


def mine(name: str = "", nodes: int = 0, closed: bool = False) -> Answer:
    return MARKED._replace(member=Member(name, nodes, mine=True, closed=closed))


@pytest.mark.parametrize(
    ("survey", "goes_on"),
    [
        ([of_fleet("old", 3), of_fleet("old", 3), DONE], False),
        ([of_fleet("old", 3), DONE, DONE], True),
        ([of_fleet("old", 1), DONE, DONE], False),
        ([of_fleet("old", 4)] * 2 + [DONE], False),
        ([of_fleet("old", 5)] * 3, False),
        ([of_fleet("old", 5)] * 2 + [DONE], True),
        ([of_fleet("old", 5)] * 2 + [of_fleet("else", 5)], True),
        ([MARKED] * 3, False),
        ([mine()] * 3, False),
        ([mine("old", 3), mine(closed=True), mine()], False),
        ([mine("old", 3, closed=True), mine(closed=True), mine()], False),
        ([mine("old", 3, closed=True), mine(closed=True), DONE], True),
        ([mine("named", 3), DONE, DONE], True),
        ([mine("named", 3), mine("named", 3), DONE], False),
        ([mine("named", 3), mine("old", 3, closed=True), mine(closed=True)], False),
    ],
    ids=str,
)
def test_a_fleet_that_would_go_on_without_these_nodes_is_not_taken_apart(
    survey: list[Answer], goes_on: bool
) -> None:
    world = World(3)
    script = [votes(*survey), everyone(DONE), everyone(DONE)]
    if goes_on:
        with pytest.raises(ConfigurationError, match="would go on granting"):
            world.run(initialise(world.fleet, True), script[:1])
    else:
        world.run(initialise(world.fleet, True), script)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("answer", "error"), [(MISFIT, ConfigurationError), (CLUSTER, Unsupported)])
def test_a_node_that_cannot_belong_to_the_fleet_is_not_marked(
    answer: Answer, error: type[Exception], force: bool
) -> None:
    world = World(3)
    with pytest.raises(error, match="node1 is a"):
        world.run(initialise(world.fleet, force), [votes(DONE, answer, DONE)])
    assert len(world.effects) == 1


@pytest.mark.parametrize("answer", [MARKED, LOST_LINE, SILENT])
def test_an_initialisation_that_did_not_reach_every_node_says_so(answer: Answer | None) -> None:
    world = World(3)
    with pytest.raises(NoQuorum, match=r"did not reach every node: .*node2"):
        world.run(initialise(world.fleet, False), [everyone(DONE), votes(DONE, DONE, answer)])
