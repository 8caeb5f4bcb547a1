"""Runs procedures on asyncio: one connection per node and event loop, shared by all tasks of that loop.

Requests of one loop tick leave in one write per node. A round waits on a single future, which its tally sets;
no task is started for a round. Tasks connect, in the background, to nodes that have no strand yet.

A cancelled procedure gets the cancellation thrown into it. Its clean-up is sent before anything else happens,
and then awaited in a task of its own, where a second cancellation does not reach it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from ..core.effects import Effect, Listen, Round, Sleep, Steps, Wait
from ..core.room import Room
from ..engines.base import Engine, LoopStore, Store, WireEngine
from ..errors import ConfigurationError
from ..events import Bus
from .aio_boards import CLOSING_WAIT, Board, LoopStoreBoard, Started, StoreBoard
from .base import Watch, abandon, advance, ended

T = TypeVar("T")

_runners: weakref.WeakSet[AioRunner] = weakref.WeakSet()


class AioRunner:
    """Performs effects in the running event loop."""

    def __init__(self, engine: Engine, node_timeout: float, bus: Bus) -> None:
        self._engine = engine
        self._new_board: Callable[[asyncio.AbstractEventLoop], Board | StoreBoard]
        if isinstance(engine, LoopStore):
            self._new_board = functools.partial(LoopStoreBoard, engine)
        elif isinstance(engine, Store):
            self._new_board = functools.partial(StoreBoard, engine)
        else:
            wired = cast(WireEngine, engine)
            watch = Watch(wired, bus)
            self._new_board = functools.partial(Board, wired, watch, node_timeout)
        self._boards: dict[asyncio.AbstractEventLoop, Board | StoreBoard] = {}
        self._buried: list[object] = []
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._closed = False
        _runners.add(self)

    async def run(self, steps: Steps[T]) -> T:
        """Drives a procedure to its end. A cancellation is thrown into it, so that it can clean up."""
        error: BaseException | None = None
        while True:
            try:
                effect = advance(steps, error)
                error = None
                if isinstance(effect, Sleep):
                    await asyncio.sleep(effect.seconds)
                elif isinstance(effect, Wait):
                    await self._wait(effect)
                elif isinstance(effect, Listen):
                    await self._listen(effect.timeout)
                else:
                    pending, future = self._board().start(effect)
                    try:
                        await future
                    finally:
                        pending.end()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except asyncio.CancelledError as cancelled:
                if ended(steps):
                    raise
                return await self._clean_up(steps, cancelled)
            except GeneratorExit:
                self._drop(steps)
                raise
            except BaseException as caught:
                if ended(steps):
                    raise
                error = caught

    @property
    def room(self) -> Room:
        """Where the waiters of the running loop wait."""
        return self._board().room

    async def _wait(self, effect: Wait) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        def rung() -> None:
            if not effect.over:
                return
            if asyncio._get_running_loop() is loop:
                done()
            else:
                with suppress(RuntimeError):  # the loop is closed: nobody is left there to be told
                    loop.call_soon_threadsafe(done)

        effect.watch.on_ring = rung
        timer = loop.call_later(effect.seconds, done)
        try:
            if not effect.over:
                await future
        finally:
            timer.cancel()
            effect.watch.on_ring = None

    async def _listen(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        timer = loop.call_later(timeout, done)
        try:
            self._board().listen(done)
            await future
        finally:
            timer.cancel()

    async def _clean_up(self, steps: Steps[T], cancelled: BaseException) -> T:
        effect = advance(steps, cancelled)  # raises `cancelled` again where there is nothing to clean up
        if self._closed:  # no connection is left to clean up with: it ends by its ttl
            abandon(steps, cancelled)
            raise cancelled
        started = self._start(effect)
        task = asyncio.get_running_loop().create_task(self._finish(steps, started))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        try:
            return await asyncio.shield(task)
        except ConfigurationError:
            if not self._closed:
                raise
            raise cancelled from None  # it took longer than closing waits for it: what is left ends by its ttl

    async def _finish(self, steps: Steps[T], started: tuple[Started, asyncio.Future[None]] | None) -> T:
        if started is not None:
            pending, future = started
            try:
                await future
            finally:
                pending.end()
        return await self.run(steps)

    def _drop(self, steps: Steps[Any]) -> None:
        """Nothing can be awaited any more: what can be sent is sent, and that is all.

        It is told as a cancellation. A GeneratorExit would close the procedures inside, which yield then.
        """
        gone = asyncio.CancelledError()
        with suppress(StopIteration, asyncio.CancelledError):
            if not ended(steps):
                effect = advance(steps, gone)
                if not self._closed and asyncio._get_running_loop() is not None:
                    self._start(effect)
        abandon(steps, gone)

    def _start(self, effect: Effect) -> tuple[Started, asyncio.Future[None]] | None:
        """Starts a clean-up round so that it is on its way whatever happens to its task."""
        if not isinstance(effect, Round):
            return None
        on = self._board()
        started = on.start(effect)
        on.flush()
        return started

    def refuse_closed(self) -> None:
        if self._closed:
            raise ConfigurationError("this Locker is closed")

    def _board(self) -> Board | StoreBoard:
        self.refuse_closed()
        loop = asyncio.get_running_loop()
        on = self._boards.get(loop)
        if on is None:
            for other in [one for one in self._boards if one.is_closed()]:
                self._boards.pop(other).bury()
            on = self._boards[loop] = self._new_board(loop)
        return on

    async def close(self) -> None:
        """Closes the connections of the running loop, after clean-up that is under way."""
        loop = asyncio.get_running_loop()
        try:  # a cancellation must not leave it open
            await self._settle(loop)
        finally:
            self._closed = True
            on = self._boards.pop(loop, None)
            try:
                if on is not None:
                    on.room.stir()
                    await on.close()
            finally:
                if isinstance(self._engine, Store):
                    self._engine.close()

    async def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits until other tasks have released and cleaned up, for a second at most."""
        await asyncio.sleep(0)  # cancellations that are on their way get there, and start their clean-up
        if self._cleaning:
            await asyncio.wait(self._cleaning, timeout=CLOSING_WAIT)
        on = self._boards.get(loop)
        due = loop.time() + CLOSING_WAIT
        while on is not None and on.releasing and loop.time() < due:  # noqa: ASYNC110 - a release sets no event
            await asyncio.sleep(0.002)

    def forget(self) -> None:
        """In a forked child: the connections are the parent's, and so is what its selector knows of them.

        They are kept from being collected, since closing them here would take them out of that selector.
        """
        self._buried.append(self._boards)
        self._boards = {}
        if isinstance(self._engine, Store):
            self._engine.forget()


def _after_fork_in_child() -> None:
    for runner in list(_runners):
        runner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
