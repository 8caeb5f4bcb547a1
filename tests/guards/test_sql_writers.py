"""Fifty writers with shuffled fences, killed at random, on every database and through every form of guard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from quorumlock.guards import ColumnGuard, SQLGuard

from . import sql_writers
from .sql_fixtures import Find, empty
from .sql_writers import KILLS, MARK, connect, least, run, violations, violations_of_marks

pytestmark = [pytest.mark.timeout(90), pytest.mark.real_time(1)]
ROOT = Path(__file__).parents[2]
STORES = ["sqlite", "postgresql", "mysql"]
IDS = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}


class Contest:
    """What the writers left behind, and what they said."""

    def __init__(self, store: str, where: str, form: str, folder: Path, seed: int) -> None:
        self.form = form
        log = folder / f"log-{seed}"
        self._prepare(store, where)
        command = [sys.executable, "-m", sql_writers.__name__, store, where, form, str(log), str(seed)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        self.kills = int(done.stdout)
        self.said: dict[str, list[int]] = {"ok": [], "refused": []}
        for line in log.read_text().splitlines():
            fence, _, word = line.partition(" ")
            self.said.setdefault(word, []).append(int(fence))
        with closing(connect(store, where)) as connection:
            self.history = [fence for (fence,) in run(connection, "SELECT fence FROM history ORDER BY id")]
            (self.row,) = [tuple(row) for row in run(connection, "SELECT one, two FROM account")]

    def _prepare(self, store: str, where: str) -> None:
        with closing(connect(store, where)) as connection:
            if store == "sqlite":
                run(connection, "PRAGMA journal_mode = WAL")
            run(connection, f"CREATE TABLE history (id {IDS[store]}, fence BIGINT NOT NULL)")
            run(
                connection,
                "CREATE TABLE account (id INTEGER PRIMARY KEY, one BIGINT NOT NULL, two BIGINT NOT NULL)",
            )
            run(connection, "INSERT INTO account VALUES (1, 0, 0)")
            connection.commit()
            SQLGuard().create(connection)
            ColumnGuard("account").create(connection)
            connection.commit()

    def meant_something(self) -> bool:
        """Enough was written, refused and killed."""
        written, refused = least(self.form)
        return len(self.said["ok"]) >= written and len(self.said["refused"]) >= refused and self.kills == KILLS


Hold = Callable[..., Contest]


@pytest.fixture
def contest(find_database: Find, tmp_path: Path) -> Hold:
    def hold(store: str, form: str, seed: int = 1) -> Contest:
        server = find_database(store)
        if server is not None:
            empty(store, server)
        return Contest(store, str(server.port) if server else str(tmp_path / f"rows-{seed}"), form, tmp_path, seed)

    return hold


@pytest.mark.parametrize("form", ["table", "column"])
@pytest.mark.parametrize("store", STORES)
def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(contest: Hold, store: str, form: str) -> None:
    held = contest(store, form)
    assert violations(held.history, held.row, held.said) == []
    assert held.meant_something(), (len(held.history), held.said, held.kills)


@pytest.mark.parametrize("store", STORES)
def test_nobody_writes_on_the_mark_of_another(contest: Hold, store: str) -> None:
    held = contest(store, MARK)
    assert violations_of_marks(held.history, held.row, held.said) == []
    assert held.meant_something(), (len(held.history), held.said, held.kills)


@pytest.mark.parametrize("canary", ["unlocked", "unordered", "apart", "unconditional"])
def test_a_guard_that_is_wrong_is_found_out(contest: Hold, canary: str) -> None:
    """Chance decides when; three times without is not chance."""
    for seed in range(3):
        held = contest("postgresql", canary, seed)
        if any(found.startswith("order") for found in violations(held.history, held.row, held.said)):
            return
    pytest.fail(f"{canary} was not found out")
