"""Procedures that wait, driven by hand: the test is the runner, the nodes, and whoever announces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from quorumlock.core.effects import Effect, Listen, Round, Route, Wait
from quorumlock.core.redlock import Grant
from quorumlock.core.requests import Acquire, Leave, Release, Ticket
from quorumlock.core.room import Room
from quorumlock.core.votes import Answer, Cause, Vote
from quorumlock.core.waiting import Wish, obtain
from quorumlock.retry import Jitter, Retry

from .driver import DONE, Performer, World, asked, everyone, only

HOUR = Jitter(3600)
TTL = 10.0


class Every(Jitter):
    """Always the same delay."""

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None:
        return self.most


def held(wait_ms: int = 9000, place: int = 0) -> Answer:
    return Answer(Vote.REFUSED, Cause.HELD, fence=7, wait_ms=wait_ms, place=place)


_started: list[Waiter] = []


@pytest.fixture(autouse=True)
def nobody_is_left_waiting() -> Iterator[None]:
    """A procedure that was started is never closed: it cleans up after itself."""
    yield
    for waiter in _started:
        if waiter.effect is not None:
            waiter.go(KeyboardInterrupt())
        while waiter.effect is not None:
            if isinstance(waiter.effect, Round):
                everyone(DONE)(waiter.effect)
            waiter.go()
    _started.clear()


class Process:
    """One process: its clock, its room, its fleet."""

    def __init__(self, nodes: int = 3, *, random: float = 0.0) -> None:
        self.world = World(nodes, random=random)
        self.room = Room(lambda: "here")

    def wait(
        self, timeout: float | None = None, retry: Retry = HOUR, *, fair: bool = False, adaptive: bool = False,
        patience: float = 5.0,
    ) -> Waiter:  # fmt: skip
        return Waiter(self, Wish("job", TTL, timeout, retry, patience, fair=fair, adaptive=adaptive))

    def queued(self, *, said: Answer | None = None, fair: bool = False, **options: object) -> Waiter:
        """Somebody who was refused, has listened, and has been refused again with its ticket shown."""
        waiter = self.wait(fair=fair, **options)  # type: ignore[arg-type]
        answer = said or held()
        waiter.answer(everyone(answer))
        waiter.listens(*range(len(self.world.fleet.nodes)))
        waiter.answer(everyone(answer))
        return waiter

    def lease(self) -> Grant:
        """A lease of this process, as if it had been acquired some time ago."""
        grant = Grant("job", "mine", 5, TTL, self.world.now + TTL, self.world.fleet.tally(), Route())
        grant.room = self.room
        self.room.granted(grant)
        return grant


class Waiter:
    """One acquire; the test plays the runner."""

    def __init__(self, process: Process, wish: Wish) -> None:
        self.process = process
        self.steps = obtain(process.world.fleet, process.room, wish)
        self.effect: Effect | None = None
        self.grant: Grant | None = None
        self.error: BaseException | None = None
        self.said: list[Effect] = []
        _started.append(self)
        self.go()

    def go(self, error: BaseException | None = None) -> None:
        self.effect = None
        try:
            self.effect = next(self.steps) if error is None else self.steps.throw(error)
            self.said.append(self.effect)
        except StopIteration as done:
            self.grant = done.value
        except BaseException as raised:
            self.error = raised

    @property
    def acquires(self) -> dict[int, Acquire]:
        assert self.effect is not None
        return only(self.effect, Acquire)

    @property
    def tickets(self) -> dict[int, Ticket | None]:
        return {node: request.ticket for node, request in self.acquires.items()}

    @property
    def shown(self) -> Ticket:
        """The ticket that it last showed to anybody."""
        return next(
            request.ticket for effect in reversed(self.said) if isinstance(effect, Round)
            for request in asked(effect).values() if isinstance(request, Acquire) and request.ticket
        )  # fmt: skip

    @property
    def pause(self) -> float:
        assert isinstance(self.effect, Wait), self.effect
        return self.effect.seconds

    def answer(self, performer: Performer) -> None:
        """The nodes answer; what undoes an attempt is answered, too, unless the test asks about it."""
        assert isinstance(self.effect, Round), self.effect
        performer(self.effect)
        self.go()
        while isinstance(self.effect, Round) and all(isinstance(r, Release) for r in asked(self.effect).values()):
            everyone(DONE)(self.effect)
            self.go()

    def listens(self, *nodes: int) -> None:
        assert isinstance(self.effect, Listen), self.effect
        assert self.effect.room is self.process.room
        for node in nodes:
            self.process.room.hears(node)
        self.go()

    def rests(self) -> None:
        """Time passes until it looks again."""
        assert isinstance(self.effect, Wait), self.effect
        self.process.world.now += self.effect.seconds
        self.go()

    def wakes(self) -> None:
        """Whoever rang was enough."""
        assert isinstance(self.effect, Wait), self.effect
        assert self.effect.over, "nobody has rung"
        while isinstance(self.effect, Wait) and self.effect.over:
            self.go()


def leaves(waiter: Waiter) -> None:
    """It takes its ticket off all nodes, behind what it last asked."""
    assert isinstance(waiter.effect, Round), waiter.effect
    told = only(waiter.effect, Leave)
    assert set(told) == set(range(len(waiter.process.world.fleet.nodes))), "not all nodes"
    assert {(one.name, one.ticket) for one in told.values()} == {("job", waiter.shown.member)}
    assert waiter.effect.everyone
    assert waiter.effect.tally.needed == waiter.process.world.fleet.majority, "a closed connection would swallow it"
