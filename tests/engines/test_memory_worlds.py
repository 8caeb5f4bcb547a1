"""`memory://`: which Lockers share a world, what they must agree on, and what becomes of nodes one tampers with."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import quorumlock
from quorumlock import ConfigurationError, Jitter, LeaseLost, LossReason, NoQuorum
from quorumlock.engines.memory import world
from quorumlock.events import Event, Healed, NodeQuarantined
from tests.support.processes import in_child
from tests.support.waiting import eventually

from .test_memory import memory

MAX_TTL = 60.0


@pytest.fixture
def connected() -> Iterator[list[quorumlock.Locker]]:
    """Lockers that a test puts here are closed."""
    lockers: list[quorumlock.Locker] = []
    yield lockers
    for locker in lockers:
        locker.close()


def connect(lockers: list[quorumlock.Locker], url: str, **options: object) -> quorumlock.Locker:
    options.setdefault("retry", Jitter(0.01))
    lockers.append(quorumlock.connect(url, **options))  # type: ignore[arg-type]
    return lockers[-1]


def test_without_a_name_every_locker_has_a_world_of_its_own(connected: list[quorumlock.Locker]) -> None:
    one, other = connect(connected, "memory://"), connect(connected, "memory://")
    first, second = one.lock("a").acquire(timeout=0), other.lock("a").acquire(timeout=0)
    before = memory(other.engine).clock()
    memory(one.engine).clock.advance(100)
    assert first.lost.is_set()
    second.check()
    assert memory(other.engine).clock() - before < 50
    memory(one.engine).force_lose("a")
    second.check()
    second.release()


def test_a_name_is_one_world_for_threads_and_asyncio(connected: list[quorumlock.Locker]) -> None:
    one, other = connect(connected, "memory://shared"), connect(connected, "memory://shared")
    apart = connect(connected, "memory://apart")
    lease = one.lock("a").acquire()
    assert other.lock("a").try_acquire() is None
    apart.lock("a").acquire(timeout=0).release()

    async def main() -> None:
        async with quorumlock.connect_async("memory://shared") as locks:
            assert await locks.lock("a").try_acquire() is None
            mine = await locks.lock("b").acquire()
            memory(other.engine).force_lose("a")
            assert lease.lost.is_set()
            await (await locks.lock("a").acquire(timeout=0)).release()
            lost = mine.lost
            memory(other.engine).clock.advance(11)
            assert lost.is_set()

    asyncio.run(main())


def test_a_shared_world_ends_with_the_last_that_is_in_it(connected: list[quorumlock.Locker]) -> None:
    one, other = connect(connected, "memory://ending"), connect(connected, "memory://ending")
    lease = one.lock("a", keep=False).acquire()
    one.close()
    third = connect(connected, "memory://ending")
    assert third.lock("a").try_acquire() is None, "two are left in it"
    other.close()
    third.close()
    fourth = connect(connected, "memory://ending?nodes=3")
    fourth.lock("a").acquire(timeout=0).release()
    assert lease.held, "the clock of the old world still tells its leases the time"


def test_a_shared_world_ends_when_nobody_knows_of_it(connected: list[quorumlock.Locker]) -> None:
    quorumlock.connect("memory://forgotten").lock("a", keep=False).acquire()

    def gone() -> bool:
        gc.collect()
        return "forgotten" not in world.shared.worlds

    assert eventually(gone, within=1)
    connect(connected, "memory://forgotten").lock("a").acquire(timeout=0).release()


def test_a_shared_world_has_one_number_of_nodes(connected: list[quorumlock.Locker]) -> None:
    connect(connected, "memory://counted?nodes=3")
    for url in ("memory://counted", "memory://counted?nodes=5"):
        with pytest.raises(ConfigurationError, match="nodes=3 already"):
            connect(connected, url)
    connect(connected, "memory://counted?nodes=3").lock("a").acquire(timeout=0).release()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_ttl": 30.0}, "max_ttl 60 s there, 30 s here"),
        ({"quarantine": False}, "quarantine on there, off here"),
        ({"durable": True}, "durable off there, on here"),
        ({"fleet": "another"}, "node list"),
    ],
)
def test_a_shared_fleet_has_one_set_of_terms(
    connected: list[quorumlock.Locker], options: dict[str, object], told: str
) -> None:
    ours = connect(connected, "memory://agreed?nodes=3")
    theirs = connect(connected, "memory://agreed?nodes=3", **options)
    with pytest.raises(ConfigurationError, match=told):
        theirs.lock("a").try_acquire()
    with ours.lock("a", timeout=0) as lease:
        lease.extend()


def test_one_node_is_as_lenient_as_a_real_one(connected: list[quorumlock.Locker]) -> None:
    ours = connect(connected, "memory://lenient")
    theirs = connect(connected, "memory://lenient", max_ttl=30.0)
    with ours.lock("a", timeout=0):
        assert theirs.lock("a").try_acquire() is None
    other = connect(connected, "memory://lenient", quarantine=True)
    with pytest.raises(ConfigurationError, match="quarantine off there, on here"):
        other.lock("a").try_acquire()


def test_prefixes_keep_locks_apart(connected: list[quorumlock.Locker]) -> None:
    ours = connect(connected, "memory://prefixed?nodes=3", prefix="shop:")
    theirs = connect(connected, "memory://prefixed?nodes=3")
    lease, other = ours.lock("a").acquire(timeout=0), theirs.lock("a").acquire(timeout=0)
    memory(theirs.engine).force_lose("a")
    assert other.lost.is_set()
    lease.check()
    assert memory(ours.engine).servers[0].get("shop:a") is not None
    memory(ours.engine).force_lose("a")
    assert lease.lost.is_set()
    assert memory(ours.engine).servers[0].get("shop:a") is None


def test_a_fleet_is_ready_at_once_and_cannot_be_initialised_again(connected: list[quorumlock.Locker]) -> None:
    locks = connect(connected, "memory://?nodes=5")
    locks.lock("a").acquire(timeout=0).release()
    with pytest.raises(ConfigurationError, match="already belong"):
        locks.init_fleet()


def test_a_node_that_forgot_is_quarantined_and_healed(connected: list[quorumlock.Locker]) -> None:
    locks = connect(connected, "memory://?nodes=3")
    engine = memory(locks.engine)
    story: list[Event] = []
    locks.subscribe(story.append)
    lease = locks.lock("a").acquire()
    engine.servers[0].flush()
    lease.extend()
    assert engine.servers[0].get("a") == lease.token.encode()
    assert [event.node for event in story if isinstance(event, NodeQuarantined)] == ["memory-0"]
    assert [event.nodes for event in story if isinstance(event, Healed)] == [("memory-0",)]
    locks.lock("b").acquire(timeout=0).release()
    lease.release()
    assert not any(server.get("a") for server in engine.servers)


def test_a_majority_that_forgot_grants_nothing_until_old_locks_are_over(
    connected: list[quorumlock.Locker],
) -> None:
    locks = connect(connected, "memory://?nodes=3")
    engine = memory(locks.engine)
    lease = locks.lock("a", ttl=MAX_TTL).acquire()
    for server in engine.servers[:2]:
        server.flush()
    with pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("b").try_acquire()
    with pytest.raises(LeaseLost) as gone:
        lease.extend()
    assert gone.value.reason is LossReason.UNREACHABLE
    engine.clock.advance(MAX_TTL - 1)
    with pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("a").try_acquire()
    engine.clock.advance(1)
    new = locks.lock("a").acquire(timeout=0)
    assert new.fence > lease.fence
    new.release()


@pytest.mark.parametrize("saved", [True, False], ids=["from-disk", "empty"])
def test_a_restart_is_noticed(connected: list[quorumlock.Locker], saved: bool) -> None:
    """Also where the marker was on disk, and nothing seems to have changed."""
    locks = connect(connected, "memory://?nodes=3")
    story: list[Event] = []
    locks.subscribe(story.append)
    engine = memory(locks.engine)
    lease = locks.lock("a").acquire()
    for index, server in enumerate(engine.servers[:2]):
        server.restart(f"second-{index}", server.snapshot() if saved else None)
    with pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("b").try_acquire()
    assert [event.node for event in story if isinstance(event, NodeQuarantined)] == ["memory-0", "memory-1"]
    engine.clock.advance(MAX_TTL)
    locks.lock("b").acquire(timeout=0).release()
    assert lease.lost.is_set()


def test_one_node_after_another_may_restart_under_a_kept_lease(connected: list[quorumlock.Locker]) -> None:
    locks = connect(connected, "memory://?nodes=3", max_ttl=10.0)
    engine = memory(locks.engine)
    lease = locks.lock("a", ttl=10).acquire()
    for index, server in enumerate(engine.servers):
        server.restart(f"second-{index}")
        for _ in range(2):
            engine.clock.advance(6)
            assert eventually(lambda: lease.remaining() > 9)
        assert eventually(lambda server=server: server.get("a") == lease.token.encode())  # type: ignore[misc]
    lease.check()
    lease.release()


def test_a_newcomer_does_not_make_a_suspect_node_ready(connected: list[quorumlock.Locker]) -> None:
    ours = connect(connected, "memory://suspect?nodes=3")
    for server in memory(ours.engine).servers[:2]:
        server.flush()
    theirs = connect(connected, "memory://suspect?nodes=3")
    with pytest.raises(NoQuorum, match="quarantine"):
        theirs.lock("a").try_acquire()


def test_a_subscriber_may_use_locks_when_a_node_is_quarantined(connected: list[quorumlock.Locker]) -> None:
    locks = connect(connected, "memory://?nodes=3")
    taken: list[quorumlock.Lease | None] = []

    def told(event: Event) -> None:
        if isinstance(event, NodeQuarantined):
            taken.append(locks.lock("from a callback").try_acquire())

    locks.subscribe(told)
    memory(locks.engine).servers[2].flush()
    locks.lock("a").acquire(timeout=0).release()
    assert taken[0] is not None
    taken[0].release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_copy_of_the_world(connected: list[quorumlock.Locker]) -> None:
    locks = connect(connected, "memory://forked?nodes=3")
    lease = locks.lock("a").acquire()
    server = memory(locks.engine).servers[0]
    execute, forker = server.execute, threading.get_ident()
    talking, done = threading.Event(), threading.Event()

    def execute_slowly(command: list[bytes], client_id: int = 0) -> object:
        """In the middle of a request of another thread, and of its entering the world, the process is forked."""
        reply = execute(command, client_id)
        if threading.get_ident() != forker and not talking.is_set():
            with world.shared.mutex:
                talking.set()
                done.wait(30)
        return reply

    server.execute = execute_slowly  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: locks.lock("c").acquire(timeout=0).release())
    thread.start()
    talking.wait(5)

    def child() -> None:
        assert not lease.held
        assert locks.lock("a").try_acquire() is None, "in the copy, too, it was held"
        with locks.lock("b", timeout=0) as mine:
            assert mine.tally.heard == 3, "no answer is taken for another"
            mine.extend()
        with quorumlock.connect("memory://forked?nodes=3") as more:
            assert more.lock("a").try_acquire() is None
        kept = locks.lock("kept").acquire(timeout=0)
        memory(locks.engine).clock.advance(6)
        assert eventually(lambda: kept.remaining() > 9)
        memory(locks.engine).clock.advance(11)
        assert kept.lost.is_set()
        locks.lock("a").acquire(timeout=0)

    try:
        in_child(child)
    finally:
        done.set()
        thread.join(5)
    lease.check()
    lease.extend()
    assert memory(locks.engine).servers[0].keys() == ["a", "ql:fence:{a}", "ql:fence:{c}", "ql:node"]
    lease.release()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("memory://?nodes=0", "1 to 9"),
        ("memory://?nodes=10", "1 to 9"),
        ("memory://?nodes=three", "1 to 9"),
        ("memory://?nodes=", "1 to 9"),
        ("memory://x?nodes=3&nodes=5", "2 times"),
        ("memory://?node=3", "'node'"),
        ("memory://x?nodes=3&db=1", "'db'"),
        ("memory:///var/lib/x", "no path"),
        ("memory://x/y", "no path"),
        ("memory://me:secret@x", "password"),
        ("memory://x#y", "letters"),
        ("memory://" + "x" * 101, "letters"),
    ],
)
def test_a_url_that_makes_no_sense_is_explained(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        quorumlock.connect(url)
    assert "?nodes=3" in str(error.value), "it says how to write it"
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("url", "count"), [("memory://", 1), ("memory://?", 1), ("memory://a.b-c_9?nodes=9", 9)])
def test_a_url_says_how_many_nodes(connected: list[quorumlock.Locker], url: str, count: int) -> None:
    locks = connect(connected, url)
    assert len(locks.engine.labels) == len(set(locks.engine.labels)) == count
    assert locks.engine.labels[0] in repr(locks)


def test_nothing_but_the_standard_library_is_needed() -> None:
    """Without site-packages there is neither redis-py nor hiredis."""
    program = """
import sys
import quorumlock
with quorumlock.connect("memory://?nodes=3") as locks, locks.lock("a") as lease:
    lease.extend()
print(*{name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))
"""
    source = str(Path(quorumlock.__file__).parents[1])
    command = [sys.executable, "-S", "-E", "-c", program]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"__main__", "quorumlock"}


def test_redis_py_is_not_imported_where_it_is_installed() -> None:
    program = (
        "import sys, quorumlock; quorumlock.connect('memory://').lock('a').acquire().release(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "redis" not in done.stdout.split()
    assert "quorumlock.engines.redis.link" in done.stdout.split()
