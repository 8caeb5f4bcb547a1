"""Waiting: busy or broken, until when, and with which error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorumlock.core.effects import Round
from quorumlock.core.redlock import Grant
from quorumlock.core.requests import Acquire, Release
from quorumlock.core.votes import Answer, Cause, Vote
from quorumlock.core.waiting import acquire_within, try_acquire
from quorumlock.errors import AcquireTimeout, ConfigurationError, LockHeld, NoQuorum, NotAcquired
from quorumlock.retry import Jitter, Limit, Retry

from .driver import (
    CHANGED,
    DONE,
    HELD,
    LOST_LINE,
    QUARANTINE,
    SILENT,
    UNREACHABLE,
    World,
    asked,
    everyone,
    granted,
    votes,
)

TTL = 10.0


class Every(Jitter):
    """Always the same delay."""

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None:
        return self.most


class Nodes:
    """Answers acquire by the state of the moment, and whatever undoes it with a yes."""

    def __init__(self, world: World, state: Callable[[float], str]) -> None:
        self.world = world
        self.state = state
        self.attempts: list[float] = []
        self.tokens: list[str] = []
        self.released: list[str] = []

    def __call__(self, round_: Round) -> None:
        request = next(iter(asked(round_).values()))
        if isinstance(request, Acquire):
            self.attempts.append(self.world.now)
            self.tokens.append(request.token)
            answer = {"held": HELD, "broken": LOST_LINE, "free": granted(1), "new": QUARANTINE}
            everyone(answer[self.state(self.world.now)])(round_)
        else:
            if isinstance(request, Release):
                self.released.append(request.token)
            everyone(DONE)(round_)


def wait(
    state: Callable[[float], str],
    timeout: float | None,
    retry: Retry | None = None,
    patience: float = 5.0,
    count: int = 3,
) -> tuple[Grant | NotAcquired, Nodes, World]:
    """Waits with `state` as a function of the seconds since the start; gives the grant or the error."""
    world = World(count)
    began = world.now
    nodes = Nodes(world, lambda now: state(round(now - began, 6)))
    steps = acquire_within(world.fleet, "job", TTL, timeout, retry or Every(0.2), patience)
    try:
        while True:
            world._perform(next(steps), [nodes])
    except StopIteration as done:
        result: Grant | NotAcquired = done.value
    except NotAcquired as error:
        result = error
    nodes.attempts = [round(at - began, 6) for at in nodes.attempts]
    return result, nodes, world


def test_a_free_lock_is_given_at_the_first_attempt() -> None:
    for timeout in (None, 0, 5.0):
        result, nodes, world = wait(lambda _: "free", timeout)
        assert isinstance(result, Grant)
        assert nodes.attempts == [0]
        assert not world.sleeps


def test_a_timeout_of_zero_raises_lock_held_after_one_attempt() -> None:
    result, nodes, world = wait(lambda _: "held", 0)
    assert type(result) is LockHeld
    assert nodes.attempts == [0]
    assert not world.sleeps
    assert "'job' is held" in str(result)
    assert result.tally is not None


@pytest.mark.parametrize("state", ["broken", "new"])
def test_a_timeout_of_zero_raises_no_quorum_where_nobody_can_tell(state: str) -> None:
    result, nodes, _ = wait(lambda _: state, 0)
    assert type(result) is NoQuorum
    assert nodes.attempts == [0]
    assert "node0" in str(result)


def test_no_quorum_names_the_nodes_in_quarantine_and_their_seconds() -> None:
    result, _, _ = wait(lambda _: "new", 0)
    assert "node0 is in quarantine for 1.5 s more" in str(result)


def test_a_held_lock_is_tried_until_the_deadline_and_once_more_at_it() -> None:
    result, nodes, world = wait(lambda _: "held", 0.5)
    assert type(result) is AcquireTimeout
    assert nodes.attempts == [0, 0.2, 0.4, 0.5]
    assert world.sleeps == pytest.approx([0.2, 0.2, 0.1])
    assert "within 0.5 s" in str(result)


def test_a_lock_that_becomes_free_at_the_deadline_is_still_obtained() -> None:
    result, nodes, _ = wait(lambda now: "free" if now >= 0.5 else "held", 0.5)
    assert isinstance(result, Grant)
    assert nodes.attempts[-1] == 0.5


def test_at_the_deadline_the_last_round_tells_busy_from_broken() -> None:
    assert type(wait(lambda now: "broken" if now >= 0.5 else "held", 0.5)[0]) is NoQuorum
    assert type(wait(lambda now: "held" if now >= 0.5 else "broken", 0.5)[0]) is AcquireTimeout


def test_with_a_timeout_a_broken_fleet_is_waited_for_until_the_deadline_whatever_the_patience() -> None:
    result, nodes, _ = wait(lambda _: "broken", 2.0, patience=0.1)
    assert type(result) is NoQuorum
    assert nodes.attempts[-1] == 2.0
    assert isinstance(wait(lambda now: "free" if now >= 1.9 else "broken", 2.0, patience=0.1)[0], Grant)


def test_without_a_timeout_a_held_lock_is_waited_for_as_long_as_it_takes() -> None:
    result, nodes, _ = wait(lambda now: "free" if now >= 1000 else "held", None, patience=0.5)
    assert isinstance(result, Grant)
    assert len(nodes.attempts) == 5001


def test_without_a_timeout_a_broken_fleet_is_waited_for_as_long_as_patience_lasts() -> None:
    result, nodes, _ = wait(lambda _: "broken", None, patience=1.0)
    assert type(result) is NoQuorum
    assert nodes.attempts == [0, 0.2, 0.4, 0.6, 0.8]
    assert "(patience)" in str(result)


def test_patience_starts_again_when_a_majority_was_back_in_between() -> None:
    result, nodes, _ = wait(lambda now: "held" if now == 0.8 else "broken", None, patience=1.0)
    assert type(result) is NoQuorum
    assert nodes.attempts[-1] == 1.8


def test_without_patience_a_broken_fleet_is_an_error_at_once() -> None:
    result, nodes, _ = wait(lambda _: "broken", None, patience=0.0)
    assert type(result) is NoQuorum
    assert nodes.attempts == [0]


@pytest.mark.parametrize("timeout", [None, 100.0])
@pytest.mark.parametrize(("state", "error"), [("held", AcquireTimeout), ("broken", NoQuorum)])
def test_a_limit_ends_the_waiting_after_its_retries(
    timeout: float | None, state: str, error: type[NotAcquired]
) -> None:
    result, nodes, _ = wait(lambda _: state, timeout, Limit(Every(0.2), 3))
    assert type(result) is error
    assert len(nodes.attempts) == 4
    assert "after 4 attempts" in str(result)


def test_every_attempt_has_a_new_token_and_the_old_one_is_released() -> None:
    result, nodes, _ = wait(lambda now: "free" if now >= 0.6 else "held", None)
    assert isinstance(result, Grant)
    assert len(set(nodes.tokens)) == len(nodes.tokens) == 4
    assert nodes.released == nodes.tokens[:-1], "and the token that won is not"
    assert result.token == nodes.tokens[-1]


def test_the_delay_is_drawn_by_the_fleets_own_randomness() -> None:
    world = World(1, random=1.0)
    steps = acquire_within(world.fleet, "job", TTL, None, Jitter(0.2), 5.0)
    world.run(steps, [everyone(HELD), everyone(granted(1))])
    assert world.sleeps == [pytest.approx(0.2)]


def test_a_grant_that_was_not_confirmed_counts_as_broken_and_says_why() -> None:
    world = World(3)
    performers = [votes(granted(2), granted(1), SILENT), everyone(CHANGED), everyone(DONE)]
    with pytest.raises(NoQuorum, match="the fence was not confirmed"):
        world.run(acquire_within(world.fleet, "job", TTL, 0, Every(0.2), 5.0), performers)


def test_what_may_linger_is_told_with_the_error() -> None:
    for silent in (True, False):
        world = World(1)
        performers = [everyone(LOST_LINE), everyone(SILENT if silent else DONE)]
        with pytest.raises(NoQuorum) as raised:
            world.run(acquire_within(world.fleet, "job", TTL, 0, Every(0.2), 5.0), performers)
        assert raised.value.may_linger is silent
        assert raised.value.tally is world.rounds[0].tally


def test_try_acquire_gives_none_only_when_it_is_held() -> None:
    world = World(3)
    assert world.run(try_acquire(world.fleet, "job", TTL), [everyone(HELD), everyone(DONE)]) is None


@pytest.mark.parametrize("said", [(LOST_LINE, QUARANTINE, HELD), (granted(1), SILENT, SILENT), (SILENT,) * 3])
def test_try_acquire_raises_no_quorum_where_nobody_can_tell(said: tuple[Answer | None, ...]) -> None:
    world = World(3)
    with pytest.raises(NoQuorum):
        world.run(try_acquire(world.fleet, "job", TTL), [votes(*said), everyone(DONE)])


def test_try_acquire_gives_the_grant_when_it_is_free() -> None:
    world = World(3)
    assert isinstance(world.run(try_acquire(world.fleet, "job", TTL), [everyone(granted(1))]), Grant)


def test_a_wrong_configuration_is_not_waited_out() -> None:
    world = World(3, mustered=False)
    misfit = Answer(Vote.REFUSED, Cause.MISFIT, detail="node0 is a replica")
    with pytest.raises(ConfigurationError, match="replica"):
        world.run(acquire_within(world.fleet, "job", TTL, None, Every(0.2), 5.0), [everyone(misfit)])


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ((QUARANTINE, QUARANTINE, granted(1)), "`quorumlock init`"),
        ((SILENT, UNREACHABLE, granted(1)), "See whether the nodes that do not answer run"),
    ],
)
def test_who_is_refused_for_want_of_a_majority_is_told_what_to_do(
    said: tuple[Answer | None, ...], remedy: str
) -> None:
    world = World(3)
    with pytest.raises(NoQuorum) as broken:
        world.run(try_acquire(world.fleet, "job", 10.0), [votes(*said), everyone(DONE)])
    assert remedy in str(broken.value)
    assert all(node in str(broken.value) for node in world.fleet.nodes[:2])
