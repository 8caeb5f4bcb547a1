"""The links of a process, and threads that wait for them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ...clocks import boot_time
from ...core.effects import Round
from ...core.requests import Request
from ...core.states import NodeState
from ...core.votes import unknown
from ...errors import ConfigurationError, LockError
from .batches import Again, NoTables, Trouble, Unsent, Visit
from .links import AGAIN_WITHIN, LINKS_MOST, Hub, Shelf, SyncLink
from .visits import Visits

T = TypeVar("T")


class Threads:
    """Carries visits over links that block."""

    def __init__(self, visits: Visits, hub: Hub, open_: Callable[[float], SyncLink]) -> None:
        self._visits = visits
        self._hub = hub
        self._open = open_
        self._shelf = Shelf(threading.BoundedSemaphore(LINKS_MOST))
        self._abandoned: list[Shelf] = []

    def perform(self, round_: Round) -> None:
        request = round_.requests[0]
        if request is None:
            return
        try:
            answer = self.ask(lambda: self._visits.answer(request, self._shelf.owed), request)
        except Trouble as error:
            answer = unknown(error.cause, str(error))
            self._shelf.owe(request)
        round_.tally.cast(0, answer)
        if (pruning := self._visits.prune_if_due()) is not None:
            try:
                self.ask(lambda: pruning, None)
            except Trouble:
                pass  # it can wait

    def ask(self, visit: Callable[[], Visit[T]], request: Request | None, *, make: bool = True) -> T:
        due, tries = self._hub.due(request), 0
        while True:
            tries += 1
            try:
                return self._on_a_link(visit(), due)
            except Trouble as error:
                if self._hub.hopeless(error, request, tries, due) or (isinstance(error, NoTables) and not make):
                    raise
                if isinstance(error, NoTables):
                    self._on_a_link(self._visits.make(), due)
                elif isinstance(error, Again):
                    time.sleep(AGAIN_WITHIN * random.random())

    def _on_a_link(self, visit: Visit[T], due: float) -> T:
        shelf = self._shelf
        if not shelf.seats.acquire(timeout=max(0.0, due - boot_time())):
            raise Unsent(f"all {LINKS_MOST} connections of this process are busy")
        link: SyncLink | None = None
        try:
            link = self._take(shelf, due)
            batch = next(visit)
            while True:
                batch = visit.send(link.run(batch, due))
        except StopIteration as done:
            shelf.give_back(link)
            return done.value  # type: ignore[no-any-return]
        except (Trouble, LockError) as error:
            if getattr(error, "broken", False):
                shelf.give_up(link)
            else:
                shelf.give_back(link)
            raise
        except BaseException:
            shelf.give_up(link)
            raise
        finally:
            shelf.seats.release()

    def _take(self, shelf: Shelf, due: float) -> SyncLink:
        link = None
        while link is None and shelf.idle:
            try:
                link = shelf.idle.pop()
            except IndexError:
                break  # another thread was faster
            if not link.alive():
                link.close()
                link = None
        if link is None:
            link = self._open(due)
            self._hub.version = link.version
        try:
            for one in tuple(shelf.lost):
                self._bury(link, one, due)
                shelf.buried(one)
        except BaseException:
            link.close()
            raise
        return link

    def _bury(self, link: SyncLink, server_id: object, due: float) -> None:
        try:
            link.run(self._hub.bury(server_id), due)
        except Trouble as error:
            if error.broken:
                raise
            # It is gone already, or this user may not: then what it was asked may outlive it for a ttl.

    def states(self, samples: int) -> tuple[NodeState, ...]:
        """How the database is doing: it answers, or it is said why not."""
        took: list[float] = []
        offset = None
        try:
            for _ in range(samples):
                started = boot_time()
                wall = time.time()
                try:
                    now_us = self.ask(self._visits.look, None, make=False)
                except NoTables:  # they are made by whoever locks first
                    now_us = self.ask(self._visits.now, None)
                took.append(boot_time() - started)
                offset = now_us / 1e6 - wall - took[-1] / 2
        except (Trouble, ConfigurationError) as error:
            return (self._hub.told(took, error, None),)
        return (self._hub.told(took, None, offset),)

    def close(self) -> None:
        """Closes what is idle. A request of another thread that comes late opens a link for itself alone."""
        self._shelf.closed = True
        self._shelf.empty()

    def forget(self) -> None:
        """In a forked child: the links are the parent's, and are neither used nor closed."""
        self._abandoned.append(self._shelf)
        self._shelf = Shelf(threading.BoundedSemaphore(LINKS_MOST))
