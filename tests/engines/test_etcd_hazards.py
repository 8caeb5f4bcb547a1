"""The etcd engine when things go wrong: servers that die or are silent, and answers that are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import AsyncLocker, Jitter, LeaseLost, LossReason, NoQuorum
from quorumlock.core.effects import Round, Route
from quorumlock.core.requests import Look
from quorumlock.core.votes import Cause, Tally
from quorumlock.engines.etcd.cells import Cells
from quorumlock.engines.etcd.ear import Ear, Stream
from quorumlock.engines.etcd.leases import Leases
from quorumlock.engines.etcd.queue import Watched
from quorumlock.events import Event, RenewalFailed
from tests.support.proxy import Proxy
from tests.support.servers.etcd import EtcdServer, b64
from tests.support.waiting import eventually, eventually_async

from .etcd_fixtures import (
    TOLD_WITHIN,
    Connect,
    acquire_when_told,
    connect,
    connect_async,
    holds,
    leases,
    proxy,
    released_when,
    server,
    through,
)
from .holder import Holder

__all__ = ["connect", "proxy", "server"]  # fixtures

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


# Servers that die, or are silent.


def test_a_lease_survives_a_server_that_restarts(server: EtcdServer, connect: Connect) -> None:
    locks = connect(node_timeout=0.2)
    story: list[Event] = []
    locks.subscribe(story.append)
    lease = locks.lock("a", ttl=9).acquire(timeout=1)
    server.kill()
    assert eventually(lambda: any(isinstance(event, RenewalFailed) for event in story))
    server.start()
    lease.check()
    lease.extend()
    assert connect().lock("a").try_acquire() is None
    lease.release()
    new = connect().lock("a").acquire(timeout=1)
    assert new.fence > lease.fence
    new.release()


def test_a_waiter_outlives_a_server_that_restarts(server: EtcdServer, connect: Connect) -> None:
    """Its ears are lost, and made anew; it is told of a release that happened later."""
    holder, waiter = connect(node_timeout=0.2), connect(retry=Jitter(3600), patience=30.0, node_timeout=0.2)
    lease = holder.lock("a", ttl=60).acquire(timeout=1)
    got: list[quorumlock.Lease] = []
    thread = threading.Thread(target=lambda: got.append(waiter.lock("a", ttl=20).acquire(timeout=60)))
    thread.start()
    assert eventually(lambda: holder.inspect("a").waiters)
    server.restart()
    assert eventually(lambda: 0 in waiter._runner.room.ears)
    assert not eventually(lambda: got, within=0.1)
    lease.release()
    thread.join(TOLD_WITHIN)
    assert got, "nobody told it"
    got[0].release()


def test_a_dead_server_is_told_at_once_and_waited_for(server: EtcdServer, connect: Connect) -> None:
    locks = connect(node_timeout=0.5)  # a silent one would be waited for for ten seconds
    locks.lock("a").acquire(timeout=1).release()
    server.kill()
    started_at = time.monotonic()
    with pytest.raises(NoQuorum, match=f"etcd:{server.label} cannot be reached .*refused") as broken:
        locks.lock("a").try_acquire()
    assert time.monotonic() - started_at < 5
    assert not broken.value.may_linger
    assert locks.nodes()[0].state == "down"
    got: list[quorumlock.Lease] = []
    thread = threading.Thread(target=lambda: got.append(locks.lock("a").acquire(timeout=20)))
    thread.start()
    server.start()
    thread.join(20)
    assert got
    got[0].release()


def test_a_silent_server_is_unknown_and_not_busy(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    lease = locks.lock("a", ttl=20).acquire(timeout=1)
    server.pause()
    try:
        started_at = time.monotonic()
        with pytest.raises(NoQuorum, match="did not answer in time") as silent:
            locks.lock("b").try_acquire()
        assert time.monotonic() - started_at < 8
        assert silent.value.may_linger
    finally:
        server.resume()
    lease.check()
    lease.extend()
    lease.release()
    # What was asked in vain was undone, or hangs on a lease that ends.
    assert eventually(lambda: holds(server) == [], within=12)


def test_a_lease_that_cannot_be_renewed_ends_by_its_own_clock(server: EtcdServer, connect: Connect) -> None:
    """And its holder is told in time, though a request as a whole may take ten seconds here."""
    lease = connect(node_timeout=0.5).lock("a", ttl=1).acquire(timeout=5)
    lost = lease.lost
    server.pause()
    try:
        assert eventually(lambda: not lease.held)
        ended_at = time.monotonic()
        assert lost.wait(20)
        assert time.monotonic() - ended_at < 2
        with pytest.raises(LeaseLost) as why:
            lease.check()
        assert why.value.reason in (LossReason.EXPIRED, LossReason.UNREACHABLE)
    finally:
        server.resume()


def test_a_client_that_was_stopped_knows_that_it_lost(server: EtcdServer, connect: Connect) -> None:
    """SIGSTOP past its ttl: somebody else has the lock; on waking it says so before it asks anybody."""
    with Holder(server.url, ttl=1) as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        new = connect().lock("a", ttl=20).acquire(timeout=20)
        assert new.fence > holder.fence
        assert holder.woken().startswith("lost")
    new.extend()
    new.release()


def test_what_a_killed_client_held_is_free_when_its_lease_ends(server: EtcdServer, connect: Connect) -> None:
    """And who waits is told then: the end of a lease is announced, too."""
    locks = connect(retry=Jitter(3600))
    with Holder(server.url, ttl=1) as holder:
        os.kill(holder.pid, signal.SIGKILL)
    acquire_when_told(locks.lock("a", ttl=20)).release()


# Connections that break, and answers that are lost.


def test_a_cut_connection_is_made_anew(connect: Connect, proxy: Proxy) -> None:
    """While nothing is asked, and while the answer is awaited."""
    locks = connect(through(proxy))
    for _ in range(3):
        lease = locks.lock("a").acquire(timeout=1)
        proxy.cut()
        lease.extend()
        proxy.lose_next_answer = True
        lease.extend()
        proxy.lose_next_answer = True
        lease.release()
        assert locks.list() == []


def test_a_grant_whose_answer_is_lost_is_known_by_its_id(
    server: EtcdServer, connect: Connect, proxy: Proxy
) -> None:
    locks = connect(through(proxy), node_timeout=0.2)
    locks.lock("warm").locked()
    before = leases(server)
    proxy.lose_next_answer = True
    lease = locks.lock("a", ttl=5).acquire(timeout=3)
    assert len(leases(server) - before) == 1
    lease.release()


def test_a_lock_whose_answer_is_lost_is_known_by_its_token(
    server: EtcdServer, connect: Connect, proxy: Proxy
) -> None:
    """And its lease is revoked in the end: a request that was asked twice may come once more."""
    locks = connect(through(proxy), node_timeout=0.2)
    locks.lock("warm").locked()
    known = locks.engine.leases
    after_the_lease(known, lambda: setattr(proxy, "lose_next_answer", True))
    lease = locks.lock("a", ttl=5).acquire(timeout=3)
    assert not proxy.lose_next_answer, "nothing was lost"
    lease.check()
    assert len(holds(server)) == 1
    (deed,) = known.deeds[lease.token].values()
    assert str(deed.id) in leases(server)
    lease.release()
    assert holds(server) == []
    assert str(deed.id) not in leases(server)


def after_the_lease(known: Leases, what: Callable[[], object]) -> None:
    """Does something between the renewal of a lease and the transaction that uses it."""
    obtain = known.obtain

    def obtained(*arguments: Any) -> Any:
        told = yield from obtain(*arguments)
        what()
        return told

    known.obtain = obtained  # type: ignore[method-assign,assignment]


def test_a_late_request_sets_no_lock_that_nobody_has(server: EtcdServer, connect: Connect, proxy: Proxy) -> None:
    """It is held up on its way, given up, and undone over another connection; then it arrives.

    client: puts the lock under lease 7 ── … held up …                  ── arrives: lease 7 is gone
    client:          gives up · releases · revokes lease 7
    """
    locks = connect(through(proxy))
    locks.lock("warm").locked()
    # Of connections that stand: those that are made later are free.
    after_the_lease(locks.engine.leases, proxy.hold_requests)
    with pytest.raises(NoQuorum, match="did not answer in time"):
        locks.lock("a", ttl=30).acquire(timeout=0)
    assert proxy.holds
    proxy.half_open = True  # or the server would hear that the client has gone, and do nothing
    proxy.last_answer = b""
    proxy.let_go()
    assert eventually(lambda: proxy.last_answer), "it never arrived"
    assert holds(server) == []
    connect().lock("a").acquire(timeout=0).release()


def test_a_cell_knows_what_it_has_set(connect: Connect, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is lost, and asked for again: no conflict with oneself."""
    leased = Cells._lease

    def lose(*arguments: Any) -> Any:
        told = yield from leased(*arguments)
        proxy.lose_next_answer = True
        return told

    monkeypatch.setattr(Cells, "_lease", lose)
    cell, version = connect(through(proxy), node_timeout=0.2).cell("c"), 0
    for value in range(3):
        version = cell.set(value, version)
        assert not proxy.lose_next_answer, "nothing was lost"
    assert connect().cell("c").get() == (2, version)


