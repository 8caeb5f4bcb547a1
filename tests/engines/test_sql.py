"""PostgreSQL and MariaDB: what only rows that are compared and set can get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import quorumlock
from quorumlock.clocks import boot_time
from quorumlock.core.requests import Acquire, AcquireAll, CellSwap, Release
from quorumlock.engines.sql import rows as sql_rows
from quorumlock.engines.sql.batches import Batch, Result, Visit
from quorumlock.engines.sql.pools import PoolLink
from tests.support.waiting import eventually

from .sql_servers import SELDOM, Connect, Place, connect, in_a_thread, on_mysql, place

__all__ = ["connect", "place"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


class Steps:
    """A request that is carried out step by step, over a link of its own."""

    def __init__(self, locker: Any, request: Any, link: Any = None) -> None:
        self.link = link or locker.engine.open(boot_time() + 5)
        self._visit: Visit[Any] = locker.engine._visits.answer(request)
        self._batch: Batch = next(self._visit)
        self.answer: Any = None

    def step(self) -> Sequence[Result]:
        results: Sequence[Result] = self.link.run(self._batch, boot_time() + 5)
        try:
            self._batch = self._visit.send(results)
        except StopIteration as done:
            self.answer = done.value
        return results

    def end(self) -> Any:
        while self.answer is None:
            self.step()
        self.link.close()
        return self.answer


def acquire(name: str, token: str, ttl_ms: int = 5000) -> Acquire:
    return Acquire(name, token, ttl_ms, 0)


@contextmanager
def pool(place: Place) -> Iterator[Any]:
    import sqlalchemy

    address = place.url().replace("://", "+psycopg://" if place.announces else "+pymysql://", 1)
    engine = sqlalchemy.create_engine(address)
    yield engine
    engine.dispose()


# What is remembered.


def test_a_renewal_does_not_make_us_forget_who_waits(place: Place, connect: Connect) -> None:
    """What is remembered of a row is what was written; a renewal changes the version of a row that has changed."""
    told = {"prefix": "renewed:"} | ({"retry": SELDOM} if place.announces else {})
    ours, theirs = connect(**told), connect(**told)
    lease = ours.lock("a", ttl=30, keep=False).acquire()
    thread, came = in_a_thread(lambda: theirs.lock("a", ttl=5, fair=True).acquire(timeout=20))
    assert eventually(lambda: ours.inspect("a").waiters)
    lease.extend(60)
    lease.release()
    thread.join()
    came[0].release()


def test_what_is_remembered_late_is_not_renewed_into_the_truth(connect: Connect) -> None:
    """A thread that releases may remember it only when another one has the lock, and has renewed it."""
    locker = connect()
    rows = locker.engine._visits.rows
    lock = locker.lock("late", ttl=8, keep=False)
    lock.acquire().release()
    late = dict(rows._known)
    lease = lock.acquire()
    rows._known.update(late)
    lease.extend(8)
    assert Steps(locker, acquire("late", "another")).end().vote.name == "REFUSED"
    lease.release()


def test_a_guess_that_is_wrong_is_no_refusal(connect: Connect) -> None:
    one, other = connect(prefix="guess:"), connect(prefix="guess:")
    for locker in (one, other, one, other):
        with locker.lock("a", ttl=5):
            pass
    held = other.lock("a", ttl=5).acquire()
    assert one.lock("a").try_acquire() is None
    held.release()
    one.lock("a", ttl=5).acquire().release()


# Rows that are made, and go.


@pytest.mark.parametrize("pooled", [False, True])
def test_of_two_who_saw_no_row_one_makes_it(place: Place, connect: Connect, pooled: bool) -> None:
    """Also over SQLAlchemy, which has MySQL count the rows that were found."""
    locker = connect()
    locker.lock("makes the tables", ttl=5).acquire().release()
    with pool(place) as engine:
        links = [PoolLink(engine) for _ in range(2)] if pooled else [None, None]
        one, other = (Steps(locker, acquire("new", token), link) for token, link in zip("ab", links, strict=True))
        one.step(), other.step()
        assert one.end().vote.name == "GRANTED"
        assert other.end().vote.name == "REFUSED"
        one, other = (Steps(locker, CellSwap("c", b"x", 0, 9000), link) for link in (links[0], links[1]))
        one.step(), other.step()
        assert [one.end().vote.name, other.end().vote.name] == ["GRANTED", "REFUSED"]


def test_a_row_that_was_seen_missing_is_not_made_below_the_floor(place: Place, connect: Connect) -> None:
    locker = connect(prefix="floor:")
    locker.lock("other", ttl=5).acquire().release()
    slow = Steps(locker, acquire("pruned", "slow"))
    slow.step()
    fence = Steps(locker, acquire("pruned", "quick")).end().fence
    _grow_old(place, "floor:")
    _prune(locker)
    assert slow.end().fence > fence


def _grow_old(place: Place, prefix: str) -> None:
    """As if a year had passed since the rows of a prefix were last touched: whatever was held has expired."""
    year_us = 365 * 86400 * 10**6
    place.sql(
        f"UPDATE quorumlock_locks SET until_us = until_us - {year_us}, touched_us = touched_us - {year_us} "
        f"WHERE name LIKE '{prefix}%'",
        f"UPDATE quorumlock_cells SET until_us = until_us - {year_us} WHERE name LIKE '{prefix}%'",
    )


def _prune(locker: Any) -> None:
    """By the next who changes anything."""
    locker.engine._visits.rows.changes = sql_rows.PRUNE_EVERY
    with locker.lock("prunes", ttl=5, keep=False):
        pass


def test_what_is_pruned_leaves_its_fence(place: Place, connect: Connect) -> None:
    locker = connect(prefix="prune:")
    fences = {}
    for name in "abc":
        for _ in range(3):
            with locker.lock(name, ttl=5, keep=False) as lease:
                fences[name] = lease.fence
    held = locker.multi(["m1", "m2"], ttl=5, keep=False).acquire()
    fences |= held.fences
    held.release()
    version = Steps(locker, CellSwap("c", b"x", 0, 5000)).end().fence
    _grow_old(place, "prune:")
    _prune(locker)
    told = "SELECT COUNT(*) FROM quorumlock_{} WHERE name LIKE 'prune:%'"
    assert [place.sql(told.format(table)) for table in ("locks", "cells")] == [[(1,)], [(0,)]]
    for name, fence in fences.items():
        with locker.lock(name, ttl=5, keep=False) as lease:
            assert lease.fence > fence
    assert Steps(locker, CellSwap("c", b"y", 0, 5000)).end().fence > version


def test_locks_in_sets_count_for_pruning(connect: Connect) -> None:
    locker = connect()
    locker.multi(["a", "b"], ttl=5).acquire().release()
    rows = locker.engine._visits.rows
    before = rows.changes
    locker.multi(["a", "b"], ttl=5).acquire().release()
    assert rows.changes > before


def test_a_cell_that_is_over_leaves_its_version(place: Place, connect: Connect) -> None:
    locker = connect(prefix="over:")
    value = bytes(range(256)) + "'\\%?é".encode()
    version = Steps(locker, CellSwap("c", value, 0, 5000)).end().fence
    _grow_old(place, "over:")
    cell = locker.cell("c")
    assert cell.get() == (None, 0)
    later = cell.set(value * 100, 0)
    assert later > version
    assert cell.get() == (value * 100, later)
    with pytest.raises(quorumlock.VersionConflict):
        cell.set(b"", version)


def test_tables_that_were_dropped_are_made_again_above_all_fences(place: Place, connect: Connect) -> None:
    url = place.url(database=place.another_database())
    locker, other = connect(url=url, prefix=""), connect(url=url, prefix="")
    fences = []
    database = url.partition("?")[0].rpartition("/")[2]
    for _ in range(3):
        for one in (locker, other):
            with one.lock("a", ttl=5) as lease:
                fences.append(lease.fence)
        place.sql("DROP TABLE quorumlock_locks, quorumlock_cells, quorumlock_meta", database=database)
    assert fences == sorted(set(fences))


def test_a_meta_table_without_its_row_is_being_made(place: Place, connect: Connect) -> None:
    """Where tables are made one by one, somebody sees them before the last row is there."""
    url = place.url(database=place.another_database())
    with connect(url=url).lock("a", ttl=5) as lease:
        fence = lease.fence
    place.sql("DELETE FROM quorumlock_meta", database=url.partition("?")[0].rpartition("/")[2])
    with connect(url=url).lock("a", ttl=5) as lease:
        assert lease.fence > fence
    assert connect(url=url).cell("c").get() == (None, 0)


@on_mysql
def test_nobody_is_told_of_tables_that_were_there(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """asyncmy logs what the server notes."""
    url = place.url(database=place.another_database())

    async def lock() -> None:
        async with quorumlock.connect_async(url) as locker:
            await (await locker.lock("a", ttl=5).acquire()).release()

    asyncio.run(lock())
    place.sql("DELETE FROM quorumlock_meta", database=url.partition("?")[0].rpartition("/")[2])
    asyncio.run(lock())
    assert caplog.records == []


def test_many_who_come_first_make_the_tables_together(place: Place, connect: Connect) -> None:
    url = place.url(database=place.another_database())
    lockers = [connect(url=url, prefix="first:") for _ in range(8)]
    threads = [in_a_thread(lambda one: one.lock("a", ttl=5).acquire(timeout=20).release(), one) for one in lockers]
    for thread, came in threads:
        thread.join()
        assert came == [None]


# Several rows at once.


def test_who_is_stopped_in_the_midst_keeps_nobody_from_its_rows(
    place: Place, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is suspended says nothing more: whatever it holds on to is what it holds on to for hours."""
    quick, slow = connect(prefix="stop:"), connect(prefix="stop:")
    quick.multi(["a", "b"], ttl=0.3, keep=False).acquire().release()
    steps = Steps(slow, AcquireAll(("a", "b"), "slow", 300, 0))
    steps.step()
    if not place.announces:
        link = steps.link
        say = link._say
        monkeypatch.setattr(link, "_say", lambda query, due: query.text == "COMMIT" or say(query, due))
    steps.step()
    quick.multi(["b", "a", "c"], ttl=5).acquire(timeout=10).release()  # less than a server waits for a row
    steps.link.close()


