"""Quorum arithmetic on real nodes: N = 1 to 9, with the largest minority dead, and with one more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import quorumlock
from quorumlock import ConfigurationError, NoQuorum
from quorumlock.lab.servers import Server, Servers
from tests.live.tools import lock_keys
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]


@pytest.fixture(scope="module")
def nine() -> Iterator[Servers]:
    """Nine Valkey servers: arithmetic does not depend on the kind."""
    with Servers(9) as servers:
        yield servers


@pytest.mark.parametrize("count", range(1, 10))
def test_the_largest_minority_may_be_gone_and_no_more(nine: Servers, connect: Connect, count: int) -> None:
    for server in nine.servers:
        server.command("FLUSHALL")
    bearable = (count - 1) // 2
    locks = connect(nine.urls[:count], node_timeout=0.06)
    locks.lock("a", ttl=1).acquire(timeout=20).release()
    gone = nine.servers[: bearable + 1]
    try:
        for server in gone[:bearable]:
            server.pause()
        lease = locks.lock("a", ttl=1).acquire(timeout=20)
        lease.extend()
        lease.release()
        late = connect(nine.urls[:count], node_timeout=0.06)
        late.lock("a", ttl=1).acquire(timeout=20).release()
        gone[bearable].pause()
        with pytest.raises(NoQuorum) as broken:
            locks.lock("a", ttl=1).try_acquire()
        assert f"{count // 2 + 1} needed" in str(broken.value)
        with pytest.raises(NoQuorum):
            late.lock("a", ttl=1).acquire(timeout=0)
    finally:
        for server in gone:
            server.resume()


@pytest.mark.parametrize("count", range(2, 10))
def test_of_two_sides_of_a_partition_at_most_one_can_lock(
    nine: Servers, connect: Connect, put_proxy: Put, count: int
) -> None:
    """However the nodes are divided: who has a majority of all of them locks, and an even split locks nobody."""
    nodes = nine.servers[:count]
    for server in nodes:
        server.command("FLUSHALL")
    sides = []
    for _ in range(2):
        proxies = [put_proxy(server) for server in nodes]
        locks = connect([proxy.url for proxy in proxies], node_timeout=0.1, fleet="divided")
        locks.lock("warm", ttl=1).acquire(timeout=20).release()
        sides.append((locks, proxies))
    for cut in {0, count // 2 - 1, count // 2, count // 2 + 1, count}:
        for index, proxies in enumerate(proxies for _, proxies in sides):
            for node, proxy in enumerate(proxies):
                proxy.refusing = (node < cut) == bool(index)
                if proxy.refusing:
                    proxy.cut()
        for (locks, _), reached in zip(sides, (cut, count - cut), strict=True):
            lock = locks.lock(f"a-{cut}", ttl=1)
            if reached > count / 2:
                lock.acquire(timeout=20).release()
            else:
                with pytest.raises(NoQuorum):
                    lock.acquire(timeout=0.03)


def test_one_server_under_several_names_has_one_vote(nine: Servers, connect: Connect, put_proxy: Put) -> None:
    """Databases, host names and proxies: found out by the address, or by the server's own identity."""
    one, two = nine[0], nine[1]
    for server in nine.servers:
        server.command("FLUSHALL")
    for urls in (
        [f"{one.url}/0", f"{one.url}/1", two.url],
        [one.url, one.url, two.url],
        [f"{one.url}/3", two.url, f"{one.url}/3"],
    ):
        with pytest.raises(ConfigurationError, match="one server"):
            quorumlock.connect(urls)
    for other in (f"redis://localhost:{one.port}", put_proxy(one).url, f"redis://localhost:{one.port}/2"):
        locks = connect([one.url, other, two.url], init=False)
        with pytest.raises(ConfigurationError, match="one server"):
            locks.init_fleet()
        with pytest.raises(ConfigurationError, match="one server"):
            locks.lock("a", ttl=1).try_acquire()
        for server in (one, two):
            server.command("DEL", "ql:node")
    assert not lock_keys([one, two])


@pytest.mark.parametrize("count", [3, 9])
def test_dead_nodes_count_like_hung_ones(connect: Connect, count: int) -> None:
    with Servers(count) as fleet:
        locks = connect(fleet, node_timeout=0.06)
        locks.lock("a", ttl=1).acquire().release()
        bearable = (count - 1) // 2
        for server in fleet.servers[:bearable]:
            server.kill()
        locks.lock("a", ttl=1).acquire(timeout=20).release()
        fleet[bearable].kill()
        with pytest.raises(NoQuorum, match=f"{count // 2 + 1} needed"):
            locks.lock("a", ttl=1).acquire(timeout=0.3)


def test_dead_nodes_count_with_asyncio_too() -> None:
    async def main(fleet: Servers) -> None:
        async with quorumlock.connect_async(fleet.urls, max_ttl=1, node_timeout=0.06) as locks:
            await locks.init_fleet()
            await (await locks.lock("a", ttl=1).acquire()).release()
            fleet[0].kill()
            fleet[1].kill()
            await (await locks.lock("a", ttl=1).acquire(timeout=20)).release()
            fleet[2].kill()
            with pytest.raises(NoQuorum, match="3 needed"):
                await locks.lock("a", ttl=1).acquire(timeout=0.3)

    with Servers(5) as fleet:
        asyncio.run(main(fleet))


def test_an_even_number_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    quorumlock.connect(["redis://127.0.0.1:1", "redis://127.0.0.1:2"]).close()
    assert any("odd" in record.getMessage() for record in caplog.records)
