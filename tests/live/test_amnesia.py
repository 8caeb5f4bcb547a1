"""Nodes that lose their memory inside a lease: quarantined, healed, never the vote that makes a second holder."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock import LeaseLost, NoQuorum, events
from quorumlock.events import Event
from quorumlock.lab.servers import Server, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .tools import get

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]
Put = Callable[[Server], Proxy]


def appended(server: Server) -> bytes:
    """All that the server has appended to its file."""
    return b"".join(path.read_bytes() for path in server.folder.glob("*/*.aof"))


@pytest.mark.one_kind
def test_a_restarted_node_is_healed_by_an_extension_and_votes_for_nobody(
    make_servers: Make, connect: Connect
) -> None:
    fleet = make_servers(3)
    told: list[Event] = []
    locks, rival = connect(fleet), connect(fleet)
    locks.subscribe(told.append)
    rival.lock("warm", ttl=1).acquire().release()
    lease = locks.lock("a", ttl=1, keep=False).acquire()
    fleet[1].restart()

    def healed() -> bool:
        lease.extend()
        return get(fleet[1], "a") == lease.token

    assert eventually(healed)
    assert any(isinstance(event, events.Healed) and event.nodes == (fleet[1].label,) for event in told)
    lease.extend(0.4)  # it ends before the quarantine does
    fleet[0].kill()
    with pytest.raises(LeaseLost):  # nodes 0 and 1 do not count: what is left is no majority
        lease.extend(0.4)
    with pytest.raises(NoQuorum, match="quarantine"):
        rival.lock("b", ttl=1).acquire(timeout=0.1)


@pytest.mark.one_kind
def test_a_marker_that_survived_a_restart_does_not_count(make_servers: Make, connect: Connect) -> None:
    """fsync-loss: everything is back but perhaps the last second. The run id has changed."""
    fleet = make_servers(3, "--appendonly", "yes")
    locks = connect(fleet)
    lease = locks.lock("a", ttl=1, keep=False).acquire()
    before = [get(server, "ql:node") for server in fleet.servers]
    for server in fleet.servers[:2]:
        assert eventually(lambda server=server: b"ql:node" in appended(server))  # type: ignore[misc]
        server.restart()
    assert get(fleet[0], "ql:node") == before[0]
    with pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("b", ttl=1).acquire(timeout=0.3)
    with pytest.raises(LeaseLost):
        lease.extend()
    locks.lock("b", ttl=1).acquire(timeout=20).release()


@pytest.mark.one_kind
def test_a_durable_fleet_trusts_a_restart_whose_marker_survived(make_servers: Make, connect: Connect) -> None:
    fleet = make_servers(3, "--appendonly", "yes", "--appendfsync", "always")
    locks = connect(fleet, durable=True, max_ttl=30)
    lease = locks.lock("a", ttl=30, keep=False).acquire()
    assert eventually(lambda: all(get(server, "a") for server in fleet.servers))
    for server in fleet.servers:
        server.kill()
    for server in fleet.servers:
        server.start()
    lease.extend()
    assert locks.lock("a", ttl=1).try_acquire() is None
    locks.lock("b", ttl=1).acquire(timeout=10).release()  # its quarantine would last for 30 s


def test_the_marker_says_to_which_fleet_a_node_belongs(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3], fleet="shop").lock("a", ttl=1).acquire().release()
    markers = [(get(server, "ql:node") or "").split() for server in servers.servers[:3]]
    for ready_at, span_ms, _, _, nodes, max_ttl_ms, durable, quarantine, _ in markers:
        assert int(ready_at) / 1e6 <= time.time() + 0.5, "ready at once"
        assert (span_ms, nodes, max_ttl_ms, durable, quarantine) == ("1000", "3", "1000", "0", "1")
    assert len({words[3] for words in markers}) == 1, "one fleet"
    assert len({words[8] for words in markers}) == 3, "three identities"


@pytest.mark.one_kind
def test_quarantine_lasts_no_longer_than_max_ttl_whoever_asks(servers: Servers, connect: Connect) -> None:
    """Every client that meets the node finds it marked; none of them begins anew."""
    connect(servers.urls[:3]).lock("a", ttl=1).acquire().release()
    for server in servers.servers[:3]:
        server.command("FLUSHALL")

    def ends_at() -> list[int]:
        return [int((get(server, "ql:node") or "0").split()[0]) for server in servers.servers[:3]]

    def refused() -> bool:
        with pytest.raises(NoQuorum, match="quarantine"):
            connect(servers.urls[:3]).lock("a", ttl=1).try_acquire()
        return all(ends_at())

    assert eventually(refused)
    ends = ends_at()
    for _ in range(5):
        assert refused()
        assert ends_at() == ends, "it began anew"
    connect(servers.urls[:3]).lock("a", ttl=1).acquire(timeout=20).release()
    assert time.time() * 1e6 >= sorted(ends)[1], "a majority was in quarantine"


def test_a_deleted_marker_is_a_loss_of_memory(servers: Servers, connect: Connect) -> None:
    locks = connect(servers.urls[:3])
    locks.lock("a", ttl=1).acquire().release()
    for server in servers.servers[:2]:
        server.command("DEL", "ql:node")
    with pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("a", ttl=1).acquire(timeout=0.1)


@pytest.mark.one_kind
def test_a_reader_after_a_loss_of_memory_is_not_behind_the_writer_before_it(
    servers: Servers, connect: Connect
) -> None:
    """A fence that is there need not be the last that was given: an old disk has one, and a break leaves one."""
    locks = connect(servers.urls[:3])
    with locks.lock("a", ttl=1) as before:
        pass
    for server in servers.servers[:3]:
        server.command("FLUSHALL")
        server.command("SET", "ql:fence:{a}", "5")
    with locks.read_write("a").read(ttl=1, timeout=20) as reader:
        assert reader.fence > before.fence
    with locks.lock("a", ttl=1, timeout=20) as after:
        assert after.fence > reader.fence


@pytest.mark.one_kind
def test_a_node_that_is_always_the_last_to_answer_is_healed_by_its_holder(
    make_servers: Make, connect: Connect, put_proxy: Put
) -> None:
    """Nobody waits for it, and its answers come when the extension is over."""
    fleet = make_servers(3)
    slow = put_proxy(fleet[0])
    locks = connect([slow.url, *fleet.urls[1:]], fleet="slow", node_timeout=0.5)
    lease = locks.lock("a", ttl=1, keep=False).acquire(timeout=2)
    slow.delay = 0.02
    fleet[0].command("DEL", "a")

    def healed() -> bool:
        lease.extend()  # one that comes before the answers to the last one makes them later still
        return eventually(lambda: get(fleet[0], "a") == lease.token, within=0.05)

    assert eventually(healed)
    lease.release()
