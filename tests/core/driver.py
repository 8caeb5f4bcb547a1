"""Drives procedures by hand: a fleet with a clock that only moves when told, and scripted answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TypeVar

from quorumlock.core.effects import Effect, Round, Route, Sleep, Steps, Wait
from quorumlock.core.fleet import Fleet
from quorumlock.core.health import give_up
from quorumlock.core.redlock import Grant
from quorumlock.core.requests import Request
from quorumlock.core.votes import Answer, Cause, Vote, unknown

T = TypeVar("T")
R = TypeVar("R")
Performer = Callable[[Round], None]

WALL = 1_700_000_000.0


def granted(fence: int = 1) -> Answer:
    return Answer(Vote.GRANTED, Cause.AGREED, fence)


def refused(cause: Cause, wait_ms: int = 0) -> Answer:
    return Answer(Vote.REFUSED, cause, wait_ms=wait_ms)


HELD = Answer(Vote.REFUSED, Cause.HELD, fence=7, wait_ms=900)
QUARANTINE = refused(Cause.QUARANTINE, 1500)
ABSENT = refused(Cause.ABSENT)
CHANGED = refused(Cause.CHANGED)
DONE = granted(0)
LOST_LINE = unknown(Cause.DISCONNECTED)
LEFT_OUT = unknown(Cause.LEFT_OUT)
UNREACHABLE = unknown(Cause.UNREACHABLE)
SILENT = None
"""No answer: the round waits until its time is up."""


class World:
    """One client of `nodes` nodes; time stands still unless a round or a sleep takes some."""

    def __init__(self, nodes: int, *, mustered: bool = True, random: float = 0.5) -> None:
        self.now = 1000.0
        self.tokens: list[str] = []
        numbers = count(1)

        def new_token(_: str) -> str:
            self.tokens.append(f"token-{next(numbers)}")
            return self.tokens[-1]

        labels = tuple(f"node{i}" for i in range(nodes))
        self.fleet = Fleet(labels, lambda: self.now, lambda: WALL, lambda: random, new_token)
        self.fleet.mustered = mustered
        self.effects: list[Effect] = []

    @property
    def rounds(self) -> list[Round]:
        return [effect for effect in self.effects if isinstance(effect, Round)]

    @property
    def sleeps(self) -> list[float]:
        return [effect.seconds for effect in self.effects if isinstance(effect, (Sleep, Wait))]

    def grant(self, *, ttl: float = 10.0, fence: int = 5, left: float = 5.0) -> Grant:
        """A lease that was acquired some time ago and is valid for another `left` seconds."""
        tally = self.fleet.tally()
        return Grant("job", "mine", fence, ttl, self.now + left, tally, Route())

    def run(self, steps: Steps[T], performers: Iterable[Performer]) -> T:
        """Runs to the end; every round takes the next performer, and none may be left over."""
        script = iter(performers)
        try:
            while True:
                self._perform(next(steps), script)
        except StopIteration as done:
            result: T = done.value
        assert next(script, None) is None, "fewer rounds than expected"
        return result

    def interrupt(
        self,
        steps: Steps[T],
        performers: Iterable[Performer],
        error: BaseException,
        *,
        partly: Performer | None = None,
        cleanup: Performer | None = None,
    ) -> BaseException | None:
        """Performs what is scripted, throws `error` at the next effect, and goes on to the end.

        `partly` is what that effect came to before the interrupt; `cleanup` answers the rounds behind it.
        Gives what came out of the procedure; `effects` are the interrupted one, and those after it.
        """
        script = iter(performers)
        effect = next(steps)
        for performer in script:
            self._perform(effect, iter([performer]))
            effect = next(steps)
        self.effects = [effect]
        if partly is not None and isinstance(effect, Round):
            partly(effect)
        try:
            effect = steps.throw(error)
            while True:
                self._perform(effect, iter([cleanup or everyone(DONE)]))
                effect = next(steps)
        except StopIteration:
            return None
        except BaseException as raised:
            return raised

    def _perform(self, effect: Effect, script: Iterable[Performer]) -> None:
        self.effects.append(effect)
        if isinstance(effect, (Sleep, Wait)):
            self.now += effect.seconds
            return
        assert isinstance(effect, Round)
        performer = next(iter(script), None)
        assert performer is not None, f"an unexpected round: {asked(effect)}"
        performer(effect)

    def takes(self, seconds: float, performer: Performer) -> Performer:
        """The same answers, but the round takes a while."""

        def slowly(round_: Round) -> None:
            self.now += seconds
            performer(round_)

        return slowly


def votes(*answers: Answer | None, order: Sequence[int] | None = None) -> Performer:
    """What a runner does with a round: answers come in `order` until it is decided, or time is up."""

    def perform(round_: Round) -> None:
        tally = round_.tally
        assert len(answers) == len(round_.requests), "one answer for each node"
        for node, answer in enumerate(answers):
            if answer is LEFT_OUT and not round_.everyone:
                tally.cast(node, LEFT_OUT)
        for node in order or range(len(answers)):
            answer = answers[node]
            if tally.decided:
                break
            if round_.requests[node] is not None and answer is not None and answer is not LEFT_OUT:
                tally.cast(node, answer)
        give_up(round_)

    return perform


def some(*answers: Answer | None) -> Performer:
    """What a round came to when it was interrupted: these votes, and then it was closed."""

    def perform(round_: Round) -> None:
        for node, answer in enumerate(answers):
            if answer is not None:
                round_.tally.cast(node, answer)
        round_.tally.close()

    return perform


def everyone(answer: Answer | None) -> Performer:
    """All nodes that are asked say the same."""
    return lambda round_: votes(*[answer] * len(round_.requests))(round_)


def then(performer: Performer, action: Callable[[], None]) -> Performer:
    """The round, and something that happens before the procedure goes on."""

    def both(round_: Round) -> None:
        performer(round_)
        action()

    return both


def asked(round_: Effect) -> dict[int, Request]:
    """Which nodes a round asks, and what."""
    assert isinstance(round_, Round)
    return {node: request for node, request in enumerate(round_.requests) if request is not None}


def only(effect: Effect, kind: type[R]) -> dict[int, R]:
    """The requests of a round, all of which must be of that kind."""
    requests = asked(effect)
    found: dict[int, R] = {node: request for node, request in requests.items() if isinstance(request, kind)}
    assert len(found) == len(requests), f"not all of {requests} are {kind.__name__}"
    return found
