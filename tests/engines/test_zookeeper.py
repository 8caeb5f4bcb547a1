"""The ZooKeeper engine on a server that is well: names, sessions, leases, rights, and who else may be there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.protocol.serialization import GetData  # type: ignore[import-untyped]

import quorumlock
from quorumlock import AcquireTimeout, ConfigurationError, LeaseLost, LossReason
from quorumlock.core.effects import Round, Route
from quorumlock.core.requests import Acquire
from quorumlock.core.votes import Cause, Tally
from quorumlock.engines.zookeeper.address import address_of
from quorumlock.engines.zookeeper.paths import Gate, Paths, escaped, unescaped
from tests.live.tools import Renewals
from tests.support.waiting import eventually, hold_up

from .zookeeper_tools import (
    Connect,
    client_of,
    connect,
    end_session,
    engine_of,
    needs_zookeeper,
    new_root,
    shared,
    spy,
    zk,
)

__all__ = ["connect", "zk"]  # fixtures

pytestmark = needs_zookeeper()

AWKWARD = [
    "/", "//", "..", ".", "a/../b", "/zookeeper/quota", "it's", '"', "%2F", "%", "a b", "ü", "日本", "a:h0:b",
    "x" * 1024, "ü" * 512, "#1", "a#1", "😀",
]  # fmt: skip


# Addresses and names.


def test_a_url_says_where_and_how() -> None:
    address = address_of(
        "zookeeper://me:pa%3Ass@h1,h2:2182,[::1]:9/app/locks/?session_timeout=30&tls=true&ca=/ca.pem"
    )
    assert address.hosts == ("h1:2181", "h2:2182", "[::1]:9")
    assert (address.root, address.session) == ("/app/locks", 30.0)
    assert address.auth == (("digest", "me:pa:ss"),)
    assert address.tls == {"use_ssl": True, "ca": "/ca.pem"}
    assert "pa" not in repr(address)
    assert address_of("zookeeper://h").root == "/quorumlock"


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://", "zookeeper://h:99999", "zookeeper://h:x", "zookeeper://secret@h", "zookeeper://h/a//b",
        "zookeeper://h/a/../b", "zookeeper://h/zookeeper", "zookeeper://h?nonsense=1", "zookeeper://h?ca=x",
        "zookeeper://h?session_timeout=soon", "zookeeper://h?session_timeout=0", "zookeeper://h?tls=perhaps",
        "zookeeper://h 1", "zookeeper://h1,,h2",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        quorumlock.connect(url)
    assert "secret" not in str(refused.value)


def test_names_become_nodes_and_back() -> None:
    assert len({escaped(name) for name in AWKWARD}) == len(AWKWARD)
    for name in AWKWARD:
        assert unescaped(escaped(name)) == name
        assert not {"/", ":", "!"} & set(escaped(name))
        node = Paths("/r", "p:").holder("p:" + name, "t")
        assert Paths("/r", "p:").held(node) == name
        assert Paths("/r", "p").held(node) is None, "of another prefix, although it begins alike"


def test_awkward_names_are_locks_like_others(connect: Connect) -> None:
    locks, rival = connect(prefix="p/.."), connect(prefix="p/..")
    leases = [locks.lock(name, keep=False).acquire() for name in AWKWARD]
    assert sorted(rival.list("*")) == sorted(AWKWARD)
    for name, lease in zip(AWKWARD, leases, strict=True):
        assert rival.lock(name).try_acquire() is None
        assert [holder.fence for holder in rival.inspect(name).holders] == [lease.fence]
        lease.release()
        with rival.lock(name) as mine:
            assert mine.fence > lease.fence
    assert rival.list("*") == []


# Sessions.


def test_a_ttl_that_the_session_does_not_carry_is_refused(connect: Connect) -> None:
    locks = connect(f"{shared().url}{new_root()}?session_timeout=5")
    with locks.lock("a", ttl=3.0):
        pass
    with pytest.raises(ConfigurationError, match=r"ttl .* of 3\.2 s .* timeout of 5 s .*session_timeout=5\.33"):
        locks.lock("a", ttl=3.2).acquire()
    with pytest.raises(ConfigurationError, match=r"with its lock_delay"):
        locks.lock("a", ttl=2, lock_delay=2).acquire()
    lease = locks.lock("a", ttl=1).acquire()
    with pytest.raises(ConfigurationError, match="session timeout"):
        lease.extend(ttl=4)
    assert lease.held
    lease.release()


def test_a_server_that_allows_less_is_named(connect: Connect) -> None:
    locks = connect(f"{shared().url}{new_root()}?session_timeout=600", max_ttl=3600)
    with pytest.raises(ConfigurationError, match=r"60 s that ZooKeeper granted; session_timeout=600 was asked for"):
        locks.lock("a", ttl=40).acquire()


def test_a_lease_ends_with_its_session(connect: Connect) -> None:
    """The server says so; whatever time it had left."""
    locks = connect()
    lease = locks.lock("a", ttl=3).acquire()
    fence = lease.fence
    end_session(locks)
    assert eventually(lambda: not lease.held)
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert lost.value.reason is LossReason.SESSION_ENDED
    with locks.lock("a") as again:  # in the next session
        assert again.fence > fence


def test_a_lease_that_nobody_renews_ends_although_the_session_lives(connect: Connect) -> None:
    locks, rival = connect(), connect()
    other = locks.lock("other", ttl=9).acquire()
    started = time.monotonic()
    lease = locks.lock("a", ttl=0.5, keep=False).acquire()
    with rival.lock("a").acquire(timeout=20) as next_:
        assert 0.5 <= time.monotonic() - started < 10, "its session would have lasted twenty seconds"
        assert not lease.held
        assert next_.fence > lease.fence
    other.release()


def test_a_lease_outlives_its_closed_locker_but_not_its_ttl(connect: Connect) -> None:
    """Its holder may still count on it: the session ends when it does not any more."""
    locks, rival = connect(), connect()
    lease = locks.lock("a", ttl=2, keep=False).acquire()
    session = engine_of(locks)._session
    locks.close()
    assert rival.lock("a").try_acquire() is None
    assert lease.held
    rival.lock("a").acquire(timeout=20).release()
    assert not lease.held
    assert session.closed.wait(20), "and then the session is over"


def test_closing_without_leases_ends_the_session_at_once(connect: Connect, zk: KazooClient) -> None:
    locks = connect()
    with locks.lock("a"):
        session = f"{client_of(locks).client_id[0] & (2**64 - 1):x}"
        assert session in shared().ask("cons")
    locks.close()
    assert eventually(lambda: session not in shared().ask("cons"), within=5), (
        "it would have lasted for twenty seconds"
    )


# Grants.


def test_two_who_make_the_same_gate_are_not_both_granted(connect: Connect) -> None:
    """The one who came second must read what is there, and not take it for empty."""
    lockers = [connect() for _ in range(6)]
    for locker in lockers:
        locker.lock("elsewhere").locked()
    with ThreadPoolExecutor(6) as pool:
        for turn in range(40):
            barrier = threading.Barrier(6)

            def take(locker: quorumlock.Locker, turn: int = turn, barrier: threading.Barrier = barrier) -> object:
                barrier.wait()
                return locker.lock(f"new {turn}", keep=False).try_acquire()

            won = [lease for lease in pool.map(take, lockers) if lease is not None]
            assert len(won) == 1


@pytest.mark.parametrize("how", ["shared", "kept closed"])
def test_what_changes_between_two_looks_of_another_is_seen(connect: Connect, how: str) -> None:
    """Who asks for it has seen the holder's node; when it is read, it is gone, and something else is in the way."""
    locks, rival = connect(), connect()
    rival.lock("another").acquire().release()
    pair = locks.read_write("a")
    lease = pair.write(ttl=9).acquire() if how == "shared" else locks.lock("a", ttl=9, at_least=9).acquire()
    end: Callable[[quorumlock.Lease], object] = pair.downgrade if how == "shared" else quorumlock.Lease.release
    done: list[object] = []
    client, call = client_of(rival), client_of(rival)._call

    def meanwhile(request: object, result: object) -> object:
        if isinstance(request, GetData) and not done:
            done.append(request)
            done.append(end(lease))
        return call(request, result)

    client._call = meanwhile
    assert rival.lock("a", ttl=9).try_acquire() is None
    assert done
    if isinstance(done[1], quorumlock.Lease):
        done[1].release()


