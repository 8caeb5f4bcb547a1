"""The etcd engine on three members: one that is gone or silent changes nothing; and leaders that are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import quorumlock
from quorumlock import Jitter
from tests.support.servers import etcd as etcd_servers
from tests.support.servers.etcd import EtcdCluster
from tests.support.waiting import eventually

from .failover import SECONDS, Judge, endure

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.4)]
"""Elections are half a second apart at least, and leases are valid for two."""


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


def streams_at(locks: quorumlock.Locker) -> set[int]:
    """The members at which its waiters listen, once they do."""
    streams = [stream for ear in locks.engine._ears.values() for stream in ear._streams]
    return {stream.host for stream in streams if stream.open.is_set()}


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_member_that_fails_is_left_for_another(cluster: EtcdCluster, how: str) -> None:
    """Also by those who wait: their streams are at that member. If it is killed, they are elsewhere before the lock
    is released; if it is paused, that is found out later, and what happened meanwhile is not missed."""
    with (
        quorumlock.connect(cluster.url) as ours,
        quorumlock.connect(cluster.url, retry=Jitter(3600), patience=30.0) as theirs,
    ):
        lease = ours.lock("a", ttl=20).acquire(timeout=5)
        got: list[quorumlock.Lease] = []
        waiter = threading.Thread(target=lambda: got.append(theirs.lock("a", ttl=20).acquire(timeout=30)))
        waiter.start()
        assert eventually(lambda: streams_at(theirs))
        (host,) = streams_at(theirs)
        getattr(cluster.members[host], how)()
        lease.extend()
        if how == "kill":
            assert eventually(lambda: streams_at(theirs) - {host})
        lease.release()
        waiter.join(20)
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
        assert eventually(cluster.leader)
        lease.extend()
        lease.release()


@pytest.mark.timeout(SECONDS + 120)
def test_failover_of_leaders_that_are_killed_under_load(cluster: EtcdCluster, tmp_path: Path) -> None:
    """No overlap of valid leases, fences that grow, and no update lost at a guard."""
    endure(cluster, Judge(tmp_path))
