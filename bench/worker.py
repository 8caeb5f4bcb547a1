"""The child process: opens subjects and times their pairs, as the lines on stdin tell it.

Started as `python -m bench.worker MODULE`, also by the Python of a peer's own environment: so nothing here, and
nothing in `bench/__init__.py`, imports more than the standard library. MODULE has two tables, SYNC and ASYNC,
of functions that take `(urls, ttl)` and give the pair (one acquire + release) to be timed.

One JSON object a line comes in and one goes out:
    {"do": "open", "key": K, "subject": S, "mode": "sync" | "async", "urls": […], "ttl": seconds}
    {"do": "run", "key": K, "seconds": how long at least, "pairs": how many at least, "warm": how many before}
      -> {"p50": µs, "p99": µs, "worst": µs, "pairs": n, "cpu": µs of this process per pair}
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Pair = Callable[[], object]
AsyncPair = Callable[[], Awaitable[object]]

PATIENCE = 20.0
"""A run ends after this many times its seconds, however few pairs it has seen: some peers sleep when they retry."""

clock = time.perf_counter_ns


def summary(samples: list[int], cpu: int) -> dict[str, float]:
    """Nanoseconds in, microseconds out."""
    samples.sort()
    last = len(samples) - 1
    p50, p99 = (samples[round(last * share)] / 1000 for share in (0.5, 0.99))
    cpu_each = cpu / 1000 / len(samples)
    return {"p50": p50, "p99": p99, "worst": samples[last] / 1000, "pairs": len(samples), "cpu": cpu_each}


def time_pairs(pair: Pair, seconds: float, least: int, warm: int) -> dict[str, float]:
    for _ in range(warm):
        pair()
    samples: list[int] = []
    used = time.process_time_ns()
    started = clock()
    end, limit = started + seconds * 1e9, started + PATIENCE * max(seconds, 0.1) * 1e9
    while True:
        before = clock()
        pair()
        after = clock()
        samples.append(after - before)
        if (after >= end and len(samples) >= least) or after >= limit:
            return summary(samples, time.process_time_ns() - used)


async def time_async_pairs(pair: AsyncPair, seconds: float, least: int, warm: int) -> dict[str, float]:
    for _ in range(warm):
        await pair()
    samples: list[int] = []
    used = time.process_time_ns()
    started = clock()
    end, limit = started + seconds * 1e9, started + PATIENCE * max(seconds, 0.1) * 1e9
    while True:
        before = clock()
        await pair()
        after = clock()
        samples.append(after - before)
        if (after >= end and len(samples) >= least) or after >= limit:
            break
    result = summary(samples, time.process_time_ns() - used)
    await asyncio.sleep(0.005)  # the loop stands still until the next run: let it take in what is still owed
    return result


class Child:
    """What is open in this process."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._loop = asyncio.new_event_loop()
        self._sync: dict[str, Pair] = {}
        self._async: dict[str, AsyncPair] = {}

    def handle(self, ask: dict[str, Any]) -> dict[str, Any]:
        key = ask["key"]
        if ask["do"] == "open":
            if ask["mode"] == "sync":
                self._sync[key] = self._module.SYNC[ask["subject"]](ask["urls"], ask["ttl"])
            else:
                opening = self._module.ASYNC[ask["subject"]](ask["urls"], ask["ttl"])
                self._async[key] = self._loop.run_until_complete(opening)
            return {}
        seconds, least, warm = ask["seconds"], ask["pairs"], ask["warm"]
        if key in self._sync:
            return time_pairs(self._sync[key], seconds, least, warm)
        return self._loop.run_until_complete(time_async_pairs(self._async[key], seconds, least, warm))


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a peer prints must not be taken for an answer
    child = Child(importlib.import_module(sys.argv[1]))
    for line in sys.stdin:
        try:
            answer = child.handle(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