def test_a_request_that_comes_again_is_recognised(connect: Connect) -> None:
    locks = connect()
    engine = engine_of(locks)

    def ask(request: Acquire) -> tuple[Cause, int]:
        tally = Tally(engine.labels, 1)
        engine.perform(Round([request], tally, 1.0, Route()))
        assert tally.answers[0] is not None
        return tally.answers[0].cause, tally.answers[0].fence

    first = ask(Acquire("a", "token", 1000, 0))
    assert first[0] is Cause.AGREED
    assert ask(Acquire("a", "token", 1000, 0)) == first
    assert ask(Acquire("a", "another", 1000, 0)) == (Cause.HELD, first[1])


def test_the_second_time_takes_one_step(connect: Connect) -> None:
    locks = connect()
    locks.lock("a").acquire().release()
    asked = spy(client_of(locks))
    lease = locks.lock("a", keep=False).acquire()
    assert [type(request).__name__ for request in asked] == ["Transaction"]
    lease.release()
    other = connect()
    other.lock("a").acquire().release()
    with locks.lock("a") as mine:  # what we knew is out of date, and was found to be
        assert other.lock("a").try_acquire() is None
        assert mine.fence > lease.fence


@pytest.mark.parametrize("when", ["before it is sent", "before it is heard"])
def test_nothing_is_deleted_before_its_lease_is_over(connect: Connect, when: str) -> None:
    """Its maker deletes it, at an instant that is not before the end of its validity; however late answers are."""
    locks = connect(node_timeout=2)
    locks.lock("another").acquire().release()
    client, call = client_of(locks), client_of(locks)._call

    def held_up(request: object, result: object) -> object:
        if when == "before it is sent":
            hold_up(0.2)
        answer = call(request, result)
        if when == "before it is heard":
            result.wait()  # type: ignore[attr-defined]
            hold_up(0.2)
        return answer

    def is_covered(lease: quorumlock.Lease) -> bool:
        return engine_of(locks)._session.leases["a", lease.token].ends_at >= lease._hold.grant.valid_until

    client._call = held_up
    pair = locks.read_write("a")
    writer = pair.write(ttl=3, keep=False).acquire()
    assert is_covered(writer)
    writer.extend()
    assert is_covered(writer)
    reader = pair.downgrade(writer)
    assert is_covered(reader)
    reader.extend()
    assert is_covered(reader)
    reader.extend(ttl=2)
    assert is_covered(reader)
    reader.release()


