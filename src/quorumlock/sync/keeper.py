"""The keeper, for threads: one daemon thread for all leases of a Locker."""

from __future__ import annotations

import threading
import time
import weakref
from _queue import Empty, SimpleQueue  # what `queue` gives, without importing all of it
from collections.abc import Callable
from typing import Any

from .. import keeping
from ..core.fleet import Fleet
from ..core.keeper import NEVER, Roster, tend
from ..core.owed import Debt, Owed, last_attempt, repeat
from ..events import Bus, Event, logger
from ..keeping import Hold, KeeperBase
from .messenger import Messenger

LONGEST_NAP = 1.0
"""A thread sleeps by a clock that stands still while the machine is suspended; leases go by one that does not."""


class Keeper(KeeperBase):
    """Renews leases in a thread, which starts with the first of them."""

    def __init__(
        self, fleet: Fleet, run: Callable[[Any], Any], bus: Bus, read_late: Callable[[], object] | None = None
    ) -> None:
        super().__init__(fleet)
        self._run = run
        self._read_late = read_late or (lambda: None)
        self._bus = bus
        self.closing = False
        self._begin()

    def _begin(self) -> None:
        self.roster = Roster(self._fleet.clock, self._fleet.random)
        self._bell: SimpleQueue[None] = SimpleQueue()
        fleet = self._fleet
        self.owed = Owed(fleet.clock, fleet.random, fleet.node_timeout, threading.RLock())
        self._thread: threading.Thread | None = None
        self._repeater: threading.Thread | None = None
        self._messenger = Messenger("quorumlock-events")
        self._caller = Messenger("quorumlock-on-lost")
        self._starting = threading.RLock()
        self._working = threading.Lock()
        self._asking = threading.Lock()
        """Held while nodes are being asked."""

    def watch(self, hold: Hold) -> None:
        hold.desk = self
        if self.roster.add(hold):
            self.wake()

    def wake(self) -> None:
        if not self._running():
            with self._starting:
                self._thread = self._started()
        self._bell.put(None)

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def owe(self, debt: Debt) -> None:
        """Remembers a release that not every node has answered; wakes the thread if it would sleep too long."""
        sooner = self.owed.add(debt)
        if debt.certain and not self.closing and not self._running():
            self.wake()
        elif sooner:
            self._bell.put(None)  # it looks at it, if it runs; it is not started for a node that is only slow

    def charges(self) -> list[Hold]:
        return self.roster.charges()  # type: ignore[return-value]

    def forget(self) -> None:
        self.roster.forget()
        self._bus.forget()
        self._begin()

    def call(self, callback: Callable[[], object]) -> None:
        """Calls it here, or in a thread beside the keeper's: what a user does must not hold up renewal."""
        if threading.current_thread() is not self._thread:
            callback()
        else:
            self._caller.call(callback)

    def tell(self, deliver: Callable[[Event], None], event: Event) -> None:
        """Tells of an event here, or in a thread beside the keeper's, and not the one in which `call` does."""
        if threading.current_thread() is self._thread:
            self._messenger.tell(deliver, event)
        else:
            deliver(event)

    def relay(self) -> None:
        """Lets what happens in the keeper's thread be told beside it; the bus does not keep the keeper alive."""
        known = weakref.ref(self)

        def relay(deliver: Callable[[Event], None], event: Event) -> None:
            keeper = known()
            if keeper is None:
                deliver(event)
            else:
                keeper.tell(deliver, event)

        self._bus.relay = relay

    def stop(self) -> None:
        """Leases are not renewed any more; the thread ends with the last of them. Nothing is sent again."""
        self.owed.ended = self.closing = True
        self._bell.put(None)

    def settle_owed(self) -> None:
        """Before connections are closed: what is owed to nodes is sent once more, and then it is forgotten."""
        owed, thread = self.owed, self._repeater
        try:
            # One that is only just being started sends nothing.
            if thread is not None and thread is not threading.current_thread() and thread.is_alive():
                thread.join(LONGEST_NAP)
            self._read_late()
            self._tell_outcomes(owed.sweep())
            if owed:
                self._run(last_attempt(self._fleet, owed))
        except Exception as error:
            self._complain_of_release(error)
        finally:
            self._tell_outcomes(owed.end())

    def join(self) -> None:
        """Waits until nothing is asked any more, and what happened before has been delivered.

        Whoever takes longer than `TOLD_WITHIN` to be told is not waited for. Nor is the thread, while it has still
        losses to announce.
        """
        due = time.monotonic() + keeping.TOLD_WITHIN
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            if self._asking.acquire(timeout=LONGEST_NAP):
                self._asking.release()
            if not self.roster.charges() and thread.is_alive():
                thread.join(LONGEST_NAP)
        told = self._bus.wait_until_told(due)  # by threads that have noticed a loss, and are just telling of it
        self._tell_reports()
        messengers = (self._messenger, self._caller)
        for messenger in messengers:
            told = messenger.flush(due) and told
        if not self.roster.charges():  # else the thread ends them, behind what it still has to announce
            for messenger in messengers:
                messenger.end()
        if not told:
            logger.warning("subscribers, or on_lost, have taken %g s, and are not waited for", keeping.TOLD_WITHIN)

    def _work(self) -> None:
        if not self._working.acquire(blocking=False):
            return  # an interrupt struck while the other one was being started
        try:
            while self._sleep():
                self._repeat_if_due()
                if self.roster.wake_at > self._fleet.clock():
                    continue
                self.roster.rise()
                try:
                    self._tend()
                except BaseException as error:
                    self._complain(error)
                self._bus.catch_up()
                self.roster.settle()
        finally:
            self._working.release()
            self._caller.end()
            self._messenger.end()

    def _tend(self) -> None:
        steps = tend(self._fleet, self.roster)
        with self._asking:
            if self.closing:
                next(steps, None)  # nothing is renewed, so nothing is asked of a runner that is closed
            else:
                self._run(steps)

    def _sleep(self) -> bool:
        """Sleeps until something is due; False if the keeper is to end."""
        roster, clock = self.roster, self._fleet.clock
        while not self.closing or roster.charges():
            left = min(roster.wake_at, self._repeat_at()) - clock()
            if left <= 0:
                return True
            try:
                self._bell.get(timeout=None if left == NEVER else min(left, LONGEST_NAP))
            except Empty:
                continue
            roster.hurry()
        return False

    # Releases that are owed to nodes. They are sent in a thread of their own, which must not hold up renewal; it
    # is there only while one is due.

    def _repeat_at(self) -> float:
        repeater = self._repeater
        if self.closing or (repeater is not None and repeater.is_alive()):
            return NEVER
        return self.owed.wake_at

    def _repeat_if_due(self) -> None:
        if self._repeat_at() > self._fleet.clock():
            return
        try:
            self._read_late()
            self._tell_reports()
            self._tell_outcomes(self.owed.sweep())
            if self.owed.wake_at <= self._fleet.clock():
                self._repeater = thread = threading.Thread(
                    target=self._repeat, name="quorumlock-releases", daemon=True
                )
                thread.start()
        except Exception as error:
            self._repeater = None
            self.owed.postpone_all()
            self._complain_of_release(error)

    def _repeat(self) -> None:
        try:
            self._run(repeat(self._fleet, self.owed))
        except Exception as error:
            if not self.closing:  # else the runner was closed just now
                self._complain_of_release(error)
        finally:
            try:
                with self._bus.announcing():
                    self._tell_reports()
                    self._tell_outcomes(self.owed.sweep())
                if self.closing:
                    self._messenger.end()
            finally:
                self._repeater = None  # closing waits for it until then
                self._bell.put(None)

    def _tell_reports(self) -> None:
        """Delivers what the runner has reported of nodes while the keeper repeated releases."""
        with self._bus.announcing():
            for event in self._bus.take_reports():
                self._messenger.tell(self._bus.deliver, event)

    def _tell_outcomes(self, outcomes: list[Callable[[], object]]) -> None:
        for tell in outcomes:
            self._messenger.call(tell)

    def _started(self) -> threading.Thread:
        """The thread, or a new one if it is not there."""
        thread = self._thread
        if thread is not None and (self.closing or thread.is_alive()):
            return thread
        thread = threading.Thread(target=self._work, name="quorumlock-keeper", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or the interpreter is shutting down
            logger.warning("quorumlock-keeper did not start (%s): leases end by their ttl", error)
        return thread
