"""The etcd engine on three members: one that is gone or silent changes nothing; and leaders that are killed."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import quorumlock
from quorumlock import Jitter, LeaseError, NotAcquired, StaleFence
from quorumlock.guards import SQLGuard
from tests.support.servers import etcd as etcd_servers
from tests.support.servers.etcd import EtcdCluster

pytestmark = pytest.mark.live

SECONDS = float(os.environ.get("QUORUMLOCK_FAILOVER_SECONDS", "20"))
KILL_EVERY = 3.0
WORKERS, LOOPERS = 3, 3


@pytest.fixture(scope="module")
def started() -> Iterator[EtcdCluster]:
    etcd_servers.needed()
    with EtcdCluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: EtcdCluster) -> EtcdCluster:
    """All of them up."""
    for member in started.members:
        member.resume()
        if not member.healthy():
            member.restart()
    return started


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_member_that_fails_is_left_for_another(cluster: EtcdCluster, how: str) -> None:
    """Also by those who wait: their streams are at that member."""
    with (
        quorumlock.connect(cluster.url) as ours,
        quorumlock.connect(cluster.url, retry=Jitter(3600), patience=30.0) as theirs,
    ):
        lease = ours.lock("a", ttl=20).acquire(timeout=5)
        got: list[quorumlock.Lease] = []
        waiter = threading.Thread(target=lambda: got.append(theirs.lock("a", ttl=20).acquire(timeout=30)))
        waiter.start()
        while not ours.inspect("a").waiters:
            time.sleep(0.01)
        getattr(cluster.members[theirs.engine.talk.host], how)()
        lease.extend()
        time.sleep(2.3 if how == "pause" else 0.5)
        lease.release()
        waiter.join(10)
        assert got, "nobody told it"
        assert got[0].fence > lease.fence
        got[0].release()


def test_without_a_majority_nobody_can_tell(cluster: EtcdCluster) -> None:
    with quorumlock.connect(cluster.url) as locks:
        lease = locks.lock("a", ttl=20).acquire(timeout=5)
        for member in cluster.members[:2]:
            member.pause()
        with pytest.raises(quorumlock.NoQuorum, match="did not answer in time"):
            locks.lock("b").locked()
        for member in cluster.members[:2]:
            member.resume()
        lease.extend()
        lease.release()


class Witness:
    """Sees who holds the lock: never two valid leases, and fences that grow."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.guard = SQLGuard()
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("CREATE TABLE counter (total INTEGER)")
            database.execute("INSERT INTO counter VALUES (0)")
            self.guard.create(database)
            database.commit()
        self._mutex = threading.Lock()
        self._holder: quorumlock.Lease | quorumlock.AsyncLease | None = None
        self._fence = 0
        self.troubles: list[str] = []
        self.done = self.stale = self.lost = self.broken = 0

    def enters(self, lease: quorumlock.Lease | quorumlock.AsyncLease) -> None:
        with self._mutex:
            if self._holder is not None and self._holder.held:
                self.troubles.append(f"{lease} while {self._holder} is valid")
            if lease.fence <= self._fence:
                self.troubles.append(f"{lease} behind fence {self._fence}")
            self._holder, self._fence = lease, max(lease.fence, self._fence)

    def leaves(self, lease: quorumlock.Lease | quorumlock.AsyncLease) -> None:
        with self._mutex:
            if self._holder is lease:
                self._holder = None

    def counts(self, lease: quorumlock.Lease | quorumlock.AsyncLease) -> None:
        """Reads, waits, writes one more: of what is written under two leases at a time, some would be lost."""
        with closing(sqlite3.connect(self.path, timeout=30)) as database:
            with database:
                self.guard.enter(database, lease)
            (total,) = database.execute("SELECT total FROM counter").fetchone()
            time.sleep(random.random() * 0.005)
            try:
                with database:
                    self.guard.admit(database, lease)
                    database.execute("UPDATE counter SET total = ?", (total + 1,))
            except StaleFence:
                self.stale += 1
            else:
                with self._mutex:
                    self.done += 1

    def total(self) -> int:
        with closing(sqlite3.connect(self.path)) as database:
            return int(database.execute("SELECT total FROM counter").fetchone()[0])


def work(url: str, witness: Witness, over: threading.Event) -> None:
    with quorumlock.connect(url, patience=30.0) as locks:
        while not over.is_set():
            try:
                with locks.lock("shared", ttl=2, timeout=30) as lease:
                    witness.enters(lease)
                    try:
                        witness.counts(lease)
                    finally:
                        witness.leaves(lease)
            except StaleFence:
                witness.stale += 1
            except LeaseError:
                witness.lost += 1
            except NotAcquired:
                witness.broken += 1


async def work_async(url: str, witness: Witness, over: threading.Event) -> None:
    async with quorumlock.connect_async(url, patience=30.0) as locks:
        while not over.is_set():
            try:
                async with locks.lock("shared", ttl=2, timeout=30) as lease:
                    witness.enters(lease)
                    try:
                        await asyncio.to_thread(witness.counts, lease)
                    finally:
                        witness.leaves(lease)
            except StaleFence:
                witness.stale += 1
            except LeaseError:
                witness.lost += 1
            except NotAcquired:
                witness.broken += 1


@pytest.mark.timeout(SECONDS + 120)
def test_failover_of_leaders_that_are_killed_under_load(cluster: EtcdCluster, tmp_path: Path) -> None:
    """No overlap of valid leases, fences that grow, and no update lost at a guard."""
    witness, over = Witness(tmp_path), threading.Event()

    async def loop() -> None:
        await asyncio.gather(*(work_async(cluster.url, witness, over) for _ in range(LOOPERS)))

    threads = [threading.Thread(target=work, args=(cluster.url, witness, over)) for _ in range(WORKERS)]
    threads.append(threading.Thread(target=lambda: asyncio.run(loop())))
    for thread in threads:
        thread.start()
    end, kills, progress = time.monotonic() + SECONDS, 0, []
    try:
        while time.monotonic() < end:
            before = witness.done
            time.sleep(KILL_EVERY / 2)
            progress.append(witness.done - before)
            leader = cluster.leader()
            if leader is not None:
                leader.kill()
                kills += 1
                time.sleep(KILL_EVERY / 2)
                leader.start()
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not witness.troubles, witness.troubles[:5]
    assert witness.total() == witness.done
    assert kills >= SECONDS / 10
    assert witness.done > SECONDS, (witness.done, witness.lost, witness.broken, witness.stale, progress)
    print(
        f"etcd: {witness.done} updates, {kills} leaders killed, {witness.lost} leases lost, {witness.stale} stale"
    )
