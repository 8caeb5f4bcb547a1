"""Cancels a coroutine at its k-th await point, for every k there is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

MOST = 600


class Suspended:
    """Awaits a coroutine, and cancels the task that does so `after` seconds after its k-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], k: int, after: float) -> None:
        self.coroutine = coroutine
        self.k = k
        self.after = after
        self.due: float | None = None
        """When the cancellation was to strike, by the clock of the loop."""

    def __await__(self) -> Generator[Any, Any, Any]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        error: BaseException | None = None
        timer: asyncio.TimerHandle | None = None
        suspended = 0
        try:
            while True:
                try:
                    awaited = self.coroutine.send(None) if error is None else self.coroutine.throw(error)
                except StopIteration as done:
                    return done.value
                suspended += 1
                if suspended == self.k:
                    self.due = loop.time() + self.after
                    timer = loop.call_at(self.due, task.cancel)
                error = None
                try:
                    yield awaited
                except BaseException as thrown:
                    error = thrown
        finally:
            if timer is not None:
                timer.cancel()


async def outcome(coroutine: Coroutine[Any, Any, Any], k: int, after: float) -> tuple[str, Any]:
    """What became of it: ("cancelled", None), or ("done", result) where it ended before the cancellation was due,
    or ("late", result) where it ended after that and yet was not struck: the machine stood still meanwhile,
    or ("uncancelled", result) where it has no k-th await point."""
    suspended = Suspended(coroutine, k, after)

    async def run() -> Any:
        return await suspended

    try:
        result = await asyncio.create_task(run())
    except asyncio.CancelledError:
        return "cancelled", None
    if suspended.due is None:
        return "uncancelled", result
    return ("done" if asyncio.get_running_loop().time() < suspended.due else "late"), result


async def at_every_await_point(try_once: Callable[[int, float], Awaitable[str]], afters: tuple[float, ...]) -> int:
    """Calls `try_once(k, after)` for k = 1, 2, … until it says "uncancelled"; tells how many were cancelled.

    One that was late tested nothing, and is tried again."""
    cancelled = 0
    tries = ((k, after) for k in itertools.count(1) for after in afters)
    k, after = next(tries)
    for _ in range(MOST):
        state = await try_once(k, after)
        if state == "uncancelled":
            return cancelled
        if state != "late":
            cancelled += state == "cancelled"
            k, after = next(tries)
    raise AssertionError(f"not at the end after {MOST} tries: await point {k}, struck after {after} s")