def open_streams(locks: AsyncLocker) -> set[Stream]:
    return {stream for ear in locks.engine._ears.values() for stream in ear._streams if stream.open.is_set()}


def test_a_stream_that_is_cut_is_opened_again(server: EtcdServer, connect: Connect, proxy: Proxy) -> None:
    async def main() -> None:
        async with connect_async(through(proxy), retry=Jitter(3600)) as locks:
            other = connect()
            lease = other.lock("a", ttl=60).acquire(timeout=1)
            waiter = asyncio.create_task(locks.lock("a", ttl=20).acquire(timeout=60))
            gone: set[Stream] = set()

            def opened_again() -> bool:
                return bool(open_streams(locks) - gone)

            for _ in range(3):
                assert await eventually_async(opened_again)
                gone |= open_streams(locks)
                proxy.cut()
            assert await eventually_async(opened_again)
            assert not waiter.done()
            lease.release()
            await (await asyncio.wait_for(waiter, TOLD_WITHIN)).release()

    asyncio.run(main())


def test_what_was_compacted_away_is_asked_for(server: EtcdServer, connect: Connect) -> None:
    """A stream from a revision which is gone is cancelled: whoever waits asks, and watches from now on."""
    locks = connect(retry=Jitter(3600))
    lease = connect().lock("a", ttl=60).acquire(timeout=1)
    watch = Ear.watch
    late: list[Watched] = []

    def too_old(self: Ear, wanted: Watched) -> None:
        if not late:
            late.append(wanted)
            told = server.ask("/v3/kv/put", {"key": b64("x")})
            server.ask("/v3/kv/compaction", {"revision": told["header"]["revision"]})
            wanted = wanted._replace(revision=1)
        watch(self, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ear, "watch", too_old)
        with released_when(lambda: late, lease):
            acquire_when_told(locks.lock("a", ttl=20)).release()


def test_leases_that_somebody_has_revoked_are_granted_anew(server: EtcdServer, connect: Connect) -> None:
    """Those that are kept for the next lock, for tickets, and for the fences of those who share."""
    locks, others = connect(), connect()
    for _ in range(2):
        for lock in (locks.lock("a"), locks.read_write("r").write(), locks.read_write("r").read()):
            with lock, pytest.raises(quorumlock.AcquireTimeout):
                others.lock(lock.name, fair=True).acquire(timeout=0.1)
        for lease in leases(server):
            server.ask("/v3/lease/revoke", {"ID": lease})


def test_what_comes_after_the_end_opens_nothing_for_long(connect: Connect) -> None:
    locks = connect()
    lease = locks.lock("a", ttl=20).acquire(timeout=1)
    locks.close()
    tally = Tally(locks.engine.labels, 1)
    locks.engine.perform(Round([Look("a")], tally, 1.0, Route()))
    assert tally.answers[0] is not None
    assert tally.answers[0].cause is Cause.HELD
    assert locks.engine._client is None
    lease._drop()
