"""Quorum arithmetic on real nodes: N = 1 to 9, with the largest minority dead, and with one more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import quorumlock
from quorumlock import NoQuorum
from quorumlock.lab.servers import Servers

pytestmark = pytest.mark.live

Connect = Callable[..., quorumlock.Locker]


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
    locks.lock("a", ttl=1).acquire(timeout=1).release()
    gone = nine.servers[: bearable + 1]
    try:
        for server in gone[:bearable]:
            server.pause()
        lease = locks.lock("a", ttl=1).acquire(timeout=1)
        lease.extend()
        lease.release()
        late = connect(nine.urls[:count], node_timeout=0.06)
        late.lock("a", ttl=1).acquire(timeout=1).release()
        gone[bearable].pause()
        with pytest.raises(NoQuorum) as broken:
            locks.lock("a", ttl=1).try_acquire()
        assert f"{count // 2 + 1} needed" in str(broken.value)
        with pytest.raises(NoQuorum):
            late.lock("a", ttl=1).acquire(timeout=0)
    finally:
        for server in gone:
            server.resume()


@pytest.mark.parametrize("count", [3, 9])
def test_dead_nodes_count_like_hung_ones(connect: Connect, count: int) -> None:
    with Servers(count) as fleet:
        locks = connect(fleet, node_timeout=0.06)
        locks.lock("a", ttl=1).acquire().release()
        bearable = (count - 1) // 2
        for server in fleet.servers[:bearable]:
            server.kill()
        locks.lock("a", ttl=1).acquire(timeout=1).release()
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
            await (await locks.lock("a", ttl=1).acquire(timeout=1)).release()
            fleet[2].kill()
            with pytest.raises(NoQuorum, match="3 needed"):
                await locks.lock("a", ttl=1).acquire(timeout=0.3)

    with Servers(5) as fleet:
        asyncio.run(main(fleet))


def test_an_even_number_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    quorumlock.connect(["redis://127.0.0.1:1", "redis://127.0.0.1:2"]).close()
    assert any("odd" in record.getMessage() for record in caplog.records)
