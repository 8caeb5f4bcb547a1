"""Three ZooKeeper servers, whose leader is killed again and again under load.

Judged: no two valid leases at a time, fences that grow, and a guarded counter that lost nothing.
`QUORUMLOCK_FAILOVER_SECONDS` says for how long; 20 s unless it does.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from pathlib import Path

import pytest

import quorumlock
from quorumlock import LeaseError, NotAcquired, StaleFence
from quorumlock.clocks import boot_time
from quorumlock.guards import FileGuard
from tests.contract.exclusion import Claims
from tests.support.servers.zookeeper import Ensemble
from tests.support.waiting import eventually

from .zookeeper_tools import needs_zookeeper

pytestmark = needs_zookeeper()

SECONDS = float(os.environ.get("QUORUMLOCK_FAILOVER_SECONDS", "20"))
WORKERS = 4
EVERY = 4.0


class Log:
    """From when to when leases were valid, and what they wrote."""

    def __init__(self, counter: Path) -> None:
        self.guard = FileGuard(counter)
        self.counter = counter
        self.mutex = threading.Lock()
        self.claims = Claims()
        self.written = 0
        self.refused = 0
        self.failed = 0
        self.stop = threading.Event()

    def has_written(self, count: int) -> bool:
        return self.written >= count


def work(url: str, log: Log) -> None:
    with quorumlock.connect(url, node_timeout=0.2, patience=10) as locks:
        while not log.stop.is_set():
            try:
                lease = locks.lock("counter", ttl=1.0).acquire(timeout=10)
            except NotAcquired:
                log.failed += 1
                continue
            began_at = boot_time()
            try:
                log.guard.enter(lease)
                value = int(log.counter.read_text() or "0")
                for _ in range(3):
                    time.sleep(0.003)
                    log.claims.enter(lease, began_at)
                log.guard.write(lease, str(value + 1))
                with log.mutex:
                    log.written += 1
            except StaleFence:
                log.refused += 1
            except LeaseError:
                log.refused += 1
            finally:
                lease.release()


@pytest.mark.timeout(SECONDS + 120)
def test_failover_of_a_leader_that_is_killed_again_and_again(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    log = Log(counter)
    with Ensemble() as ensemble:
        url = f"{ensemble.url}/failover?session_timeout=4"
        threads = [threading.Thread(target=work, args=(url, log)) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        end, kills = time.monotonic() + SECONDS, 0
        while time.monotonic() < end - EVERY or kills < 2:
            time.sleep(EVERY / 2)
            if (leader := ensemble.leader()) is None:
                continue
            before = log.written
            leader.kill()
            kills += 1
            leader.start(wait=False)
            assert eventually(functools.partial(log.has_written, before + 1), 30)
            assert eventually(lambda: ensemble.leader() is not None, 30)
            leader.wait_until_ready()
            time.sleep(EVERY / 2)
        log.stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert log.written > 20
    assert int(counter.read_text()) == log.written, "an update was lost"
    assert not log.claims.violations(), log.claims.violations()[:5]
    print(f"zookeeper: {log.written} updates, {kills} leaders killed, {log.refused} refused or lost")


def test_a_majority_is_needed_and_enough() -> None:
    with (
        Ensemble() as ensemble,
        quorumlock.connect(f"{ensemble.url}?session_timeout=4", node_timeout=0.2, patience=15) as locks,
    ):
        lease = locks.lock("a", ttl=1, keep=False).acquire()
        ensemble.servers[0].kill()
        with locks.lock("b", ttl=1).acquire() as other:
            assert other.fence > lease.fence
        (state,) = locks.nodes()
        assert state.role in ("leader", "follower")
        ensemble.servers[1].kill()
        with pytest.raises(quorumlock.NoQuorum):
            locks.lock("b", ttl=1).acquire(timeout=1)
