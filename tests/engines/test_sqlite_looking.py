"""The SQLite engine: who holds a lock, who waits for it, and which are held; and files that did not tell."""

from __future__ import annotations

import os
import sqlite3
import time

import pytest

import quorumlock
from quorumlock.core.requests import Acquire, CellSwap, Downgrade, Inspect, Join, Release, Request, Scan
from quorumlock.core.votes import Cause, Sight, Vote
from quorumlock.engines.sqlite import schema
from quorumlock.engines.sqlite.boot import this_boot

from .test_sqlite import TTL_MS, File, Make, file, granted, make, refused
from .test_sqlite_processes import url
from .test_sqlite_queue import ask, ticket
from .test_sqlite_readers import read, reader
from .test_sqlite_time import SHORT, of_another_boot

__all__ = ["file", "make"]  # fixtures

COLUMNS = "name, token, fence, expires_ms, ttl_ms, boot"
"""Of a lease, as there were before."""


def sight(file: File, name: str = "a") -> Sight:
    answer = file.ask(Inspect(name))
    granted(answer)
    assert answer.sight is not None
    return answer.sight


def held(file: File, pattern: str = "*") -> list[str]:
    answer = file.ask(Scan(pattern, "0", 10))
    granted(answer)
    assert answer.names is not None
    cursor, *names = answer.names
    assert cursor == "0", "there is nothing to go on from"
    return names


# Who holds it.


def test_what_is_free_is_nobodys(file: File) -> None:
    fence = granted(file.acquire())
    file.ask(Release("a", "mine"))
    assert sight(file) == Sight("", 0, fence, 0, "", "", (), ())
    file.acquire()
    file.sql("UPDATE leases SET expires_ms = 5")
    assert sight(file).value == ""


def test_who_holds_it_since_when_for_how_long_and_what_it_said_of_itself(file: File) -> None:
    before_us = time.time_ns() // 1000
    fence = granted(file.ask(Acquire("a", "0123456789abcdef", TTL_MS, 0, card="mutex main ü✓ a note")))
    after_us = time.time_ns() // 1000
    seen = sight(file)
    assert (seen.value, seen.fence, seen.start) == ("0123456789abcdef", fence, "01234567")
    assert seen.card == "mutex main ü✓ a note"
    assert before_us <= seen.since_us <= after_us
    assert TTL_MS - 5000 < seen.left_ms <= TTL_MS + 1
    assert (seen.readers, seen.waiters) == ((), ())
    file.ask(Release("a", "0123456789abcdef"))
    granted(file.acquire())
    assert (sight(file).card, sight(file).start) == ("", "mine"), "nothing of who had it before"


def test_who_shares_it_each_with_its_own_time(file: File) -> None:
    granted(file.acquire())
    fence = granted(file.ask(Downgrade("a", "mine", 20_000, "r:mine")))
    granted(read(file, "r:two"))
    granted(read(file, "r:dead"))
    file.sql("UPDATE readers SET expires_ms = 5 WHERE token = 'r:dead'")
    seen = sight(file)
    assert (seen.value, seen.fence, seen.start, seen.card) == ("ql:readers", fence, "", "")
    assert [token for token, _ in seen.readers] == ["r:two", "r:mine"]
    assert seen.readers[0][1] <= TTL_MS + 1 < 15_000 < seen.readers[1][1] == seen.left_ms <= 20_001


def test_what_is_closed(file: File) -> None:
    file.acquire()
    file.ask(Release("a", "mine", stay_ms=5000))
    assert (sight(file).value, 1000 < sight(file).left_ms <= 5001) == ("ql:closed", True)


def test_who_waits_in_order_as_far_as_alive(file: File) -> None:
    file.acquire()
    for came in (300, 100):
        ask(file, ticket(came, locker="room"))
    read(file, shown=reader(200), strict=True)
    ask(file, ticket(50))
    file.sql("UPDATE tickets SET expires_ms = 5 WHERE order_us = 50")
    assert sight(file).waiters == ("room:id-100", ":id-200~r", "room:id-300")
    assert sight(file, "b").waiters == ()


