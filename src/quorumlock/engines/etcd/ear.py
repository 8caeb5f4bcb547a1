"""Hears of the end of what is in the way of those who wait, and keeps their places.

A watch is one HTTP request whose answer does not end. What is to be watched is said at its beginning, and cannot
be added to later: whoever begins to wait opens a stream of its own, with all who begin at the same time; when
there are many streams, all that is still wanted goes into one. Each watch begins at the revision in which its
waiter was refused, so nothing is lost between the refusal and the stream, nor while streams are changed.

It runs on an event loop: that of its waiters, or one in a thread of its own if they are threads.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ...core.room import Room
from .client import AsyncClient
from .leases import TICKETS_LAST
from .queue import Watched
from .words import b64

if TYPE_CHECKING:
    from .engine import EtcdEngine

STREAMS_MOST = 6
TICK = TICKETS_LAST / 4
PAUSE, PAUSE_MOST = 0.05, 1.0
CLOSING_WAIT = 1.0


def creating(wanted: Iterable[Watched]) -> bytes:
    """What opens a stream that tells of all these."""
    requests = []
    for at, one in enumerate(wanted, 1):
        request: dict[str, Any] = {
            "key": b64(one.key), "start_revision": str(one.revision), "watch_id": str(at), "filters": ["NOPUT"],
        }  # fmt: skip
        if one.end:
            request["range_end"] = b64(one.end)
        requests.append(json.dumps({"create_request": request}))
    return "".join(requests).encode()


class Stream:
    """One answer that does not end."""

    def __init__(self, ear: Ear, wanted: list[Watched]) -> None:
        self.ear = ear
        self.wanted = wanted
        self.host = ear.host
        self.open = asyncio.Event()
        self.task = Context().run(asyncio.get_running_loop().create_task, self._hear())

    async def _hear(self) -> None:
        """Until all of it was told, or the stream is lost."""
        missing = len(self.wanted)
        try:
            async with self.ear.opened(self.host, creating(self.wanted)) as answer:
                if answer.status_code != 200:
                    self.ear.denied()
                    self.ear.lost(self)
                    return
                async for line in answer.aiter_lines():
                    told = json.loads(line).get("result")
                    if told is None:
                        break
                    if told.get("canceled") and not told.get("compact_revision"):
                        self.ear.denied()
                        break
                    if told.get("created"):
                        missing -= 1
                        if not missing:
                            self.open.set()
                    if told.get("events") or told.get("canceled"):  # also if its revision is not kept any more
                        self.ear.heard(self, self.wanted[int(told.get("watch_id", 0)) - 1])
        except asyncio.CancelledError:
            raise
        except Exception:
            pass  # whatever it is, the stream is lost, and another is opened
        self.ear.lost(self)


class Ear:
    """The streams of one room."""

    def __init__(self, engine: EtcdEngine, room: Room) -> None:
        self._engine = engine
        self.room = room
        self._wanted: dict[str, Watched] = {}
        """What each ticket waits for."""
        self._news: deque[Watched] = deque()
        self._streams: list[Stream] = []
        self._done: deque[Callable[[], None]] = deque()
        self._lost = False
        self._stirred = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: AsyncClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    # Called by any thread.

    def start(self) -> None:
        """On the running loop if its waiters are there, else in a thread: a thread that waits may have a loop."""
        loop = asyncio._get_running_loop() if self.room.ordered else None
        if loop is not None:
            self._loop = loop
            self._task = Context().run(loop.create_task, self._run())
            return
        ready = threading.Event()
        self._thread = threading.Thread(target=self._in_a_thread, args=(ready,), name="quorumlock-ear", daemon=True)
        self._thread.start()
        ready.wait(CLOSING_WAIT)

    def _in_a_thread(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            ready.set()
            await self._run()

        with suppress(asyncio.CancelledError):
            asyncio.run(main())

    def listen(self, done: Callable[[], None]) -> None:
        if 0 in self.room.ears:
            done()
            return
        self._done.append(done)
        self._stir()

    def watch(self, wanted: Watched) -> None:
        self._wanted[wanted.ticket] = wanted
        self._news.append(wanted)
        self._stir()

    @property
    def alive(self) -> bool:
        return self._loop is None or not self._loop.is_closed()

    @property
    def in_a_thread(self) -> bool:
        return self._thread is not None

    def runs_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop is loop

    def _stir(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left there to be told
                self._loop.call_soon_threadsafe(self._stirred.set)

    def stop(self) -> None:
        """From any thread; waits for a thread of our own."""
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_WAIT)

    async def stopped(self) -> None:
        """In its own loop."""
        if self._task is not None and self._thread is None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSING_WAIT)

    # In its loop.

    @property
    def host(self) -> int:
        return self._engine.talk.host

    def opened(self, host: int, body: bytes) -> Any:
        assert self._client is not None
        return self._client.watching(host, body, self._engine.talk.token)

    def heard(self, stream: Stream, wanted: Watched) -> None:
        """What was in the way of a ticket is gone."""
        if self._wanted.get(wanted.ticket) is wanted:
            del self._wanted[wanted.ticket]
        self.room.announced(0, wanted.ticket)
        if not any(self._wanted.get(one.ticket) is one for one in stream.wanted):
            self._drop(stream)

    def lost(self, stream: Stream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)
            if any(self._wanted.get(one.ticket) is one for one in stream.wanted):
                self._lost = True
                self.room.deafened(0)
                self._stirred.set()

    def denied(self) -> None:
        """The token by which we are known may be over: whoever asks next makes another."""
        self._engine.talk.token = ""

    def _drop(self, stream: Stream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)
        stream.task.cancel()

    async def _run(self) -> None:
        self._client = AsyncClient(self._engine.place, self._engine.talk.connect_timeout)
        pause, lease = PAUSE, 0
        try:
            while True:
                self._stirred.clear()
                try:
                    lease = await self._keep_places(lease)
                    if self._lost or self._news:
                        await self._open()
                    pause = PAUSE
                except Exception:  # whatever it is, nothing is heard; who waits asks by itself meanwhile
                    self.room.deafened(0)
                    self._lost = True
                    self._answer()
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, PAUSE_MOST)
                    if self.room.waiting:
                        continue
                self._answer()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stirred.wait(), TICK)
        finally:
            self.room.deafened(0)
            for stream in list(self._streams):
                self._drop(stream)
            await self._client.close()

    def _answer(self) -> None:
        """To those who wanted to listen."""
        while self._done:
            self._done.popleft()()

    async def _keep_places(self, lease: int) -> int:
        """Renews what the tickets hang on, while there are any; which also tells whether the host is alive."""
        if 0 in self.room.ears and not self.room.waiting:
            for stream in list(self._streams):  # nobody waits: who did so is gone
                self._drop(stream)
            self._wanted.clear()
            return lease
        assert self._client is not None
        talk = self._engine.talk
        now = await self._client.drive(self._engine.leases.for_tickets(talk.until(), soon=self._lost))
        if any(stream.host != self.host for stream in self._streams):
            self._lost = True  # that host was left because it is silent, and so are its streams
        if 0 not in self.room.ears or (lease and now != lease):
            if self._streams or self._lost:
                await self._open()
            self.room.hears(0)  # who lost its place has it again as soon as it asks
        return now

    async def _open(self) -> None:
        """A stream for what is new, or one for all."""
        news = []
        while self._news:
            news.append(self._news.popleft())
        old: list[Stream] = []
        if self._lost or len(self._streams) >= STREAMS_MOST:
            old = self._streams[:]
            wanted = list(self._wanted.values())
        else:
            wanted = [one for one in news if self._wanted.get(one.ticket) is one]
        if wanted:
            stream = Stream(self, wanted)
            self._streams.append(stream)
            opening = asyncio.ensure_future(stream.open.wait())
            await asyncio.wait(
                [opening, stream.task], timeout=self._engine.talk.patience, return_when=asyncio.FIRST_COMPLETED
            )
            opening.cancel()
            if not stream.open.is_set() and stream in self._streams:
                self._drop(stream)
                raise OSError("the stream was not opened")
            if stream not in self._streams and self._lost:
                raise OSError("the stream was lost")
        for stream in old:
            self._drop(stream)
        self._lost = False
