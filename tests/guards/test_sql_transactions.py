"""Transactions that meet at a guard, at every level of isolation: nobody reads before the last write is decided."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from quorumlock import StaleFence, VersionConflict
from quorumlock.guards import Claim, ColumnGuard, SQLGuard

from .sql_canaries import Trusting, Unlocked
from .sql_sides import Conn, Side

pytestmark = pytest.mark.real_time(0.3)
T = TypeVar("T")
Open = Callable[[str], Side]

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
PLACES = [
    *((f"{store}-driver", level) for store in ("postgresql", "mysql") for level in LEVELS),
    ("mysql-driver", "REPEATABLE READ, SNAPSHOT"),
    ("sqlite-driver", "DELETE"),
    ("sqlite-driver", "WAL"),
]
"""For SQLite, which has one level alone, the kind of its journal. New MariaDBs notice old views, if told so."""
A_WHILE = 0.1


class Place:
    """A database with an account, at a level of isolation."""

    def __init__(self, side: Side, level: str) -> None:
        self.side, self.level = side, level
        conn = self.connect()
        conn.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
        conn.execute("INSERT INTO account VALUES (1, 0)")
        conn.execute("CREATE TABLE settings (id INTEGER PRIMARY KEY)")
        conn.commit()
        SQLGuard().create(conn.given)
        conn.commit()

    def connect(self) -> Conn:
        if self.side.store != "sqlite":
            level, _, snapshot = self.level.partition(", ")
            conn = self.side.connect(isolation=level)
            if snapshot:
                conn.execute("SET SESSION innodb_snapshot_isolation = ON")
            return conn
        conn = self.side.connect()
        conn.execute(f"PRAGMA journal_mode = {self.level}")
        return conn

    def balance(self) -> int:
        conn = self.connect()
        balance = int(conn.one("SELECT balance FROM account"))
        conn.commit()
        return balance


@pytest.fixture(params=PLACES, ids=lambda place: "-".join(place).replace("-driver", ""))
def place(request: pytest.FixtureRequest, open_side: Open) -> Place:
    side, level = request.param
    return Place(open_side(side), level)


@pytest.fixture
def begin() -> Iterator[Callable[..., Future[Any]]]:
    """Does something in another thread."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


def passing(error: Exception) -> bool:
    """A database that asks to try again, or a guard that found the transaction's view too old."""
    return (
        isinstance(error, VersionConflict)
        or getattr(error, "sqlstate", None) in ("40001", "40P01")
        or (error.args and error.args[0] in (1213, 1020))
        or "database is locked" in str(error)
    )


def until_it_passes(conn: Conn, work: Callable[[], T]) -> T:
    while True:
        try:
            result = work()
            conn.commit()
            return result
        except Exception as error:
            conn.rollback()
            if not passing(error):
                raise


def read(conn: Conn) -> int:
    return int(conn.one("SELECT balance FROM account"))


def write(conn: Conn, balance: int) -> None:
    conn.execute(f"UPDATE account SET balance = {balance}")


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_new_holder_waits_until_the_old_ones_write_is_decided(
    place: Place, begin: Callable[..., Future[Any]], ending: str
) -> None:
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    guard.enter(a.given, Claim("x", 1))
    a.commit()
    guard.admit(a.given, Claim("x", 33))
    write(a, 33)

    def enter_and_read() -> int:
        guard.enter(b.given, Claim("x", 34))
        return read(b)

    waiting = begin(until_it_passes, b, enter_and_read)
    assert not wait([waiting], A_WHILE).done, "it read before the write was decided"
    getattr(a, ending)()
    assert waiting.result(20) == (33 if ending == "commit" else 0)
    with pytest.raises(StaleFence):
        until_it_passes(a, lambda: guard.admit(a.given, Claim("x", 33)))
    assert place.balance() == (33 if ending == "commit" else 0)


