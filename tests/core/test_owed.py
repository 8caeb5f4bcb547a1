"""Releases that nodes have not answered: what is remembered, for how long, and what is sent again."""

from __future__ import annotations

import pytest

from quorumlock.core.effects import Route
from quorumlock.core.owed import (
    ANSWERED_MOST,
    FIRST_PAUSE,
    LAST_PAUSE,
    LOOK_AFTER,
    NEVER,
    OWED_MOST,
    SILENT_FOR,
    Debt,
    last_attempt,
    repeat,
)
from quorumlock.core.redlock import Refusal, acquire, release
from quorumlock.core.requests import Release
from quorumlock.core.votes import GRANTED, Answer, Cause, Tally
from quorumlock.errors import EngineError

from .driver import (
    ABSENT,
    DONE,
    HELD,
    LOST_LINE,
    SILENT,
    UNREACHABLE,
    everyone,
    granted,
    votes,
)
from .owing import MINE, TTL, Client


def test_a_release_that_all_have_answered_is_not_remembered() -> None:
    client = Client(1)
    client.release(votes(DONE))
    assert not client.owed
    assert not client.woken


def test_answers_that_come_a_moment_later_are_enough() -> None:
    client = Client()
    tally = client.release(votes(DONE, DONE, SILENT))
    assert client.owed
    tally.cast(2, DONE)
    assert client.sleep() == pytest.approx(LOOK_AFTER)
    assert not client.owed
    assert client.owed.wake_at == NEVER
    assert client.repeat() == []
    assert client.told == []


@pytest.mark.parametrize("first", [ABSENT, SILENT])
def test_few_releases_that_have_been_answered_are_remembered(first: Answer | None) -> None:
    """Also behind one that a node never answers."""
    client = Client()
    for answer in [first, *[ABSENT] * 500]:
        tally = client.release(votes(DONE, DONE, SILENT))
        if answer is not SILENT:
            tally.cast(2, answer)
    assert len(client.owed.all()) <= ANSWERED_MOST
    assert any(debt.nodes() for debt in client.owed.all()) == (first is SILENT)


@pytest.mark.parametrize("answer", [SILENT, LOST_LINE, UNREACHABLE])
def test_only_who_has_not_answered_is_asked_again(answer: Answer | None) -> None:
    client = Client()
    tally = client.release(votes(DONE, HELD, SILENT))
    if answer is not SILENT:
        tally.cast(2, answer)  # late, when the connection turned out to be gone
    client.sleep()
    assert client.repeat(votes(SILENT, SILENT, DONE)) == [{2: MINE}]
    assert not client.owed
    assert client.told == [], "a majority had confirmed it at once"


def test_a_release_that_no_majority_has_answered_is_sent_until_one_has_and_then_to_the_rest() -> None:
    client = Client()
    assert not client.release(votes(SILENT, SILENT, SILENT)).won
    assert client.sleep() == pytest.approx(SILENT_FOR * 0.05)
    assert client.repeat(votes(SILENT, DONE, SILENT)) == [dict.fromkeys(range(3), MINE)]
    assert client.told == []
    client.sleep()
    assert client.repeat(votes(DONE, SILENT, SILENT)) == [{0: MINE, 2: MINE}]
    assert [confirmed for confirmed, _ in client.told] == [True]
    client.sleep()
    assert client.repeat(votes(SILENT, SILENT, ABSENT)) == [{2: MINE}]
    assert len(client.told) == 1
    assert not client.owed


def test_it_is_sent_less_and_less_often_and_for_one_ttl_only() -> None:
    client = Client()
    began = client.world.now
    client.release(everyone(SILENT))
    pauses = []
    while client.owed:
        pauses.append(client.sleep())
        if client.owed:
            client.repeat(everyone(SILENT))
    first = max(FIRST_PAUSE, SILENT_FOR * 0.05)
    assert pauses[:3] == pytest.approx([first, first, 2 * first])
    assert max(pauses) == pytest.approx(LAST_PAUSE)
    assert client.world.now == pytest.approx(began + TTL)
    assert client.told == [(False, pytest.approx(TTL))]
    assert client.owed.wake_at == NEVER


