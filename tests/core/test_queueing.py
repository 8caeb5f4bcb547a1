"""Waiting in queues, by hand: what is asked of whom, with which ticket, and what is left when somebody leaves."""

from __future__ import annotations

import pytest

from quorumlock.core.effects import Round, Wait
from quorumlock.core.requests import Acquire, Leave, Release
from quorumlock.core.waiting import LINGER, NAP
from quorumlock.errors import AcquireTimeout

from .driver import DONE, LOST_LINE, WALL, asked, everyone, granted, only, votes
from .lines import Every, Process, held, leaves, nobody_is_left_waiting

__all__ = ["nobody_is_left_waiting"]


def test_the_first_attempt_is_a_plain_one_and_who_is_refused_listens_and_asks_again_with_a_ticket() -> None:
    process = Process()
    waiter = process.wait()
    assert set(waiter.tickets.values()) == {None}
    assert not any(request.strict for request in waiter.acquires.values())
    waiter.answer(everyone(held()))
    waiter.listens(0, 1, 2)
    assert len(set(waiter.tickets.values())) == 1, "the same on all nodes"
    ticket = waiter.tickets[0]
    assert ticket is not None
    assert ticket.locker == "here"
    assert ticket.order_us == int(WALL * 1_000_000)
    assert ticket.patience_ms >= 2 * 1000 * 3600 * 0.1, "good for longer than until it is shown again"
    assert process.room.waiting


def test_a_free_lock_costs_one_round_and_no_listening() -> None:
    process = Process()
    waiter = process.wait()
    waiter.answer(everyone(granted(1)))
    assert waiter.grant is not None
    assert waiter.grant.ticket == ""
    assert [type(effect) for effect in waiter.said] == [Round]
    assert process.room.held == {"job": waiter.grant}


def test_a_ticket_is_shown_to_those_nodes_alone_that_are_heard() -> None:
    process = Process()
    waiter = process.wait()
    waiter.answer(everyone(held()))
    waiter.listens(0, 2)
    assert {node for node, ticket in waiter.tickets.items() if ticket} == {0, 2}
    waiter.answer(everyone(held()))
    process.room.deafened(0)
    process.room.hears(1)
    waiter.wakes()
    assert {node for node, ticket in waiter.tickets.items() if ticket} == {1, 2}


def test_the_ticket_stays_the_same_through_all_attempts_and_keeps_its_time() -> None:
    process = Process()
    waiter = process.queued()
    first = waiter.shown
    for _ in range(3):
        waiter.rests()
        assert {ticket and ticket[:3] for ticket in waiter.tickets.values()} == {first[:3]}
        waiter.answer(everyone(held()))
    rounds = [asked(effect)[0] for effect in waiter.said if isinstance(effect, Round)]
    assert len({request.token for request in rounds if isinstance(request, Acquire)}) == 5, "but not the token"


def test_a_ticket_is_as_old_as_the_wait_and_not_as_its_own_making() -> None:
    process = Process()
    grant = process.lease()
    process.room.hears(0)
    waiter = process.wait(fair=False)
    process.world.now += 3.0
    process.room.freed(grant, True)
    waiter.wakes()
    waiter.answer(everyone(held()))
    waiter.listens()
    ticket = waiter.tickets[0]
    assert ticket is not None
    assert ticket.order_us == int((WALL - 3.0) * 1_000_000)


def test_what_is_announced_during_a_round_counts() -> None:
    process = Process()
    waiter = process.queued()
    waiter.rests()
    ticket = waiter.tickets[0]
    assert ticket is not None
    for node in range(2):
        process.room.announced(node, ticket.id)
    waiter.answer(everyone(held()))
    waiter.wakes()
    assert waiter.acquires


def test_a_majority_of_announcements_is_answered_at_once_and_fewer_after_a_moment() -> None:
    process = Process()
    waiter = process.queued()
    ticket = waiter.shown
    assert isinstance(waiter.effect, Wait)
    assert not waiter.effect.over
    process.room.announced(0, ticket.id)
    waiter.wakes()
    assert waiter.pause == LINGER
    assert isinstance(waiter.effect, Wait)
    assert not waiter.effect.over
    process.room.announced(0, ticket.id)
    assert not waiter.effect.over, "the same node again"
    process.room.announced(1, ticket.id)
    assert waiter.effect.over
    waiter.go()
    assert waiter.acquires
    waiter.answer(everyone(held()))
    process.room.announced(2, ticket.id)
    waiter.wakes()
    waiter.rests()
    assert waiter.acquires, "one announcement must do, in the end"


def test_who_has_the_lock_keeps_its_ticket_until_the_release() -> None:
    process = Process()
    waiter = process.queued()
    waiter.rests()
    ticket = waiter.tickets[0]
    waiter.answer(everyone(granted(1)))
    assert ticket is not None
    assert waiter.grant is not None
    assert waiter.grant.ticket == ticket.member
    assert not any(isinstance(r, Leave) for e in waiter.said if isinstance(e, Round) for r in asked(e).values())
    assert not process.room.waiting


