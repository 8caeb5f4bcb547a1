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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ..core.effects import Effect, Round, Sleep, Steps
from ..engines.base import Engine, Link, Store, WireEngine
from ..errors import ConfigurationError
from ..events import Bus
from . import board
from .base import Watch, advance, ended, reason

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

CLOSING_WAIT = 0.5

_runners: weakref.WeakSet[AioRunner] = weakref.WeakSet()


class Strand(board.Strand, asyncio.Protocol):
    """A connection over an asyncio transport.

    redis-py has connected and authenticated; from here on the bytes are ours. Its stream writer is kept, since
    it closes the transport when it is collected.
    """

    def __init__(self, node: int, connection: Any, link: Link, on: Board) -> None:
        super().__init__(node, link, on)
        self.closed: asyncio.Future[None] = on.asyncio_loop.create_future()
        self._writer, self._reader = connection._writer, connection._reader
        connection._writer = connection._reader = None
        self.transport: asyncio.Transport = self._writer.transport
        self.transport.set_protocol(self)

    def catch_up(self) -> None:
        """What came before the bytes were ours: a server may accept a connection only to end it."""
        reader, self._reader = self._reader, None
        if data := bytes(reader._buffer):
            self.received(data)
        if reader._eof or reader.exception() is not None or self.transport.is_closing():
            self.connection_lost(reader.exception())
            self.transport.abort()

    def transmit(self, data: bytes) -> None:
        self.transport.write(data)

    def hang_up(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.broken(str(error or "closed by the server"))
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        self.flush()
        self.broken("closed by this client")
        self.transport.close()


class Board(board.Board):
    """The connections of one asyncio loop."""

    strands: list[Strand | None]  # type: ignore[assignment]

    def __init__(
        self,
        engine: WireEngine,
        watch: Watch,
        node_timeout: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(engine, watch, node_timeout, loop, self._start_connecting)
        self.asyncio_loop = loop
        self._connecting: set[asyncio.Task[None]] = set()

    def start(self, round_: Round) -> tuple[board.Pending, asyncio.Future[None]]:
        """Sends a round; what to end, and what to wait for first."""
        future: asyncio.Future[None] = self.asyncio_loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        pending = self.begin(round_, done)
        if round_.tally.decided:
            done()
        return pending, future

    def _start_connecting(self, _: board.Board, node: int) -> None:
        task = self.asyncio_loop.create_task(self._open(node))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _open(self, node: int) -> None:
        try:
            connection = await self.engine.open_async(node)
        except Exception as error:
            self.not_connected(node, reason(error))
        else:
            strand = Strand(node, connection, self.engine.new_link(node), self)
            self.connected(strand)
            strand.catch_up()

    async def close(self) -> None:
        for task in list(self._connecting):
            task.cancel()
        if self._connecting:
            await asyncio.wait(self._connecting, timeout=CLOSING_WAIT)
        strands = [strand for strand in self.strands if strand is not None]
        for strand in strands:
            strand.close()
        if strands:
            _, late = await asyncio.wait([strand.closed for strand in strands], timeout=CLOSING_WAIT)
            if late:
                for strand in strands:
                    strand.transport.abort()

    def bury(self) -> None:
        """The loop is closed: its connections are dead, and what they owed was lost."""
        for strand in self.strands:
            if strand is not None:
                strand.broken("its event loop was closed")


class Started(Protocol):
    """A round that is under way."""

    def end(self) -> None: ...


class Given:
    """A round that was given to a store."""

    __slots__ = ("_round",)

    def __init__(self, round_: Round) -> None:
        self._round = round_

    def end(self) -> None:
        self._round.tally.close()


class StoreBoard:
    """Takes rounds of one asyncio loop to a store: at once, or, where that may block, in a thread of its own.

    It is one thread, so that a release is executed behind what it undoes.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._thread: ThreadPoolExecutor | None = None

    def start(self, round_: Round) -> tuple[Started, asyncio.Future[None]]:
        """Sends a round; what to end, and what to wait for first."""
        if self._store.blocking:
            if self._thread is None:
                from concurrent.futures import ThreadPoolExecutor

                self._thread = ThreadPoolExecutor(1, "quorumlock-store")
            return Given(round_), self._loop.run_in_executor(self._thread, self._store.perform, round_)
        future: asyncio.Future[None] = self._loop.create_future()
        try:
            self._store.perform(round_)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return Given(round_), future

    releasing = False

    def flush(self) -> None:
        """Nothing is held back."""

    async def close(self) -> None:
        self.bury()

    def bury(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)


class AioRunner:
    """Performs effects in the running event loop."""

    def __init__(self, engine: Engine, node_timeout: float, bus: Bus) -> None:
        self._engine = engine
        self._new_board: Callable[[asyncio.AbstractEventLoop], Board | StoreBoard]
        if isinstance(engine, Store):
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
            except GeneratorExit as closing:
                # Nothing can be awaited any more: what can be sent is sent, and that is all.
                if not ended(steps) and not self._closed:
                    self._start(advance(steps, closing))
                raise
            except BaseException as caught:
                if ended(steps):
                    raise
                error = caught

    async def _clean_up(self, steps: Steps[T], cancelled: BaseException) -> T:
        effect = advance(steps, cancelled)  # raises `cancelled` again where there is nothing to clean up
        if self._closed:
            advance(steps, cancelled)  # no connection is left to clean up with: it ends by its ttl
        started = self._start(effect)
        task = asyncio.get_running_loop().create_task(self._finish(steps, started))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        return await asyncio.shield(task)

    async def _finish(self, steps: Steps[T], started: tuple[Started, asyncio.Future[None]] | None) -> T:
        if started is not None:
            pending, future = started
            try:
                await future
            finally:
                pending.end()
        return await self.run(steps)

    def _start(self, effect: Effect) -> tuple[Started, asyncio.Future[None]] | None:
        """Starts a clean-up round so that it is on its way whatever happens to its task."""
        if not isinstance(effect, Round):
            return None
        on = self._board()
        started = on.start(effect)
        on.flush()
        return started

    def _board(self) -> Board | StoreBoard:
        if self._closed:
            raise ConfigurationError("this Locker is closed")
        loop = asyncio.get_running_loop()
        on = self._boards.get(loop)
        if on is None:
            for other in [one for one in self._boards if one.is_closed()]:
                self._boards.pop(other).bury()
            on = self._boards[loop] = self._new_board(loop)
        return on

    async def close(self) -> None:
        """Closes the connections of the running loop, after clean-up that is under way."""
        await asyncio.sleep(0)  # cancellations that are on their way get there, and start their clean-up
        if self._cleaning:
            await asyncio.wait(self._cleaning, timeout=CLOSING_WAIT)
        loop = asyncio.get_running_loop()
        on = self._boards.get(loop)
        due = loop.time() + CLOSING_WAIT
        while on is not None and on.releasing and loop.time() < due:  # noqa: ASYNC110 - once, and not for long
            await asyncio.sleep(0.002)  # locks that other tasks are giving back
        self._closed = True
        self._boards.pop(loop, None)
        if on is not None:
            await on.close()
        if isinstance(self._engine, Store):
            self._engine.close()

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
