"""The links of an event loop, and tasks that wait for them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from ...clocks import boot_time
from ...core.effects import Round
from ...core.requests import Request
from ...core.states import NodeState
from ...core.votes import Answer, unknown
from ...errors import ConfigurationError, LockError
from .batches import Again, Cut, NoTables, Trouble, Unsent, Visit
from .links import AGAIN_WITHIN, LINKS_MOST, AsyncLink, Hub, Shelf
from .visits import Visits

T = TypeVar("T")


class Loops:
    """Carries visits over links that an event loop waits for."""

    def __init__(self, visits: Visits, hub: Hub, open_: Callable[[float], Awaitable[AsyncLink]]) -> None:
        self._visits = visits
        self._hub = hub
        self._open = open_
        self._shelves: WeakKeyDictionary[asyncio.AbstractEventLoop, Shelf] = WeakKeyDictionary()
        self._abandoned: list[object] = []

    async def perform(self, round_: Round) -> None:
        request = round_.requests[0]
        if request is None:
            return
        try:
            answer: Answer = await self.ask(lambda: self._visits.answer(request, self._shelf().owed), request)
        except Trouble as error:
            answer = unknown(error.cause, str(error))
            self._shelf().owe(request)
        round_.tally.cast(0, answer)
        if (pruning := self._visits.prune_if_due()) is not None:
            try:
                await self.ask(lambda: pruning, None)
            except Trouble:
                pass  # it can wait

    async def ask(self, visit: Callable[[], Visit[T]], request: Request | None, *, make: bool = True) -> T:
        due, tries = self._hub.due(request), 0
        while True:
            tries += 1
            try:
                return await self._on_a_link(visit(), due)
            except Trouble as error:
                if self._hub.hopeless(error, request, tries, due) or (isinstance(error, NoTables) and not make):
                    raise
                if isinstance(error, NoTables):
                    await self._on_a_link(self._visits.make(), due)
                elif isinstance(error, Again):
                    await asyncio.sleep(AGAIN_WITHIN * random.random())

    def _shelf(self) -> Shelf:
        loop = asyncio.get_running_loop()
        shelf = self._shelves.get(loop)
        if shelf is None:
            for other in [one for one in self._shelves if one.is_closed()]:
                self._shelves.pop(other).empty()
            shelf = self._shelves[loop] = Shelf(asyncio.Semaphore(LINKS_MOST))
        return shelf

    async def _on_a_link(self, visit: Visit[T], due: float) -> T:
        shelf = self._shelf()
        await within(shelf.seats.acquire(), due, f"all {LINKS_MOST} connections of this event loop are busy")
        link: AsyncLink | None = None
        try:
            link = await self._take(shelf, due)
            batch = next(visit)
            while True:
                batch = visit.send(await link.run(batch, due))
        except StopIteration as done:
            shelf.give_back(link)
            return done.value  # type: ignore[no-any-return]
        except (Trouble, LockError) as error:
            if getattr(error, "broken", False):
                shelf.give_up(link)
                if isinstance(error, Cut):
                    shelf.empty()  # they may have been cut, too, and cannot all be asked
            else:
                shelf.give_back(link)
            raise
        except BaseException:
            shelf.give_up(link)
            raise
        finally:
            shelf.seats.release()

    async def _take(self, shelf: Shelf, due: float) -> AsyncLink:
        link = None
        while link is None and shelf.idle:
            link = shelf.idle.pop()
            if not link.alive():
                link.close()
                link = None
        if link is None:
            link = await self._open(due)
            self._hub.version = link.version
        try:
            for one in tuple(shelf.lost):
                await self._bury(link, one, due)
                shelf.buried(one)
        except BaseException:
            link.close()
            raise
        return link

    async def _bury(self, link: AsyncLink, server_id: object, due: float) -> None:
        try:
            await link.run(self._hub.bury(server_id), due)
        except Trouble as error:
            if error.broken:
                raise
            # It is gone already, or this user may not: then what it was asked may outlive it for a ttl.

    async def states(self, samples: int) -> tuple[NodeState, ...]:
        took: list[float] = []
        offset = None
        try:
            for _ in range(samples):
                started = boot_time()
                wall = time.time()
                try:
                    now_us = await self.ask(self._visits.look, None, make=False)
                except NoTables:  # they are made by whoever locks first
                    now_us = await self.ask(self._visits.now, None)
                took.append(boot_time() - started)
                offset = now_us / 1e6 - wall - took[-1] / 2
        except (Trouble, ConfigurationError) as error:
            return (self._hub.told(took, error, None),)
        return (self._hub.told(took, None, offset),)

    async def close(self) -> None:
        shelf = self._shelves.pop(asyncio.get_running_loop(), None)
        if shelf is not None:
            shelf.closed = True
            shelf.empty()

    def forget(self) -> None:
        self._abandoned.append(self._shelves)
        self._shelves = WeakKeyDictionary()


async def within(work: Awaitable[T], due: float, why: str) -> T:
    """Raises Unsent when time is up."""
    try:
        async with asyncio.timeout(max(0.0, due - boot_time())):
            return await work
    except TimeoutError:
        raise Unsent(why) from None
