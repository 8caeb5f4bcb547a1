"""Fifty processes that write to one row of a database with shuffled fences, and are killed at random.

    python -m tests.guards.sql_writers STORE WHERE FORMS LOG SEED

is one light process that forks them. In each round a writer writes once in every form, to a row of that form's
own. Every accepted write adds its fence to a history, and changes the row in two steps, all in one transaction;
only after the commit does the writer say `ok` in the log. The ids of the history are given while the guard keeps
its row locked, so they tell the order of the commits.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorumlock import StaleFence, VersionConflict
from quorumlock.guards import Claim, ColumnGuard, SQLGuard

from .writers import LONG, LONGEST, NEVER, OVER, WRITERS, Board

KILLS = 20
BREAK = 0.08
"""So many seconds a writer rests at most before its next try. In each round (see `Board`) every writer tries once;
fences grow from round to round."""
MARK = "mark"
BY_COLUMN = ("column", "unconditional")
WRITTEN, REFUSED = (50, 500) if LONG else (5, 50)
"""A run goes on until so many were, however slow the machine is; of marks, which have no order, one of each."""
MARKERS = 5
"""One in so many sets a mark in a round: with everybody at it, hardly anybody would get to write."""
MANY = 3 * REFUSED
"""A guard that has accepted so many, and has not refused enough, will not do so."""

Write = Callable[[Any, int], None]


@dataclass(frozen=True)
class Marked:
    """As much of a lease as marks need."""

    token: str
    resource: str = MARK


def connect(store: str, where: str) -> Any:
    if store == "sqlite":
        return sqlite3.connect(where, timeout=30)
    if store == "postgresql":
        import psycopg

        return psycopg.connect(f"postgresql://test@127.0.0.1:{where}/postgres?sslmode=disable")
    import pymysql  # type: ignore[import-untyped]

    return pymysql.connect(host="127.0.0.1", port=int(where), user="root", database="test", ssl_disabled=True)


def run(connection: Any, sql: str) -> list[Any]:
    cursor = connection.cursor()
    cursor.execute(sql)
    rows = list(cursor.fetchall()) if cursor.description else []
    cursor.close()
    return rows


def _in_two_steps(connection: Any, form: str, fence: int, *columns: str) -> None:
    run(connection, f"INSERT INTO history_{form} (fence) VALUES ({fence})")
    for column in columns:
        run(connection, f"UPDATE account_{form} SET {column} = {fence} WHERE id = 1")
        time.sleep(random.random() * 0.003)
    connection.commit()


def through_table(guard: SQLGuard, form: str) -> Write:
    def write(connection: Any, fence: int) -> None:
        guard.admit(connection, Claim(form, fence))
        _in_two_steps(connection, form, fence, "one", "two")

    return write


def through_column(guard: ColumnGuard, form: str) -> Write:
    def write(connection: Any, fence: int) -> None:
        guard.enter(connection, Claim(form, fence), 1)
        guard.update(connection, Claim(form, fence), 1, {"one": fence})
        _in_two_steps(connection, form, fence, "two")

    return write


def through_mark(guard: SQLGuard) -> Write:
    """Marks are in the history too, below zero: a write has to follow its own."""

    def write(connection: Any, fence: int) -> None:
        guard.mark(connection, Marked(str(fence)))
        run(connection, f"INSERT INTO history_{MARK} (fence) VALUES ({-fence})")
        connection.commit()
        time.sleep(random.random() * 0.003)
        change = f"UPDATE account_{MARK} SET one = {fence} WHERE id = 1"
        guard.write_if_marked(connection, Marked(str(fence)), change)
        _in_two_steps(connection, MARK, fence, "two")

    return write


def form(name: str) -> Write:
    from .sql_canaries import CANARIES, Unconditional

    if name in BY_COLUMN:
        return through_column((ColumnGuard if name == "column" else Unconditional)(f"account_{name}"), name)
    if name == MARK:
        return through_mark(SQLGuard())
    return through_table(CANARIES.get(name, SQLGuard)(), name)


def passing(error: Exception) -> bool:
    """A deadlock or the like: the database asks to try again."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01") or (error.args and error.args[0]) in (1213, 1020)


def _attempt(connection: Any, write: Write, fence: int) -> str:
    while True:
        try:
            write(connection, fence)
            return "ok"
        except (StaleFence, VersionConflict):
            connection.rollback()
            return "refused"
        except Exception as error:
            connection.rollback()
            if not passing(error):
                return f"error {error!r}".replace("\n", " ")


