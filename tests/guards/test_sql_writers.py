"""Fifty writers with shuffled fences, killed at random, on every database and through every form of guard."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quorumlock.guards import ColumnGuard, SQLGuard

from . import sql_writers
from .sql_fixtures import Find, empty
from .sql_writers import BY_COLUMN, KILLS, MARK, connect, least, run, violations, violations_of_marks
from .writers import SEEDS

pytestmark = [pytest.mark.timeout(90), pytest.mark.real_time(1)]
ROOT = Path(__file__).parents[2]
STORES = ["sqlite", "postgresql", "mysql"]
IDS = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}


RIGHT = ("table", "column", MARK)
WRONG = ("unlocked", "unordered", "apart", "unconditional")


@dataclass
class Outcome:
    """What the writers left behind in one form, and what they said."""

    form: str
    kills: int
    history: list[int]
    row: tuple[int, int]
    said: dict[str, list[int]] = field(default_factory=lambda: {"ok": [], "refused": []})

    def meant_something(self) -> bool:
        """Enough was written, refused and killed."""
        written, refused = least(self.form)
        return len(self.said["ok"]) >= written and len(self.said["refused"]) >= refused and self.kills == KILLS


def tables(forms: Sequence[str]) -> list[str]:
    return [f"{table}_{form}" for form in forms for table in ("history", "account")]


def prepare(connection: Any, store: str, forms: Sequence[str]) -> None:
    if store == "sqlite":
        run(connection, "PRAGMA journal_mode = WAL")
    for form in forms:
        columns = "id INTEGER PRIMARY KEY, one BIGINT NOT NULL, two BIGINT NOT NULL"
        run(connection, f"CREATE TABLE history_{form} (id {IDS[store]}, fence BIGINT NOT NULL)")
        run(connection, f"CREATE TABLE account_{form} ({columns})")
        run(connection, f"INSERT INTO account_{form} VALUES (1, 0, 0)")
        connection.commit()
        if form in BY_COLUMN:
            ColumnGuard(f"account_{form}").create(connection)
    SQLGuard().create(connection)
    connection.commit()


def hold(store: str, where: str, forms: Sequence[str], folder: Path, seed: int) -> dict[str, Outcome]:
    """One contest in several forms: what came of each."""
    log = folder / f"log-{seed}"
    with closing(connect(store, where)) as connection:
        prepare(connection, store, forms)
    command = [sys.executable, "-m", sql_writers.__name__, store, where, ",".join(forms), str(log), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    outcomes = {}
    with closing(connect(store, where)) as connection:
        for form in forms:
            history = [fence for (fence,) in run(connection, f"SELECT fence FROM history_{form} ORDER BY id")]
            ((one, two),) = run(connection, f"SELECT one, two FROM account_{form}")
            outcomes[form] = Outcome(form, int(done.stdout), history, (one, two))
        connection.commit()
        for table in tables(forms):
            run(connection, f"DROP TABLE {table}")
        connection.commit()
    for line in log.read_text().splitlines():
        form, fence, word = line.split(" ", 2)
        outcomes[form].said.setdefault(word, []).append(int(fence))
    return outcomes


Held = Callable[..., Outcome]


@pytest.fixture(scope="module")
def contest(find_database: Find, tmp_path_factory: pytest.TempPathFactory) -> Held:
    """What came of one form; the right ones, and the wrong ones, have one contest each in every store."""

    @functools.cache
    def held(store: str, forms: tuple[str, ...], seed: int) -> dict[str, Outcome]:
        server, folder = find_database(store), tmp_path_factory.mktemp("contest")
        if server is not None:
            empty(store, server)
        return hold(store, str(server.port) if server else str(folder / "rows"), forms, folder, seed)

    return lambda store, form, seed=1: held(store, RIGHT if form in RIGHT else WRONG, seed)[form]


@pytest.mark.parametrize("form", ["table", "column"])
@pytest.mark.parametrize("store", STORES)
def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(contest: Held, store: str, form: str) -> None:
    held = contest(store, form)
    assert violations(held.history, held.row, held.said) == []
    assert held.meant_something(), (len(held.history), held.said, held.kills)


@pytest.mark.parametrize("store", STORES)
def test_nobody_writes_on_the_mark_of_another(contest: Held, store: str) -> None:
    held = contest(store, MARK)
    assert violations_of_marks(held.history, held.row, held.said) == []
    assert held.meant_something(), (len(held.history), held.said, held.kills)


@pytest.mark.parametrize("canary", WRONG)
def test_a_guard_that_is_wrong_is_found_out(contest: Held, canary: str) -> None:
    """Chance decides when; ten times without is not chance."""
    for seed in SEEDS:
        held = contest("postgresql", canary, seed)
        if any(found.startswith("order") for found in violations(held.history, held.row, held.said)):
            return
    pytest.fail(f"{canary} was not found out")
