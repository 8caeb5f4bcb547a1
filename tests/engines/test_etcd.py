"""The etcd engine on a real server: what it asks for, what it keeps there, and what it tells."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time

import pytest

import quorumlock
from quorumlock import ConfigurationError, LeaseLost, LossReason, Unsupported
from quorumlock.core.effects import Round, Route
from quorumlock.core.requests import Extend, Kept
from quorumlock.core.votes import Cause, Tally
from quorumlock.engines.base import Announcer, LoopStore, Store
from quorumlock.engines.etcd import EtcdEngine, looking
from tests.cli.tools import quorumlock as command
from tests.support.processes import in_child
from tests.support.proxy import Proxy
from tests.support.servers.etcd import EtcdServer, b64
from tests.support.waiting import eventually

from .etcd_fixtures import (
    Connect,
    acquire_when_told,
    connect,
    connect_async,
    holds,
    keys,
    leases,
    listening_in,
    proxy,
    released_when,
    server,
    through,
)

__all__ = ["connect", "proxy", "server"]  # fixtures

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


def test_it_is_a_store_for_threads_and_loops_that_announces(connect: Connect) -> None:
    engine = connect().engine
    for protocol in (Store, LoopStore, Announcer):
        assert isinstance(engine, protocol)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("etcd://", "host"),
        ("etcd://a b", "host"),
        ("etcd://h:99999", "host"),
        ("etcd://h,h", "twice"),
        ("etcd://user@h", "a user and a password"),
        ("etcd://h?ca=/nowhere.pem", "not a file"),
        ("etcd://h?colour=red", "does not know the option 'colour'"),
        ("etcd://h/a*b", "path of an etcd URL"),
    ],
)
def test_urls_that_make_no_sense(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        quorumlock.connect(url)


def test_passwords_are_shown_nowhere() -> None:
    with quorumlock.connect("etcd://zoe:s3cret%21@h1,h2:1234/team") as locks:
        engine: EtcdEngine = locks.engine
        assert engine.place.password == "s3cret!"
        assert engine.labels == ("etcd:h1:2379,h2:1234",)
        for shown in (repr(locks), repr(engine), repr(engine.place), str(engine.labels)):
            assert "s3cret" not in shown
    with pytest.raises(ConfigurationError) as wrong:
        quorumlock.connect("etcd://zoe:s3cret@h h")
    assert "s3cret" not in str(wrong.value)


def test_the_fence_is_the_create_revision_of_the_key(server: EtcdServer, connect: Connect) -> None:
    with connect().lock("a") as lease:
        lease.extend()
        (kv,) = server.ask("/v3/kv/range", {"key": b64("quorumlock/lock/a\0h")})["kvs"]
        assert int(kv["create_revision"]) == lease.fence
        assert base64.b64decode(kv["value"]).decode() == lease.token
        assert int(kv["lease"]) > 0


def test_nothing_is_left_of_what_was_released(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    for lock in (locks.lock("a"), locks.semaphore("s", 3), locks.multi(["x", "y"]), locks.lock("f", fair=True)):
        lock.acquire(timeout=1).release()
    assert keys(server) == []


AWKWARD = ["a/b", "a/../b", "..", "/", "'\"; --", "%00%2f", "a b", "ünï/🔒", "a:b#1", "x" * 1024]


def test_awkward_names_are_names(server: EtcdServer, connect: Connect) -> None:
    locks = connect(prefix="p/")
    held = [locks.lock(name, ttl=20).acquire(timeout=1) for name in AWKWARD[:-1]]
    held.append(connect().lock(AWKWARD[-1], ttl=20).acquire(timeout=1))
    assert locks.list() == sorted(AWKWARD[:-1])
    for name in AWKWARD[:-1]:
        assert locks.inspect(name).state == "held"
        assert connect(prefix="p/").lock(name).try_acquire() is None
    for lease in held:
        lease.extend()
        lease.release()
    assert holds(server) == []


def test_no_name_is_a_part_of_anothers(connect: Connect) -> None:
    """Whether a lock is free is whether any key begins with its name: and no other's does."""
    locks = connect()
    with locks.lock("a/b"), locks.lock("ab"), locks.read_write("a#").read():
        locks.lock("a").acquire(timeout=0).release()


def test_prefixes_that_end_elsewhere_make_one_lock_in_two_lists(connect: Connect) -> None:
    shop, shopping = connect(prefix="shop"), connect(prefix="shopping:")
    with shop.lock("ping:x"):
        assert shopping.lock("x").try_acquire() is None
        assert (shop.list(), shopping.list()) == (["ping:x"], [])