def _be_a_writer(number: int, connection: Any, writes: dict[str, Write], how: How) -> None:
    random.seed(f"{how.seed}/{number}")
    while (current := how.board.current) != OVER:
        if current == how.board.done[number]:
            time.sleep(random.random() * BREAK)
            continue
        order = random.Random(f"{how.seed}/{current}").sample(range(WRITERS), WRITERS)
        fence = current * WRITERS + order[number] + 1
        for name, write in writes.items():
            if name == MARK and number % MARKERS != current % MARKERS:
                continue
            said = _attempt(connection, write, fence)
            # One write to a file opened for appending: it is there whole, even if its writer is killed right after.
            os.write(how.log, f"{name} {fence} {said}\n".encode())
        how.board.done[number] = current
    connection.close()


@dataclass(frozen=True)
class How:
    """What all writers of a contest share."""

    log: int
    board: Board
    seed: str


def main(store: str, where: str, forms: str, log: str, seed: str) -> None:
    writes = {name: form(name) for name in forms.split(",")}
    connect(store, where).close()  # imports the driver once, for all of them
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    how = How(out, Board(), seed)
    chance = random.Random(seed)
    victims = chance.sample(range(WRITERS), KILLS)
    running = []
    for number in range(WRITERS):
        pid = os.fork()
        if not pid:
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with its parent
                _be_a_writer(number, connect(store, where), writes, how)
                os._exit(0)
            except BaseException as error:
                os.write(out, f"{next(iter(writes))} 0 error {error!r}\n".encode())
                os._exit(1)
        running.append(pid)
    end = time.monotonic() + LONGEST
    while time.monotonic() < end and (victims or not _enough(Path(log), list(writes))):
        time.sleep(chance.random() * 0.04)
        if victims and how.board.current > 1:  # all of them are connected
            number = victims.pop()
            os.kill(running[number], signal.SIGKILL)  # not waited for yet, so the number is still its own
            how.board.done[number] = NEVER  # nobody waits for it
        how.board.turn()
    how.board.current = OVER
    killed = sum(os.WIFSIGNALED(os.waitpid(pid, 0)[1]) for pid in running)
    print(killed)


def least(name: str) -> tuple[int, int]:
    """How many writes must have been accepted, and how many refused."""
    return (1, 1) if name == MARK else (WRITTEN, REFUSED)


def _enough(log: Path, forms: Sequence[str]) -> bool:
    said = [line.split(" ", 2) for line in log.read_text().splitlines()]

    def enough(form: str) -> bool:
        written, refused = (
            sum(name == form and word == what for name, _, word in said) for what in ("ok", "refused")
        )
        return written >= least(form)[0] and (refused >= least(form)[1] or written >= MANY)

    return all(map(enough, forms))


# What is wrong with what they left behind.


def violations(history: Sequence[int], row: tuple[int, int], said: dict[str, list[int]]) -> list[str]:
    """In the order of commits: fences grow, what was said to be written is there, and the row is the last one's."""
    found = [f"order: {late} after {early}" for early, late in itertools.pairwise(history) if late <= early]
    return found + _misreported(history, row, said)


def violations_of_marks(history: Sequence[int], row: tuple[int, int], said: dict[str, list[int]]) -> list[str]:
    """Every write follows its own mark, without another's between them."""
    found, mark = [], 0
    for entry in history:
        if entry < 0:
            mark = -entry
        elif entry != mark:
            found.append(f"order: {entry} wrote on the mark of {mark}")
    return found + _misreported([entry for entry in history if entry > 0], row, said)


def _misreported(history: Sequence[int], row: tuple[int, int], said: dict[str, list[int]]) -> list[str]:
    found = [f"error: {word}" for word in said if word not in ("ok", "refused")]
    if lost := set(said["ok"]) - set(history):
        found.append(f"lost: {sorted(lost)}")
    if liars := set(said["refused"]) & set(history):
        found.append(f"written though refused: {sorted(liars)}")
    if len(set(history)) != len(history):
        found.append("written twice")
    if not history:
        found.append("nothing was written")
    elif row != (history[-1], history[-1]):
        found.append(f"torn: the row is {row}, the last write was {history[-1]}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
