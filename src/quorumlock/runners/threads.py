"""Runs procedures in the calling thread.

No thread is started for a round. Threads connect, in the background, to nodes that have no strand yet.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ..core.effects import Round, Sleep, Steps
from ..engines.base import Engine
from ..errors import ConfigurationError
from ..events import Bus
from .base import Watch, advance, ended
from .cable import Cable

T = TypeVar("T")

PINNED_WAIT = 1.0
PINNED_PAUSE = 0.0005

_runners: weakref.WeakSet[ThreadRunner] = weakref.WeakSet()


class ThreadRunner:
    """Performs effects in the thread that calls `run`."""

    def __init__(self, engine: Engine, clock: Callable[[], float], node_timeout: float, bus: Bus) -> None:
        self._engine = engine
        self._clock = clock
        self._node_timeout = node_timeout
        self._watch = Watch(engine, clock, bus)
        self._free: deque[Cable] = deque()
        self._closed = False
        _runners.add(self)

    def run(self, steps: Steps[T]) -> T:
        """Drives a procedure to its end. An interrupt is thrown into it, so that it can clean up."""
        if self._closed:
            raise ConfigurationError("this Locker is closed")
        error: BaseException | None = None
        while True:
            try:
                effect = next(steps) if error is None else advance(steps, error)
                error = None
                if type(effect) is Round:
                    self._perform(effect)
                elif type(effect) is Sleep:
                    time.sleep(effect.seconds)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except BaseException as caught:
                if ended(steps):
                    raise
                error = caught

    def _perform(self, round_: Round) -> None:
        route = round_.route
        pinned = route.taken
        cable = self._any() if pinned is None else self._take(pinned)
        try:
            cable.perform(round_)
            if pinned is not None or round_.tally.missing:
                route.taken = cable if cable.owes else None
        finally:
            if self._closed:
                cable.close()
            else:
                self._free.append(cable)

    def _take(self, pinned: object) -> Cable:
        """The cable on which a request of this route may still be under way; else any."""
        assert isinstance(pinned, Cable)
        end = self._clock() + PINNED_WAIT
        while pinned.owes and self._clock() < end:
            try:
                self._free.remove(pinned)
            except ValueError:  # another thread has it, for one round
                time.sleep(PINNED_PAUSE)
            else:
                return pinned
        return self._any()

    def _any(self) -> Cable:
        """A cable that nobody uses, made where there is none.

        Taking one is a single pop, so that an interrupt cannot leave it taken for ever: at the worst it is
        lost, and closed when it is collected.
        """
        try:
            return self._free.pop()
        except IndexError:
            return Cable(self._engine, self._watch, self._clock, self._node_timeout)

    def close(self) -> None:
        """Closes all connections; those that other threads are using, when they have done so."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def forget(self) -> None:
        """In a forked child: the connections are the parent's. Nothing is sent on them, not even a goodbye."""
        self._free = deque()


def _after_fork_in_child() -> None:
    for runner in list(_runners):
        runner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
