"""The ZooKeeper engine when a server is killed, paused or cut off, and when its client is stopped."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

import quorumlock
from quorumlock import LeaseLost, LossReason, NoQuorum
from quorumlock.engines.zookeeper.leases import UNANSWERED
from quorumlock.lab.servers import free_port, give_back
from tests.support.proxy import Proxy
from tests.support.servers.zookeeper import ZooKeeper
from tests.support.waiting import eventually

from .holder import Holder
from .zookeeper_tools import (
    Connect,
    client_of,
    connect,
    end_session,
    engine_of,
    mortal,
    needs_zookeeper,
    new_root,
    shared,
)

__all__ = ["connect", "mortal"]  # fixtures

pytestmark = needs_zookeeper()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(cast(Any, shared())) as between:
        yield between


def through(proxy: Proxy, session: float = 20) -> str:
    return f"zookeeper://127.0.0.1:{proxy.port}{new_root()}?session_timeout={session:g}"


# The server.


def test_a_lease_survives_a_restart_of_the_server(connect: Connect, mortal: ZooKeeper) -> None:
    """Its session is in the log; nothing is known while it is down, and validity runs on."""
    url = f"{mortal.url}{new_root()}?session_timeout=60"
    locks = connect(url)
    rival = connect(url, node_timeout=0.05, patience=0.3)
    lease = locks.lock("a", ttl=30).acquire()
    mortal.kill()
    assert lease.held, "for as long as its time lasts"
    with pytest.raises(NoQuorum, match=r"127\.0\.0\.1:\d+ cannot be reached \(.*Connection refused"):
        rival.lock("a").acquire()
    mortal.start()
    assert eventually(lambda: engine_of(locks)._session.connected and engine_of(rival)._session.connected)
    lease.extend()
    assert rival.lock("a").try_acquire() is None
    lease.release()
    with rival.lock("a") as next_:
        assert next_.fence > lease.fence


def test_a_lease_is_lost_if_the_server_stays_away(connect: Connect, mortal: ZooKeeper) -> None:
    root = new_root()
    locks = connect(f"{mortal.url}{root}")
    lease = locks.lock("a", ttl=1).acquire()
    mortal.kill()
    assert lease.lost.wait(20)
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert lost.value.reason in (LossReason.UNREACHABLE, LossReason.EXPIRED)
    mortal.start()
    # Its own client is back in its session, and takes away what has no time left.
    with connect(f"{mortal.url}{root}").lock("a").acquire(timeout=20) as next_:
        assert next_.fence > lease.fence


def test_a_server_that_stands_still_is_no_refusal(connect: Connect, mortal: ZooKeeper) -> None:
    locks = connect(f"{mortal.url}{new_root()}", node_timeout=0.05, patience=0.2)
    locks.lock("a").acquire().release()
    mortal.pause()
    started = time.monotonic()
    with pytest.raises(NoQuorum, match=r"did not answer in time \(no answer within 0\.5 s\)"):
        locks.lock("a").acquire()
    assert time.monotonic() - started < 10, "a lease of its session would have lasted longer"
    mortal.resume()
    assert eventually(lambda: not locks.inspect("a").holders)
    with locks.lock("a").acquire(timeout=20):
        pass


def test_waiters_ask_again_when_the_server_is_back(connect: Connect, mortal: ZooKeeper) -> None:
    """What was announced meanwhile is lost."""
    root = f"{new_root()}?session_timeout=60"
    holder = connect(f"{mortal.url}{root}")
    waiter = connect(f"{mortal.url}{root}", retry=quorumlock.Jitter(3600), patience=60)
    lease = holder.lock("a", ttl=30).acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.lock("a", ttl=9).acquire, timeout=60)
        assert eventually(
            lambda: engine_of(waiter)._session.client is not None and client_of(waiter)._child_watchers
        )
        mortal.restart()
        assert eventually(lambda: engine_of(holder)._session.connected)
        lease.release()
        waiting.result(timeout=20).release()  # long before the holder's time would be over


# The way.


def free_before_its_time(locks: quorumlock.Locker) -> None:
    """What is asked for does not last until the ttl of what was held, or was granted unheard, is over."""
    started = time.monotonic()
    locks.lock("a").acquire(timeout=20).release()
    assert time.monotonic() - started < 7, "it was left for its ttl"


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_lost_answer_is_not_a_lost_lock(connect: Connect, proxy: Proxy, kind: str) -> None:
    """The grant was executed, and nobody knows: it is taken away, and not left for a ttl."""
    url = through(proxy)
    rival = connect(url.replace(str(proxy.port), str(shared().port)))
    if kind == "threads":
        locks = connect(url, patience=0.0)
        locks.lock("a").acquire().release()  # from here on an acquire is one request
        proxy.lose_next_answer = True
        with pytest.raises(NoQuorum, match="closed the connection"):
            locks.lock("a").acquire()
    else:

        async def main() -> None:
            async with quorumlock.connect_async(url, node_timeout=0.2, patience=0.0) as locks:
                await (await locks.lock("a").acquire()).release()
                proxy.lose_next_answer = True
                with pytest.raises(NoQuorum, match="closed the connection"):
                    await locks.lock("a").acquire()
                await asyncio.to_thread(free_before_its_time, rival)

        asyncio.run(main())
    free_before_its_time(rival)


def test_a_release_that_is_not_heard_is_said_later(connect: Connect, proxy: Proxy) -> None:
    url = through(proxy)
    locks, rival = connect(url), connect(url.replace(str(proxy.port), str(shared().port)))
    lease = locks.lock("a", ttl=9).acquire()
    proxy.refusing = True
    proxy.cut()
    lease.release()
    assert rival.lock("a").try_acquire() is None
    proxy.refusing = False
    free_before_its_time(rival)


def test_a_lock_stays_closed_although_its_release_was_lost(connect: Connect, proxy: Proxy) -> None:
    """The janitor would delete the node of the holder, and the lock would be open, if it were there first."""
    url = through(proxy)
    locks, rival = connect(url), connect(url.replace(str(proxy.port), str(shared().port)))
    how: dict[str, Any] = {"ttl": 9, "at_least": 6, "keep": False}
    began = time.monotonic()
    leases = [locks.lock("a", **how).acquire(), locks.multi(["b", "c"], **how).acquire()]
    proxy.go_silent()
    released = time.monotonic()
    for lease in leases:
        lease.release()
    time.sleep(max(0.0, released + UNANSWERED - time.monotonic()))
    proxy.cut()
    assert eventually(lambda: not engine_of(locks)._session.leases), "closed, or deleted"
    for name in "abc":
        assert rival.lock(name).try_acquire() is None
    assert time.monotonic() < began + 6, "this machine was too slow to tell"
    for name in "abc":
        rival.lock(name).acquire(timeout=20).release()
        assert began + 6 <= time.monotonic() < began + 8.5, "and opens before the ttl is over"


def test_who_leaves_a_queue_unheard_is_taken_out_later(connect: Connect, proxy: Proxy) -> None:
    url = through(proxy)
    locks, rival = connect(url), connect(url.replace(str(proxy.port), str(shared().port)))
    with rival.lock("a", ttl=9):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(locks.lock("a", fair=True).acquire, timeout=1)
            assert eventually(lambda: len(rival.inspect("a").waiters) == 1)
            proxy.refusing = True
            proxy.cut()
            with pytest.raises(quorumlock.NotAcquired):
                waiting.result()
        assert len(rival.inspect("a").waiters) == 1
        proxy.refusing = False
        assert eventually(lambda: not rival.inspect("a").waiters)


def test_a_cut_connection_is_made_again_within_the_session(connect: Connect, proxy: Proxy) -> None:
    locks = connect(through(proxy))
    lease = locks.lock("a", ttl=9).acquire()
    session = engine_of(locks)._session

    def connected_again(made: int) -> bool:
        return len(proxy.lines) > made and session.connected

    for _ in range(3):
        made = len(proxy.lines)
        proxy.cut()
        assert eventually(functools.partial(connected_again, made))
    assert session.epoch == 0
    lease.extend()
    lease.release()


def test_a_locker_closes_although_nobody_can_be_reached(connect: Connect, proxy: Proxy) -> None:
    locks = connect(through(proxy))
    lease = locks.lock("a", ttl=0.5, keep=False).acquire()
    session = engine_of(locks)._session
    proxy.refusing = True
    proxy.cut()
    locks.close()
    assert not session.closed.wait(0.1), "its holder may still count on it"
    assert session.closed.wait(20)
    assert not lease.held


def test_an_extension_knows_of_the_end_of_the_session_without_asking(connect: Connect, proxy: Proxy) -> None:
    locks = connect(through(proxy))
    lease = locks.lock("a", ttl=9, keep=False).acquire()
    end_session(locks)
    assert eventually(lambda: engine_of(locks)._session.epoch and engine_of(locks)._session.connected)
    proxy.refusing = True  # and nobody can be asked
    proxy.cut()
    assert eventually(lambda: not engine_of(locks)._session.connected)
    with pytest.raises(LeaseLost) as lost:
        lease.extend()
    assert lost.value.reason is LossReason.SESSION_ENDED


def test_a_host_that_accepts_and_says_nothing_is_left_soon(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kazoo.protocol.connection.random.shuffle", lambda hosts: None)  # the mute one first
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hosts = f"127.0.0.1:{mute.getsockname()[1]},{shared().address}"
        locks = connect(f"zookeeper://{hosts}{new_root()}", node_timeout=0.2)
        locks.lock("a").acquire(timeout=20).release()


def test_a_silent_connection_is_no_refusal(connect: Connect, proxy: Proxy) -> None:
    locks = connect(through(proxy, 4), node_timeout=0.03, patience=0.1)
    locks.lock("a", ttl=1).acquire().release()
    proxy.go_silent()
    with pytest.raises(NoQuorum, match="did not answer in time"):
        locks.lock("a", ttl=1).acquire()
    proxy.let_go()
    assert eventually(lambda: locks.lock("a", ttl=1).locked() is False)


def test_hosts_that_cannot_be_reached_are_named_each(connect: Connect) -> None:
    first, second = free_port(), free_port()
    locks = connect(
        f"zookeeper://127.0.0.1:{first},127.0.0.1:{second},no-such-host.invalid", node_timeout=0.02, patience=0.1
    )
    started = time.monotonic()
    with pytest.raises(NoQuorum) as broken:
        locks.lock("a").acquire()
    assert time.monotonic() - started < 10
    assert f"127.0.0.1:{first}: " in str(broken.value)
    assert f"127.0.0.1:{second}: " in str(broken.value)
    assert "Connection refused" in str(broken.value)
    (state,) = locks.nodes()
    assert (state.state, state.server) == ("down", "zookeeper")
    assert f"127.0.0.1:{first}" in state.detail
    give_back(first)
    give_back(second)


def test_one_host_of_several_is_enough(connect: Connect) -> None:
    dead = free_port()
    locks = connect(f"zookeeper://127.0.0.1:{dead},{shared().address}{new_root()}", node_timeout=0.2)
    with locks.lock("a"):
        pass
    give_back(dead)


# The client.


def test_a_client_that_was_stopped_knows_before_it_hears_anything(connect: Connect, mortal: ZooKeeper) -> None:
    """SIGSTOP, past the session. Meanwhile somebody else is granted the lock, and the server is stopped, too: so
    what the woken one says it says by its own clock."""
    root = f"{mortal.url}{new_root()}"
    with Holder(f"{root}?session_timeout=2", ttl=1.2) as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        with connect(root).lock("a", ttl=9).acquire(timeout=20) as mine:
            assert mine.fence > holder.fence
            mortal.pause()
            assert holder.woken().startswith("lost")
            mortal.resume()


def test_what_a_killed_client_held_is_free_when_its_session_ends(connect: Connect) -> None:
    root = f"{shared().url}{new_root()}"
    rival = connect(root, retry=quorumlock.Jitter(3600))
    started = time.monotonic()
    with Holder(f"{root}?session_timeout=2", ttl=1.2) as holder:
        os.kill(holder.pid, signal.SIGKILL)
    with rival.lock("a", ttl=9).acquire(timeout=60) as mine:
        assert 2.0 < time.monotonic() - started < 20, "the session lasts two seconds"
        assert mine.fence > holder.fence