def test_what_is_of_another_boot_is_held_and_not_noted(make: Make) -> None:
    """To look is to touch nothing."""
    one = make(max_ttl=SHORT)
    one.acquire(ttl_ms=10)
    granted(read(one, name="b", ttl_ms=10))
    of_another_boot(one)
    one.sql("UPDATE readers SET boot = 'another', expires_ms = 5")
    assert (sight(one).value, sight(one).left_ms) == ("mine", SHORT * 1000)
    assert (sight(one, "b").value, sight(one, "b").readers) == ("ql:readers", (("r:one", SHORT * 1000),))
    assert held(one) == ["a", "b"]
    assert one.sql("SELECT count(*) FROM sightings") == one.sql("SELECT count(*) FROM reader_sightings") == [(0,)]
    refused(one.acquire(token="other"), Cause.HELD)
    refused(one.acquire("b"), Cause.HELD)
    one.sql("UPDATE sightings SET until_ms = ?", 2**60)
    one.sql("UPDATE reader_sightings SET until_ms = ?", 2**60)
    assert held(one) == ["a", "b"], "seen, and not yet over"
    one.sql("UPDATE sightings SET until_ms = 5")
    one.sql("UPDATE reader_sightings SET until_ms = 5")
    assert (sight(one).value, sight(one, "b").value, held(one)) == ("", "", [])


def test_to_look_waits_for_nobody_who_writes(file: File) -> None:
    file.acquire()
    writer = sqlite3.connect(file.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert sight(file).value == "mine"
    assert held(file) == ["a"]
    writer.close()


# Which are held.


def test_those_that_are_held_in_order(file: File) -> None:
    for name in ("c", "a", "over", "released", "closed"):
        file.acquire(name)
    file.sql("UPDATE leases SET expires_ms = 5 WHERE name = 'over'")
    file.ask(Release("released", "mine"))
    file.ask(Release("closed", "mine", stay_ms=TTL_MS))
    read(file, name="b")
    read(file, name="unread")
    file.sql("UPDATE readers SET expires_ms = 5 WHERE name = 'unread'")
    granted(file.ask(CellSwap("cell", b"", 0, TTL_MS)))
    assert held(file) == ["a", "b", "c", "closed"]


ODD = ["a", "A", "ab", "a*", "a?", "[a]", "a]", "a[b-c]", "ü", "%", "_", "a/b.c", "\\", "^a", "a\nb", "'"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ODD),
        ("a", ["a"]),
        ("a?", ["ab", "a*", "a?", "a]"]),
        ("?", ["a", "A", "ü", "%", "_", "\\", "'"]),
        ("[a]", ["[a]"]),
        ("a[b-c]", ["a[b-c]"]),
        ("[*", ["[a]"]),
        ("*]", ["[a]", "a]", "a[b-c]"]),
        ("%", ["%"]),
        ("[^a]", []),
        ("a/*", ["a/b.c"]),
        ("a*b", ["ab", "a\nb"]),
        ("\\", ["\\"]),
        ("", []),
    ],
)
def test_in_a_pattern_only_two_characters_are_special(file: File, pattern: str, found: list[str]) -> None:
    for name in ODD:
        file.acquire(name)
    assert held(file, pattern) == sorted(found)


def test_a_pattern_with_many_stars_takes_no_long_time(file: File) -> None:
    file.acquire("a" * 200)
    started_at = time.perf_counter()
    assert held(file, "*a" * 40 + "*b") == []
    assert time.perf_counter() - started_at < 5


def test_only_those_behind_the_prefix_are_told_without_it(make: Make) -> None:
    one, other, longer, none = make(prefix="oth_r:"), make(prefix="other:"), make(prefix="other:b"), make()
    one.acquire("a")
    other.acquire("b")
    longer.acquire("c")
    granted(read(longer, name="d"))
    none.acquire("other:e")
    refused(other.acquire("bc", token="other"), Cause.HELD)
    assert [held(each) for each in (one, other, longer, none)] == [["a"], ["b"], ["c", "d"], ["other:e"]]


