"""One task that looks at the fleet for everybody: often while somebody watches, rarely while nobody does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from .board import Board, Sample

if TYPE_CHECKING:
    from .source import Source

T = TypeVar("T")

IDLE = 60.0
"""Seconds between two samples that nobody waits for."""
SHARE = 0.25
"""Of the time, at most, that is spent looking: where it takes long, it is done less often."""
ATTENTION = 10.0
"""Seconds for which a single request counts as somebody who watches."""

log = logging.getLogger("quorumlock.web")


class Sampler:
    """Fills a board."""

    def __init__(self, source: Source, every: float) -> None:
        self.source = source
        self.board = Board()
        self.watchers = 0
        self._every = every
        self._took = 0.0
        self._asked_at = -ATTENTION
        self._asked = asyncio.Event()
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run(), name="sampler")
        try:
            yield
        finally:
            self.stop()
            task.cancel()
            await asyncio.wait([task])

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Streams end, and nothing is sampled any more."""
        self._stopping.set()
        self.board.wake()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Somebody looks, for as long as the block lasts."""
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1

    async def fresh(self, *, watching: bool = True) -> Board:
        """The board; if it is old, as soon as it is not. `watching`: whoever asks may soon ask again."""
        if watching:
            self._asked_at = time.monotonic()
        if time.time() - self.board.at > max(2.0, 2 * self._pace()):
            version = self.board.version
            self._asked.set()
            await self.board.newer(version, within=10.0)
        return self.board

    def hurry(self) -> None:
        """Something was changed: look again now."""
        self._asked.set()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                self.board.take(await asyncio.to_thread(self.source.sample))
            except Exception as error:  # locks and nodes are not to blame
                problem = f"the dashboard itself failed ({type(error).__name__}); its log has more"
                if problem != self.board.problem:  # once, and not with every look
                    log.exception("the dashboard could not look at the fleet")
                self.board.take(Sample(time.time(), kept=None, problem=problem))
            self._took = time.monotonic() - began
            await self._rest(began)

    def _pace(self) -> float:
        return max(self._every, self._took / SHARE)

    async def _rest(self, began: float) -> None:
        """Until the next sample is due; when that is depends on who comes in meanwhile."""
        self._asked.clear()
        while not self._asked.is_set():
            watched = self.watchers or time.monotonic() - self._asked_at < ATTENTION
            left = began + (self._pace() if watched else IDLE) - time.monotonic()
            if left <= 0:
                return
            try:
                await asyncio.wait_for(self._asked.wait(), min(left, self._every))
            except TimeoutError:
                pass  # perhaps somebody came in, or the last one left


async def in_thread(name: str, work: Callable[[], T]) -> T:
    """Runs what blocks in a thread with a name of its own: that is who breaks a lock, in logs and journals."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
