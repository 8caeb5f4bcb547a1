"""Where rounds go on asyncio: to the connections of one event loop, or to a store."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from ..core.effects import Round
from ..core.room import Room
from ..engines.base import Announcer, Link, LoopStore, Restless, Store, WireEngine
from . import board
from .base import Watch, not_made

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

CLOSING_WAIT = 0.5


def new_room() -> Room:
    room = Room(lambda: os.urandom(8).hex(), threading.RLock())  # a finaliser may run in another thread
    room.ordered = True
    return room


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
        self.room = new_room()

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

    def listen(self, done: Callable[[], None]) -> None:
        """Lets the nodes announce to the room."""
        if self.ears is None:
            board.Ears(self, self.room, self._start_listening)
        assert self.ears is not None
        self.ears.listen(done)

    def _start_connecting(self, _: board.Board, node: int) -> None:
        self._in_a_task(self._open(node))

    def _start_listening(self, _: board.Ears, node: int) -> None:
        self._in_a_task(self._open_ear(node))

    def _in_a_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = Context().run(self.asyncio_loop.create_task, work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _open_ear(self, node: int) -> None:
        assert self.ears is not None
        try:
            connection = await self.engine.open_async(node)
        except Exception:
            self.ears.not_connected(node)
        else:
            strand = Strand(node, connection, self.ears.new_ear(node), self)
            self.ears.connected(strand)
            strand.catch_up()

    async def _open(self, node: int) -> None:
        try:
            connection = await self.engine.open_async(node)
        except Exception as error:
            self.not_connected(node, not_made(error))
        else:
            strand = Strand(node, connection, self.engine.new_link(node), self)
            self.connected(strand)
            strand.catch_up()

    async def close(self) -> None:
        for task in list(self._connecting):
            task.cancel()
        try:
            if self._connecting:
                await asyncio.wait(self._connecting, timeout=CLOSING_WAIT)
        finally:
            await self._close_strands()

    async def _close_strands(self) -> None:
        ears: list[Any] = []
        if self.ears is not None:
            self.ears.closed = True
            ears = self.ears.strands
        strands = [strand for strand in [*self.strands, *ears] if strand is not None]
        for strand in strands:
            strand.close()
        if strands:
            _, late = await asyncio.wait([strand.closed for strand in strands], timeout=CLOSING_WAIT)
            if late:
                for strand in strands:
                    strand.transport.abort()

    def bury(self) -> None:
        """The loop is closed: its connections are dead, and what they owed was lost."""
        for strand in [*self.strands, *(self.ears.strands if self.ears is not None else ())]:
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
        self.room = new_room()
        self.room.deaf = not isinstance(store, Announcer)
        if isinstance(store, Restless):
            store.meet(self.room)

    def listen(self, done: Callable[[], None]) -> None:
        """Lets the store announce to the room."""
        assert isinstance(self._store, Announcer)

        def listening() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left there to be told
                self._loop.call_soon_threadsafe(done)

        self._store.listen(self.room, listening)

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


class LoopStoreBoard(StoreBoard):
    """Takes rounds of one asyncio loop to a store that answers there, each in a task of its own.

    What undoes a round waits for it: the store may have several connections.
    """

    _store: LoopStore

    def __init__(self, store: LoopStore, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(store, loop)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, round_: Round) -> tuple[Started, asyncio.Future[None]]:
        task = Context().run(self._loop.create_task, self._perform(round_, round_.route.taken))
        round_.route.taken = task
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return Given(round_), asyncio.shield(task)

    async def _perform(self, round_: Round, before: object) -> None:
        if isinstance(before, asyncio.Task) and not before.done():
            await asyncio.wait([before])
        await self._store.perform_async(round_)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it has seen it; nobody else has to be told

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_WAIT)
        await self._store.close_async()

    def bury(self) -> None:
        """The loop is closed, and with it all that was open there."""
