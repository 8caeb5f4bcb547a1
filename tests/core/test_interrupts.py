"""A cancellation or an interrupt, thrown in at every point where a procedure waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from quorumlock.core import redlock, renewal, waiting
from quorumlock.core.effects import Round, Route, Steps, Wait
from quorumlock.core.redlock import acquire
from quorumlock.core.requests import Acquire, Confirm, Extend, Heal, Join, Release
from quorumlock.core.votes import Answer
from quorumlock.retry import Jitter

from .driver import (
    ABSENT,
    DONE,
    HELD,
    LEFT_OUT,
    LOST_LINE,
    QUARANTINE,
    SILENT,
    UNREACHABLE,
    Performer,
    World,
    everyone,
    granted,
    only,
    some,
    votes,
)


class Cancelled(BaseException):
    """What asyncio throws in, without asyncio."""


STRIKES = [KeyboardInterrupt, Cancelled, MemoryError]
strikes = pytest.mark.parametrize("strike", STRIKES)


@strikes
@pytest.mark.parametrize("count", [1, 3])
def test_whatever_had_been_answered_an_interrupted_acquire_is_undone(
    count: int, strike: type[BaseException]
) -> None:
    kinds: tuple[Answer | None, ...] = (granted(2), HELD, QUARANTINE, LOST_LINE, SILENT, LEFT_OUT, UNREACHABLE)
    for said in product(kinds, repeat=count):
        world = World(count)
        error = strike()
        raised = world.interrupt(acquire(world.fleet, "job", 10.0), [], error, partly=some(*said))
        assert raised is error
        knowing = {n for n, one in enumerate(said) if one not in (LEFT_OUT, UNREACHABLE)}
        if all(one in (HELD, QUARANTINE) for one in said):
            knowing = set()  # every node has said that it did not take the token
        assert len(world.effects) == 1 + bool(knowing)
        if knowing:
            assert only(world.effects[1], Release) == dict.fromkeys(knowing, Release("job", "token-1"))
            assert world.rounds[1].route is world.rounds[0].route, "behind the requests being undone"
            assert world.rounds[1].everyone


@strikes
@pytest.mark.parametrize("done", [granted(3), SILENT, LOST_LINE])
def test_an_acquire_interrupted_while_it_confirms_is_undone(
    strike: type[BaseException], done: Answer | None
) -> None:
    world = World(3)
    error = strike()
    raised = world.interrupt(
        acquire(world.fleet, "job", 10.0),
        [votes(granted(3), granted(2), SILENT)],
        error,
        partly=some(None, done, None),
    )
    assert raised is error
    assert only(world.effects[0], Confirm)
    assert only(world.effects[1], Release) == dict.fromkeys(range(3), Release("job", "token-1"))
    assert len(world.effects) == 2


@pytest.mark.parametrize("answer", [HELD, SILENT, LOST_LINE])
def test_the_interrupt_comes_out_even_if_nobody_answers_the_clean_up(answer: Answer | None) -> None:
    world = World(3)
    error = Cancelled()
    steps = acquire(world.fleet, "job", 10.0)
    assert world.interrupt(steps, [], error, cleanup=everyone(answer)) is error
    for effect in world.effects[1:]:
        assert only(effect, Release)
    assert 2 <= len(world.effects) <= 3, "once more over new connections, and no more"


def test_a_first_meeting_that_is_interrupted_leaves_nothing_to_undo() -> None:
    world = World(3, mustered=False)
    error = Cancelled()
    assert world.interrupt(acquire(world.fleet, "job", 10.0), [], error) is error
    assert only(world.effects[0], Join)
    assert len(world.effects) == 1
    assert not world.tokens
    assert not world.fleet.mustered


@dataclass
class Undoing:
    """A procedure, the rounds that lead to its release, and the token it releases."""

    steps: Callable[[World], Steps[Any]]
    before: list[Performer] = field(default_factory=list)
    token: str = "token-1"


UNDOINGS = {
    "a lease's release": Undoing(
        lambda world: redlock.release(world.fleet, "job", "mine", 10.0, Route()), token="mine"
    ),
    "an attempt that was refused": Undoing(
        lambda world: acquire(world.fleet, "job", 10.0), [votes(granted(1), HELD, HELD)]
    ),
    "a lease that was lost": Undoing(
        lambda world: waiting.extend_or_lose(world.fleet, world.grant(), 10.0),
        [votes(ABSENT, ABSENT, granted(1), order=(2, 0, 1))],
        token="mine",
    ),
}


@pytest.mark.parametrize("name", UNDOINGS)
def test_a_release_that_is_interrupted_is_sent_again(name: str) -> None:
    """Rule 4 of the contract: it may not have left for every node yet.

    A burst write that a KeyboardInterrupt cuts short has reached node 0 and not node 1; a cancelled round no
    longer waits for the connection that was being made for its release. Without another release the lock stays
    for one ttl, and a lease that is closed cannot be released again.
    """
    undoing = UNDOINGS[name]
    world = World(3)
    error = KeyboardInterrupt()
    assert world.interrupt(undoing.steps(world), undoing.before, error) is error
    released = Release("job", undoing.token)
    assert only(world.effects[0], Release) == dict.fromkeys(range(3), released)
    assert len(world.effects) == 2, "no clean-up round"
    assert only(world.effects[1], Release) == dict.fromkeys(range(3), released)


@strikes
@pytest.mark.parametrize("ttl", [2.0, 20.0])
def test_an_extension_that_is_interrupted_leaves_the_lease_as_it_was(
    strike: type[BaseException], ttl: float
) -> None:
    world = World(3)
    grant = world.grant(left=5.0, ttl=10.0)
    before = grant.valid_until
    error = strike()
    assert world.interrupt(renewal.extend(world.fleet, grant, ttl), [], error) is error
    assert only(world.effects[0], Extend)
    assert len(world.effects) == 1
    assert (grant.valid_until, grant.ttl) == (before, 10.0)


def test_a_healing_that_is_interrupted_does_not_take_back_the_extension() -> None:
    world = World(3)
    grant = world.grant(left=1.0)
    error = Cancelled()
    steps = renewal.extend(world.fleet, grant, 10.0)
    assert world.interrupt(steps, [votes(ABSENT, DONE, DONE)], error) is error
    assert only(world.effects[0], Heal)
    assert grant.valid_until == pytest.approx(world.now + 10.0 - 0.102)


def test_waiting_between_attempts_that_is_interrupted_leaves_nothing_to_undo() -> None:
    world = World(3)
    error = Cancelled()
    steps = waiting.acquire_within(world.fleet, "job", 10.0, None, Jitter(0.2), 5.0)
    assert world.interrupt(steps, [everyone(HELD), everyone(DONE)], error) is error
    assert isinstance(world.effects[0], Wait)
    assert len(world.effects) == 1


def test_a_later_attempt_that_is_interrupted_is_undone_by_its_own_token() -> None:
    world = World(3)
    steps = waiting.acquire_within(world.fleet, "job", 10.0, None, Jitter(0.2), 5.0)
    for performer in (everyone(HELD), everyone(DONE)):
        effect = next(steps)
        assert isinstance(effect, Round)
        performer(effect)
    assert isinstance(next(steps), Wait)
    assert {one.token for one in only(next(steps), Acquire).values()} == {"token-2"}
    assert {one.token for one in only(steps.throw(Cancelled()), Release).values()} == {"token-2"}
    with pytest.raises(Cancelled):
        next(steps)
