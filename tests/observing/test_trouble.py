"""Events of trouble: renewals without a majority, nodes that go and come back, writes that a guard refuses."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

import quorumlock
from quorumlock import StaleFence, guards
from quorumlock.events import (
    Event,
    Extended,
    FenceRefused,
    GivenUp,
    Lost,
    NodeDown,
    NodeQuarantined,
    NodeUp,
    RenewalFailed,
    Waiting,
)
from quorumlock.guards import AsyncFileGuard, Claim, FileGuard, MemoryFences, RedisGuard, SQLGuard
from quorumlock.lab.servers import Servers
from tests.support.waiting import eventually

from .conftest import SERVER

only_one_kind = pytest.mark.parametrize("kind", [SERVER], indirect=True)


def of(story: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in story if isinstance(event, kind)]


@pytest.mark.live
@pytest.mark.real_time
@only_one_kind
def test_a_renewal_without_a_majority_is_told_while_the_lease_is_valid(
    make_servers: Callable[..., Servers], connect: Callable[..., quorumlock.Locker]
) -> None:
    servers = make_servers(3)
    locks = connect(servers, max_ttl=30.0)
    story: list[Event] = []
    locks.subscribe(story.append)
    lease = locks.lock("a", ttl=6).acquire()
    own = locks.lock("b", ttl=25, keep=False).acquire()
    for server in servers.servers[:2]:
        server.pause()
    assert eventually(lambda: of(story, RenewalFailed), 20)
    failed = of(story, RenewalFailed)[0]
    assert (failed.name, failed.fence) == ("a", lease.fence)
    assert 0 < failed.remaining < 6
    assert failed.tally is not None
    assert not failed.tally.won
    assert "did not answer in time" in failed.why
    assert lease.held, "it is told before it is lost"
    extending = threading.Thread(target=own.extend)  # the holder's own rounds are told of, too
    extending.start()
    assert eventually(lambda: any(event.name == "b" for event in of(story, RenewalFailed)), 20)
    for server in servers.servers[:2]:
        server.resume()
    extending.join(20)
    assert eventually(lambda: {event.name for event in of(story, Extended)} == {"a", "b"}, 20)
    assert len({event.node for event in of(story, NodeDown)}) == 2
    assert eventually(lambda: len({event.node for event in of(story, NodeUp)}) == 2, 20)
    assert not of(story, Lost)
    lease.release()
    own.release()


@pytest.mark.real_time(0.5)
def test_a_renewal_that_a_store_could_not_do_is_told(tmp_path: Path) -> None:
    """Another process is writing to the file, and does not come to an end."""
    path = tmp_path / "locks.db"
    with quorumlock.connect(f"sqlite:///{path}") as locks:
        story: list[Event] = []
        lease = locks.lock("a", ttl=6).acquire()
        locks.subscribe(story.append)
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            assert eventually(lambda: of(story, RenewalFailed), 20)
            writer.execute("ROLLBACK")
        [failed] = of(story, RenewalFailed)[:1]
        assert failed.tally is None
        assert str(path) in failed.why
        assert 0 < failed.remaining < 6
        lease.check()
        lease.release()


@pytest.mark.live
@pytest.mark.real_time
@only_one_kind
def test_without_a_majority_it_is_waited_for_one_and_given_up(
    make_servers: Callable[..., Servers], connect: Callable[..., quorumlock.Locker]
) -> None:
    servers = make_servers(3)
    locks = connect(servers, patience=0.5)
    story: list[Event] = []
    locks.subscribe(story.append)
    for server in servers.servers[:2]:
        server.kill()
    with pytest.raises(quorumlock.NoQuorum):
        locks.lock("a", ttl=1).acquire()
    [waiting], [given_up] = of(story, Waiting), of(story, GivenUp)
    assert (waiting.remaining, waiting.fence) == (None, None)
    assert (given_up.why, given_up.serial) == ("no_quorum", waiting.serial)
    with pytest.raises(quorumlock.NoQuorum):
        locks.lock("a", ttl=1).try_acquire()
    assert [event.why for event in of(story, GivenUp)] == ["no_quorum"] * 2


def test_a_node_that_forgot_is_told_of() -> None:
    with quorumlock.connect("memory://?nodes=3") as locks:
        story: list[Event] = []
        locks.subscribe(story.append)
        locks.engine.servers[1].flush()
        locks.lock("a").acquire().release()
        [quarantined] = of(story, NodeQuarantined)
        assert quarantined.node == "memory-1"
        assert 0 < quarantined.seconds <= 60


# What guards refuse.


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://") as locker:
        yield locker


def refused_by_file(lease: Any, newer: Any, folder: Path) -> None:
    guard = FileGuard(folder / "report.txt")
    guard.enter(newer)
    guard.write(lease, "late")


def refused_by_file_in_a_task(lease: Any, newer: Any, folder: Path) -> None:
    async def main() -> None:
        guard = AsyncFileGuard(folder / "report.txt")
        await guard.enter(newer)
        await guard.write(lease, "late")

    asyncio.run(main())


def refused_by_sql(lease: Any, newer: Any, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        guard = SQLGuard()
        guard.create(database)
        guard.enter(database, newer)
        guard.enter(database, lease)


def refused_in_a_column(lease: Any, newer: Any, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO orders VALUES (1)")
        guard = guards.ColumnGuard("orders")
        guard.create(database)
        guard.enter(database, newer, 1)
        guard.update(database, lease, 1, {})


REFUSALS = [refused_by_file, refused_by_file_in_a_task, refused_by_sql, refused_in_a_column]


@pytest.mark.parametrize("refuse", REFUSALS)
def test_a_lease_that_a_guard_refuses_is_told_of_by_its_locker(
    refuse: Callable[..., None], locks: quorumlock.Locker, tmp_path: Path
) -> None:
    story: list[Event] = []
    elsewhere: list[Event] = []
    locks.subscribe(story.append)
    leave = guards.subscribe(elsewhere.append)
    old = locks.lock("report").acquire()
    old.release()
    with locks.lock("report") as new:
        with pytest.raises(StaleFence):
            refuse(old, new, tmp_path)
        assert of(story, FenceRefused) == [FenceRefused("report", "report", old.fence, new.fence)]
        assert of(story, FenceRefused)[0].serial == story[0].serial  # type: ignore[attr-defined]
    leave()
    assert elsewhere == [], "told once"


@pytest.mark.live
@pytest.mark.real_time
@only_one_kind
def test_a_guard_of_redis_tells_too(servers: Servers, locks: quorumlock.Locker) -> None:
    story: list[Event] = []
    locks.subscribe(story.append)
    old = locks.lock("report").acquire()
    old.release()
    with locks.lock("report") as new, closing(redis.Redis.from_url(servers[0].url)) as client:
        guard = RedisGuard(client)
        guard.enter(new)
        with pytest.raises(StaleFence):
            guard.set(old, "total", 1)
        assert of(story, FenceRefused) == [FenceRefused("report", "report", old.fence, new.fence)]


@pytest.mark.parametrize("refuse", REFUSALS)
def test_a_claim_that_is_refused_is_told_to_subscribers_of_guards(
    refuse: Callable[..., None], tmp_path: Path
) -> None:
    heard: list[Event] = []
    leave = guards.subscribe(heard.append)
    try:
        with pytest.raises(StaleFence):
            refuse(Claim("report", 7), Claim("report", 8), tmp_path)
    finally:
        leave()
    assert heard == [FenceRefused("report", "report", 7, 8)]


def test_a_service_hears_what_its_fences_refuse() -> None:
    async def main() -> None:
        fences = MemoryFences()
        async with fences.hold(Claim("report", 8)):
            pass
        with pytest.raises(StaleFence):
            async with fences.hold(Claim("report", 7)):
                raise AssertionError("admitted")

    heard: list[Event] = []
    leave = guards.subscribe(heard.append)
    asyncio.run(main())
    leave()
    assert heard == [FenceRefused("report", "report", 7, 8)]


def test_a_subscriber_that_raises_does_not_hide_the_refusal(locks: quorumlock.Locker, tmp_path: Path) -> None:
    def raises(_: Event) -> None:
        raise RuntimeError("in a subscriber")

    locks.subscribe(raises)
    old = locks.lock("report").acquire()
    old.release()
    with locks.lock("report") as new, pytest.raises(StaleFence) as refusal:
        refused_by_file(old, new, tmp_path)
    assert (refusal.value.fence, refusal.value.seen) == (old.fence, new.fence)