def test_sets_that_overlap_are_all_or_none(place: Place, connect: Connect) -> None:
    """Whatever order they are named in; and nobody gets in the way of a renewal."""
    lockers = [connect(prefix="sets:") for _ in range(4)]
    names = [["a", "b", "c"], ["c", "a", "d"], ["d", "c", "b"], ["b", "d", "a"]]
    inside: set[str] = set()
    kept = connect(prefix="sets:").lock("kept", ttl=3).acquire()

    def work(locker: Any, mine: list[str]) -> int:
        for _ in range(8):
            with locker.multi(mine, ttl=10, timeout=60):
                assert not inside & set(mine)
                inside.update(mine)
                inside.difference_update(mine)
        return 1

    threads = [in_a_thread(work, *one) for one in zip(lockers, names, strict=True)]
    for thread, came in threads:
        thread.join()
        assert came == [1]
    kept.check()
    kept.release()


def test_a_lost_release_of_a_row_that_changed_changes_nothing(connect: Connect) -> None:
    locker = connect()
    Steps(locker, acquire("a", "one", 50)).end()
    release = Steps(locker, Release("a", "one"))
    assert eventually(lambda: Steps(locker, acquire("a", "two")).end().vote.name == "GRANTED"), "one's is over"
    assert release.end().vote.name == "REFUSED"
    assert locker.lock("a").try_acquire() is None
