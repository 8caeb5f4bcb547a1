"""What a transaction must not be trusted with: a view that is old, or a savepoint that commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from quorumlock import ConfigurationError, VersionConflict
from quorumlock.guards import Claim, ColumnGuard, SQLGuard

from .sql_sides import Side

Open = Callable[[str], Side]


@pytest.mark.parametrize("again", [True, False], ids=["enters again", "writes at once"])
@pytest.mark.parametrize("way", ["mysql-driver", "mysql-session"])
def test_who_entered_elsewhere_does_not_write_what_an_old_view_told(open_side: Open, way: str, again: bool) -> None:
    """MySQL: B has a view; A writes with 33; B enters with 34 on another connection, and reads what was before."""
    side = open_side(way)
    setup = side.connect()
    setup.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
    setup.execute("CREATE TABLE settings (id INTEGER PRIMARY KEY)")
    setup.execute("INSERT INTO account VALUES (1, 0)")
    setup.commit()
    guard = ColumnGuard("account")
    guard.create(setup.given)
    setup.commit()
    a, b, elsewhere = (side.connect(isolation="REPEATABLE READ") for _ in range(3))
    b.execute("SELECT * FROM settings")
    guard.update(a.given, Claim("x", 33), 1, {"balance": 5})
    a.commit()
    guard.enter(elsewhere.given, Claim("x", 34), 1)
    elsewhere.commit()
    assert b.one("SELECT balance FROM account") == 0, "there is no old view here"
    write: dict[str, object] = {} if again else {"balance": 1}
    with pytest.raises(VersionConflict):
        guard.update(b.given, Claim("x", 34), 1, write)
    b.rollback()
    guard.enter(b.given, Claim("x", 34), 1)
    assert b.one("SELECT balance FROM account") == 5
    guard.update(b.given, Claim("x", 34), 1, {"balance": 6})
    guard.update(b.given, Claim("x", 34), 1, {"balance": 7})
    b.commit()
    assert setup.one("SELECT balance FROM account") == 7


def test_a_savepoint_of_sqlite_that_would_commit_is_refused(tmp_path: Path) -> None:
    """Python's sqlite3 begins no transaction before a savepoint: its end would commit, without the write."""
    engine = create_engine(f"sqlite:///{tmp_path / 'data.db'}")
    guard = SQLGuard()
    with engine.begin() as connection:
        guard.create(connection)
    with Session(engine) as session, session.begin():
        with pytest.raises(ConfigurationError, match="savepoint"), session.begin_nested():
            guard.admit(session, Claim("x", 7))
        guard.admit(session, Claim("x", 7))
        with session.begin_nested():
            session.execute(text("SELECT 1"))
    engine.dispose()
