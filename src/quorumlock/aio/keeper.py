"""The keeper, for asyncio: a timer for all leases of a Locker, and a task while any of them is due.

A task that only sleeps would be among those that a program cancels when it tidies up; a timer is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from contextvars import Context
from typing import Any

from .. import keeping
from ..core.fleet import Fleet
from ..core.keeper import NEVER, Roster, tend
from ..core.owed import Debt, Owed, last_attempt, repeat
from ..events import Bus, logger
from ..keeping import Hold, KeeperBase

LONGEST_NAP = 1.0
"""A loop sleeps by a clock that stands still while the machine is suspended; leases go by one that does not."""


class AsyncKeeper(KeeperBase):
    """Renews leases, each in the event loop that acquired it."""

    def __init__(self, fleet: Fleet, run: Callable[[Any], Awaitable[Any]], bus: Bus) -> None:
        super().__init__(fleet)
        self._run = run
        self._bus = bus
        self._desks: dict[asyncio.AbstractEventLoop, LoopDesk] = {}
        self._closed = False
        self.callbacks: set[asyncio.Task[Any]] = set()
        """Tasks of `on_lost`, which nobody else holds."""

    def watch(self, hold: Hold) -> None:
        desk = self._desk(asyncio.get_running_loop())
        hold.desk = desk
        desk.watch(hold)

    def owe(self, debt: Debt) -> None:
        loop = asyncio._get_running_loop()
        if loop is not None and not self._closed:  # a closed Locker has no connections left
            self._desk(loop).owe(debt)

    def _desk(self, loop: asyncio.AbstractEventLoop) -> LoopDesk:
        desk = self._desks.get(loop)
        if desk is None:
            for other in [one for one in self._desks if one.is_closed()]:
                del self._desks[other]
            desk = self._desks[loop] = LoopDesk(self._fleet, self._run, loop, self._complain)
        return desk

    def wake(self) -> None:
        for desk in list(self._desks.values()):
            desk.in_loop(desk.look)

    def charges(self) -> list[Hold]:
        return [hold for desk in list(self._desks.values()) for hold in desk.roster.charges()]  # type: ignore[misc]

    def forget(self) -> None:
        for desk in self._desks.values():
            desk.roster.forget()
            desk.owed.end()
        self._desks = {}
        self._bus.forget()

    async def stop(self) -> None:
        """Ends renewal in the running loop. From now on the keeper repeats no release."""
        self._closed = True
        desk = self._desks.get(asyncio.get_running_loop())
        if desk is not None:
            await desk.close()

    async def join(self) -> None:
        """Waits until what happened before has been delivered, and `on_lost` has ended; at most `TOLD_WITHIN`."""
        bus = self._bus
        loop = asyncio.get_running_loop()
        due = loop.time() + keeping.TOLD_WITHIN
        marks = bus.begun_elsewhere()
        while bus.untold(marks) and loop.time() < due:  # noqa: ASYNC110 - other threads, and not for long
            await asyncio.sleep(0.001)
        mine = asyncio.current_task()
        callbacks = [task for task in self.callbacks if task is not mine and task.get_loop() is loop]
        late: set[asyncio.Task[Any]] = set()
        if callbacks:
            _, late = await asyncio.wait(callbacks, timeout=max(0.0, due - loop.time()))
        if late or bus.untold(marks):
            logger.warning("subscribers, or on_lost, have taken %g s, and are not waited for", keeping.TOLD_WITHIN)


class LoopDesk:
    """The keeper in one event loop."""

    def __init__(
        self,
        fleet: Fleet,
        run: Callable[[Any], Awaitable[Any]],
        loop: asyncio.AbstractEventLoop,
        complain: Callable[[BaseException], None],
    ) -> None:
        self.loop = loop
        self.roster = Roster(fleet.clock, fleet.random)
        self._fleet = fleet
        self._run = run
        self._complain = complain
        self.owed = Owed(fleet.clock, fleet.random, fleet.node_timeout, nullcontext())
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._repeating: asyncio.Task[None] | None = None
        self.closing = False

    def watch(self, hold: Hold) -> None:
        if self.roster.add(hold):
            self.in_loop(self.set_timer)

    def owe(self, debt: Debt) -> None:
        """Remembers a release that not every node has answered. Called in this loop."""
        if self.owed.add(debt) and self._repeating is None:
            self.set_timer()

    def in_loop(self, callback: Callable[[], object]) -> bool:
        """Calls it in this loop: now, if this is the loop that runs here, else as soon as it can.

        False if the loop is closed: nobody is left there to be told.
        """
        if asyncio._get_running_loop() is self.loop:  # unlike get_running_loop() it does not raise without one
            callback()
            return True
        try:
            self.loop.call_soon_threadsafe(callback, context=Context())
        except RuntimeError:
            return False
        return True

    def set_timer(self) -> None:
        """Wakes when the first lease is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.closing and not self.roster.charges():
            return
        wake_at = min(self.roster.wake_at, self._repeat_at())
        if wake_at != NEVER and not self.loop.is_closed():
            left = min(wake_at - self._fleet.clock(), LONGEST_NAP)
            self._timer = self.loop.call_later(max(0.0, left), self.look, context=Context())

    def look(self) -> None:
        """Is anything due?"""
        self._repeat_if_due()
        if self._task is not None:
            return
        if self._fleet.clock() < self.roster.wake_at:
            self.set_timer()
            return
        self.roster.rise()
        try:
            self._task = Context().run(self.loop.create_task, self._tend())
        except Exception as error:  # a task factory of the user's; what it refused is asked again
            self._complain(error)
            self._tended(None)
        else:
            self._task.add_done_callback(self._tended)

    async def _tend(self) -> None:
        steps = tend(self._fleet, self.roster)
        try:
            if self.closing:
                next(steps, None)  # nothing is renewed, so nothing is asked of a runner that is closed
            else:
                await self._run(steps)
        except Exception as error:
            self._complain(error)

    def _tended(self, _: asyncio.Task[None] | None) -> None:
        """However the task ended: also one that was cancelled before it began, or that began and ended at once."""
        self._task = None
        self.roster.settle()
        self.set_timer()

    # Releases that are owed to nodes: in a task of their own, which must not hold up renewal.

    def _repeat_at(self) -> float:
        return NEVER if self.closing or self._repeating is not None else self.owed.wake_at

    def _repeat_if_due(self) -> None:
        if self._repeat_at() > self._fleet.clock():
            return
        try:
            self._tell_outcomes(self.owed.sweep())
            if self.owed.wake_at <= self._fleet.clock():
                self._repeating = Context().run(self.loop.create_task, self._repeat())
                self._repeating.add_done_callback(self._repeated)
        except Exception as error:  # a task factory of the user's may raise; leases must be renewed all the same
            self.owed.postpone_all()
            KeeperBase._complain_of_release(error)

    async def _repeat(self) -> None:
        try:
            await self._run(repeat(self._fleet, self.owed))
        except Exception as error:
            KeeperBase._complain_of_release(error)

    def _repeated(self, _: asyncio.Task[None]) -> None:
        self._repeating = None
        try:
            self._tell_outcomes(self.owed.sweep())
        finally:
            if self._task is None:
                self.set_timer()

    def _tell_outcomes(self, outcomes: list[Callable[[], object]]) -> None:
        """Schedules each call by itself, so that an interrupt in a subscriber does not end renewal."""
        for tell in outcomes:
            self.loop.call_soon(tell, context=Context())

    async def _settle_owed(self) -> None:
        """Before connections are closed: what is owed is sent once more, and then it is forgotten."""
        try:
            if self._repeating is not None:
                await asyncio.wait([self._repeating], timeout=LONGEST_NAP)
            self._tell_outcomes(self.owed.sweep())
            if self.owed:
                await self._run(last_attempt(self._fleet, self.owed))
        except Exception as error:
            KeeperBase._complain_of_release(error)

    async def close(self) -> None:
        """Renews nothing any more; goes on until the last lease has ended."""
        self.owed.ended = self.closing = True
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            await self._settle_owed()
        finally:
            self._tell_outcomes(self.owed.end())
            self.set_timer()
