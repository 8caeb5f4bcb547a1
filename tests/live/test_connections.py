"""Connections that break, are replaced, idle, or meet a server that has forgotten everything."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock import NoQuorum
from quorumlock.lab.servers import Server, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, eventually_async

from .attribution import every_answer_is_its_own, every_answer_is_its_own_with_threads, nothing_is_left
from .tools import SLACK, client_ids, exists, fence, get, keys, lock_keys

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]
Put = Callable[[Server], Proxy]


PATIENT = 2.0
"""A node timeout for tests in which no node is to be late: longer than a busy machine stands still."""


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads look at a connection that was not read for a while before they use it: here, at every one."""
    monkeypatch.setattr("quorumlock.runners.cable.TRUSTED", 0.0)


def all_ended(proxy: Proxy) -> bool:
    """Whether everything was passed on that came through these connections, their ends included."""
    return not any(thread.is_alive() for line in proxy.lines for thread in line.threads)


def close_connections(server: Server) -> None:
    """As a server does with those that idle."""
    server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def warmed(locks: quorumlock.Locker) -> quorumlock.Locker:
    lease = locks.lock("warm", ttl=1).acquire(timeout=2)
    lease.extend()
    lease.release()
    return locks


class Trying:
    """`try_acquire` in a thread of its own, while the test breaks something."""

    def __init__(self, lock: quorumlock.Lock) -> None:
        self.lock = lock
        self.lease: quorumlock.Lease | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.lease = self.lock.try_acquire()
        except Exception as error:
            self.error = error

    def over(self) -> Trying:
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()
        return self


