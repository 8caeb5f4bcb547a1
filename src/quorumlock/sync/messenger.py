"""Tells subscribers what a keeper's thread finds out, in a thread beside it: slow ones do not hold up renewal."""

from __future__ import annotations

import threading
from _queue import SimpleQueue
from collections.abc import Callable

from ..events import Event, logger

BEHIND_MOST = 10_000
"""So many events may wait for subscribers that are slow; of what happens then they are not told."""

Message = tuple[Callable[[Event], None], Event]


class Messenger:
    """Used by one thread, the keeper's. Its own thread starts with the first event."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._missing = False

    def tell(self, deliver: Callable[[Event], None], event: Event) -> None:
        if self._queue.qsize() < BEHIND_MOST:
            self._queue.put((deliver, event))
            self._missing = False
        elif not self._missing:
            self._missing = True
            logger.warning("subscribers are %d events behind, and are not told what happens now", BEHIND_MOST)
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=_work, args=(self._queue,), name="quorumlock-events", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # too many threads, or the interpreter is shutting down
                return
            self._thread = thread

    def end(self) -> None:
        """The thread ends when everything was told."""
        if self._thread is not None:
            self._queue.put(None)

    def join(self, timeout: float) -> None:
        """Waits until everything was told."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)


def _work(queue: SimpleQueue[Message | None]) -> None:
    while (message := queue.get()) is not None:
        deliver, event = message
        try:
            deliver(event)
        except BaseException:  # what is no Exception would end a thread of the user's; this one is ours
            logger.exception("a subscriber failed on %s", type(event).__name__)
