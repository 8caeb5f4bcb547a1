"""What the tests share that kill the leader of a cluster while threads and tasks hold locks in it.

**The judge** goes by what the leases promise (`tests/support/exclusion.py`). A test demands a number of verdicts,
and no stretch of time: leaders are killed when the lock has changed hands often enough under them.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import quorumlock
from quorumlock import LeaseError, NotAcquired, StaleFence
from quorumlock.guards import FileGuard
from tests.support.exclusion import AnyLease, Claims
from tests.support.servers.base import Served
from tests.support.waiting import eventually

SECONDS = float(os.environ.get("QUORUMLOCK_FAILOVER_SECONDS", "0"))
"""For how long at least: `make soak` says 300."""
KILLS = 2
"""How many leaders are killed at least."""
VERDICTS = 15
"""So often the lock changes hands before a leader is killed, and again before that one is started."""
WITHIN = 60.0
TTL = 2.0
THREADS, TASKS = 3, 3


class Cluster(Protocol):
    """Servers that elect a leader."""

    @property
    def url(self) -> str: ...

    def leader(self) -> Served | None: ...


class Judge:
    """Is told by all workers who is inside, and keeps a counter behind a guard."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._counter = folder / "counter"
        self._counter.write_text("0")
        self._guard = FileGuard(self._counter)
        self._mutex = threading.Lock()
        self.claims = Claims()
        self.inside = self.claims.inside
        self.over = threading.Event()
        self.written = self.stale = self.lost = self.failed = 0

    @property
    def violations(self) -> list[str]:
        return self.claims.violations()

    @property
    def verdicts(self) -> int:
        return len(self.claims)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """What may happen to a worker whose leader is killed is counted."""
        try:
            yield
        except StaleFence:
            self.stale += 1
        except LeaseError:
            self.lost += 1
        except NotAcquired:
            self.failed += 1

    def count(self, lease: AnyLease) -> None:
        """Reads, waits, writes one more: of what is written under two leases at a time, some would be lost."""
        self._guard.enter(lease)
        total = self.total()
        time.sleep(random.random() * 0.005)
        self._guard.write(lease, str(total + 1))
        with self._mutex:
            self.written += 1

    def total(self) -> int:
        return int(self._counter.read_text())

    def changes_hands(self, times: int = VERDICTS) -> bool:
        """So often, from now on."""
        enough = self.verdicts + times
        return eventually(lambda: self.verdicts >= enough, WITHIN)

    def __str__(self) -> str:
        return (
            f"{self.verdicts} verdicts, {self.claims.readers()} on readers; {self.written} updates; "
            f"{self.claims.late} leases seen late, {self.lost} lost, {self.stale} stale, "
            f"{self.failed} attempts that failed"
        )


def work(url: str, judge: Judge, seed: int) -> None:
    """Writes, reads, and downgrades, by chance."""
    draw = random.Random(seed)
    with quorumlock.connect(url, node_timeout=0.2, patience=30.0) as locks:
        pair = locks.read_write("shared")
        while not judge.over.is_set():
            with judge.turn():
                if draw.random() < 0.25:
                    with pair.read(ttl=TTL, timeout=30) as lease, judge.inside(lease, shared=True):
                        time.sleep(draw.random() * 0.01)
                    continue
                with pair.write(ttl=TTL, timeout=30) as lease:
                    with judge.inside(lease):
                        judge.count(lease)
                    if draw.random() < 0.3:
                        with pair.downgrade(lease) as reading, judge.inside(reading, shared=True):
                            time.sleep(draw.random() * 0.01)
            time.sleep(draw.random() * 0.02)


async def work_async(url: str, judge: Judge, seed: int) -> None:
    """The same on an event loop."""
    draw = random.Random(seed)
    async with quorumlock.connect_async(url, node_timeout=0.2, patience=30.0) as locks:
        pair = locks.read_write("shared")
        while not judge.over.is_set():
            with judge.turn():
                if draw.random() < 0.25:
                    async with pair.read(ttl=TTL, timeout=30) as lease:
                        with judge.inside(lease, shared=True):
                            await asyncio.sleep(draw.random() * 0.01)
                    continue
                async with pair.write(ttl=TTL, timeout=30) as lease:
                    with judge.inside(lease):
                        await asyncio.to_thread(judge.count, lease)
                    if draw.random() < 0.3:
                        async with await pair.downgrade(lease) as reading:
                            with judge.inside(reading, shared=True):
                                await asyncio.sleep(draw.random() * 0.01)
            await asyncio.sleep(draw.random() * 0.02)


@contextmanager
def working(judge: Judge, url: Callable[[int], str]) -> Iterator[None]:
    """Threads and tasks work, each at its `url`. Nothing but what `turn` counts may happen to them."""
    troubles: list[BaseException] = []

    async def tasks() -> None:
        await asyncio.gather(*(work_async(url(seed), judge, seed) for seed in range(THREADS, THREADS + TASKS)))

    def told(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:
            troubles.append(error)
            raise

    bodies: list[Callable[[], object]] = [lambda: asyncio.run(tasks())]
    bodies += [lambda seed=seed: work(url(seed), judge, seed) for seed in range(THREADS)]  # type: ignore[misc]
    threads = [threading.Thread(target=told, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        judge.over.set()
        for thread in threads:
            thread.join(WITHIN)
    assert not troubles, troubles
    assert not any(thread.is_alive() for thread in threads)


def leader_of(cluster: Cluster) -> Served:
    """As soon as there is one."""
    found: list[Served] = []

    def look() -> bool:
        if (leader := cluster.leader()) is not None:
            found.append(leader)
        return bool(found)

    assert eventually(look, WITHIN), "there is no leader"
    return found[0]


def killing_leaders(cluster: Cluster, judge: Judge) -> int:
    """Returns how many were killed. Under each leader, and while it is dead, the lock goes on changing hands."""
    kills, end = 0, time.monotonic() + SECONDS
    while kills < KILLS or time.monotonic() < end:
        assert judge.changes_hands(), f"nothing goes on before a leader is killed: {judge}"
        leader = leader_of(cluster)
        leader.kill()
        kills += 1
        assert judge.changes_hands(), f"nothing goes on without the leader: {judge}"
        leader.start()
    return kills


def endure(cluster: Cluster, judge: Judge, path: str = "") -> None:
    """Kills leaders while workers work, and judges."""
    with working(judge, lambda seed: cluster.url + path):
        kills = killing_leaders(cluster, judge)
    assert judge.violations == []
    assert judge.total() == judge.written, "an update was lost"
    assert judge.written > VERDICTS
    assert judge.claims.readers() > 0
    print(f"{kills} leaders killed: {judge}")
