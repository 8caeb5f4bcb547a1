"""The child process of a contest: threads, tasks or processes that want the same lock, for `contest.py`.

Started as `python -m bench.contest_worker MODULE`, also by the Python of a peer's own environment: so nothing here
imports more than the standard library. MODULE has `prepare`, which imports what its subjects need, and two tables,
SYNC and ASYNC, of functions that take `(urls, name, ttl)`, once in a process, and give what makes a contender. A
contender is a function that acquires the lock, calls what it is given (`inside`), and releases.

Each contest runs in forked children: MODULE is imported once, and a child that is still waiting for its lock when
the contest is over is simply ended. A contest of processes has a child for each contender, the others have one.

One JSON object a line comes in and one goes out:
    {"do": "start", "subject": S, "style": "threads" | "tasks" | "processes", "count": n, "urls": […], "name": …,
     "ttl": seconds, "hold": seconds inside} -> {} when all of them are on their way
    {"do": "stop"} -> {"turns": for each contender [got, left, got, left, …], "errors": […]}
Times are nanoseconds of the machine's monotonic clock: they can be compared between processes.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TextIO

Turn = Callable[[Callable[[], None]], object]
AsyncTurn = Callable[[Callable[[], Awaitable[None]]], Awaitable[object]]

PAUSE = 0.01
"""After an error: nobody should turn in circles."""

clock = time.monotonic_ns


class Record:
    """What one contender has seen."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.errors: list[str] = []

    def failed(self, error: Exception) -> None:
        self.errors.append(f"{type(error).__name__}: {error}"[:300])


def contend(turn: Turn, hold: float, record: Record) -> None:
    """A thread's part."""
    turns = record.turns

    def inside() -> None:
        got = clock()
        if hold:
            time.sleep(hold)
        turns.extend((got, clock()))

    while True:
        try:
            turn(inside)
        except Exception as error:  # a peer's way to say "busy", or a failure: counted, and shown
            record.failed(error)
            time.sleep(PAUSE)


async def contend_async(turn: AsyncTurn, hold: float, record: Record) -> None:
    """A task's part."""
    turns = record.turns

    async def inside() -> None:
        got = clock()
        if hold:
            await asyncio.sleep(hold)
        turns.extend((got, clock()))

    while True:
        try:
            await turn(inside)
        except Exception as error:
            record.failed(error)
            await asyncio.sleep(PAUSE)


def start_threads(opened: Callable[..., Any], ask: dict[str, Any], count: int) -> list[Record]:
    new_turn = opened(ask["urls"], ask["name"], ask["ttl"])
    records = [Record() for _ in range(count)]
    for record in records:
        threading.Thread(target=contend, args=(new_turn(), ask["hold"], record), daemon=True).start()
    return records


def start_tasks(opened: Callable[..., Any], ask: dict[str, Any], count: int) -> list[Record]:
    records = [Record() for _ in range(count)]
    opening: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    async def work() -> None:
        try:
            new_turn = await opened(ask["urls"], ask["name"], ask["ttl"])
            tasks = [asyncio.create_task(contend_async(new_turn(), ask["hold"], record)) for record in records]
        except Exception as error:
            opening.put(error)
            return
        opening.put(None)
        await asyncio.gather(*tasks)

    threading.Thread(target=asyncio.run, args=(work(),), daemon=True).start()
    if error := opening.get():
        raise error
    return records


class Child:
    """A fork, and what it has to say."""

    def __init__(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # Whatever happens, a fork ends here: beyond are the parent's stdin and stdout, and what atexit knows.
            try:
                os.close(reading)
                self._work(work, os.fdopen(writing, "w"))
            finally:
                os._exit(0)
        os.close(writing)
        self._stream = os.fdopen(reading)

    @staticmethod
    def _work(work: Callable[[Callable[[Any], None]], None], stream: TextIO) -> None:
        def say(what: Any) -> None:
            stream.write(json.dumps(what) + "\n")
            stream.flush()

        try:
            work(say)
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})

    def heard(self) -> dict[str, Any]:
        line = self._stream.readline()
        told: dict[str, Any] = json.loads(line) if line else {"error": "a contender's process has ended"}
        if "error" in told:
            raise RuntimeError(told["error"])
        return told

    def end(self) -> None:
        self._stream.close()
        os.waitpid(self.pid, 0)


class Host:
    """Where contests are held, one at a time."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._children: list[Child] = []
        self._going = -1
        """While this end of a pipe is open, the contest goes on: also if we are killed."""

    def handle(self, ask: dict[str, Any]) -> dict[str, Any]:
        return self._start(ask) if ask["do"] == "start" else self._stop()

    def _start(self, ask: dict[str, Any]) -> dict[str, Any]:
        waiting, self._going = os.pipe()
        processes, each = (ask["count"], 1) if ask["style"] == "processes" else (1, ask["count"])
        table = self._module.ASYNC if ask["style"] == "tasks" else self._module.SYNC
        begin = start_tasks if ask["style"] == "tasks" else start_threads
        opened = table[ask["subject"]]

        def work(say: Callable[[Any], None]) -> None:
            os.close(self._going)
            records = begin(opened, ask, each)
            say({})
            os.read(waiting, 1)  # comes back when the other end is closed
            say(
                {"turns": [record.turns[:] for record in records], "errors": [e for r in records for e in r.errors]}
            )

        try:
            for _ in range(processes):
                self._children.append(Child(work))
            for child in self._children:
                child.heard()
        except BaseException:
            self._end()
            raise
        finally:
            os.close(waiting)
        return {}

    def _stop(self) -> dict[str, Any]:
        os.close(self._going)
        self._going = -1
        try:
            told = [child.heard() for child in self._children]
        finally:
            self._end()
        return {
            "turns": [turns for one in told for turns in one["turns"]],
            "errors": [error for one in told for error in one["errors"]],
        }

    def _end(self) -> None:
        if self._going >= 0:
            os.close(self._going)
            self._going = -1
        children, self._children = self._children, []
        for child in children:
            child.end()


def main() -> None:
    # What a peer prints must not be taken for an answer; nor may a fork have something left to write.
    answers, sys.stdout = sys.stdout, sys.stderr
    module = importlib.import_module(sys.argv[1])
    module.prepare()
    host = Host(module)
    for line in sys.stdin:
        try:
            answer = host.handle(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