@pytest.mark.one_kind
def test_a_lost_answer_leaves_an_orphan_for_at_most_one_ttl(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """The server has set the lock, the connection ends before the answer, and nobody can reach the server again."""
    proxy = put_proxy(servers[0])
    locks = warmed(connect([proxy.url], node_timeout=0.05))
    proxy.lose_next_answer = True
    proxy.refusing = True
    with pytest.raises(NoQuorum) as broken:
        locks.lock("a", ttl=0.4).try_acquire()
    assert exists(servers[0], "a")
    assert broken.value.may_linger
    assert eventually(lambda: not exists(servers[0], "a"), within=0.4 + SLACK)


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_a_lost_answer_is_undone_on_a_new_connection(
    servers: Servers, connect: Connect, put_proxy: Put, count: int
) -> None:
    """lost-answer: on one node the attempt fails, and is cleaned up; on three the others decide."""
    nodes = servers.servers[:count]
    proxies = [put_proxy(node) for node in nodes]
    locks = warmed(connect([proxy.url for proxy in proxies], node_timeout=0.2))
    proxies[0].lose_next_answer = True
    if count == 1:
        with pytest.raises(NoQuorum):
            locks.lock("a", ttl=1).try_acquire()
    else:
        lease = locks.lock("a", ttl=1).try_acquire()
        assert lease is not None
        assert get(nodes[1], "a") == lease.token
        lease.extend()
        lease.release()
    nothing_is_left(nodes, locks=locks)
    every_answer_is_its_own_with_threads(locks, nodes)


def test_a_replaced_connection_is_killed_before_the_release(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """late-set: the request hangs in the network, the client's end breaks, the release takes a new connection,
    and only then the old request would arrive. The server has ended its connection by then."""
    proxy = put_proxy(servers[0])
    locks = warmed(connect([proxy.url], node_timeout=0.25))
    old = client_ids(servers[0])
    proxy.half_open = True
    proxy.hold_requests()
    trying = Trying(locks.lock("a", ttl=1))
    assert eventually(lambda: proxy.holds)
    proxy.cut_clients()
    error = trying.over().error
    assert isinstance(error, NoQuorum)
    assert eventually(lambda: not client_ids(servers[0]) & old), "the old connection still stands"
    held = [line for line in proxy.lines if line.held]
    proxy.let_go()
    assert eventually(lambda: all(line.left for line in held)), "the late request was not passed on"
    assert keys(servers[0], "*{a}*") == set(), "the late request was executed"
    assert not exists(servers[0], "a")


def test_a_replaced_connection_is_killed_with_asyncio(servers: Servers, connect: Connect, put_proxy: Put) -> None:
    connect([servers[0].url]).close()
    proxy = put_proxy(servers[0])

    async def main() -> None:
        async with quorumlock.connect_async(proxy.url, max_ttl=1, node_timeout=0.25) as locks:
            await every_answer_is_its_own(locks, [servers[0]])
            old = client_ids(servers[0])
            proxy.half_open = True
            proxy.hold_requests()
            trying = asyncio.create_task(locks.lock("a", ttl=1).try_acquire())
            assert await eventually_async(lambda: proxy.holds)
            proxy.cut_clients()
            with pytest.raises(NoQuorum):
                await trying
            assert await eventually_async(lambda: not client_ids(servers[0]) & old)
            held = [line for line in proxy.lines if line.held]
            proxy.let_go()
            assert await eventually_async(lambda: all(line.left for line in held))
            assert keys(servers[0], "*{a}*") == set(), "the late request was executed"

    asyncio.run(main())


def test_a_request_in_the_socket_of_a_paused_server_is_undone(
    make_servers: Make, connect: Connect, put_proxy: Put
) -> None:
    """The paused server finds the request, the end of that connection, and a new one with kill and release."""
    server = make_servers(1)[0]
    proxy = put_proxy(server)
    locks = warmed(connect([proxy.url], node_timeout=0.25))
    server.pause()
    proxy.hold_requests()
    trying = Trying(locks.lock("a", ttl=1))
    assert eventually(lambda: proxy.holds)
    lines = len(proxy.lines)
    proxy.let_go()
    assert eventually(lambda: not proxy.holds)
    proxy.cut()
    assert eventually(lambda: len(proxy.lines) > lines), "the client did not connect anew"
    server.resume()
    trying.over()
    if trying.lease is not None:
        trying.lease.release()
    assert fence(server, "a") > 0, "the request was never executed"
    nothing_is_left([server])
    every_answer_is_its_own_with_threads(locks, [server])


def test_one_node_that_is_flushed_works_on(servers: Servers, connect: Connect) -> None:
    """For one node there is no quarantine: it is for efficiency, and says so."""
    locks = warmed(connect(servers.urls[:1]))
    lease = locks.lock("a", ttl=1).acquire()
    servers[0].command("FLUSHALL")
    with pytest.raises(quorumlock.LeaseLost):
        lease.extend()
    again = locks.lock("a", ttl=1).try_acquire()
    assert again is not None
    again.release()


def test_a_flushed_node_of_three_is_quarantined(servers: Servers, connect: Connect) -> None:
    """amnesia: it has forgotten who holds what, so for one max_ttl it grants nothing."""
    nodes = servers.servers[:3]
    locks = warmed(connect(servers.urls[:3]))
    lease = locks.lock("a", ttl=1).acquire()
    nodes[0].command("FLUSHALL")
    nodes[1].command("FLUSHALL")
    flushed_at = time.monotonic()
    rival = connect(servers.urls[:3])
    with pytest.raises(NoQuorum, match="quarantine") as broken:
        rival.lock("a", ttl=1).try_acquire()
    assert nodes[0].label in str(broken.value)
    with pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("b", ttl=1).try_acquire()
    lease.release()
    rival.lock("a", ttl=1).acquire(timeout=20).release()
    assert 0.9 < time.monotonic() - flushed_at < 1.0 + 1.0 + SLACK


@pytest.mark.one_kind
@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("count", [1, 3])
def test_connections_that_idled_and_were_closed_do_not_surface(
    servers: Servers, connect: Connect, count: int
) -> None:
    nodes = servers.servers[:count]
    locks = warmed(connect(servers.urls[:count], node_timeout=PATIENT))
    for _ in range(3):
        for server in nodes:
            close_connections(server)
        assert eventually(lambda: not any(client_ids(server) for server in nodes)), "not closed yet"
        lease = locks.lock("a", ttl=1).try_acquire()
        assert lease is not None
        lease.release()


@pytest.mark.one_kind
@pytest.mark.usefixtures("idle")
def test_a_connection_that_ended_behind_a_late_answer_does_not_surface(
    make_servers: Make, connect: Connect, put_proxy: Put
) -> None:
    """What is read there first is the answer, and not the end."""
    first, late, last = make_servers(3).servers
    proxy = put_proxy(late)
    locks = warmed(connect([first.url, proxy.url, last.url], node_timeout=PATIENT))
    assert eventually(lambda: client_ids(late))
    proxy.hold_answers()
    lease = locks.lock("a", ttl=1).try_acquire()
    assert lease is not None
    lease.release()
    assert eventually(lambda: not lock_keys([late]))
    close_connections(late)
    proxy.let_go()
    assert eventually(lambda: all_ended(proxy)), "the late answer and the end behind it are not there yet"
    last.kill()
    lease = locks.lock("b", ttl=1).try_acquire()
    assert lease is not None
    lease.release()


@pytest.mark.one_kind
@pytest.mark.usefixtures("idle")
def test_a_connection_that_ended_before_it_was_used_does_not_surface(
    make_servers: Make, connect: Connect, put_proxy: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made behind the back of a round that could do without, and nobody has asked for anything since."""
    first, late, last = make_servers(3).servers
    proxy = put_proxy(late)
    locks = warmed(connect([first.url, proxy.url, last.url], node_timeout=PATIENT))
    open_ = locks.engine.open
    go, opened = threading.Event(), threading.Event()

    def slowly(index: int) -> object:
        if index != 1:
            return open_(index)
        go.wait(10)
        connection = open_(index)
        opened.set()
        return connection

    assert eventually(lambda: proxy.lines)
    monkeypatch.setattr(locks.engine, "open", slowly)
    proxy.cut()
    lines = len(proxy.lines)
    lease = locks.lock("a", ttl=1).try_acquire()
    assert lease is not None
    lease.release()
    go.set()
    assert opened.wait(10)
    assert eventually(lambda: len(proxy.lines) > lines)
    proxy.cut()
    last.kill()
    lease = locks.lock("b", ttl=1).try_acquire()
    assert lease is not None
    lease.release()


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_connections_closed_while_idle_do_not_surface_with_asyncio(
    servers: Servers, connect: Connect, count: int
) -> None:
    nodes = servers.servers[:count]
    connect(servers.urls[:count])

    async def main() -> None:
        async with quorumlock.connect_async(servers.urls[:count], max_ttl=1, node_timeout=PATIENT) as locks:
            await (await locks.lock("a", ttl=1).acquire()).release()
            for _ in range(3):
                for server in nodes:
                    close_connections(server)
                assert await eventually_async(lambda: not any(client_ids(server) for server in nodes))
                for _ in range(3):
                    await asyncio.sleep(0)  # the loop comes to see it
                lease = await locks.lock("a", ttl=1).try_acquire()
                assert lease is not None
                await lease.release()

    asyncio.run(main())


@pytest.mark.one_kind
@pytest.mark.usefixtures("idle")
def test_a_single_server_may_restart_between_two_calls(make_servers: Make, connect: Connect) -> None:
    server = make_servers(1)
    locks = warmed(connect(server, node_timeout=PATIENT))
    server[0].restart()
    lease = locks.lock("a", ttl=1).try_acquire()
    assert lease is not None
    lease.release()


@pytest.mark.one_kind
def test_a_lease_outlives_its_connections(servers: Servers, connect: Connect, put_proxy: Put) -> None:
    proxies = [put_proxy(server) for server in servers.servers[:3]]
    locks = warmed(connect([proxy.url for proxy in proxies]))
    lease = locks.lock("a", ttl=1).acquire()
    for _ in range(2):
        for proxy in proxies:
            proxy.cut()
        lease.extend()
    for proxy in proxies:
        proxy.cut()
    lease.release()
    nothing_is_left(servers.servers[:3], locks=locks)


@pytest.mark.one_kind
def test_a_locker_may_be_older_than_its_servers(make_servers: Make, connect: Connect) -> None:
    fleet = make_servers(3)
    for server in fleet.servers:
        server.kill()
    locks = connect(fleet, init=False)
    with pytest.raises(NoQuorum, match="cannot be reached"):
        locks.lock("a", ttl=1).try_acquire()
    for server in fleet.servers:
        server.start()
    locks.init_fleet()
    locks.lock("a", ttl=1).acquire(timeout=2).release()


@pytest.mark.one_kind
def test_closing_a_locker_closes_its_connections(servers: Servers, connect: Connect) -> None:
    before = [client_ids(server) for server in servers.servers[:3]]
    locks = warmed(connect(servers.urls[:3]))
    assert all(client_ids(server) - ids for server, ids in zip(servers.servers, before, strict=False))
    locks.close()
    for server, ids in zip(servers.servers, before, strict=False):
        assert eventually(lambda server=server, ids=ids: not client_ids(server) - ids)  # type: ignore[misc]
    with pytest.raises(quorumlock.ConfigurationError, match="closed"):
        locks.lock("a", ttl=1).try_acquire()