def test_a_lock_stays_closed_for_long_enough_however_late_an_answer_is_heard(
    connect: Connect, zk: KazooClient
) -> None:
    """Its end is an instant of the server's clock, which is known from answers: from when they were asked for."""
    locks = connect(node_timeout=2)
    locks.lock("another").acquire().release()
    client, call = client_of(locks), client_of(locks)._call

    def heard_late(request: object, result: object) -> object:
        answer = call(request, result)
        result.wait()  # type: ignore[attr-defined]
        hold_up(0.5)
        return answer

    client._call = heard_late
    zk.ensure_path("/tests")
    began_ms = zk.set("/tests", b"").mtime
    locks.lock("a", ttl=8, at_least=5, keep=False).acquire().release()
    paths = engine_of(locks)._cells.paths
    (closed,) = Gate("", 0, 0, zk.get_children(paths.gate("a"))).of("a").closed
    assert closed.until_ms >= began_ms + 5000


def test_many_leases_are_renewed_by_one_request(connect: Connect) -> None:
    locks = connect()
    leases = [locks.lock(f"{i}", ttl=2).acquire() for i in range(50)]
    kept, asked = Renewals(locks), spy(client_of(locks))
    assert eventually(lambda: kept.outlive_a_ttl(*(lease.name for lease in leases)), 20)
    assert all(lease.held for lease in leases)
    assert {type(request).__name__ for request in asked} == {"Transaction"}
    assert len(asked) < 100, "for at least two hundred renewals: four of each of fifty leases"
    for lease in leases:
        lease.release()


