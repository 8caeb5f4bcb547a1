"""One process that holds many leases, for `keep.py`: `python -m bench.keep_worker MODE COUNT TTL SECONDS URL…`.

It prints one line of JSON. Memory is what the process has grown by, for each lease and all that belongs to it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import quorumlock

PREFIX = "keep:"
PAUSE = 0.005
"""Between two pairs: acquires beside the keeper, not a load of their own."""
WARM = 200
AT_A_TIME = 200


def resident() -> int:
    """Bytes of memory that this process uses now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def spread(samples: list[float]) -> dict[str, float]:
    """p50 and p99 in µs, and the worst."""
    cuts = quantiles(samples, n=100)
    return {"p50": cuts[49] * 1e6, "p99": cuts[98] * 1e6, "worst": max(samples) * 1e6, "pairs": len(samples)}


class Meter:
    """CPU time of this process."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def share(self) -> float:
        """Of one core."""
        return (time.process_time() - self._cpu) / (time.perf_counter() - self._wall)


def report(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def hold(count: int, ttl: float, seconds: float, urls: list[str]) -> None:
    """For threads."""
    with quorumlock.connect(urls, prefix=PREFIX, max_ttl=max(ttl, 60.0), node_timeout=1.0) as locks:
        beside = locks.lock("beside", ttl=ttl)

        def pairs(until: Callable[[int], bool]) -> dict[str, float]:
            samples: list[float] = []
            while not until(len(samples)):
                before = time.perf_counter()
                beside.acquire().release()
                samples.append(time.perf_counter() - before)
                time.sleep(PAUSE)
            return spread(samples)

        pairs(lambda done: done >= WARM)
        alone = pairs(lambda done: done >= 2 * WARM)
        before = resident()
        began = time.perf_counter()
        leases = [locks.lock(f"lease:{i}", ttl=ttl).acquire() for i in range(count)]
        taking = time.perf_counter() - began
        grown = resident() - before
        report(ready=True)
        sys.stdin.readline()
        meter = Meter()
        end = time.perf_counter() + seconds
        with_them = pairs(lambda done: time.perf_counter() >= end and done >= WARM)
        report(
            alone=alone, beside=with_them, bytes=grown / count, share=meter.share(), took=taking,
            threads=threading.active_count() - 1, tasks=0, lost=sum(not lease.held for lease in leases),
        )  # fmt: skip


async def hold_async(count: int, ttl: float, seconds: float, urls: list[str]) -> None:
    """For asyncio."""
    async with quorumlock.connect_async(urls, prefix=PREFIX, max_ttl=max(ttl, 60.0), node_timeout=1.0) as locks:
        beside = locks.lock("beside", ttl=ttl)

        async def pairs(until: Callable[[int], bool]) -> dict[str, float]:
            samples: list[float] = []
            while not until(len(samples)):
                before = time.perf_counter()
                await (await beside.acquire()).release()
                samples.append(time.perf_counter() - before)
                await asyncio.sleep(PAUSE)
            return spread(samples)

        await pairs(lambda done: done >= WARM)
        alone = await pairs(lambda done: done >= 2 * WARM)
        before = resident()
        began = time.perf_counter()
        leases: list[quorumlock.AsyncLease] = []
        for first in range(0, count, AT_A_TIME):
            some = range(first, min(count, first + AT_A_TIME))
            leases += await asyncio.gather(*(locks.lock(f"lease:{i}", ttl=ttl).acquire() for i in some))
        taking = time.perf_counter() - began
        grown = resident() - before
        report(ready=True)
        await asyncio.to_thread(sys.stdin.readline)
        meter = Meter()
        end = time.perf_counter() + seconds
        with_them = await pairs(lambda done: time.perf_counter() >= end and done >= WARM)
        report(
            alone=alone, beside=with_them, bytes=grown / count, share=meter.share(), took=taking,
            threads=0, tasks=len(asyncio.all_tasks()) - 1, lost=sum(not lease.held for lease in leases),
        )  # fmt: skip


if __name__ == "__main__":
    mode, many, life, period, *nodes = sys.argv[1:]
    if mode == "sync":
        hold(int(many), float(life), float(period), nodes)
    else:
        asyncio.run(hold_async(int(many), float(life), float(period), nodes))
