"""A fork with a held lease: the child neither releases nor renews it, and has locks and connections of its own."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
import warnings
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock import LeaseLost, LossReason, events
from quorumlock.lab.servers import Servers
from tests.live.attribution import every_answer_is_its_own, every_answer_is_its_own_with_threads
from tests.live.tools import Renewals, client_ids, get
from tests.support.processes import fork, in_child
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.live,
    pytest.mark.one_kind,
    pytest.mark.real_time,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
]

Connect = Callable[..., quorumlock.Locker]


@pytest.mark.parametrize("count", [1, 3])
def test_a_child_does_not_own_its_parents_lease(servers: Servers, connect: Connect, count: int) -> None:
    locks = connect(servers.urls[:count], node_timeout=0.25)
    lease = locks.lock("a", ttl=1).acquire()
    lease.extend()  # now all nodes have it, also those that had to learn the script first
    told: list[str] = []
    watched = locks.lock("b", ttl=1, on_lost=lambda lost: told.append(lost.name)).acquire()

    def child() -> None:
        assert not lease.held
        assert lease.remaining() == 0
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.FORKED
        with pytest.raises(LeaseLost) as lost:
            lease.extend()
        assert lost.value.reason is LossReason.FORKED
        lease.release()
        with pytest.raises(LeaseLost):
            watched.check()
        assert told == ["b"]

    in_child(child)
    lease.check()
    assert eventually(lambda: all(get(server, "a") == lease.token for server in servers.servers[:count]))
    lease.extend()
    lease.release()
    watched.release()
    assert told == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_childs_own_locks_use_its_own_connections(servers: Servers, connect: Connect, count: int) -> None:
    nodes = servers.servers[:count]
    locks = connect(servers.urls[:count], node_timeout=0.25)
    lease = locks.lock("a", ttl=1).acquire()
    locks.inspect("a")  # waits for every node
    before = [client_ids(node) for node in nodes]

    def child() -> None:
        assert locks.lock("a", ttl=1).try_acquire() is None, "the parent's"
        mine = locks.lock("mine", ttl=1).acquire(timeout=20)
        assert str(os.getpid()) in mine.token
        now = [client_ids(node) for node in nodes]
        assert all(ids <= there for ids, there in zip(before, now, strict=True)), "the parent's were closed"
        own = sum(ids < there for ids, there in zip(before, now, strict=True))
        assert own > count // 2, "the parent's were used"
        mine.extend()
        mine.release()
        locks.close()

    in_child(child)
    lease.extend()
    assert eventually(lambda: [client_ids(node) for node in nodes] == before)
    lease.release()
    every_answer_is_its_own_with_threads(locks, nodes)


def test_parent_and_child_lock_at_the_same_time(servers: Servers, connect: Connect) -> None:
    """Both go on with the locker they had: no answer of one is taken by the other, so no node seems to fail."""
    nodes = servers.servers[:3]
    locks = connect(servers.urls[:3], node_timeout=0.25)
    locks.lock("a", ttl=1).acquire().release()
    failures: list[events.Event] = []
    locks.subscribe(lambda event: failures.append(event) if isinstance(event, events.NodeDown) else None)
    end = time.monotonic() + 0.4

    def work(who: str) -> None:
        for turn in itertools.count():
            lease = locks.lock(f"{who}-{turn}", ttl=1).acquire(timeout=20)
            agreeing = sum(get(node, lease.name) == lease.token for node in nodes)
            assert agreeing >= 2
            lease.release()
            if time.monotonic() > end:
                break
        assert not failures

    before = [client_ids(node) for node in nodes]
    in_child(lambda: work("child"), meanwhile=lambda: work("parent"))
    assert all(ids <= client_ids(node) for node, ids in zip(nodes, before, strict=True)), (
        "a connection was replaced"
    )
    every_answer_is_its_own_with_threads(locks, nodes)


def test_a_lease_of_the_child_dies_with_it(servers: Servers, connect: Connect) -> None:
    """Nothing renews it: it ends by its ttl."""
    locks = connect(servers.urls[:1], node_timeout=0.25)
    locks.lock("warm", ttl=1).acquire().release()

    def child() -> None:
        locks.lock("a", ttl=0.5).acquire()

    in_child(child)
    assert get(servers[0], "a") is not None
    locks.lock("a", ttl=1).acquire(timeout=5).release()


@pytest.mark.parametrize("count", [1, 3])
def test_a_child_of_an_asyncio_program(servers: Servers, connect: Connect, count: int) -> None:
    """Forked inside a running loop; the child starts a loop of its own."""
    nodes = servers.servers[:count]
    connect(servers.urls[:count], node_timeout=0.25).close()

    async def main() -> None:
        async with quorumlock.connect_async(servers.urls[:count], max_ttl=1, node_timeout=0.25) as locks:
            lease = await locks.lock("a", ttl=1).acquire()
            before = [client_ids(node) for node in nodes]

            def child() -> None:
                asyncio.events._set_running_loop(None)
                asyncio.set_event_loop(None)
                asyncio.run(in_its_own_loop())

            async def in_its_own_loop() -> None:
                with pytest.raises(LeaseLost) as lost:
                    lease.check()
                assert lost.value.reason is LossReason.FORKED
                with pytest.raises(LeaseLost):
                    await lease.extend()
                await lease.release()
                assert await locks.lock("a", ttl=1).try_acquire() is None
                async with locks.lock("mine", ttl=1) as mine:
                    await mine.extend()
                await locks.aclose()

            in_child(child)
            assert eventually(lambda: [client_ids(node) for node in nodes] == before)
            lease.check()
            await lease.extend()
            await lease.release()
            await every_answer_is_its_own(locks, nodes)

    asyncio.run(main())


@pytest.mark.real_time(0.8)
def test_a_fork_in_the_midst_of_renewal(servers: Servers, connect: Connect) -> None:
    """The keeper's thread is in a round, as it nearly always is here. The child has a keeper of its own."""
    nodes = servers.servers[:3]
    locks = connect(servers.urls[:3], node_timeout=0.25, max_ttl=2)
    leases = [locks.lock(f"a-{index}", ttl=1.5).acquire() for index in range(30)]

    def child() -> None:
        assert not any(lease.held for lease in leases)
        renewals = Renewals(locks)
        mine = locks.lock("mine", ttl=1.5).acquire(timeout=20)
        assert eventually(lambda: renewals.outlive_a_ttl("mine")), "the child's own lease is not renewed"
        mine.check()
        mine.release()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            leases.clear()  # the parent's: dropped here, without a word
            gc.collect()
        assert [str(one.message) for one in said] == []

    for _ in range(2):
        in_child(child)
    for lease in leases:
        lease.check()
        assert sum(get(node, lease.name) == lease.token for node in nodes) >= 2
        lease.release()
    every_answer_is_its_own_with_threads(locks, nodes)