def test_one_of_many_is_gone_and_the_others_are_renewed(connect: Connect) -> None:
    locks, rival = connect(), connect()
    leases = [locks.lock(f"{i}", ttl=2).acquire() for i in range(5)]
    rival.break_("2")
    assert eventually(lambda: not leases[2].held)
    with pytest.raises(LeaseLost) as lost:
        leases[2].check()
    assert lost.value.reason is LossReason.BROKEN
    kept = Renewals(locks)
    assert eventually(lambda: kept.outlive_a_ttl("0", "1", "3", "4"), 20)
    assert [lease.held for lease in leases] == [True, True, False, True, True]
    for lease in leases:
        lease.release()


def test_a_break_raises_the_fence(connect: Connect) -> None:
    locks, rival = connect(), connect()
    lease = locks.lock("a", ttl=2).acquire()
    rival.break_("a")
    assert eventually(lambda: not lease.held)
    with rival.lock("a") as next_:
        assert next_.fence > lease.fence + 1


def test_a_waiter_whose_answer_was_lost_does_not_stand_in_the_way(connect: Connect) -> None:
    """It is looked for: by its ticket, which stands in its name."""
    locks, rival = connect(), connect()
    lease = rival.lock("a", ttl=9).acquire()
    queue = locks.lock("a", fair=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.acquire, timeout=1)
        assert eventually(lambda: len(rival.inspect("a").waiters) == 1)
        engine_of(locks)._session.tickets.clear()  # as if the answer had been lost
        with pytest.raises(AcquireTimeout):
            waiting.result()
    assert rival.inspect("a").waiters == ()
    lease.release()


def test_a_waiter_sleeps_while_the_holder_renews(connect: Connect) -> None:
    """It is told when the holder's node goes, and not whenever it changes."""
    holder, waiter = connect(), connect(retry=quorumlock.Jitter(3600))
    lease = holder.lock("a", ttl=9).acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.lock("a", ttl=9).acquire, timeout=20)
        assert eventually(
            lambda: engine_of(waiter)._session.client is not None and client_of(waiter)._child_watchers
        )
        renewals, asked = spy(client_of(holder)), spy(client_of(waiter))
        for _ in range(3):
            lease.extend()
        assert len(renewals) >= 3
        assert not eventually(lambda: asked, within=0.1)
        lease.release()
        waiting.result(20).release()


def test_whoever_is_cancelled_leaves_nothing(connect: Connect) -> None:
    """Wherever it is: connecting, queueing, watching, being granted."""
    url = f"{shared().url}{new_root()}"
    rival = connect(url)

    async def main() -> None:
        async with quorumlock.connect_async(url, node_timeout=0.2) as locks:
            for held in (True, False):
                lease = rival.lock("a", ttl=9).acquire() if held else None
                for step in range(20):
                    task = asyncio.create_task(locks.lock("a", fair=True).acquire())
                    await asyncio.sleep(step * 0.0005)
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await (await task).release()
                    seen = await locks.inspect("a")
                    assert seen.waiters == ()
                    assert len(seen.holders) == int(held)
                if lease is not None:
                    lease.release()

    asyncio.run(main())
