"""Performs rounds on servers, in the calling thread.

No thread is started for a round. Threads connect, in the background, to nodes that have no strand yet.
"""

from __future__ import annotations

import time
from collections import deque

from ..core.effects import Round, Wait
from ..engines.base import WireEngine
from ..events import Bus
from .base import Watch
from .cable import Cable
from .ears import Ears
from .threads import ThreadRunner, new_room

PINNED_WAIT = 1.0
PINNED_PAUSE = 0.0005


class CableRunner(ThreadRunner):
    """Takes a cable for every round."""

    def __init__(self, engine: WireEngine, node_timeout: float, bus: Bus) -> None:
        super().__init__()
        self._engine = engine
        self._clock = engine.clock
        self._node_timeout = node_timeout
        self._watch = Watch(engine, bus)
        self._bus = bus
        self._free: deque[Cable] = deque()
        self._ears: Ears | None = None

    def listen(self, timeout: float) -> None:
        if self._ears is None:
            self._ears = Ears(self._engine, self.room)
        self._ears.listen(timeout)

    def deafen(self) -> None:
        if self._ears is not None:
            self._ears.close()

    def read_late(self) -> None:
        for cable in self._free.copy():
            if cable.unread:
                try:
                    self._free.remove(cable)
                except ValueError:
                    continue  # whoever has taken it reads it
                try:
                    cable.read_late()
                finally:
                    if self._closed:
                        cable.close()
                    else:
                        self._free.append(cable)

    def perform(self, round_: Round) -> None:
        route = round_.route
        pinned = route.taken
        cable = self._any() if pinned is None else self._take(pinned)
        try:
            cable.perform(round_)
            if self._closed:  # whoever waited here takes its ticket off all nodes, and not only off a majority
                cable.finish(round_)
        finally:
            # Also of a round that was interrupted, or timed out: what it asked may still be executed.
            route.taken = cable if cable.owes else None
            cable.missing = False
            if self._closed:
                cable.close()
            else:
                self._free.append(cable)  # no call in Python: an interrupt at its beginning would lose the cable

    def _wait(self, effect: Wait) -> None:
        self._bus.catch_up()
        super()._wait(effect)

    def _take(self, pinned: object) -> Cable:
        """The cable on which a request of this route may still be under way; else any."""
        assert isinstance(pinned, Cable)
        end = self._clock() + PINNED_WAIT
        while pinned.owes:
            try:
                self._free.remove(pinned)
            except ValueError:  # another thread has it, for one round
                if pinned.missing or self._clock() >= end:
                    pinned.missing = True
                    break
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
            return Cable(self._engine, self._watch, self._node_timeout)

    def close(self) -> None:
        """Closes all connections; those that other threads are using, when they have done so."""
        self._closed = True
        self.room.stir()
        self.deafen()
        while self._free:
            self._free.pop().close()

    def forget(self) -> None:
        """In a forked child: the connections are the parent's. Nothing is sent on them, not even a goodbye."""
        self._free = deque()
        self._ears = None
        self.room = new_room()