def test_an_old_holder_waits_until_the_new_one_is_decided_and_is_refused(
    place: Place, begin: Callable[..., Future[Any]]
) -> None:
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    guard.enter(b.given, Claim("x", 34))
    late = begin(until_it_passes, a, lambda: guard.admit(a.given, Claim("x", 33)))
    assert not wait([late], A_WHILE).done, "it was admitted beside a newer holder"
    b.commit()
    with pytest.raises(StaleFence):
        late.result(20)


def test_an_old_holder_passes_if_the_new_one_gave_up(place: Place, begin: Callable[..., Future[Any]]) -> None:
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    guard.enter(b.given, Claim("x", 34))
    late = begin(until_it_passes, a, lambda: guard.admit(a.given, Claim("x", 33)))
    assert not wait([late], A_WHILE).done
    b.rollback()
    assert late.result(20) is None


@pytest.mark.parametrize("enters", [True, False], ids=["entering", "not entering"])
def test_a_delayed_write_after_the_new_holder_has_read(place: Place, enters: bool) -> None:
    """`read-before-write`: the fence alone, compared with each write, does not help whoever read first."""
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    guard.enter(a.given, Claim("x", 33))
    seen_by_a = read(a)
    a.commit()
    if enters:
        guard.enter(b.given, Claim("x", 34))
    seen_by_b = read(b)
    b.commit()

    def delayed() -> None:
        guard.admit(a.given, Claim("x", 33))
        write(a, seen_by_a + 1)

    def following() -> None:
        guard.admit(b.given, Claim("x", 34))
        write(b, seen_by_b + 10)

    if enters:
        with pytest.raises(StaleFence):
            until_it_passes(a, delayed)
    else:
        until_it_passes(a, delayed)
    until_it_passes(b, following)
    assert place.balance() == 10, "A's write was refused; or, without entering, lost"


def add_after_looking_around(guard: SQLGuard, place: Place) -> None:
    """B reads something first; A writes; B enters, reads, and adds to what it read."""
    a, b = place.connect(), place.connect()
    guard.enter(a.given, Claim("x", 33))
    a.commit()
    passes = itertools.count()

    def by_b() -> None:
        b.execute("SELECT * FROM settings")
        if not next(passes):
            guard.admit(a.given, Claim("x", 33))
            write(a, read(a) + 1)
            a.commit()
        guard.enter(b.given, Claim("x", 34))
        balance = read(b)
        guard.admit(b.given, Claim("x", 34))
        write(b, balance + 10)

    until_it_passes(b, by_b)


def test_a_view_that_is_older_than_the_last_write_is_not_read(place: Place) -> None:
    add_after_looking_around(SQLGuard(), place)
    assert place.balance() == 11


def test_nor_is_one_of_a_row_with_a_fence_of_its_own(place: Place) -> None:
    guard, a, b = ColumnGuard("account"), place.connect(), place.connect()
    guard.create(a.given)
    guard.enter(a.given, Claim("x", 33), 1)
    a.commit()
    passes = itertools.count()

    def by_b() -> None:
        b.execute("SELECT * FROM settings")
        if not next(passes):
            guard.update(a.given, Claim("x", 33), 1, {"balance": 1})
            a.commit()
        guard.enter(b.given, Claim("x", 34), 1)
        guard.update(b.given, Claim("x", 34), 1, {"balance": read(b) + 10})

    until_it_passes(b, by_b)
    assert place.balance() == 11


def test_without_that_mysql_would_lose_an_update(open_side: Open) -> None:
    place = Place(open_side("mysql-driver"), "REPEATABLE READ")
    add_after_looking_around(Trusting(), place)
    assert place.balance() == 10