def test_of_a_lock_that_some_other_hand_has_set_nothing_more_is_known(file: File) -> None:
    file.acquire()
    row = file.row()
    assert row is not None
    file.sql("DELETE FROM leases")
    values = ("a", "somebody else", *row[1:])
    file.sql(f"INSERT INTO leases ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", *values)
    seen = sight(file)
    assert (seen.value, seen.start, seen.since_us, seen.card) == ("somebody else", "", 0, "")
    assert held(file) == ["a"]


# As users see it.


def test_inspect_and_list(file: File) -> None:
    with quorumlock.connect(url(file.path)) as locks:
        assert locks.inspect("a").state == "free"
        with locks.lock("a", ttl=30, note="nightly import"):
            seen = locks.inspect("a")
            assert seen.holder is not None
            assert (seen.state, seen.kind, seen.holder.pid, seen.holder.note) == (
                "held",
                "mutex",
                os.getpid(),
                "nightly import",
            )
            with locks.read_write("b").read(ttl=30), locks.semaphore("s", 2, ttl=30) as slot:
                assert (locks.inspect("b").state, locks.inspect("b").kind) == ("shared", "read")
                assert locks.inspect(slot.resource).kind == "slot"
                assert locks.list() == ["a", "b", slot.resource]
        assert locks.list() == []


# Files that were made before.

BEFORE = """CREATE TABLE leases (
    name TEXT PRIMARY KEY, token TEXT NOT NULL, fence INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, boot TEXT NOT NULL
) WITHOUT ROWID"""


def make_old(file: File) -> None:
    """As it was before there was anything but plain locks."""
    file.engine.close()
    file.sql(f"CREATE TABLE kept AS SELECT {COLUMNS} FROM leases")
    for table in ("leases", "tickets", "readers", "reader_sightings", "cells"):
        file.sql(f"DROP TABLE {table}")
    file.sql(BEFORE)
    file.sql("INSERT INTO leases SELECT * FROM kept")
    file.sql("DROP TABLE kept")


LATER: list[Request] = [
    Inspect("a"),
    Scan("*", "0", 10),
    CellSwap("a", b"", 0, TTL_MS),
    Acquire("b", "r:one", TTL_MS, 0, shared=True),
    Acquire("b", "mine", TTL_MS, 0, card="mutex main x"),
]


@pytest.mark.parametrize("request_", LATER, ids=lambda request: type(request).__name__)
def test_an_old_file_is_given_what_came_later_and_keeps_what_it_has(make: Make, request_: Request) -> None:
    old = make()
    fence = granted(old.acquire())
    make_old(old)
    new = make()
    granted(new.ask(request_))
    refused(new.acquire(token="other"), Cause.HELD)
    assert (sight(new).value, sight(new).since_us, sight(new).card) == ("mine", 0, "")
    row = old.row()
    assert row is not None
    assert (row[:2], row[4]) == (("mine", fence), this_boot().clock)
    assert old.sql("PRAGMA user_version") == [(schema.FORMAT,)]
    granted(new.ask(Release("a", "mine")))
    assert granted(new.ask(Acquire("a", "0123456789", TTL_MS, 0, card="c"))) > fence
    assert (sight(new).card, sight(new).start) == ("c", "01234567")


def test_an_old_and_a_new_file_are_the_same_in_the_end(make: Make) -> None:
    old = make()
    old.acquire()
    columns = (
        "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c ORDER BY m.name, c.cid"
    )
    new = old.sql(columns)
    make_old(old)
    make().ask(Join())
    assert old.sql(columns) == new


def test_what_came_later_is_given_once_by_whoever_is_first(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make()
    old.acquire()
    make_old(old)
    look, faster = schema._missing, make()

    def too_late(cursor: sqlite3.Cursor, path: str) -> tuple[str, ...]:
        found = look(cursor, path)
        monkeypatch.setattr(schema, "_missing", look)
        granted(faster.acquire("b"))
        return found

    monkeypatch.setattr(schema, "_missing", too_late)
    assert make().acquire("b", token="other").vote is Vote.REFUSED
