"""Runs procedures in the calling thread.

How a round is performed depends on the engine: a store answers by itself; to servers there are cables
(`cables.py`).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TypeVar, cast

from ..core.effects import Listen, Round, Sleep, Steps, Wait
from ..core.room import Room
from ..engines.base import Announcer, Engine, Restless, Store, WireEngine
from ..errors import ConfigurationError
from ..events import Bus
from .base import advance, ended

T = TypeVar("T")

_runners: weakref.WeakSet[ThreadRunner] = weakref.WeakSet()


class ThreadRunner:
    """Performs effects in the thread that calls `run`."""

    def __init__(self) -> None:
        self._closed = False
        self.room = new_room()
        _runners.add(self)

    def refuse_closed(self) -> None:
        if self._closed:
            raise ConfigurationError("this Locker is closed")

    def run(self, steps: Steps[T]) -> T:
        """Drives a procedure to its end. An interrupt is thrown into it, so that it can clean up."""
        if self._closed:  # spelled out: it is asked for every round
            self.refuse_closed()
        error: BaseException | None = None
        while True:
            try:
                effect = next(steps) if error is None else advance(steps, error)
                error = None
                if type(effect) is Round:
                    self.perform(effect)
                elif type(effect) is Wait:
                    self._wait(effect)
                elif type(effect) is Listen:
                    self.listen(effect.timeout)
                elif type(effect) is Sleep:
                    time.sleep(effect.seconds)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except BaseException as caught:
                if ended(steps):
                    raise
                error = caught

    def _wait(self, effect: Wait) -> None:
        woken = threading.Event()

        def rung() -> None:
            if effect.over:
                woken.set()

        effect.watch.on_ring = rung
        try:
            if not effect.over and not self._closed:
                woken.wait(effect.seconds)
        finally:
            effect.watch.on_ring = None
        self.refuse_closed()

    def perform(self, round_: Round) -> None:
        """Asks, and waits until the tally is decided or time is up."""
        raise NotImplementedError

    def listen(self, timeout: float) -> None:
        """Lets the nodes announce to the room."""
        raise NotImplementedError

    def deafen(self) -> None:
        """Nobody waits here any more."""

    def read_late(self) -> None:
        """Reads answers that came when nobody waited for them, and finds connections that have ended."""

    def close(self) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """In a forked child: what is open belongs to the parent."""
        raise NotImplementedError


class StoreRunner(ThreadRunner):
    """Performs rounds on a store."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._furnish()

    def _furnish(self) -> None:
        self.room.deaf = not isinstance(self._store, Announcer)
        if isinstance(self._store, Restless):
            self._store.meet(self.room)

    def perform(self, round_: Round) -> None:
        try:
            self._store.perform(round_)
        finally:
            round_.tally.close()

    def listen(self, timeout: float) -> None:
        assert isinstance(self._store, Announcer)
        listening = threading.Event()
        self._store.listen(self.room, listening.set)
        listening.wait(timeout)

    def close(self) -> None:
        self._closed = True
        self._store.close()
        self.room.stir()

    def forget(self) -> None:
        self.room = new_room()
        self._store.forget()
        self._furnish()


def new_room() -> Room:
    return Room(lambda: os.urandom(8).hex(), threading.RLock())


def runner_for(engine: Engine, node_timeout: float, bus: Bus) -> ThreadRunner:
    """The runner that suits the engine."""
    if isinstance(engine, Store):
        return StoreRunner(engine)
    from .cables import CableRunner  # imports sockets and TLS, which a store can do without

    return CableRunner(cast(WireEngine, engine), node_timeout, bus)


def _after_fork_in_child() -> None:
    for runner in list(_runners):
        runner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
