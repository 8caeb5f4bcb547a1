"""Three ZooKeeper servers: a majority is needed and enough; and leaders that are killed under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quorumlock
from tests.support.servers.zookeeper import Ensemble

from .failover import SECONDS, Judge, endure
from .zookeeper_tools import needs_zookeeper, new_root

pytestmark = needs_zookeeper()


@pytest.fixture(scope="module")
def started() -> Iterator[Ensemble]:
    with Ensemble() as ensemble:
        yield ensemble


@pytest.fixture
def ensemble(started: Ensemble) -> Ensemble:
    """All of them up."""
    for server in started.servers:
        if not server.mode():
            server.restart()
    return started


@pytest.mark.timeout(SECONDS + 120)
def test_failover_of_a_leader_that_is_killed_again_and_again(ensemble: Ensemble, tmp_path: Path) -> None:
    """No overlap of valid leases, fences that grow, and no update lost at a guard."""
    endure(ensemble, Judge(tmp_path), "/failover?session_timeout=4")


def test_a_majority_is_needed_and_enough(ensemble: Ensemble) -> None:
    url = f"{ensemble.url}{new_root()}"
    with quorumlock.connect(url, node_timeout=0.2, patience=15) as locks:
        lease = locks.lock("a", ttl=9, keep=False).acquire()
        ensemble.servers[0].kill()
        with locks.lock("b", ttl=9).acquire(timeout=20) as other:
            assert other.fence > lease.fence
        (state,) = locks.nodes()
        assert state.role in ("leader", "follower")
        ensemble.servers[1].kill()
        with pytest.raises(quorumlock.NoQuorum):
            locks.lock("b", ttl=9).acquire(timeout=1)