def test_lists_come_in_pages(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PAGE", 3)
    locks = connect(prefix="p:")
    names = [f"n{index}" for index in range(8)]
    with locks.multi(names), connect().lock("p:other"), locks.read_write("r").read():
        assert locks.list() == [*names, "r"]
        assert locks.list("n?", limit=5) == names[:5]


def test_a_hundred_locks_at_once(server: EtcdServer, connect: Connect) -> None:
    """More than one transaction has operations."""
    locks, others = connect(), connect()
    names = [f"n{index}" for index in range(100)]
    lease = locks.multi(names, ttl=20).acquire(timeout=1)
    assert len(set(lease.fences.values())) == 1
    assert len(holds(server)) == 100
    assert others.multi(names[50:]).try_acquire() is None
    lease.extend()
    lease.release()
    assert holds(server) == []


def test_many_slots(connect: Connect) -> None:
    locks = connect()
    leases = [locks.semaphore("s", 1000, ttl=20).acquire(timeout=1) for _ in range(5)]
    assert len({lease.slot for lease in leases}) == 5
    leases += [locks.semaphore("few", 5, ttl=20).acquire(timeout=1) for _ in range(5)]
    for lease in leases:
        lease.release()
    assert locks.list() == []


def test_many_leases_are_renewed_by_two_requests(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for their leases, and one that makes sure that the locks still hang on them."""
    locks = connect()
    held = [locks.lock(f"a{index}", ttl=30).acquire(timeout=1) for index in range(25)]
    locks.break_("a7")
    tally = Tally(locks.engine.labels, 1)
    request = Extend(tuple(Kept(lease.name, lease.token, 30_000, lease.fence) for lease in held))
    with listening_in(monkeypatch) as asked:
        locks.engine.perform(Round([request], tally, 1.0, Route()))
    assert asked == ["lease/keepalive", "kv/txn"]
    (answer,) = tally.answers
    assert answer is not None
    assert [index for index in range(25) if answer.of(index) is not Cause.AGREED] == [7]
    assert answer.of(7) is Cause.ABSENT
    for lease in held:
        lease.release()


def test_leases_are_used_again(server: EtcdServer, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = connect()
    locks.lock("a").acquire(timeout=1).release()
    before = leases(server)
    with listening_in(monkeypatch) as asked:
        for index in range(10):
            locks.lock(f"b{index}").acquire(timeout=1).release()
    assert leases(server) <= before, "one was granted; others that were left may end meanwhile"
    assert asked == ["lease/keepalive", "kv/txn", "kv/txn"] * 10


def test_what_was_never_released_is_forgotten(server: EtcdServer, connect: Connect) -> None:
    from quorumlock.engines.etcd import leases as module

    locks = connect()
    for index in range(30):
        locks.lock(f"a{index}", ttl=1, keep=False).try_acquire()
    known: module.Leases = locks.engine.leases
    assert len(known.deeds) == 30
    known._clock = lambda: time.monotonic() + 1e9
    known._deeds_most = 10
    locks.lock("b", ttl=1, keep=False).try_acquire()
    assert len(known.deeds) == 1


def test_a_longer_ttl_is_hung_on_a_longer_lease(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    for lease in (
        locks.lock("a", ttl=5, keep=False).acquire(timeout=1),
        locks.read_write("r").read(ttl=5, keep=False).acquire(timeout=1),
        locks.multi(["x", "y"], ttl=5, keep=False).acquire(timeout=1),
    ):
        lease.extend(30)
        assert lease.remaining() > 25
        for name in lease.fences:
            start = f"quorumlock/lock/{name}\0"
            (kv,) = server.ask("/v3/kv/range", {"key": b64(start), "range_end": b64(start[:-1] + "\1")})["kvs"]
            assert int(server.ask("/v3/lease/timetolive", {"ID": kv["lease"]})["TTL"]) > 25
        lease.extend()
        lease.release()
    assert holds(server) == []


def test_a_condition_makes_a_transaction_depend_on_the_lease(server: EtcdServer, connect: Connect) -> None:
    locks = connect(prefix="p:")

    def write(condition: list[dict[str, object]]) -> bool:
        then = [{"request_put": {"key": b64("mine"), "value": b64("x")}}]
        return bool(server.ask("/v3/kv/txn", {"compare": condition, "success": then}).get("succeeded"))

    pair = locks.read_write("r")
    for lock in (locks.lock("a"), locks.multi(["a", "b"]), locks.semaphore("s", 2), pair.read(), pair.write()):
        with lock as lease:
            assert lease.condition == locks.engine.condition(lease)
            assert write(lease.condition)
        assert not write(lease.condition), "it was released"
    late = locks.lock("a").acquire(timeout=1)
    locks.break_("a")
    with locks.lock("a") as new:
        assert not write(late.condition)
        assert write(new.condition)


def test_other_engines_have_no_condition() -> None:
    with (
        quorumlock.connect("memory://") as locks,
        locks.lock("a") as lease,
        pytest.raises(Unsupported, match="guard"),
    ):
        _ = lease.condition


def test_there_is_no_journal(connect: Connect) -> None:
    with pytest.raises(Unsupported, match=r"subscribe\(\)"):
        connect(journal=100)
    assert not connect().journal().kept


def test_how_it_is_doing(server: EtcdServer, connect: Connect) -> None:
    (state,) = connect().nodes()
    assert (state.node, state.state, state.server) == (f"etcd:{server.label}", "ready", "etcd")
    assert state.version is not None
    assert state.version.startswith("3.")
    assert state.latency is not None
    assert 0 < state.latency < 1


def test_the_command_line(server: EtcdServer, connect: Connect) -> None:
    def told(*arguments: str) -> str:
        done = command(*arguments, "--url", server.url)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    assert f"initialised 1 node, max_ttl 60 s: etcd:{server.label}" in told("init")
    lease = connect().lock("orders", ttl=30).acquire(timeout=1)
    assert server.label in told("nodes")
    assert "it answers" in told("doctor")
    assert "etcd 3." in told("nodes")
    assert "orders" in told("ls")
    assert "held" in told("show", "orders")
    told("break", "orders", "--yes")
    with pytest.raises(LeaseLost) as lost:
        lease.extend()
    assert lost.value.reason is LossReason.BROKEN


def test_a_forked_child_owns_nothing_of_its_parents(connect: Connect, proxy: Proxy) -> None:
    locks = connect(through(proxy))
    lease = locks.lock("a", ttl=20).acquire(timeout=1)
    made = len(proxy.lines)

    def child() -> None:
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.FORKED
        lease.release()
        assert locks.lock("a").try_acquire() is None
        with locks.lock("b", ttl=20) as mine:
            assert mine.fence > lease.fence
        locks.close()

    in_child(child)
    assert len(proxy.lines) > made, "it has used its parent's connection"
    lease.extend()
    lease.release()


def test_a_waiter_in_a_forked_child_is_told(connect: Connect) -> None:
    """The parent's ears are not the child's."""
    locks, others = connect(retry=quorumlock.Jitter(3600)), connect()
    first = others.lock("a", ttl=60).acquire(timeout=1)
    with pytest.raises(quorumlock.AcquireTimeout):
        locks.lock("a").acquire(timeout=0.2)
    reading, writing = os.pipe()

    def child() -> None:
        os.write(writing, b"!")
        acquire_when_told(locks.lock("a")).release()

    def waits() -> bool:
        return bool(os.read(reading, 1)) and eventually(lambda: others.inspect("a").waiters)

    with released_when(waits, first):
        in_child(child)
    os.close(reading)
    os.close(writing)


def test_one_locker_on_several_loops(server: EtcdServer) -> None:
    locks, both = connect_async(server.url), threading.Barrier(2, timeout=10)
    fences: list[int] = []

    async def use() -> None:
        await locks.lock("warm").locked()
        both.wait()
        assert len(locks.engine._loops) == 2, "connections belong to the loop that made them"
        both.wait()
        async with locks.lock("a", ttl=5) as lease:
            fences.append(lease.fence)
        await locks.engine.close_async()  # or what is open here would be closed by the collector

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(fences)) == 2
    asyncio.run(locks.aclose())


def test_a_thread_that_waits_may_have_a_loop(connect: Connect) -> None:
    """As in a notebook: the loop stands still meanwhile, and could tell it nothing."""
    locks, others = connect(retry=quorumlock.Jitter(3600)), connect()
    lease = others.lock("a", ttl=60).acquire(timeout=1)

    async def main() -> None:
        acquire_when_told(locks.lock("a")).release()

    with released_when(lambda: others.inspect("a").waiters, lease):
        asyncio.run(main())


def test_a_cell_keeps_its_lease(server: EtcdServer, connect: Connect) -> None:
    cell = connect().cell("c")
    version = cell.set(0, 0)
    before = leases(server)
    for value in range(5):
        version = cell.set(value, version)
    assert leases(server) <= before