@pytest.mark.real_time(0.8)
def test_a_child_does_not_renew_what_its_parent_held(servers: Servers, connect: Connect) -> None:
    """The parent dies; its child lives on, and renews a lease of its own: that of the parent ends by its ttl."""
    locks = connect(servers.urls[:3], node_timeout=0.25, max_ttl=2)
    locks.lock("warm", ttl=1).acquire().release()
    reader, writer = os.pipe()
    waits, ends = os.pipe()
    parent = fork()
    if parent == 0:
        try:
            lease = locks.lock("a", ttl=2).acquire()
            lease.extend()
            if fork() == 0:
                os.close(ends)
                renewals = Renewals(locks)
                mine = locks.lock("mine", ttl=1.5).acquire(timeout=20)
                kept = eventually(lambda: renewals.outlive_a_ttl("mine"))
                os.read(waits, 1)  # until the test has seen enough
                os.write(writer, b"alive" if kept and mine.held else b"lost")
                mine.release()
        finally:
            os._exit(0)
    os.waitpid(parent, 0)
    os.close(writer)
    os.close(waits)
    assert get(servers[0], "a") is not None
    gone = eventually(lambda: get(servers[0], "a") is None)
    os.close(ends)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"alive"
    assert gone, "somebody renews it"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_locker_serves_one_loop_after_another(servers: Servers, connect: Connect) -> None:
    """No fork, but the same hazard: connections belong to a loop that is gone. asyncio warns of them, rightly."""
    connect(servers.urls[:3]).close()
    locks = quorumlock.connect_async(servers.urls[:3], max_ttl=1, node_timeout=0.25)

    async def use(last: bool) -> None:
        await every_answer_is_its_own(locks, servers.servers[:3])
        if last:
            await locks.aclose()

    asyncio.run(use(False))
    asyncio.run(use(False))
    asyncio.run(use(True))
    gc.collect()