def test_a_repeated_release_notifies_waiters_of_this_process_too() -> None:
    """They were woken when it was first sent, and found the lock held."""
    client = Client()
    client.release(everyone(SILENT), request=MINE._replace(wake=True, locker="here"))
    client.sleep()
    assert client.repeat(everyone(DONE)) == [dict.fromkeys(range(3), MINE._replace(wake=True))]


def test_an_answer_that_comes_when_nobody_waits_counts() -> None:
    client = Client()
    client.release(everyone(SILENT))
    client.sleep()
    client.repeat(everyone(SILENT))
    attempt = client.world.rounds[0].tally
    assert attempt.closed
    for node in (0, 1, 2):
        attempt.cast(node, DONE)
    client.sweep()
    assert not client.owed
    assert [confirmed for confirmed, _ in client.told] == [True]


def test_a_lock_that_stays_closed_is_closed_until_the_same_instant() -> None:
    client = Client()
    began = client.world.now
    client.release(everyone(SILENT), request=MINE._replace(stay_ms=1000))
    stays = []
    while client.world.now < began + 3:
        client.sleep()
        (sent,) = client.repeat(everyone(SILENT))
        stay_ms = sent[0].stay_ms  # type: ignore[attr-defined]
        stays.append(stay_ms)
        assert stay_ms == max(0, round(1000 - (client.world.now - began) * 1000))
    assert stays[0] > 0
    assert stays[-1] == 0


def test_who_does_not_answer_is_asked_once_in_a_pass() -> None:
    client = Client()
    for _ in range(3):
        client.release(everyone(SILENT))
    client.sleep()
    sent = client.repeat(votes(SILENT, DONE, DONE), votes(SILENT, DONE, DONE), votes(SILENT, DONE, DONE))
    assert sent == [{0: MINE, 1: MINE, 2: MINE}, {1: MINE, 2: MINE}, {1: MINE, 2: MINE}]
    client.sleep()
    assert client.repeat(*[votes(DONE, SILENT, SILENT)] * 3) == [{0: MINE}] * 3


def test_it_travels_behind_what_it_undoes() -> None:
    client = Client()
    route = Route()
    client.world.run(release(client.world.fleet, "job", "mine", TTL, route), [everyone(SILENT)])
    client.sleep()
    client.repeat(everyone(DONE))
    assert client.world.rounds[0].route is route
    assert client.world.rounds[0].everyone


def test_a_node_that_never_was_sent_the_token_is_not_asked() -> None:
    client = Client()
    tally = client.world.fleet.tally()
    for node, answer in enumerate((granted(), granted(), UNREACHABLE)):
        tally.cast(node, answer)
    client.world.run(release(client.world.fleet, "job", "mine", TTL, Route(), tally), [votes(DONE, SILENT, SILENT)])
    client.sleep()
    assert client.repeat(votes(SILENT, DONE, SILENT)) == [{1: MINE}]
    assert not client.owed


def test_what_a_failed_attempt_leaves_behind_is_owed_too() -> None:
    client = Client()
    steps = acquire(client.world.fleet, "job", TTL)
    outcome = client.world.run(steps, [votes(granted(), SILENT, HELD), votes(SILENT, SILENT, DONE)])
    assert isinstance(outcome, Refusal)
    client.sleep()
    undoing = Release("job", client.world.tokens[0])
    assert client.repeat(votes(DONE, DONE, SILENT)) == [{0: undoing, 1: undoing}]


def test_an_interrupted_release_is_owed() -> None:
    client = Client()
    steps = release(client.world.fleet, "job", "mine", TTL, Route())
    raised = client.world.interrupt(steps, [], KeyboardInterrupt(), cleanup=everyone(SILENT))
    assert isinstance(raised, KeyboardInterrupt)
    client.sleep()
    assert client.repeat(everyone(DONE)) == [dict.fromkeys(range(3), MINE)]


