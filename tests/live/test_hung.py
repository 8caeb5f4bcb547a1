"""A hung minority costs nothing after the first timeout, and owed answers are read before any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import quorumlock
from quorumlock import events
from quorumlock.lab.servers import Server, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .attribution import every_answer_is_its_own, every_answer_is_its_own_with_threads, nothing_is_left
from .tools import Stopwatch, client_ids, exists, fence, get

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]

NODE_TIMEOUT = 0.3
PAIRS = 50


@pytest.fixture(scope="module")
def five(kind: str) -> Iterator[Servers]:
    """Five servers of this module: every test leaves them running."""
    with Servers(5, kind) as servers:
        yield servers


@pytest.fixture
def fleet(five: Servers) -> Iterator[Servers]:
    """They, emptied."""
    for server in five.servers:
        server.command("FLUSHALL")
    yield five
    for server in five.servers:
        server.resume()


def seconds_of_pairs(locks: quorumlock.Locker) -> float:
    with Stopwatch() as took:
        for _ in range(PAIRS):
            locks.lock("a", ttl=1).acquire(timeout=1).release()
    return took.seconds


async def seconds_of_pairs_async(locks: quorumlock.AsyncLocker) -> float:
    with Stopwatch() as took:
        for _ in range(PAIRS):
            await (await locks.lock("a", ttl=1).acquire(timeout=1)).release()
    return took.seconds


def seconds_of_refusals(locks: quorumlock.Locker) -> float:
    with Stopwatch() as took:
        for _ in range(PAIRS):
            assert locks.lock("a", ttl=1).try_acquire() is None
    return took.seconds


def allowed(usual: float) -> float:
    """Seconds for what takes `usual` while all nodes are well: far fewer than one timeout for each would cost."""
    return PAIRS * 0.01 + 3 * usual


@pytest.mark.one_kind
def test_two_of_five_hung_cost_no_timeout_after_the_first(fleet: Servers, connect: Connect) -> None:
    locks = connect(fleet, node_timeout=NODE_TIMEOUT)
    usual = seconds_of_pairs(locks)
    fleet[0].pause()
    fleet[3].pause()
    with Stopwatch() as first:
        locks.lock("a", ttl=1).acquire(timeout=1).release()
    assert first.seconds < 2 * NODE_TIMEOUT, "three nodes are enough to decide"
    took = seconds_of_pairs(locks)
    assert took < allowed(usual), f"{took / PAIRS * 1000:.1f} ms a pair"


@pytest.mark.one_kind
def test_two_of_five_hung_cost_no_timeout_with_asyncio(fleet: Servers, connect: Connect) -> None:
    connect(fleet).lock("a", ttl=1).acquire().release()

    async def main() -> None:
        async with quorumlock.connect_async(fleet.urls, max_ttl=1, node_timeout=NODE_TIMEOUT) as locks:
            lock = locks.lock("a", ttl=1)
            usual = await seconds_of_pairs_async(locks)
            fleet[0].pause()
            fleet[3].pause()
            await (await lock.acquire(timeout=1)).release()
            took = await seconds_of_pairs_async(locks)
            assert took < allowed(usual), f"{took / PAIRS * 1000:.1f} ms a pair"

    asyncio.run(main())


@pytest.mark.one_kind
def test_contended_refusals_are_quick_too(fleet: Servers, connect: Connect) -> None:
    """A refusal needs three nodes as well; a suspect that must be asked is waited for only while it is needed."""
    ours, theirs = connect(fleet, node_timeout=NODE_TIMEOUT), connect(fleet, node_timeout=NODE_TIMEOUT)
    theirs.lock("b", ttl=1).acquire().release()
    with ours.lock("a", ttl=1):
        usual = seconds_of_refusals(theirs)
    fleet[1].pause()
    fleet[2].pause()
    held = ours.lock("a", ttl=1).acquire(timeout=2)
    theirs.lock("b", ttl=1).acquire(timeout=2).release()
    took = seconds_of_refusals(theirs)
    assert took < allowed(usual), f"{took / PAIRS * 1000:.1f} ms a refusal"
    held.release()


@pytest.mark.one_kind
def test_a_dead_minority_costs_nothing(make_servers: Callable[..., Servers], connect: Connect) -> None:
    fleet = make_servers(5)
    locks = connect(fleet, node_timeout=NODE_TIMEOUT)
    usual = seconds_of_pairs(locks)
    fleet[0].kill()
    fleet[3].kill()
    locks.lock("a", ttl=1).acquire(timeout=1).release()
    took = seconds_of_pairs(locks)
    assert took < allowed(usual), f"{took / PAIRS * 1000:.1f} ms a pair"


@pytest.mark.one_kind
def test_hung_nodes_take_part_again_when_they_resume(fleet: Servers, connect: Connect) -> None:
    news: list[events.Event] = []
    locks = connect(fleet, node_timeout=0.25, max_ttl=60)
    locks.subscribe(news.append)
    locks.lock("a", ttl=60).acquire().release()
    fleet[0].pause()

    def is_down() -> bool:
        locks.lock("a", ttl=60).acquire(timeout=20).release()
        return any(isinstance(event, events.NodeDown) and event.node == fleet[0].label for event in news)

    assert eventually(is_down)
    for _ in range(20):
        locks.lock("a", ttl=60).acquire(timeout=20).release()
    down = [event.node for event in news if isinstance(event, events.NodeDown)]
    assert down.count(fleet[0].label) == 1, "told once; a loaded machine may make others late, too"
    fleet[0].resume()

    def takes_part() -> bool:
        with locks.lock("b", ttl=60) as lease:
            return eventually(lambda: get(fleet[0], "b") == lease.token, 0.02)

    assert eventually(takes_part)
    assert fleet[0].label in [event.node for event in news if isinstance(event, events.NodeUp)]
    assert eventually(lambda: not exists(fleet[0], "a")), "an attempt of the pause outlived its release"


@pytest.fixture
def never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes to pass an answer on, its connection is not given up."""
    monkeypatch.setattr("quorumlock.engines.redis.link.STALE_AFTER", 1000)


