"""Connections that somebody else has at the moment, or that an interrupt has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock.lab.servers import Server, Servers
from quorumlock.runners.cable import Cable
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .test_connections import warmed
from .tools import client_ids

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]


def test_connections_that_are_being_read_when_a_locker_is_closed_are_closed(
    servers: Servers, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper's thread looks for late answers; it has taken the connections out meanwhile."""
    before = [client_ids(server) for server in servers.servers[:3]]
    locks = warmed(connect(servers.urls[:3]))
    read_late = Cable.read_late

    def meanwhile(cable: Cable) -> None:
        read_late(cable)
        locks.close()

    monkeypatch.setattr(Cable, "unread", True)
    monkeypatch.setattr(Cable, "read_late", meanwhile)
    locks._keeper._read_late()
    for server, ids in zip(servers.servers, before, strict=False):
        assert eventually(lambda server=server, ids=ids: not client_ids(server) - ids)  # type: ignore[misc]


@pytest.mark.one_kind
def test_connections_that_an_interrupt_has_lost_are_waited_for_once(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """A release travels behind what it undoes. Where that connection is gone, each of many would wait in vain."""
    proxies = [put_proxy(server) for server in servers.servers[:3]]
    locks = warmed(connect([proxy.url for proxy in proxies], max_ttl=60))
    leases = [locks.lock(f"a{number}", ttl=50).acquire() for number in range(12)]
    proxies[2].hold_answers()
    for lease in leases:
        lease.release()
    runner: Any = locks._runner
    runner._free.clear()
    owed = locks._keeper.owed
    assert any(debt.nodes() for debt in owed.all())
    proxies[2].let_go()
    assert eventually(lambda: not any(debt.nodes() for debt in owed.all()), 8)
