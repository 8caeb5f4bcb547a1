"""Waiting in queues, by hand: when to ask again, whose turn it is, and who of a process asks at all."""

from __future__ import annotations

import pytest

from quorumlock.core.effects import Round, Wait
from quorumlock.core.redlock import Grant
from quorumlock.core.requests import Release
from quorumlock.core.room import HANDOVERS
from quorumlock.core.waiting import POLL_MOST, STAND_BACK, try_acquire
from quorumlock.errors import AcquireTimeout, LockHeld, NoQuorum
from quorumlock.retry import Limit

from .driver import DONE, LOST_LINE, SILENT, everyone, granted, only, votes
from .lines import TTL, Every, Process, held, leaves, nobody_is_left_waiting

__all__ = ["nobody_is_left_waiting"]


def test_an_expiry_is_not_announced_so_it_is_waited_for_by_place() -> None:
    process = Process(random=0.5)
    for place in (0, 1, 5):
        waiter = process.queued(said=held(1500, place))
        assert waiter.pause == pytest.approx(1.502 + STAND_BACK * (place + 0.5))
        waiter.go(KeyboardInterrupt())
        waiter.go()


def test_the_poll_is_rarer_for_those_behind_and_for_those_who_wait_long() -> None:
    process = Process(random=1.0)
    pauses = []
    for place in (0, 5, 100):
        waiter = process.queued(said=held(60_000, place), adaptive=True)
        mine = [waiter.pause]
        for _ in range(8):
            waiter.rests()
            waiter.answer(everyone(held(60_000, place)))
            mine.append(waiter.pause)
        assert mine == sorted(mine)
        assert mine[-1] <= POLL_MOST
        pauses.append(mine)
        waiter.go(KeyboardInterrupt())
        waiter.go()
    assert pauses[0][0] == pytest.approx(1.0)
    assert pauses[0][0] < pauses[1][0] < pauses[2][0] <= POLL_MOST
    assert pauses[0][0] < pauses[0][-1]


def test_a_split_vote_is_announced_by_nobody_and_asked_about_soon() -> None:
    process = Process(5)
    waiter = process.queued()
    last = 0.0
    for _ in range(4):
        waiter.rests()
        waiter.answer(votes(granted(1), granted(1), held(), held(), SILENT))
        assert last < waiter.pause < 0.3
        last = waiter.pause
    waiter.rests()
    waiter.answer(votes(granted(1), granted(1), held(), held(), held()))
    assert waiter.pause > 1.0, "a majority holds it: no split"


def test_a_limit_counts_attempts_and_not_the_second_half_of_the_first() -> None:
    waiter = Process().queued(retry=Limit(Every(0.2), 1))
    waiter.rests()
    waiter.answer(everyone(held()))
    leaves(waiter)
    waiter.go()
    assert type(waiter.error) is AcquireTimeout
    assert "after 2 attempts" in str(waiter.error)


def test_who_would_not_wait_neither_listens_nor_queues() -> None:
    process = Process()
    process.room.hears(0)
    waiter = process.wait(timeout=0)
    assert set(waiter.tickets.values()) == {None}
    waiter.answer(everyone(held()))
    assert type(waiter.error) is LockHeld
    assert all(isinstance(effect, Round) for effect in waiter.said)


def test_a_fair_waiter_shows_its_ticket_from_the_first_attempt_on_and_never_overtakes() -> None:
    process = Process()
    for node in range(3):
        process.room.hears(node)
    one, two = process.wait(fair=True), process.wait(fair=True)
    tickets = [waiter.tickets[0] for waiter in (one, two)]
    assert all(tickets)
    assert tickets[0] != tickets[1]
    for waiter in (one, two):
        assert all(request.strict for request in waiter.acquires.values()), "both ask: neither stands in line here"


def test_one_contender_for_each_name_asks_and_the_next_takes_its_place() -> None:
    process = Process()
    first, second, third = (process.wait() for _ in range(3))
    assert first.acquires
    assert isinstance(second.effect, Wait)
    assert isinstance(third.effect, Wait)
    first.answer(everyone(granted(1)))
    assert first.grant is not None
    second.wakes()
    assert isinstance(second.effect, Wait), "the lock is held here: there is nothing to ask"
    assert second.pause == pytest.approx(first.grant.valid_until - process.world.now)
    process.room.freed(first.grant, False)
    second.wakes()
    assert second.acquires
    assert isinstance(third.effect, Wait)


def test_a_lease_of_the_room_that_is_renewed_is_waited_for_again() -> None:
    process = Process()
    grant = process.lease()
    waiter = process.wait()
    grant.valid_until += 5.0
    waiter.rests()
    assert waiter.pause == pytest.approx(5.0)
    waiter.rests()
    assert waiter.acquires, "its time is over, and nobody said anything"


def test_who_runs_out_of_time_in_line_says_whether_it_was_busy_or_broken() -> None:
    process = Process()
    first, second = process.wait(retry=Every(0.1)), process.wait(timeout=2.0)
    second.rests()
    assert type(second.error) is AcquireTimeout
    assert "this process" in str(second.error)
    third = process.wait(timeout=2.0)
    first.answer(everyone(LOST_LINE))
    third.rests()
    assert type(third.error) is NoQuorum
    process.lease()
    fourth = process.wait(timeout=2.0)
    fourth.rests()
    assert type(fourth.error) is AcquireTimeout, "it is held, by us: nothing is broken"


