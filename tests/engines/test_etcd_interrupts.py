"""The etcd engine, interrupted wherever an interrupt can strike."""

from __future__ import annotations

import itertools

import pytest

from tests.hazards.striking import Strike
from tests.support.servers.etcd import EtcdServer

from .etcd_fixtures import Connect, connect, holds, server

__all__ = ["connect", "server"]  # fixtures

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

EVERY = 5
"""One in so many places: there are hundreds."""


def test_whoever_is_interrupted_leaves_nothing_behind(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    locks.lock("a", ttl=20).acquire(timeout=1).release()
    for k in itertools.count(1, EVERY):
        strike = Strike(k)
        lease = strike.run(lambda: locks.lock("a", ttl=20).acquire(timeout=1))
        if not strike.struck:
            assert lease is not None
            lease.release()
            break
        assert holds(server) == [], strike.where
    assert k > 10 * EVERY, "it was not struck often"


def test_an_interrupted_release_is_repeated(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    for k in itertools.count(1, EVERY):
        lease = locks.lock("a", ttl=20, keep=False).acquire(timeout=0)
        strike = Strike(k)
        strike.run(lease.release)
        if not strike.struck:
            break
        lease.release()
        assert holds(server) == [], strike.where
    assert k > 5 * EVERY, "it was not struck often"