def test_who_runs_out_of_time_leaves_the_queue() -> None:
    waiter = Process().queued(timeout=2.0)
    waiter.rests()
    waiter.answer(everyone(held()))
    leaves(waiter)
    waiter.go()
    assert type(waiter.error) is AcquireTimeout
    assert not waiter.process.room.waiting


@pytest.mark.parametrize("moment", ["waiting", "asking", "lingering", "listening"])
def test_who_is_cancelled_leaves_the_queue(moment: str) -> None:
    process = Process()
    if moment == "listening":
        waiter = process.wait()
        waiter.answer(everyone(held()))
        waiter.go(KeyboardInterrupt())
        assert type(waiter.error) is KeyboardInterrupt
        return
    waiter = process.queued()
    if moment == "lingering":
        process.room.announced(1, next(iter(process.room._tickets)))
        waiter.wakes()
    if moment == "asking":
        waiter.rests()
        asking = waiter.effect
        waiter.go(KeyboardInterrupt())
        assert isinstance(asking, Round)
        assert isinstance(waiter.effect, Round)
        assert only(waiter.effect, Release)
        route = waiter.effect.route
        waiter.answer(everyone(DONE))
        assert isinstance(waiter.effect, Round)
        assert waiter.effect.route is route is asking.route, "not behind the attempt"
    else:
        waiter.go(KeyboardInterrupt())
    leaves(waiter)
    waiter.go()
    assert type(waiter.error) is KeyboardInterrupt
    assert not process.room.waiting


@pytest.mark.parametrize("cause", ["cancelled", "timed out", "broken"])
def test_an_interrupt_while_leaving_does_not_leave_the_ticket_behind(cause: str) -> None:
    """It may have come before anything was sent: it is said again. Saying it twice does no harm."""
    waiter = Process().queued(timeout=2.0 if cause == "timed out" else None)
    if cause == "cancelled":
        waiter.go(KeyboardInterrupt())
    else:
        waiter.rests()
        waiter.answer(everyone(held() if cause == "timed out" else LOST_LINE))
    leaves(waiter)
    waiter.go(KeyboardInterrupt())
    leaves(waiter)
    waiter.go()
    assert type(waiter.error) is KeyboardInterrupt


def test_who_cannot_reach_a_majority_withdraws_and_comes_back_with_the_same_ticket() -> None:
    process = Process()
    waiter = process.queued(retry=Every(0.5))
    waiter.rests()
    ticket = waiter.tickets[0]
    waiter.answer(votes(held(), LOST_LINE, LOST_LINE))
    leaves(waiter)
    waiter.go()
    waiter.rests()
    assert set(waiter.tickets.values()) == {None}, "it would keep others waiting"
    waiter.answer(everyone(held()))
    assert waiter.acquires, "at once: nobody would tell it, and its next attempt may be an hour off"
    assert {one and one[:3] for one in waiter.tickets.values()} == {ticket and ticket[:3]}


def test_who_is_not_heard_by_anybody_polls_and_asks_as_soon_as_it_is() -> None:
    """A subscription was cut a moment ago, or cannot be made yet. It must not wait for its next poll."""
    process = Process(1)
    waiter = process.wait()
    waiter.answer(everyone(held()))
    waiter.listens()
    assert isinstance(waiter.effect, Wait)
    assert waiter.pause == min(NAP, 360.0)
    assert process.room.waiting, "or nobody would try to subscribe again"
    process.room.hears(0)
    waiter.wakes()
    assert waiter.tickets[0] is not None


def test_who_comes_with_a_ticket_and_is_not_heard_any_more_has_subscriptions_made() -> None:
    """They were cut just before anybody knew of its ticket, when there was nobody to make them again for."""
    process = Process(1)
    process.room.hears(0)
    usual = process.world.fleet.new_token

    def cut(start: str) -> str:
        process.room.deafened(0)
        process.world.fleet.new_token = usual
        return usual(start)

    process.world.fleet.new_token = cut
    waiter = process.wait(fair=True)
    assert waiter.tickets[0] is None
    waiter.answer(everyone(held()))
    waiter.listens(0)
    assert waiter.tickets[0] is not None


def test_who_is_not_heard_polls_as_it_was_told_and_not_as_seldom_as_the_others() -> None:
    waiter = Process(1).wait(retry=Every(0.2), adaptive=True)
    waiter.answer(everyone(held()))
    waiter.listens()
    assert waiter.pause == 0.2


def test_nothing_is_left_on_nodes_by_who_never_had_a_ticket_there() -> None:
    process = Process(1)
    waiter = process.wait()
    waiter.answer(everyone(held()))
    waiter.listens()
    waiter.go(KeyboardInterrupt())
    assert type(waiter.error) is KeyboardInterrupt, waiter.effect
