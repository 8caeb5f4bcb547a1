"""The fence in the row itself, on every database by every way to it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from quorumlock import ConfigurationError, LockError, StaleFence
from quorumlock.guards import Claim, ColumnGuard

from .sql_sides import DRIVERS, SIDES, Conn, Side

Open = Callable[[str], Side]


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, open_side: Open) -> Side:
    return open_side(request.param)


@pytest.fixture
def conn(side: Side) -> Conn:
    """With an account that a guard was made for."""
    conn = side.connect()
    conn.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, owner VARCHAR(20))")
    conn.execute("INSERT INTO account VALUES (1, 0, 'x'), (2, 0, 'x')")
    conn.commit()
    conn(side.column_guard("account").create)
    conn.commit()
    return conn


def rows(conn: Conn) -> list[tuple[object, ...]]:
    found = conn.execute("SELECT id, balance, owner, fence FROM account ORDER BY id")
    conn.commit()
    return found


def test_an_update_carries_its_fence(side: Side, conn: Conn) -> None:
    guard = side.column_guard("account")
    assert conn(guard.enter, Claim("a", 3), 1) is None
    assert conn(guard.update, Claim("a", 3), 1, {"balance": 5, "owner": "it's 100% :me"}) is None
    conn(guard.update, Claim("a", 4), 1, {"balance": 6})
    conn.commit()
    assert rows(conn) == [(1, 6, "it's 100% :me", 4), (2, 0, "x", 0)]


def test_an_older_fence_is_refused_and_nothing_is_written(side: Side, conn: Conn) -> None:
    guard = side.column_guard("account")
    conn(guard.enter, Claim("a", 34), 1)
    conn.commit()
    before = rows(conn)
    for call in ((guard.enter, Claim("a", 33), 1), (guard.update, Claim("a", 33), 1, {"balance": 9})):
        with pytest.raises(StaleFence, match="'a' has seen fence 34, and refuses 33") as caught:
            conn(*call)
        assert (caught.value.fence, caught.value.seen) == (33, 34)
        conn.commit()
    assert rows(conn) == before


def test_what_changes_nothing_is_accepted_as_often_as_it_comes(side: Side, conn: Conn) -> None:
    """MySQL counts such a row as untouched."""
    guard = side.column_guard("account")
    for _ in range(3):
        conn(guard.enter, Claim("a", 3), 1)
        conn(guard.update, Claim("a", 3), 1, {"balance": 5})
        conn.commit()
    assert rows(conn)[0] == (1, 5, "x", 3)


def test_a_row_that_is_not_there_is_a_lookup_error(side: Side, conn: Conn) -> None:
    guard = side.column_guard("account")
    for call in ((guard.enter, Claim("a", 3), 9), (guard.update, Claim("a", 3), 9, {"balance": 9})):
        with pytest.raises(LookupError, match="no row with id = 9"):
            conn(*call)
        conn.rollback()


def test_a_statement_of_ones_own_is_told_apart_by_its_count(side: Side, conn: Conn) -> None:
    guard = side.column_guard("account")
    conn(guard.enter, Claim("a", 34), 1)
    conn.commit()
    conn(guard.check, Claim("a", 35), 1, 1)
    with pytest.raises(StaleFence):
        conn(guard.check, Claim("a", 33), 1, 0)
    with pytest.raises(LookupError):
        conn(guard.check, Claim("a", 33), 9, 0)
    with pytest.raises(LookupError, match="was there to be written to"):
        conn(guard.check, Claim("a", 35), 1, 0)
    with pytest.raises(ConfigurationError, match="names 2 rows"):
        conn(guard.check, Claim("a", 35), 1, 2)
    conn.rollback()


def test_an_update_is_whole_without_a_transaction(side: Side, conn: Conn) -> None:
    guard, alone = side.column_guard("account"), side.connect(autocommit=True)
    alone(guard.update, Claim("a", 3), 1, {"balance": 5})
    with pytest.raises(StaleFence):
        alone(guard.update, Claim("a", 2), 1, {"balance": 4})
    assert rows(conn)[0] == (1, 5, "x", 3)


def test_creating_twice_changes_nothing(side: Side, conn: Conn) -> None:
    guard = side.column_guard("account")
    conn(guard.enter, Claim("a", 34), 1)
    conn.commit()
    conn(guard.create)
    conn.commit()
    assert rows(conn)[0][3] == 34


def test_what_is_missing_is_said(side: Side, conn: Conn) -> None:
    for guard in (side.column_guard("nowhere"), side.column_guard("account", column="token")):
        with pytest.raises(ConfigurationError, match=r"no table 'nowhere'|no column 'token': call create\(\)"):
            conn(guard.update, Claim("a", 3), 1, {"balance": 5})
        conn.rollback()
    with pytest.raises(ConfigurationError, match="no table 'nowhere' to add the column 'fence' to"):
        conn(side.column_guard("nowhere").create)
    conn.rollback()
    with pytest.raises(Exception, match="missing") as caught:
        conn(side.column_guard("account").update, Claim("a", 3), 1, {"missing": 5})
    assert not isinstance(caught.value, LockError), "a column of the user's: the driver's own words"
    conn.rollback()
    assert rows(conn) == [(1, 0, "x", 0), (2, 0, "x", 0)]


@pytest.mark.parametrize("side", DRIVERS, indirect=True)
def test_a_key_that_names_several_rows_is_refused(side: Side, conn: Conn) -> None:
    with pytest.raises(ConfigurationError, match="names 2 rows of 'account', not one: roll back"):
        conn(side.column_guard("account", key="owner").update, Claim("a", 3), "x", {"balance": 5})
    conn.rollback()
    assert rows(conn)[0][1] == 0


@pytest.mark.parametrize("side", DRIVERS, indirect=True)
def test_a_column_that_may_be_null_is_refused(side: Side, conn: Conn) -> None:
    conn.execute("ALTER TABLE account ADD COLUMN token BIGINT")
    conn.commit()
    with pytest.raises(ConfigurationError, match="is to be BIGINT NOT NULL DEFAULT 0; it holds None"):
        conn(ColumnGuard("account", column="token").update, Claim("a", 3), 1, {"balance": 5})
    conn.rollback()
    assert rows(conn)[0][1] == 0


@pytest.mark.parametrize("side", DRIVERS, indirect=True)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_new_holder_waits_until_the_old_ones_write_is_decided(side: Side, conn: Conn, level: str) -> None:
    guard, b = ColumnGuard("account"), side.connect(isolation=level)
    guard.update(conn.given, Claim("a", 33), 1, {"balance": 33})

    def enter_and_read() -> int:
        while True:
            try:
                guard.enter(b.given, Claim("a", 34), 1)
                return int(b.one("SELECT balance FROM account WHERE id = 1"))
            except Exception as error:
                b.rollback()
                if getattr(error, "sqlstate", None) != "40001":
                    raise

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(enter_and_read)
        assert not wait([waiting], 0.1).done
        conn.commit()
        assert waiting.result(20) == 33
    b.commit()
    with pytest.raises(StaleFence):
        guard.update(conn.given, Claim("a", 33), 1, {"balance": 9})
    conn.rollback()


@pytest.mark.parametrize("side", ["mysql-driver"], indirect=True)
def test_mysql_is_not_made_to_commit_what_is_under_way(side: Side, conn: Conn) -> None:
    conn.execute("UPDATE account SET balance = 7")
    for guard in (ColumnGuard("account", column="token"), side.sql_guard()):
        with pytest.raises(ConfigurationError, match="MySQL would commit your transaction"):
            conn(guard.create)
    conn.rollback()
    assert rows(conn)[0][1] == 0
