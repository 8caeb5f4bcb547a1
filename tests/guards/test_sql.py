"""The guard table, on every database by every way to it: order, refusal, and what is left behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError, StaleFence, VersionConflict
from quorumlock.guards import Claim
from quorumlock.guards.sql import AsyncColumnGuard, AsyncSQLGuard, ColumnGuard, SQLGuard
from quorumlock.guards.sql.table import digest
from tests.style.test_parity import public, signature, told

from .sql_sides import SIDES, Conn, Side

Open = Callable[[str], Side]


@dataclass(frozen=True)
class Held:
    """As much of a lease as `mark` asks for: it has no fence."""

    token: str
    resource: str = "a"


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, open_side: Open) -> Side:
    return open_side(request.param)


@pytest.fixture
def conn(side: Side) -> Conn:
    """With a guard table, and an account with nothing in it."""
    conn = side.connect()
    conn.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
    conn.execute("INSERT INTO account VALUES (1, 0)")
    conn.commit()
    conn(side.sql_guard().create)
    conn.commit()
    return conn


def marks(conn: Conn) -> dict[str, int]:
    rows = conn.execute("SELECT resource, fence FROM quorumlock_guard")
    conn.commit()
    return {name.decode() if isinstance(name, bytes) else name: fence for name, fence in rows}


def test_fences_that_do_not_fall_are_admitted(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    for fence in (1, 1, 2, 2**31, 2**53, 2**53):
        assert conn(guard.enter, Claim("a", fence)) is None
        assert conn(guard.admit, Claim("a", fence)) is None
        conn.execute(f"UPDATE account SET balance = {fence % 1000}")
        conn.commit()
    assert marks(conn) == {"a": 2**53}
    assert conn.one("SELECT balance FROM account") == 2**53 % 1000


@pytest.mark.parametrize("verb", ["enter", "admit"])
def test_an_older_fence_is_refused_and_nothing_is_written(side: Side, conn: Conn, verb: str) -> None:
    guard = side.sql_guard()
    conn(guard.enter, Claim("a", 34))
    conn.commit()
    conn.execute("UPDATE account SET balance = 1")
    with pytest.raises(StaleFence, match=r"'a' has seen fence 34, and refuses 33") as caught:
        conn(getattr(guard, verb), Claim("a", 33))
    assert (caught.value.fence, caught.value.seen) == (33, 34)
    conn.rollback()
    assert marks(conn) == {"a": 34}
    assert conn.one("SELECT balance FROM account") == 0


def test_a_refusal_writes_nothing_even_if_the_transaction_is_committed(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    conn(guard.enter, Claim("a", 34))
    conn.commit()
    before = conn.execute("SELECT * FROM quorumlock_guard")
    with pytest.raises(StaleFence):
        conn(guard.admit, Claim("a", 33))
    conn.commit()
    assert conn.execute("SELECT * FROM quorumlock_guard") == before


def test_the_mark_falls_back_with_the_transaction_that_raised_it(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    conn(guard.admit, Claim("a", 1))
    conn.commit()
    conn(guard.admit, Claim("a", 9))
    conn.rollback()
    conn(guard.admit, Claim("a", 2))
    conn.commit()
    assert marks(conn) == {"a": 2}


NAMES = [
    "a",
    "A",
    "á",
    "a ",
    " a",
    "a%s",
    "a:b",
    "%(fence)s",
    "a#1",
    "'",
    '"',
    "`",
    "\\",
    "x" * 255,
    "\U0001f512" * 255,
]


def test_resources_are_told_apart_by_every_character(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    for fence, name in enumerate(NAMES, 1):
        conn(guard.enter, Claim(name, fence))
    conn.commit()
    assert marks(conn) == {name: fence for fence, name in enumerate(NAMES, 1)}
    for fence, name in enumerate(NAMES[1:], 1):
        with pytest.raises(StaleFence) as caught:
            conn(guard.enter, Claim(name, fence))
        assert caught.value.seen == fence + 1
    conn.rollback()


def test_two_guards_do_not_know_of_each_other(side: Side, conn: Conn) -> None:
    other = side.sql_guard("other_guard")
    conn(other.create)
    conn.commit()
    conn(other.enter, Claim("a", 5))
    conn(side.sql_guard().enter, Claim("a", 4))
    conn.commit()
    assert marks(conn) == {"a": 4}


def test_a_table_may_be_named_with_its_schema(side: Side, conn: Conn) -> None:
    schema = {"sqlite": "main", "postgresql": "public", "mysql": "test"}[side.store]
    guard = side.sql_guard(f"{schema}.quorumlock_guard")
    conn(guard.create)
    conn(guard.enter, Claim("a", 5))
    conn.commit()
    assert marks(conn) == {"a": 5}


def test_creating_twice_changes_nothing(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    conn(guard.enter, Claim("a", 5))
    conn(guard.create)
    conn.commit()
    assert marks(conn) == {"a": 5}


def test_admit_refuses_a_connection_that_commits_by_itself_and_writes_nothing(side: Side, conn: Conn) -> None:
    guard, alone = side.sql_guard(), side.connect(autocommit=True)
    with pytest.raises(ConfigurationError, match="begin a transaction first"):
        alone(guard.admit, Claim("a", 1))
    alone(guard.mark, Held("x"))
    with pytest.raises(ConfigurationError, match="begin a transaction first"):
        alone(guard.write_if_marked, Held("x"), "UPDATE account SET balance = 1")
    assert marks(conn) == {"a": 0}
    assert conn.one("SELECT balance FROM account") == 0


def test_enter_may_commit_by_itself(side: Side, conn: Conn) -> None:
    guard, alone = side.sql_guard(), side.connect(autocommit=True)
    alone(guard.enter, Claim("a", 3))
    assert marks(conn) == {"a": 3}
    with pytest.raises(StaleFence):
        alone(guard.enter, Claim("a", 2))


@pytest.mark.parametrize("side", [side for side in SIDES if "driver" in side], indirect=True)
def test_a_transaction_that_was_begun_by_hand_is_one(side: Side, conn: Conn) -> None:
    guard, alone = side.sql_guard(), side.connect(autocommit=True)
    alone.execute("BEGIN")
    alone(guard.admit, Claim("a", 3))
    alone.execute("ROLLBACK")
    assert marks(conn) == {}


def test_a_missing_table_says_what_to_do(side: Side, conn: Conn) -> None:
    guard = side.sql_guard("other_guard")
    calls: list[tuple[Any, ...]] = [
        (guard.enter, Claim("a", 1)), (guard.admit, Claim("a", 1)), (guard.mark, Held("x")),
        (guard.write_if_marked, Held("x"), "UPDATE account SET balance = 1"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ConfigurationError, match=r"no guard table 'other_guard'.*call create\(\)") as caught:
            conn(*call)
        assert caught.value.__cause__ is not None
        conn.rollback()
    assert conn.one("SELECT balance FROM account") == 0


def test_whoever_marked_last_may_write(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    write = "UPDATE account SET balance = balance + 1"
    conn(guard.mark, Held("x"))
    assert conn(guard.write_if_marked, Held("x"), write) == 1
    assert conn(guard.write_if_marked, Held("x"), write) == 1
    conn.commit()
    conn(guard.mark, Held("y"))
    conn.commit()
    with pytest.raises(VersionConflict, match="'a' is not marked by this lease"):
        conn(guard.write_if_marked, Held("x"), write)
    conn.rollback()
    with pytest.raises(VersionConflict):
        conn(guard.write_if_marked, Held("y", "b"), write)
    conn.rollback()
    assert conn(guard.write_if_marked, Held("y"), f"{write} WHERE id = 2") == 0
    conn.commit()
    assert conn.one("SELECT balance FROM account") == 2


def test_a_statement_takes_parameters_as_its_connection_does(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    conn(guard.mark, Held("x"))
    style = {"driver": "?" if side.store == "sqlite" else "%s"}.get(side.way, ":n")
    parameters = (7,) if side.way == "driver" else {"n": 7}
    conn(guard.write_if_marked, Held("x"), f"UPDATE account SET balance = {style}", parameters)
    assert conn.one("SELECT balance FROM account") == 7
    conn(guard.write_if_marked, Held("x"), "UPDATE account SET balance = 7 % 4")
    assert conn.one("SELECT balance FROM account") == 3, "without parameters, % is a character"
    if side.way != "driver":
        from sqlalchemy import column, table, update

        account = table("account", column("id"), column("balance"))
        conn(guard.write_if_marked, Held("x"), update(account).values(balance=8))
        assert conn.one("SELECT balance FROM account") == 8
    conn.rollback()


def test_errors_of_a_statement_are_the_drivers_own(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    conn(guard.mark, Held("x"))
    with pytest.raises(Exception, match="nowhere") as caught:
        conn(guard.write_if_marked, Held("x"), "UPDATE nowhere SET balance = 1")
    assert not isinstance(caught.value, quorumlock.LockError)
    conn.rollback()


def test_the_token_is_not_stored_and_marks_do_not_touch_fences(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    conn(guard.enter, Claim("a", 5))
    conn(guard.mark, Held("secret"))
    conn(guard.enter, Claim("a", 5))
    ((resource, fence, mark, *_),) = conn.execute("SELECT resource, fence, mark FROM quorumlock_guard")
    conn.commit()
    assert fence == 5
    assert (mark.decode() if isinstance(mark, bytes) else mark) == digest("secret")
    assert "secret" not in repr((resource, fence, mark))


def test_a_real_lease_is_enough(side: Side, conn: Conn) -> None:
    guard = side.sql_guard()
    with quorumlock.connect("memory://") as locks:
        lock = locks.lock("a", keep=False)
        old = lock.acquire()
        conn(guard.enter, old)
        conn(guard.mark, old)
        old.release()
        with lock as lease:
            conn(guard.enter, lease)
            with pytest.raises(StaleFence):
                conn(guard.admit, old)
            conn(guard.admit, lease)
            conn(guard.write_if_marked, old, "UPDATE account SET balance = 5")
        conn.commit()


@pytest.mark.parametrize(
    ("sync", "aio"), [(SQLGuard, AsyncSQLGuard), (ColumnGuard, AsyncColumnGuard)], ids=["table", "column"]
)
def test_both_kinds_of_guard_say_the_same(sync: type, aio: type) -> None:
    ours, theirs = public(sync), public(aio)
    assert ours.keys() == theirs.keys()
    assert told(sync.__doc__) == told(aio.__doc__)
    for name, method in ours.items():
        assert method.__doc__ == theirs[name].__doc__ != None  # noqa: E711
        assert signature(method) == signature(theirs[name])
        assert inspect.iscoroutinefunction(theirs[name])
        assert not inspect.iscoroutinefunction(method)
