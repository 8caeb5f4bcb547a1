"""Fences on real servers: keys that expire, clocks wrong by hours, and a second round only where it is needed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import pytest

import quorumlock
from quorumlock import events
from quorumlock.core.requests import Acquire, Initialise, Release
from quorumlock.engines.redis import scripts
from quorumlock.engines.redis.answers import decode
from quorumlock.engines.redis.resp import new_reader, pack
from quorumlock.engines.redis.wire import Wire
from quorumlock.lab.servers import Server, Servers
from tests.support.waiting import eventually

from .tools import fence as fence_on
from .tools import number

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time(0.3)]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]

LONG = bool(os.environ.get("QUORUMLOCK_LONG"))
NAMES = 60_000 if LONG else 20_000
FENCE_TTL = 2.0 if LONG else 1.0
HOURS = 3 * 3600.0


def memory(server: Server) -> int:
    info = server.command("INFO", "memory").decode()
    return int(next(line for line in info.split() if line.startswith("used_memory:")).partition(":")[2])


class Client:
    """What a Locker sends and reads, thousands at a time: its own requests, over one connection."""

    def __init__(self, server: Server) -> None:
        self.wire = Wire(
            prefix="",
            fleet="f",
            nodes=1,
            max_ttl=FENCE_TTL / 4,
            fence_ttl=FENCE_TTL,
            durable=False,
            quarantine=False,
        )
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.reader = new_reader()
        self.skew = 0.0
        for source in scripts.SOURCES.values():
            self._talk([pack(("SCRIPT", "LOAD", source))])
        self.tail = self.wire.tail(self._talk([self.wire.encode(Initialise(force=False))])[0][1])

    def _talk(self, commands: list[bytes]) -> list[Any]:
        self.socket.sendall(b"".join(commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            while (reply := self.reader.gets()) is not False:
                replies.append(reply)
            if len(replies) < len(commands):
                self.reader.feed(self.socket.recv(1 << 20))
        return replies

    def take(self, names: Iterable[int]) -> dict[int, int]:
        """Acquires and releases each of these names; their fences."""
        commands = []
        for name in names:
            candidate_us = int((time.time() + self.skew) * 1_000_000)
            commands.append(
                self.wire.encode(Acquire(f"job:{name}", f"token:{name}", 500, candidate_us)) + self.tail
            )
            commands.append(self.wire.encode(Release(f"job:{name}", f"token:{name}")))
        replies = self._talk(commands)
        assert all(reply == 1 for reply in replies[1::2])
        return {name: decode(reply).fence for name, reply in zip(names, replies[::2], strict=True)}


@pytest.mark.timeout(300)
def test_fence_keys_come_and_go_and_fences_still_grow(make_servers: Make) -> None:
    """Many names, used by a client whose clock is hours ahead; then some of them by one that is hours behind."""
    server = make_servers(1, "--hz", "100", "--active-expire-effort", "10")[0]
    client = Client(server)
    with closing(client.socket):

        def forgotten() -> bool:
            """All fence keys have expired; the marker is left."""
            return eventually(lambda: number(server.command("DBSIZE")) == 1, 60)

        client.take(range(1000))  # what is loaded once is loaded
        assert forgotten()
        before = memory(server)
        client.skew = HOURS
        peak = 0
        last: dict[int, int] = {}
        for start in range(0, NAMES, 5000):
            last |= client.take(range(start, start + 5000))
            peak = max(peak, memory(server))
        assert peak > before + 1_000_000, "there was nothing to go away"
        assert forgotten()
        assert memory(server) < before + (peak - before) / 5
        some = range(0, NAMES, NAMES // 500)
        for skew in (-HOURS, HOURS, -HOURS, 0.0):
            client.skew = skew
            again = client.take(some)
            assert all(0 < last[name] < again[name] < 2**53 for name in some)
            last |= again
            if skew > 0:
                assert forgotten()


def test_a_second_round_is_needed_only_where_nodes_grant_different_fences(
    servers: Servers, connect: Connect
) -> None:
    locks = connect(servers.urls[:3], node_timeout=2.0)
    told: list[events.Event] = []
    locks.subscribe(told.append)

    def acquired() -> tuple[quorumlock.Lease, int]:
        lease = locks.lock("a", ttl=1).acquire()
        confirmed = sum(isinstance(event, events.Confirmed) for event in told)
        told.clear()
        return lease, confirmed

    for _ in range(5):
        lease, confirmed = acquired()
        assert confirmed == 0, f"all nodes agree: {lease.tally}"
        lease.release()
    for server in servers.servers[:2]:
        known = fence_on(server, "a")
        server.command("SET", "ql:fence:{a}", str(known + (10**9 if server is servers[0] else 5 * 10**8)))
    lease, confirmed = acquired()
    assert confirmed == 1
    assert lease.fence in [fence for _, fence in lease.tally.granted()]
    assert sum(fence_on(server, "a") == lease.fence for server in servers.servers[:3]) >= 2
    fence = lease.fence
    lease.extend()
    assert lease.fence == fence, "an extension changes it not"
    assert 0 < fence < 2**53
    lease.release()
    following, _ = acquired()
    assert following.fence > fence
    following.release()


def test_one_node_that_restarts_empty_does_not_go_back(make_servers: Make, connect: Connect) -> None:
    """Without quarantine nobody waits; so its own clock counts, and not that of a client that is seconds ahead."""
    servers = make_servers(1)
    locks = connect(servers)
    locks._fleet.wall = lambda: time.time() + 0.2
    before = locks.lock("a", ttl=1).acquire()
    before.release()
    servers[0].restart()
    after = connect(servers).lock("a", ttl=1).acquire(timeout=5)
    assert after.fence > before.fence
    after.release()