def test_a_store_that_fails_is_asked_again() -> None:
    client = Client(1)
    steps = release(client.world.fleet, "job", "mine", TTL, Route())
    next(steps)
    steps.throw(EngineError("full", "disk"))
    with pytest.raises(EngineError):
        steps.throw(EngineError("full", "disk"))
    client.sleep()
    again = repeat(client.world.fleet, client.owed)
    next(again)
    with pytest.raises(StopIteration):
        again.throw(EngineError("full", "disk"))
    client.sweep()
    client.sleep()
    assert client.repeat(everyone(DONE)) == [{0: MINE}]
    assert not client.owed


def test_so_many_are_remembered() -> None:
    client = Client()
    for _ in range(OWED_MOST + 5):
        client.release(everyone(SILENT))
    assert len(client.owed.all()) == OWED_MOST
    client.sweep()
    assert client.told == [(False, pytest.approx(0))] * 5, "the outcome of those is unknown"


def test_the_last_attempt_is_made_before_anything_is_due() -> None:
    client = Client()
    client.release(everyone(SILENT))
    client.release(votes(DONE, DONE, SILENT))
    client.owed.ended = True
    assert client.repeat() == []
    client.world.run(last_attempt(client.world.fleet, client.owed), [everyone(DONE), votes(SILENT, SILENT, DONE)])
    for tell in client.owed.end():
        tell()
    assert [confirmed for confirmed, _ in client.told] == [True]
    assert not client.owed


def test_what_is_owed_at_the_end_is_told_as_not_confirmed() -> None:
    client = Client()
    client.release(everyone(SILENT))
    client.owed.ended = True
    for tell in client.owed.end():
        tell()
    assert client.told == [(False, pytest.approx(0))]
    assert not client.owed
    client.release(everyone(SILENT))
    assert not client.owed, "nothing is added any more"


def test_nobody_is_woken_by_what_is_due_later() -> None:
    client = Client()
    client.release(everyone(SILENT))
    client.release(everyone(SILENT))
    client.release(votes(DONE, DONE, SILENT))
    assert client.woken == [True, False, False]


def test_a_slow_node_is_not_certain_to_be_owed_anything() -> None:
    client = Client()
    client.release(votes(DONE, DONE, SILENT))
    client.release(votes(LOST_LINE, DONE, DONE))
    client.release(everyone(SILENT))
    assert [debt.certain for debt in client.owed.all() if isinstance(debt, Debt)] == [False, True, True]


@pytest.mark.parametrize("answered", [0, 2 * ANSWERED_MOST])
def test_a_release_that_is_added_in_the_middle_is_owed_like_others(
    answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a signal handler, or by the collector, which ends an abandoned attempt: at any step of a look."""
    nodes = Debt.nodes
    for strike in range(6):
        client = Client()
        for _ in range(3):
            client.release(votes(DONE, SILENT, SILENT))
        looks = 0

        def added(debt: Debt, client: Client = client, strike: int = strike) -> list[int]:
            nonlocal looks
            looks += 1
            if looks == strike:
                for _ in range(1 + answered):
                    tally = Tally(("a", "b", "c"), 2, any_answer=True)
                    tally.cast(0, Answer(GRANTED, Cause.AGREED))
                    now = client.world.now
                    client.owed.add(Debt([MINE] * 3, tally, TTL, now + TTL, Route(), now))
            return nodes(debt)

        with monkeypatch.context() as patched:
            patched.setattr(Debt, "nodes", added)
            client.sleep()
        assert len(client.owed.all()) == 3 + (1 + answered if looks >= strike > 0 else 0)
        assert client.owed.wake_at < NEVER


def test_what_is_looked_at_when_an_interrupt_strikes_is_still_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    for _ in range(3):
        client.release(votes(DONE, SILENT, SILENT))

    def interrupted(_: Debt) -> list[int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Debt, "nodes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.sweep()
    assert len(client.owed.all()) == 3
