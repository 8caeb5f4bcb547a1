"""Faults of the line between client and server: delay, loss, cuts, silence, garbage, answers in two parts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import quorumlock
from quorumlock import NoQuorum
from quorumlock.engines.redis.engine import RedisEngine
from quorumlock.lab.servers import Server, Servers
from tests.live.attribution import (
    every_answer_is_its_own,
    every_answer_is_its_own_with_threads,
)
from tests.live.tools import client_ids, exists, get, lock_keys
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, eventually_async

from .late import TTL, nothing_is_left
from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]


LONGEST = 36
"""No answer to an acquire has more bytes."""


class Lines:
    """Nodes behind proxies, and a locker that knows them and their scripts."""

    def __init__(self, nodes: Sequence[Server], put_proxy: Put, connect: Connect) -> None:
        self.nodes = nodes
        self.proxies = [put_proxy(node) for node in nodes]
        self.urls = [proxy.url for proxy in self.proxies]
        self.node_timeout = 0.5
        self.locks = connect(self.urls, fleet="lines", node_timeout=self.node_timeout, max_ttl=TTL)
        for _ in range(2):
            lease = self.locks.lock("warm", ttl=TTL).acquire(timeout=20)
            lease.extend()
            lease.release()

    def connect_async(self) -> quorumlock.AsyncLocker:
        return quorumlock.connect_async(self.urls, fleet="lines", node_timeout=self.node_timeout, max_ttl=TTL)

    def split(self, k: int) -> None:
        for proxy in self.proxies:
            proxy.split_at = k


@pytest.fixture(params=[1, 3], ids=["1-node", "3-nodes"])
def lines(request: pytest.FixtureRequest, servers: Servers, put_proxy: Put, connect: Connect) -> Lines:
    return Lines(servers.servers[: int(request.param)], put_proxy, connect)


def test_an_answer_split_at_any_byte_is_the_same_answer(lines: Lines) -> None:
    """Granted, held and released: each comes in two parts, cut behind every byte it has."""
    locks = lines.locks
    lock = locks.lock("a", ttl=TTL)
    for k in range(1, LONGEST):
        lines.split(k)
        lease = lock.acquire(timeout=0)
        assert sum(get(node, "a") == lease.token for node in lines.nodes) > len(lines.nodes) // 2
        assert lock.try_acquire() is None
        lease.extend()
        lease.release()
        nothing_is_left(lines.nodes, locks=locks)
    every_answer_is_its_own_with_threads(locks, lines.nodes)


def test_an_answer_split_at_any_byte_is_the_same_answer_with_asyncio(lines: Lines) -> None:
    async def main() -> None:
        async with lines.connect_async() as locks:
            lock = locks.lock("a", ttl=TTL)
            await (await lock.acquire()).release()
            for k in range(1, LONGEST):
                lines.split(k)
                lease = await lock.acquire(timeout=0)
                assert await lock.try_acquire() is None
                await lease.extend()
                await lease.release()
                await asyncio.to_thread(nothing_is_left, lines.nodes)
            await every_answer_is_its_own(locks, lines.nodes)

    asyncio.run(main())


GARBAGE = {
    "HTTP": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    "binary": bytes(range(128, 256)),
    "a broken number": b"*2\r\n:1\r\n:17x\r\n",
    "a word": b"+OK\r\n",
    "nothing": b"$-1\r\n",
    "no array": b"*-1\r\n",
    "an empty array": b"*0\r\n",
    "an array of arrays": b"*1\r\n*1\r\n:1\r\n",
    "no fence": b"*1\r\n:1\r\n",
    "a fence below zero": b"*2\r\n:1\r\n:-7\r\n",
    "a fence that is text": b"*2\r\n:1\r\n$3\r\n123\r\n",
    "a time that is text": b"*3\r\n:0\r\n$1\r\nx\r\n:5\r\n",
    "a quarantine that is text": b"*2\r\n:-2\r\n$1\r\nx\r\n",
    "an unknown code": b"*1\r\n:-77\r\n",
    "an error": b"-ERR something else\r\n",
    "moved": b"-MOVED 3999 127.0.0.1:1\r\n",
}
"""No RESP at all; RESP, but no answer to an acquire."""


def test_garbage_is_one_nodes_unknown_vote(lines: Lines) -> None:
    """Alone it means NoQuorum, never a lease and never a foreign error; among three it is outvoted."""
    locks, proxy = lines.locks, lines.proxies[0]
    for what, garbage in GARBAGE.items():
        proxy.garble(garbage)
        if len(lines.nodes) == 1:
            with pytest.raises(NoQuorum) as broken:
                locks.lock("a", ttl=TTL).try_acquire()
            assert proxy.label in str(broken.value), what
        for _ in range(1000 if proxy.garbage else 0):  # a node that just failed is left in peace for a while
            lease = locks.lock("a", ttl=TTL).try_acquire()
            assert lease is not None, what
            assert lease.fence > 1_000_000
            lease.extend()
            lease.release()
            if proxy.garbage is None:
                break
            time.sleep(0.01)
        assert proxy.garbage is None, f"{what} was not sent"
        nothing_is_left(lines.nodes, locks=locks)
        locks.lock("b", ttl=TTL).acquire(timeout=20).release()
    every_answer_is_its_own_with_threads(locks, lines.nodes)


@pytest.mark.timeout(30)
def test_garbage_is_one_nodes_unknown_vote_with_asyncio(lines: Lines) -> None:
    async def main() -> None:
        proxy = lines.proxies[0]
        async with lines.connect_async() as locks:
            await every_answer_is_its_own(locks, lines.nodes)
            for what, garbage in GARBAGE.items():
                proxy.garble(garbage)
                if len(lines.nodes) == 1:
                    with pytest.raises(NoQuorum) as broken:
                        await locks.lock("a", ttl=TTL).try_acquire()
                    assert proxy.label in str(broken.value), what
                for _ in range(1000 if proxy.garbage else 0):
                    lease = await locks.lock("a", ttl=TTL).try_acquire()
                    assert lease is not None, what
                    await lease.extend()
                    await lease.release()
                    if proxy.garbage is None:
                        break
                    await asyncio.sleep(0.01)
                assert proxy.garbage is None, f"{what} was not sent"
                await asyncio.to_thread(nothing_is_left, lines.nodes)
                await (await locks.lock("b", ttl=TTL).acquire(timeout=20)).release()
            await every_answer_is_its_own(locks, lines.nodes)

    asyncio.run(main())


def test_an_answer_nobody_asked_for_ends_the_connection(lines: Lines) -> None:
    """From then on every answer would belong to the request before it."""
    proxy, *others = lines.proxies
    line = proxy.lines[-1]

    def twice(answer: bytes) -> bytes:
        # The others decide when this one has been read: otherwise the next request might already be waiting for
        # an answer, and take the one too many for its own.
        for other in others:
            threading.Timer(0.05, other.let_go).start()
        return 2 * answer

    for other in others:
        other.hold_answers()
    proxy.garble(twice)
    lines.locks.lock("a", ttl=TTL).acquire(timeout=20).release()
    assert eventually(lambda: line.left), "the connection was used on"
    every_answer_is_its_own_with_threads(lines.locks, lines.nodes)


def test_a_lost_answer_is_undone_and_not_believed(lines: Lines) -> None:
    """Executed, but the connection ends before the answer: UNKNOWN is not REFUSED, so it is released."""
    lines.proxies[0].lose_next_answer = True
    if len(lines.nodes) == 1:
        with pytest.raises(NoQuorum):
            lines.locks.lock("a", ttl=TTL).try_acquire()
    else:
        lease = lines.locks.lock("a", ttl=TTL).acquire(timeout=0)
        lease.release()
    nothing_is_left(lines.nodes, locks=lines.locks)
    every_answer_is_its_own_with_threads(lines.locks, lines.nodes)


def test_a_late_answer_is_not_a_grant(lines: Lines) -> None:
    """Every node grants, and says so too late: the lock is nobody's, and its undoing follows the request."""
    for proxy in lines.proxies:
        proxy.hold_answers()
    with pytest.raises(NoQuorum) as broken:
        lines.locks.lock("a", ttl=TTL).try_acquire()
    assert "did not answer in time" in str(broken.value)
    assert broken.value.may_linger
    for proxy in lines.proxies:
        proxy.let_go()
    nothing_is_left(lines.nodes, locks=lines.locks)
    every_answer_is_its_own_with_threads(lines.locks, lines.nodes)


