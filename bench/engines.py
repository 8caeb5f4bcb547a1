"""`bench engines`: the same three things on every engine that this machine can run.

1. One acquire and release, by one thread, and by one task.
2. Hand-over: from the moment of a release until somebody else, who has waited for a while, has the lock.
3. Locks per second: 50 tasks of one process, each with a name of its own.

The client has one core and all servers the other. Databases, ZooKeeper and etcd are run as their makers intend:
they wait for their disk. Of the disk of this machine the figures say as much as of the engines: see `fsync`.
Engines take turns, and medians over rounds are told.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import quorumlock
from quorumlock.lab.servers import Servers

from .machine import FIRST, placements

TTL = 10.0
TASKS = 50
SETTLE = 0.1
"""Seconds for which somebody waits before the lock is handed over."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    seconds: float
    handovers: int


QUICK = Plan(rounds=2, seconds=0.2, handovers=5)
FULL = Plan(rounds=9, seconds=0.5, handovers=15)


@dataclass(slots=True)
class Subject:
    """An engine, its URL, and what was measured."""

    name: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    sync_us: list[float] = field(default_factory=list)
    async_us: list[float] = field(default_factory=list)
    handover_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)


def run(kind: str, *, quick: bool) -> dict[str, Any]:
    plan = QUICK if quick else FULL
    client, server = placements().get("cross", placements()["same"])
    with ExitStack() as stack:
        os.sched_setaffinity(0, {server})  # what is started now stays there
        subjects, missing = started(kind, stack)
        os.sched_setaffinity(0, {client})
        try:
            os.setpriority(os.PRIO_PROCESS, 0, FIRST)
        except PermissionError:
            pass  # only root may
        for subject in subjects:
            with quorumlock.connect(subject.url, **subject.options) as locks:
                locks.init_fleet()
        for at in range(plan.rounds):
            print(f"\rround {at + 1} of {plan.rounds}", end="", flush=True)
            for subject in subjects:
                pairs(subject, plan.seconds)
                asyncio.run(tasks(subject, plan.seconds))
                handovers(subject, plan.handovers)
    print("\r" + " " * 30 + "\r", end="")
    disk = fsync_ms()
    report(subjects, missing, disk)
    return {"fsync_ms": disk, "missing": missing, "engines": [raw(subject) for subject in subjects]}


def started(kind: str, stack: ExitStack) -> tuple[list[Subject], dict[str, str]]:
    """Every engine that this machine can run, with a server of its own; and why the others are not there."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quorumlock-bench-"))
    subjects = [Subject("sqlite", f"sqlite:///{folder}/locks.db")]
    for count in (1, 3, 5):
        urls = ",".join(stack.enter_context(Servers(count, kind)).urls)
        subjects.append(Subject(f"redis, N={count} ({kind})", urls))
    missing: dict[str, str] = {}
    for name, server in SERVED.items():
        try:
            subjects.append(Subject(name, stack.enter_context(server())))
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return subjects, missing


@contextmanager
def _postgresql() -> Iterator[str]:
    from tests.support.servers.databases import PostgreSQL

    with PostgreSQL(durable=True) as server:
        yield server.url


@contextmanager
def _mysql() -> Iterator[str]:
    from tests.support.servers.databases import MariaDB

    with MariaDB(durable=True) as server:
        yield server.url.replace("/test?", "/mysql?")


@contextmanager
def _zookeeper(count: int) -> Iterator[str]:
    from tests.support.servers.zookeeper import Ensemble

    with Ensemble(count, durable=True) as servers:
        yield servers.url


@contextmanager
def _etcd(count: int) -> Iterator[str]:
    from tests.support.servers.etcd import EtcdCluster

    with EtcdCluster(count, durable=True) as servers:
        yield servers.url


SERVED: dict[str, Callable[[], Any]] = {
    "zookeeper, 1 server": lambda: _zookeeper(1),
    "zookeeper, 3 servers": lambda: _zookeeper(3),
    "etcd, 1 member": lambda: _etcd(1),
    "etcd, 3 members": lambda: _etcd(3),
    "postgresql": _postgresql,
    "mysql (MariaDB)": _mysql,
}


def pairs(subject: Subject, seconds: float) -> None:
    """One thread, one name."""
    with quorumlock.connect(subject.url, **subject.options) as locks:
        lock = locks.lock("pair", ttl=TTL)
        for _ in range(5):
            lock.acquire().release()
        end = time.perf_counter() + seconds
        took = []
        while (now := time.perf_counter()) < end:
            lock.acquire().release()
            took.append((time.perf_counter() - now) * 1e6)
        subject.sync_us.append(median(took))


async def tasks(subject: Subject, seconds: float) -> None:
    """One task alone, then many."""
    async with quorumlock.connect_async(subject.url, **subject.options) as locks:
        lock = locks.lock("pair", ttl=TTL)
        for _ in range(5):
            await (await lock.acquire()).release()
        end = time.perf_counter() + seconds
        took = []
        while (now := time.perf_counter()) < end:
            await (await lock.acquire()).release()
            took.append((time.perf_counter() - now) * 1e6)
        subject.async_us.append(median(took))

        done = 0

        async def again(at: int, end: float) -> None:
            nonlocal done
            mine = locks.lock(f"own:{at}", ttl=TTL)
            while time.perf_counter() < end:
                await (await mine.acquire()).release()
                done += 1

        await asyncio.gather(*(again(at, 0.0) for at in range(TASKS)))
        started_at = time.perf_counter()
        await asyncio.gather(*(again(at, started_at + seconds) for at in range(TASKS)))
        subject.per_second.append(done / (time.perf_counter() - started_at))


def handovers(subject: Subject, count: int) -> None:
    """Two clients, which know of each other by the server alone."""
    with (
        quorumlock.connect(subject.url, **subject.options) as ours,
        quorumlock.connect(subject.url, **subject.options) as theirs,
    ):
        for _ in range(count):
            lease = ours.lock("handed", ttl=TTL).acquire()
            had: list[float] = []

            def wait(had: list[float] = had) -> None:
                with theirs.lock("handed", ttl=TTL, timeout=20):
                    had.append(time.perf_counter())

            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(SETTLE)
            freed = time.perf_counter()
            lease.release()
            waiter.join()
            subject.handover_ms.append((had[0] - freed) * 1000)


def fsync_ms() -> float:
    """How long the disk takes to say that it has written something."""
    took = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            started_at = time.perf_counter()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - started_at) * 1000)
    return median(took)


def report(subjects: list[Subject], missing: dict[str, str], disk: float) -> None:
    print(f"\nan fsync takes {disk:.2f} ms here (median)\n")
    head = ("engine", "pair µs", "asyncio µs", "hand-over ms", "p90 ms", "locks/s")
    print(f"{head[0]:24}{head[1]:>10}{head[2]:>12}{head[3]:>14}{head[4]:>9}{head[5]:>10}")
    for one in subjects:
        print(
            f"{one.name:24}{median(one.sync_us):10.0f}{median(one.async_us):12.0f}{median(one.handover_ms):14.2f}"
            f"{quantiles(one.handover_ms, n=10)[-1]:9.2f}{median(one.per_second):10.0f}"
        )
    for name, why in missing.items():
        print(f"{name:24}not measured: {why}")


def raw(one: Subject) -> dict[str, Any]:
    return {
        "name": one.name,
        "sync_us": one.sync_us,
        "async_us": one.async_us,
        "handover_ms": one.handover_ms,
        "per_second": one.per_second,
    }
