"""Hears what nodes announce, for threads: a thread for all subscriptions of a Locker; its first wait starts it."""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from typing import Any

from ..core.room import Room
from ..core.votes import Cause
from ..engines.base import EarLink, WireEngine
from ..events import logger
from .base import Settled
from .cable import Strand
from .connecting import Bell, connect

LONGEST_NAP = 30.0
ATTACHED_WITHIN = 0.2
"""Seconds for a server to say that we are subscribed."""


class Ears:
    """A subscription to each node; they are kept once they are made, and made again while anybody waits."""

    def __init__(self, engine: WireEngine, room: Room) -> None:
        self._engine = engine
        self._room = room
        self._clock = engine.clock
        self._closed = False
        self._bell = Bell()
        self._poll = select.poll()
        self._poll.register(self._bell.fd, select.POLLIN)
        self._strands: list[Strand | None] = [None] * len(engine.nodes)
        self._by_fd: dict[int, Strand] = {}
        self._opening: set[int] = set()
        self._opened: deque[tuple[int, Any]] = deque()
        self._settled = Settled(len(engine.nodes), engine.clock)
        self._answer = threading.Event()
        self._wanted = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def listen(self, timeout: float) -> None:
        """Returns when every node is heard, or cannot be; or when time is up."""
        if self._closed or len(self._room.ears) == len(self._strands):
            return
        end = self._clock() + timeout
        self._answer.clear()
        self._wanted = True
        try:
            self._start()
            self._bell.ring()
        except (RuntimeError, OSError) as error:  # no more threads; or closed a moment ago
            logger.warning("announcements are not heard (%s): locks are polled", error)
            return
        while not self._closed and self._missing(now := self._clock()) and now < end:
            self._answer.wait(min(end - now, 0.05))
            self._answer.clear()

    def close(self) -> None:
        self._closed = True
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._hang_up()
            return
        try:
            self._bell.ring()
        except OSError:
            pass  # it has ended meanwhile
        if thread is not threading.current_thread():
            thread.join(1.0)

    def _missing(self, now: float) -> list[int]:
        """Nodes that are not heard, and might soon be."""
        return [
            node
            for node in range(len(self._strands))
            if node not in self._room.ears and self._settled.hope(node, now)
        ]

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="quorumlock-ears", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        try:
            while not self._closed:
                self._connect()
                self._look()
        except Exception:
            # Nobody is told of anything any more: whoever waits asks now and then, as it does anyway.
            logger.exception("listening to announcements has failed")
        finally:
            self._closed = True
            self._hang_up()

    def _connect(self) -> None:
        now = self._clock()
        if not self._wanted and not self._room.waiting:
            return
        self._wanted = False
        for node, strand in enumerate(self._strands):
            if strand is None and node not in self._opening and self._settled.due(node, now):
                self._opening.add(node)
                threading.Thread(
                    target=connect,
                    args=(self._engine, node, self._opened, self._bell),
                    name=f"quorumlock-connect-{node}",
                    daemon=True,
                ).start()

    def _look(self) -> None:
        for fd, _ in self._poll.poll(self._nap() * 1000):
            strand = self._by_fd.get(fd)
            if strand is not None:
                self._read(strand)
            elif fd == self._bell.fd:
                self._bell.hear()
                self._attach()
        now = self._clock()
        for strand in list(self._by_fd.values()):
            ear = strand.link
            if ear.overdue(now, LONGEST_NAP if ear.up else ATTACHED_WITHIN):  # type: ignore[attr-defined]
                self._drop(strand, "silent for too long")
            elif now - strand.read_at > LONGEST_NAP and self._room.waiting and not ear.overdue(now, 0.0):
                self._send(strand, ear.ping(now))  # type: ignore[attr-defined]

    def _nap(self) -> float:
        if not self._room.waiting and not self._wanted and not self._opening:
            return LONGEST_NAP
        waits = [
            self._settled.wait(node, self._clock())
            for node, strand in enumerate(self._strands)
            if strand is None and node not in self._opening
        ]
        subscribing = any(not strand.link.up for strand in self._by_fd.values())  # type: ignore[attr-defined]
        return min([LONGEST_NAP, *([ATTACHED_WITHIN] if subscribing else []), *waits])

    def _attach(self) -> None:
        while self._opened:
            node, made = self._opened.popleft()
            self._opening.discard(node)
            if isinstance(made, Exception) or self._closed:
                self._settled.failed(node)
                self._answer.set()
                if not isinstance(made, Exception):
                    made.disconnect()
                continue
            now = self._clock()
            strand = Strand(node, made, self._engine.new_ear(node, self._room), now)
            self._strands[node] = strand
            self._by_fd[strand.fd] = strand
            self._poll.register(strand.fd, select.POLLIN)
            self._send(strand, strand.link.begin(now))

    def _send(self, strand: Strand, data: bytes) -> None:
        try:
            strand.send(data)
        except OSError as error:
            self._drop(strand, str(error))

    def _read(self, strand: Strand) -> None:
        up = strand.link.up  # type: ignore[attr-defined]
        try:
            if strand.read():
                strand.read_at = self._clock()
        except Exception as error:  # a broken connection, or a server that does not let us subscribe
            self._drop(strand, str(error))
            return
        if strand.link.up != up:  # type: ignore[attr-defined]
            self._settled.succeeded(strand.node)
            self._answer.set()

    def _drop(self, strand: Strand, why: str) -> None:
        ear: EarLink = strand.link  # type: ignore[assignment]
        if ear.refused:
            self._settled.refused(strand.node)
            logger.warning("%s does not let us listen: %s", self._engine.labels[strand.node], ear.refused)
        else:
            self._settled.failed(strand.node)
        self._strands[strand.node] = None
        self._by_fd.pop(strand.fd, None)
        self._poll.unregister(strand.fd)
        strand.close(Cause.DISCONNECTED, why)
        self._answer.set()

    def _hang_up(self) -> None:
        for strand in list(self._by_fd.values()):
            self._drop(strand, "closed by this client")
        end = time.monotonic() + 0.01
        while self._opened and time.monotonic() < end:
            _, made = self._opened.popleft()
            if not isinstance(made, Exception):
                made.disconnect()
        self._bell.close()
