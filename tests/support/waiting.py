"""Waiting for a condition, instead of for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE = 20.0
"""How long a busy machine may take for what happens at once. A test that passes never waits that long."""


def eventually(condition: Callable[[], object], within: float = PATIENCE) -> bool:
    """True as soon as `condition` holds; False if it does not within that many seconds."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            return bool(condition())
        time.sleep(0.005)
    return True


async def eventually_async(condition: Callable[[], object], within: float = PATIENCE) -> bool:
    """The same in an event loop, which goes on running. `condition` may be a coroutine function."""
    end = time.monotonic() + within
    while not await _now(condition):
        if time.monotonic() > end:
            return await _now(condition)
        await asyncio.sleep(0.005)
    return True


def hold_up(seconds: float) -> None:
    """Holds up the thread that calls it, as a stall would. It is no way to wait for something."""
    time.sleep(seconds)


async def forever() -> None:
    """The body of a task that a test cancels."""
    await asyncio.get_running_loop().create_future()


async def _now(condition: Callable[[], object]) -> bool:
    found = condition()
    return bool(await found if isinstance(found, Awaitable) else found)