def test_cut_connections_are_made_anew(lines: Lines) -> None:
    lease = lines.locks.lock("a", ttl=3).acquire()
    for _ in range(2):
        for proxy in lines.proxies:
            proxy.cut()
        lease.extend()
    for proxy in lines.proxies:
        proxy.cut()
    lease.release()
    nothing_is_left(lines.nodes, locks=lines.locks)


def test_a_half_open_connection_is_ended_by_the_server_before_its_lock_is_released(lines: Lines) -> None:
    """late-set: our end breaks, the server's does not, and the request is still on its way to it."""
    node, proxy = lines.nodes[0], lines.proxies[0]

    def takes_part() -> bool:
        with lines.locks.lock("warm", ttl=TTL) as lease:
            return eventually(lambda: get(node, "warm") == lease.token, 0.05)

    assert eventually(takes_part), "a node that was slow is left out for a while"
    old = client_ids(node)
    proxy.half_open = True
    proxy.hold_requests()
    held = _in_the_background(lines.locks.lock("a", ttl=TTL).try_acquire)
    assert eventually(lambda: proxy.holds)
    proxy.cut_clients()
    held()

    def gone() -> bool:
        lines.locks.lock("b", ttl=TTL).acquire(timeout=20).release()
        return not client_ids(node) & old

    assert eventually(gone, within=4), "the old connection still stands"
    proxy.let_go()
    assert not eventually(lambda: exists(node, "a"), 0.05), "the late request was executed"