def test_patience_is_not_begun_again_by_the_next_in_line() -> None:
    process = Process()
    first, second = process.wait(retry=Every(0.5), patience=1.2), process.wait(retry=Every(0.5), patience=1.2)
    while first.error is None:
        first.answer(everyone(LOST_LINE)) if isinstance(first.effect, Round) else first.rests()
    assert type(first.error) is NoQuorum
    second.wakes()
    second.answer(everyone(LOST_LINE))
    assert type(second.error) is NoQuorum
    assert process.room.broken == {}


def test_those_whose_patience_is_over_while_they_stand_in_line_are_told_at_once() -> None:
    process = Process()
    first, *others = [process.wait(retry=Every(0.5), patience=1.2) for _ in range(5)]
    first.answer(everyone(LOST_LINE))
    first.rests()
    late = process.wait(retry=Every(0.5), patience=1.2)
    while first.error is None:
        first.answer(everyone(LOST_LINE)) if isinstance(first.effect, Round) else first.rests()
    process.world.now += 0.5
    for other in others:
        other.wakes()
        assert type(other.error) is NoQuorum
        assert not any(isinstance(effect, Round) for effect in other.said), "the one before it had asked"
    late.wakes()
    assert late.acquires, "it has patience left, and asks"


def test_after_so_many_hand_overs_the_process_stands_behind_the_others() -> None:
    process = Process()
    for node in range(3):
        process.room.hears(node)
    waiters = [process.wait() for _ in range(HANDOVERS + 3)]
    strict: list[bool] = []
    for waiter in waiters:
        if isinstance(waiter.effect, Wait):
            waiter.wakes()
        strict.append(waiter.acquires[0].strict)
        if strict[-1]:
            break
        waiter.answer(everyone(granted(1)))
        assert waiter.grant is not None
        process.room.freed(waiter.grant, True)
    assert strict == [False] * (HANDOVERS + 1) + [True]
    last = waiters[HANDOVERS + 1]
    assert last.tickets[0] is not None, "it has a place in the queue, as everybody"
    last.answer(everyone(held(50, 1)))
    last.rests()
    assert not last.acquires[0].strict, "having stood back, it is one of many"


def test_try_acquire_asks_unless_the_lock_is_held_in_this_process() -> None:
    process = Process()
    grant = process.lease()
    assert process.world.run(try_acquire(process.world.fleet, "job", TTL, process.room), []) is None
    assert process.world.rounds == []
    process.room.freed(grant, False)
    won = process.world.run(try_acquire(process.world.fleet, "job", TTL, process.room), [everyone(granted(1))])
    assert process.room.held == {"job": won}


def test_an_interrupt_just_behind_the_grant_gives_the_lock_back_and_leaves() -> None:
    process = Process()
    waiter = process.queued()
    waiter.rests()

    def granted_interrupted(grant: Grant) -> None:
        raise KeyboardInterrupt

    process.room.granted = granted_interrupted  # type: ignore[method-assign]
    assert isinstance(waiter.effect, Round)
    everyone(granted(1))(waiter.effect)
    waiter.go()
    assert isinstance(waiter.effect, Round)
    assert only(waiter.effect, Release)
    everyone(DONE)(waiter.effect)
    waiter.go()
    leaves(waiter)
    waiter.go()
    assert type(waiter.error) is KeyboardInterrupt
    assert process.room.held == {}


@pytest.mark.parametrize("fair", [True, False])
def test_who_is_first_for_some_nodes_only_gives_up_its_place_and_comes_back(fair: bool) -> None:
    """The lock is free, each node keeps it for another head, and nobody could ever have a majority."""
    process = Process()  # chance is at its lowest: it is this one who gives way
    for node in range(3):
        process.room.hears(node)
    waiter = process.wait(fair=fair)
    if not fair:
        waiter.answer(everyone(held()))
        waiter.listens()
    waiter.answer(votes(granted(1), held(50, 1), held(50, 1)))
    if not fair:
        assert waiter.pause < 0.1, "who may overtake has no such trouble"
        return
    leaves(waiter)
    waiter.answer(everyone(DONE))
    assert waiter.pause < 0.3
    waiter.rests()
    assert waiter.tickets[0] is not None
    waiter.answer(votes(granted(1), held(9000, 1), held(9000, 1)))
    assert waiter.pause > 1.0, "somebody has it: there is no quarrel"


def test_a_vote_that_is_split_among_three_is_one_too() -> None:
    """Each has one node of three: everybody is refused by a majority, nobody has the lock, and nobody will say so.

    Their fences tell: a lock that somebody has was confirmed by a majority, with one fence.
    """
    waiter = Process().queued()
    waiter.rests()
    waiter.answer(votes(granted(9), held()._replace(fence=7), held()._replace(fence=8)))
    assert waiter.pause < 0.3
