"""`bench journal`: what a journal costs, in pairs of acquire and release; with and without by turns."""

from __future__ import annotations

import statistics
import time
from typing import Any

import quorumlock
from quorumlock.lab.servers import Servers

from .machine import cores, pin, quietly

SIZES = (1, 3)
KEPT = 10_000


def run(kind: str, *, quick: bool) -> dict[str, Any]:
    rounds, seconds = (5, 0.2) if quick else (21, 0.5)
    found: dict[str, Any] = {}
    for size in SIZES:
        with quietly(), Servers(size, kind) as servers:
            for server in servers.servers:
                pin(server.pid, cores()[0])
            found[f"N={size}"] = _compared(servers, rounds, seconds)
    print("| | without | with a journal | ratio |\n|---|---:|---:|---:|")
    for name, (off, on, ratio) in found.items():
        print(f"| {name} | {off:,.0f} | {on:,.0f} | {ratio:.2f} |")
    return found


def _compared(servers: Servers, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Pairs per second without and with, and the median of the ratios of neighbours."""
    with (
        quorumlock.connect(servers.urls) as off,
        quorumlock.connect(servers.urls, journal=KEPT) as on,
    ):
        off.init_fleet()
        for locks in (off, on):
            _rate(locks, 0.2)
        rates = []
        for turn in range(rounds):
            first = (off, on) if turn % 2 else (on, off)
            pair = {id(locks): _rate(locks, seconds) for locks in first}
            rates.append((pair[id(off)], pair[id(on)]))
    ratio = statistics.median(one / other for one, other in rates)
    return statistics.median(one for one, _ in rates), statistics.median(other for _, other in rates), ratio


def _rate(locks: quorumlock.Locker, seconds: float) -> float:
    lock, count = locks.lock("bench", ttl=10), 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        lock.acquire().release()
        count += 1
    return count / spent