@pytest.mark.one_kind
@pytest.mark.usefixtures("never_stale")
def test_after_a_timeout_the_same_socket_answers_with_its_own(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """One node: each request times out, its answer is owed, and the next answer is nobody else's."""
    server = servers[0]
    proxy = put_proxy(server)
    locks = connect([proxy.url], node_timeout=0.2)
    locks.lock("warm", ttl=1).acquire().release()
    for turn in range(3):
        proxy.hold_answers()
        with pytest.raises(quorumlock.NoQuorum) as broken:
            locks.lock(f"lost-{turn}", ttl=1).try_acquire()
        assert broken.value.may_linger
        proxy.let_go()
        every_answer_is_its_own_with_threads(locks, [server])
    # There may be two: the keeper has one of its own, if it comes to renew a lease.
    assert not any(line.left for line in proxy.lines), "the connection was replaced"
    nothing_is_left([server])


@pytest.mark.one_kind
@pytest.mark.usefixtures("never_stale")
def test_after_a_timeout_the_same_socket_answers_with_its_own_with_asyncio(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    server = servers[0]
    connect([server.url])
    proxy = put_proxy(server)

    async def main() -> None:
        async with quorumlock.connect_async(proxy.url, max_ttl=1, node_timeout=0.2) as locks:
            await (await locks.lock("warm", ttl=1).acquire()).release()
            for turn in range(3):
                proxy.hold_answers()
                tries = [locks.lock(f"lost-{turn}-{index}", ttl=1).try_acquire() for index in range(10)]
                found = await asyncio.gather(*tries, return_exceptions=True)
                assert all(isinstance(error, quorumlock.NoQuorum) for error in found)
                proxy.let_go()
                await every_answer_is_its_own(locks, [server])
            assert not any(line.left for line in proxy.lines), "the connection was replaced"
        nothing_is_left([server])

    asyncio.run(main())


@pytest.mark.one_kind
def test_a_node_that_answers_late_every_time_mixes_nothing_up(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """Three nodes, one always a round behind: its late votes are entered where they belong."""
    nodes = servers.servers[:3]
    proxies = [put_proxy(node) for node in nodes]
    locks = connect([proxy.url for proxy in proxies], node_timeout=0.1)
    locks.lock("warm", ttl=1).acquire().release()
    proxies[1].delay = 0.02
    every_answer_is_its_own_with_threads(locks, nodes)
    proxies[1].delay = 0
    proxies[2].delay = 0.15
    every_answer_is_its_own_with_threads(locks, nodes)


def test_the_release_travels_behind_the_request_it_undoes(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """late-set: the request is executed long after the client gave up; its release is right behind it."""
    server = servers[0]
    proxy = put_proxy(server)
    locks = connect([proxy.url], node_timeout=0.05)
    locks.lock("warm", ttl=1).acquire().release()
    proxy.hold_requests()
    with pytest.raises(quorumlock.NoQuorum):
        locks.lock("a", ttl=1).try_acquire()
    assert not exists(server, "a")
    proxy.let_go()
    assert eventually(lambda: fence(server, "a") > 0), "the late request was never executed"
    assert eventually(lambda: not exists(server, "a"), 0.6)


@pytest.mark.one_kind
@pytest.mark.real_time(0.7)
def test_an_answer_that_comes_during_the_undo_is_not_a_holder(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """The grant comes after the round was given up, while its release is under way: nobody holds the lock."""
    proxy = put_proxy(servers[0])
    locks = connect([proxy.url], node_timeout=1.0, max_ttl=10)
    locks.lock("warm", ttl=8).acquire().release()
    proxy.delay = 1.8
    for turn in range(2):
        with pytest.raises(quorumlock.NoQuorum):
            locks.lock(f"a-{turn}", ttl=8).try_acquire()
    proxy.delay = 0
    nothing_is_left([servers[0]])


@pytest.mark.one_kind
def test_a_strand_that_owes_too_much_is_replaced(
    servers: Servers, connect: Connect, put_proxy: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorumlock.engines.redis.link.OWED_MOST", 8)
    server = servers[0]
    proxy = put_proxy(server)
    locks = connect([proxy.url], node_timeout=0.1)
    locks.lock("warm", ttl=1).acquire().release()
    before = client_ids(server)
    proxy.hold_answers()
    assert not _locks(locks)
    assert eventually(lambda: _locks(locks)), "the node is never asked again"
    assert eventually(lambda: client_ids(server) and not client_ids(server) & before), "the old one is not killed"
    proxy.let_go()
    every_answer_is_its_own_with_threads(locks, [server])


def _locks(locks: quorumlock.Locker) -> bool:
    try:
        lease = locks.lock("free", ttl=1).try_acquire()
    except quorumlock.NoQuorum:
        return False
    if lease is not None:
        lease.release()
    return lease is not None