def test_a_server_that_hangs_up_on_new_connections_is_asked_again_later(
    side: Side, put_proxy: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer before a dead server, or a server with too many clients: accepts, and closes at once."""
    monkeypatch.setattr("quorumlock.engines.redis.link.UNANSWERED_AFTER", 1000)  # that it ended must be seen
    proxies = [put_proxy(node) for node in side.nodes]
    open_async = RedisEngine.open_async

    async def opened(engine: RedisEngine, index: int) -> Any:
        """On asyncio, with its end already there when it is first used."""
        connection: Any = await open_async(engine, index)
        reader = connection._reader
        try:
            if proxies[index].refusing:
                assert await eventually_async(lambda: reader._eof or reader.exception() is not None)
        except BaseException:  # the Locker is being closed: nobody else has this connection yet
            await connection.disconnect(nowait=True)
            raise
        return connection

    monkeypatch.setattr(RedisEngine, "open_async", opened)

    async def main() -> None:
        async with side.locker([proxy.url for proxy in proxies], node_timeout=0.05, max_ttl=TTL) as locks:
            await (await locks.lock("a", ttl=TTL).acquire(timeout=20)).release()
            for proxy in proxies:
                proxy.refusing = True
                proxy.cut()
            for _ in range(3):
                with pytest.raises(NoQuorum):
                    await locks.lock("a", ttl=TTL).acquire(timeout=0.05)
            for proxy in proxies:
                proxy.refusing = False
            await (await locks.lock("a", ttl=TTL).acquire(timeout=5)).release()

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_a_connection_that_went_silent_does_not_cost_the_lease(side: Side, put_proxy: Put, count: int) -> None:
    """A router forgets connections, and tells nobody; new ones would work at once."""
    side.nodes = side.nodes[:count]

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies], node_timeout=0.05, max_ttl=TTL) as locks:
            lease = await locks.lock("a", ttl=3, keep=False).acquire()
            for proxy in proxies:
                proxy.go_silent()
            await lease.extend()
            lease.check()
            await lease.release()

            async def nothing() -> bool:
                await locks.lock(
                    "b", ttl=TTL
                ).locked()  # what a minority is owed is said when it is spoken to again
                return not lock_keys(side.nodes)

            assert await eventually_async(nothing)

    asyncio.run(main())


def _in_the_background(call: Callable[[], quorumlock.Lease | None]) -> Callable[[], None]:
    """Starts it in a thread; what is returned waits for its end, and releases what it may have got."""

    def run() -> None:
        try:
            lease = call()
        except NoQuorum:
            return
        if lease is not None:
            lease.release()

    thread = threading.Thread(target=run)
    thread.start()
    return lambda: thread.join(timeout=10)
