"""Calls subscribers and `on_lost` in a thread beside the keeper's: slow ones do not hold up renewal."""

from __future__ import annotations

import functools
import threading
import time
from _queue import Empty, SimpleQueue
from collections.abc import Callable

from ..events import Event, logger

BEHIND_MOST = 10_000
"""So many events may wait for subscribers that are slow; of what happens then they are not told."""
LOOK_AGAIN = 0.01
"""Seconds after which whoever waits for the thread looks whether it still runs."""

Job = Callable[[], object]


class Messenger:
    """Runs jobs one after another, in a thread of its own that starts with the first of them.

    `tell` and `call` are used by the keeper's thread, and by whoever closes the Locker.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        self._missing = False

    def tell(self, deliver: Callable[[Event], None], event: Event) -> None:
        """Delivers an event, unless far too many wait already."""
        if self._queue.qsize() < BEHIND_MOST:
            self._missing = False
            self.call(functools.partial(_deliver, deliver, event))
        elif not self._missing:
            self._missing = True
            logger.warning("subscribers are %d events behind, and are not told what happens now", BEHIND_MOST)

    def call(self, job: Job) -> None:
        self._queue.put(job)
        self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=_work, args=(self._queue,), name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # too many threads, or the interpreter is shutting down
                    return
                self._thread = thread

    def end(self) -> None:
        """The thread ends when all jobs have been run."""
        if self._alive():
            self._queue.put(None)

    def flush(self, due: float) -> bool:
        """Waits until all jobs that are queued now have been run; False if that takes until `due`.

        Where there is no thread to run them, and none can be started, they are run in this one.
        """
        if threading.current_thread() is self._thread or (self._queue.empty() and not self._alive()):
            return True
        done = threading.Event()
        self._queue.put(done.set)
        while not done.is_set():
            if not self._alive():
                self._start()
            if not self._alive():
                _work(self._queue, wait=False)
                return True
            if (left := due - time.monotonic()) <= 0:
                return False
            done.wait(min(left, LOOK_AGAIN))
        return True

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()


def _deliver(deliver: Callable[[Event], None], event: Event) -> None:
    try:
        deliver(event)
    except BaseException:  # what is no Exception would end a thread of the user's; this one is ours
        logger.exception("a subscriber failed on %s", type(event).__name__)


def _work(queue: SimpleQueue[Job | None], wait: bool = True) -> None:
    """Runs jobs until it is told to end; or, without `wait`, those that are there."""
    while True:
        try:
            job = queue.get(block=wait)
        except Empty:
            return
        if job is not None:
            _run(job)
        elif wait and queue.empty():  # else it was told to end before the last of them
            return


def _run(job: Job) -> None:
    try:
        job()
    except BaseException:  # as above
        logger.exception("a callback failed")