def test_an_old_view_says_what_to_do_and_a_stale_fence_says_so_first(open_side: Open) -> None:
    place = Place(open_side("mysql-driver"), "REPEATABLE READ")
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    b.execute("SELECT * FROM settings")
    guard.enter(a.given, Claim("x", 33))
    a.commit()
    for verb in (guard.enter, guard.admit):
        with pytest.raises(VersionConflict, match="roll back, and enter before reading anything"):
            verb(b.given, Claim("x", 34))
    with pytest.raises(StaleFence) as caught:
        guard.enter(b.given, Claim("x", 32))
    assert caught.value.seen == 33
    b.rollback()
    guard.enter(b.given, Claim("x", 34))


def test_a_column_tells_what_is_there_and_not_what_an_old_view_has(open_side: Open) -> None:
    place = Place(open_side("mysql-driver"), "REPEATABLE READ")
    guard, a, b = ColumnGuard("account"), place.connect(), place.connect()
    guard.create(a.given)
    b.execute("SELECT * FROM settings")
    guard.enter(a.given, Claim("x", 35), 1)
    a.commit()
    with pytest.raises(StaleFence) as caught:
        guard.update(b.given, Claim("x", 34), 1, {"balance": 1})
    assert caught.value.seen == 35


@dataclass(frozen=True)
class Held:
    """As much of a lease as marks need."""

    token: str
    resource: str = "x"


def test_whoever_marks_waits_until_the_write_before_is_decided(
    place: Place, begin: Callable[..., Future[Any]]
) -> None:
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    guard.mark(a.given, Held("a"))
    a.commit()
    guard.write_if_marked(a.given, Held("a"), "UPDATE account SET balance = 33")

    def mark_and_read() -> int:
        guard.mark(b.given, Held("b"))
        return read(b)

    waiting = begin(until_it_passes, b, mark_and_read)
    assert not wait([waiting], A_WHILE).done, "it read before the write was decided"
    a.commit()
    assert waiting.result(20) == 33
    with pytest.raises(VersionConflict, match="not marked by this lease"):
        guard.write_if_marked(a.given, Held("a"), "UPDATE account SET balance = 1")
    a.rollback()
    assert place.balance() == 33


def test_a_mark_in_an_old_view_is_refused(place: Place) -> None:
    guard, a, b = SQLGuard(), place.connect(), place.connect()
    guard.mark(a.given, Held("a"))
    a.commit()
    passes = itertools.count()

    def by_b() -> int:
        b.execute("SELECT * FROM settings")
        if not next(passes):
            guard.write_if_marked(a.given, Held("a"), "UPDATE account SET balance = 33")
            a.commit()
        guard.mark(b.given, Held("b"))
        return read(b)

    assert until_it_passes(b, by_b) == 33


def race(guard: SQLGuard, place: Place, threads: int = 4, turns: int = 8) -> tuple[int, int]:
    """Threads that add to what they read, each time with a new fence; how many were let, and what there is."""
    fences, mutex, accepted = itertools.count(1), threading.Lock(), []

    def add(conn: Conn, fence: int) -> None:
        guard.enter(conn.given, Claim("x", fence))
        balance = read(conn)
        threading.Event().wait(random.random() * 0.003)
        guard.admit(conn.given, Claim("x", fence))
        write(conn, balance + 1)

    def work(conn: Conn) -> None:
        for _ in range(turns):
            with mutex:
                fence = next(fences)
            try:
                until_it_passes(conn, lambda: add(conn, fence))  # noqa: B023
            except StaleFence:
                continue
            accepted.append(fence)

    conns = [place.connect() for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, conns))
    return len(accepted), place.balance()


def test_no_update_is_lost(place: Place) -> None:
    accepted, balance = race(SQLGuard(), place)
    assert balance == accepted >= 4


def test_a_guard_that_does_not_lock_loses_updates(open_side: Open) -> None:
    place = Place(open_side("postgresql-driver"), "READ COMMITTED")
    conn = place.connect()
    SQLGuard().enter(conn.given, Claim("x", 1))
    conn.commit()

    class Reading(Unlocked):
        def enter(self, conn: Any, lease: Any) -> None:
            """Forgotten."""

    accepted, balance = race(Reading(), place, turns=20)
    assert balance < accepted
