"""Those who wait are told: one connection that listens, for a process or an event loop.

It holds an advisory lock while it listens, as a sign of life: whoever tells somebody whose sign is gone tells the
next. When it is cut, the room is deaf until there is another one; those who wait ask by themselves meanwhile. A
server that was not told of the cut may believe in the old one for hours: the new one has it ended.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ...clocks import boot_time
from ...core.room import Room
from ..sql.batches import Batch, Query, Trouble
from ..sql.leases import CHANNEL, sign_of_life
from .wire import Line, pq_errors

if TYPE_CHECKING:
    from .engine import PostgresqlEngine

AGAIN_AFTER = 0.5
"""Seconds, before another connection is tried."""
ANSWERS_WITHIN = 5.0
CLOSES_WITHIN = 2.0
"""A thread that takes longer to end is left to itself."""
STANDS_FOR = 30.0
"""A connection that says nothing for so long is asked whether it is still there."""


_END_OLD = """SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT) = CAST(? AS BIGINT)"""


def _listening(room: Room) -> Batch:
    channel, sign = CHANNEL + room.id, sign_of_life(room.id)
    return Batch(
        (Query(_END_OLD, (sign,)), Query(f'LISTEN "{channel}"'), Query(f"SELECT pg_advisory_lock({sign})"))
    )


def _hear(line: Line, room: Room) -> None:
    """Passes on what has come. Raises OSError where the connection has ended."""
    pgconn = line.pgconn
    try:
        pgconn.consume_input()
    except pq_errors() as error:
        raise OSError(str(error)) from None
    while (told := pgconn.notifies()) is not None:
        room.announced(0, told.extra.decode(errors="replace"))


class ThreadEars:
    """A thread that listens."""

    def __init__(self, engine: PostgresqlEngine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop: tuple[int, int] | None = None
        self._waiting: list[Callable[[], None]] = []

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        with self._mutex:
            if 0 in room.ears or room.deaf:
                done()
                return
            self._waiting.append(done)
            if self._thread is None or not self._thread.is_alive():
                self._stop = os.pipe()
                self._thread = threading.Thread(
                    target=self._run, args=(room, self._stop), name="quorumlock-listen", daemon=True
                )
                Context().run(self._thread.start)

    def _settled(self) -> None:
        with self._mutex:
            waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _run(self, room: Room, stop: tuple[int, int]) -> None:
        try:
            self._listen(room, stop[0])
        finally:
            with self._mutex:
                if self._stop is stop:
                    self._stop = None
                for end in stop:
                    os.close(end)

    def _listen(self, room: Room, stop: int) -> None:
        while True:
            try:
                line = self._engine.open(boot_time() + ANSWERS_WITHIN)
            except Exception:  # whatever it is: nothing is heard, and it is tried again; who waits asks meanwhile
                line = None
            if line is not None and line.pooled:
                line.close()
                room.deaf = True
                self._settled()
                return
            if line is not None:
                try:
                    line.run(_listening(room), boot_time() + ANSWERS_WITHIN)
                    room.hears(0)
                    self._settled()
                    if self._hear(line, room, stop):
                        return
                except (Trouble, OSError):
                    pass  # another one is made
                finally:
                    room.deafened(0)
                    line.close()
            self._settled()
            pause = select.poll()
            pause.register(stop, select.POLLIN)
            if pause.poll(AGAIN_AFTER * 1000):
                return

    def _hear(self, line: Line, room: Room, stop: int) -> bool:
        """Until the connection ends; true if it is enough."""
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        poll.register(line.pgconn.socket, select.POLLIN)
        while True:
            _hear(line, room)
            came = dict(poll.poll(STANDS_FOR * 1000))
            if stop in came:
                return True
            if not came:
                line.run(Batch((Query("SELECT 1"),)), boot_time() + ANSWERS_WITHIN)  # type: ignore[attr-defined]

    def close(self) -> None:
        with self._mutex:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, None
            if stop is not None:
                os.write(stop[1], b".")
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSES_WITHIN)

    def forget(self) -> None:
        """In a forked child there is no such thread; its connection is the parent's."""
        self._mutex = threading.Lock()
        self._thread = None
        if self._stop is not None:
            for end in self._stop:
                os.close(end)
        self._stop = None
        self._waiting = []


class LoopEars:
    """A task that listens, on each event loop where somebody waits."""

    def __init__(self, engine: PostgresqlEngine) -> None:
        self._engine = engine
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
        self._waiting: list[Callable[[], None]] = []

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        if 0 in room.ears or room.deaf:
            done()
            return
        self._waiting.append(done)
        loop = asyncio.get_running_loop()
        for other in [one for one in self._tasks if one.is_closed()]:
            del self._tasks[other]
        task = self._tasks.get(loop)
        if task is None or task.done():
            self._tasks[loop] = Context().run(loop.create_task, self._run(room))

    def _settled(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    async def _run(self, room: Room) -> None:
        while True:
            try:
                line = await self._engine.open_async(boot_time() + ANSWERS_WITHIN)
            except Exception:  # whatever it is: nothing is heard, and it is tried again; who waits asks meanwhile
                line = None
            if line is not None and line.pooled:
                line.close()
                room.deaf = True
                self._settled()
                return
            if line is not None:
                try:
                    await line.run(_listening(room), boot_time() + ANSWERS_WITHIN)
                    room.hears(0)
                    self._settled()
                    await self._hear(line, room)
                except (Trouble, OSError):
                    pass  # another one is made
                finally:
                    room.deafened(0)
                    line.close()
            self._settled()
            await asyncio.sleep(AGAIN_AFTER)

    async def _hear(self, line: Line, room: Room) -> None:
        loop = asyncio.get_running_loop()
        while True:
            _hear(line, room)
            came = asyncio.Event()
            loop.add_reader(line.pgconn.socket, came.set)
            try:
                async with asyncio.timeout(STANDS_FOR):
                    await came.wait()
            except TimeoutError:
                came.clear()
            finally:
                loop.remove_reader(line.pgconn.socket)
            if not came.is_set():
                await line.run(Batch((Query("SELECT 1"),)), boot_time() + ANSWERS_WITHIN)  # type: ignore[attr-defined]

    async def close(self) -> None:
        task = self._tasks.pop(asyncio.get_running_loop(), None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def forget(self) -> None:
        self._tasks = WeakKeyDictionary()
        self._waiting = []
