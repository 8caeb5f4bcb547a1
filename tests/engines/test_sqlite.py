"""The SQLite engine: what a file answers to each request, and the tools that its other tests use."""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorumlock import Jitter, Limit
from quorumlock.clocks import boot_time
from quorumlock.core.effects import Round, Route
from quorumlock.core.requests import (
    Acquire,
    Break,
    Close,
    Confirm,
    Extend,
    Heal,
    Initialise,
    Join,
    Kept,
    Look,
    Release,
    Request,
    Survey,
)
from quorumlock.core.votes import Answer, Cause, Tally, Vote
from quorumlock.engines.base import Store
from quorumlock.engines.sqlite import SqliteEngine
from quorumlock.engines.sqlite.polling import Polling
from quorumlock.options import Settings

from .sqlite_clocks import Clock, clock

__all__ = ["clock"]  # fixtures
pytestmark = pytest.mark.real_time(1)
TTL_MS = 10_000
MAX_TTL = 60.0


def settings(**chosen: Any) -> Settings:
    """What `connect` would hand over."""
    told: dict[str, Any] = {
        "prefix": "", "node_timeout": 0.05, "drift": 0.01, "max_ttl": MAX_TTL, "quarantine": None, "durable": False,
        "fence_ttl": 86400.0, "identify": True, "retry": Jitter(0.2), "patience": 5.0, "group": None, "fleet": None,
    }  # fmt: skip
    return Settings(**told | chosen)


class File:
    """A file of locks, asked by one engine and looked at behind its back."""

    def __init__(self, path: Path, **chosen: Any) -> None:
        self.path = path
        self.engine = SqliteEngine(f"sqlite:///{path}", settings(**chosen))

    def ask(self, request: Request) -> Answer:
        tally = Tally(self.engine.labels, 1)
        self.engine.perform(Round([request], tally, 0.05, Route()))
        answer = tally.answers[0]
        assert answer is not None
        return answer

    def acquire(self, name: str = "a", token: str = "mine", ttl_ms: int = TTL_MS) -> Answer:
        return self.ask(Acquire(name, token, ttl_ms, 0))

    def sql(self, statement: str, *values: object) -> list[Any]:
        """On a connection of its own, as another process would."""
        db = sqlite3.connect(self.path, isolation_level=None, timeout=5)
        try:
            return db.execute(statement, values).fetchall()
        finally:
            db.close()

    def row(self, name: str = "a") -> tuple[Any, ...] | None:
        """token, fence, expires_ms, ttl_ms, boot"""
        rows = self.sql("SELECT token, fence, expires_ms, ttl_ms, boot FROM leases WHERE name = ?", name)
        return rows[0] if rows else None


Make = Callable[..., File]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Files that are closed at the end; all of them one file, unless told otherwise."""
    made: list[File] = []

    def one(path: Path | None = None, **chosen: Any) -> File:
        made.append(File(path or tmp_path / "locks.db", **chosen))
        return made[-1]

    yield one
    for file in made:
        file.engine.close()


@pytest.fixture
def file(make: Make) -> File:
    return make()


def granted(answer: Answer) -> int:
    """The fence of an answer that must have granted."""
    assert (answer.vote, answer.cause) == (Vote.GRANTED, Cause.AGREED)
    return answer.fence


def refused(answer: Answer, cause: Cause) -> Answer:
    assert (answer.vote, answer.cause) == (Vote.REFUSED, cause)
    return answer


def kept(name: str = "a", token: str = "mine", ttl_ms: int = TTL_MS, fence: int = 1) -> Kept:
    return Kept(name, token, ttl_ms, fence)


def open_files(path: Path) -> list[str]:
    """What this process has open of a database."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the one that listed them
        if target.startswith(str(path)):
            found.append(target)
    return found


def test_it_is_a_store_with_one_node(file: File) -> None:
    engine: Store = file.engine
    assert isinstance(engine, Store)
    assert engine.blocking
    assert (engine.name, tuple(engine.nodes), engine.labels) == ("sqlite", (), (f"sqlite:{file.path}",))
    assert engine.clock() == pytest.approx(boot_time(), abs=1)
    assert str(file.path) in repr(engine)


def test_nothing_is_opened_before_the_first_request(file: File) -> None:
    assert not file.path.exists()
    file.engine.close()
    assert not file.path.exists()


@pytest.mark.parametrize("request_", [Join(), Survey(), Close(), Initialise(False), Initialise(True)], ids=repr)
def test_whoever_asks_anything_has_made_the_file(file: File, request_: Request) -> None:
    granted(file.ask(request_))
    assert file.sql("SELECT count(*) FROM leases") == [(0,)]
    assert file.sql("PRAGMA journal_mode") == [("wal",)]


def test_a_node_that_is_not_asked_does_not_vote(file: File) -> None:
    tally = Tally(file.engine.labels, 1)
    file.engine.perform(Round([None], tally, 0.05, Route()))
    assert tally.answers == [None]


def test_acquire_then_held_then_released(make: Make, clock: Clock) -> None:
    one, other = make(), make()
    fence = granted(one.acquire())
    answer = refused(other.acquire(token="other"), Cause.HELD)
    assert (answer.fence, answer.wait_ms) == (fence, TTL_MS)
    refused(other.ask(Release("a", "other")), Cause.HELD)
    granted(one.ask(Release("a", "mine")))
    refused(one.ask(Release("a", "mine")), Cause.ABSENT)
    assert granted(other.acquire(token="other")) > fence


def test_a_request_that_is_sent_again_is_granted_again_with_its_fence(file: File) -> None:
    fence = granted(file.acquire())
    before = file.row()
    assert granted(file.acquire()) == fence
    assert file.row() == before
    assert granted(file.acquire("b")) == fence + 1


def test_a_lease_ends_by_its_ttl_and_not_before(make: Make, clock: Clock) -> None:
    one, other = make(), make()
    fence = granted(one.acquire(ttl_ms=40))
    for left_ms in (40, 20, 1):
        clock.advance(40 - left_ms - (clock.ms - Clock.ms))
        assert refused(other.acquire(token="other"), Cause.HELD).wait_ms == left_ms
    clock.advance(1)
    assert granted(other.acquire(token="other")) > fence
    refused(one.ask(Release("a", "mine")), Cause.HELD)
    refused(one.ask(Extend((kept(),))), Cause.HELD)


def test_what_is_over_cannot_be_renewed(file: File, clock: Clock) -> None:
    file.acquire(ttl_ms=10)
    clock.advance(10)
    refused(file.ask(Extend((kept(),))), Cause.ABSENT)
    assert granted(file.ask(Look("a")))


def test_names_are_stored_behind_the_prefix(make: Make) -> None:
    one, other, none = make(prefix="one:"), make(prefix="other:"), make()
    granted(one.acquire())
    granted(other.acquire())
    refused(none.acquire("one:a", "thief"), Cause.HELD)
    assert one.sql("SELECT name FROM leases ORDER BY name") == [("one:a",), ("other:a",)]
    granted(one.ask(Extend((kept(),))))
    granted(one.ask(Break("a")))
    assert one.sql("SELECT name FROM leases") == [("other:a",)]


@pytest.mark.parametrize("name", ["'; DROP TABLE leases; --", "ü✓", "a" * 1024, "A", "?", ":name"])
def test_any_name_is_only_a_name(file: File, name: str) -> None:
    granted(file.acquire("a", "other"))
    granted(file.acquire(name))
    refused(file.acquire(name, "other"), Cause.HELD)
    granted(file.ask(Release(name, "mine")))
    assert file.row() is not None


def test_confirm_agrees_with_what_was_granted_and_with_nothing_else(file: File) -> None:
    fence = granted(file.acquire())
    assert granted(file.ask(Confirm("a", "mine", fence, fence))) == fence
    refused(file.ask(Confirm("a", "mine", fence, fence + 5)), Cause.CHANGED)
    refused(file.ask(Confirm("a", "mine", fence - 1, fence)), Cause.CHANGED)
    refused(file.ask(Confirm("a", "other", fence, fence)), Cause.CHANGED)
    refused(file.ask(Confirm("b", "mine", fence, fence)), Cause.CHANGED)


def left_ms(file: File, clock: Clock, name: str = "a") -> int:
    row = file.row(name)
    assert row is not None
    return int(row[2] - clock.ms)


def test_extend_renews_and_takes_no_time_away(file: File, clock: Clock) -> None:
    file.acquire(ttl_ms=1000)
    granted(file.ask(Extend((kept(ttl_ms=5000),))))
    assert left_ms(file, clock) == 5000
    granted(file.ask(Extend((kept(ttl_ms=2000),))))
    assert left_ms(file, clock) == 5000
    row = file.row()
    assert row is not None
    assert row[3] == 5000, "the ttl that belongs to the end"


def test_many_leases_are_extended_in_one_go_each_with_its_own_answer(file: File, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        file.acquire(name, ttl_ms=4000)
    file.acquire("taken", "other")
    names = ["a", "taken", "b", "absent", "c"]
    answer = refused(file.ask(Extend(tuple(kept(name) for name in names))), Cause.HELD)
    agreed = Cause.AGREED
    assert answer.each == (agreed, Cause.HELD, agreed, Cause.ABSENT, agreed)
    assert all(left_ms(file, clock, name) == TTL_MS for name in ("a", "b", "c"))
    assert file.row("absent") is None
    taken = file.row("taken")
    assert taken is not None
    assert taken[0] == "other"
    answer = file.ask(Extend((kept("a"), kept("b"))))
    assert (granted(answer), answer.each) == (0, ())


def test_a_thousand_leases_are_extended_in_one_transaction(file: File) -> None:
    leases = tuple(kept(f"name-{n}") for n in range(1000))
    for lease in leases:
        file.acquire(lease.name, ttl_ms=9000)
    said: list[str] = []
    assert file.engine._session is not None
    file.engine._session._db.set_trace_callback(said.append)
    granted(file.ask(Extend(leases)))
    assert said[0] == "BEGIN IMMEDIATE"
    assert [one for one in said if one in ("BEGIN IMMEDIATE", "COMMIT")] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert file.sql("SELECT count(*) FROM leases WHERE ttl_ms = ?", TTL_MS) == [(1000,)]


def test_healing_renews_what_is_mine_and_brings_nothing_back(file: File, clock: Clock) -> None:
    file.acquire("a", ttl_ms=1000)
    file.acquire("taken", "other")
    answer = file.ask(Heal((kept("a"), kept("taken"), kept("gone"))))
    assert answer.each == (Cause.AGREED, Cause.HELD, Cause.ABSENT)
    assert left_ms(file, clock) == TTL_MS
    assert file.row("gone") is None


def test_break_deletes_whoever_holds_it_and_raises_the_fence(file: File) -> None:
    refused(file.ask(Break("a")), Cause.ABSENT)
    fence = granted(file.acquire())
    broken = granted(file.ask(Break("a")))
    assert broken == fence + 1
    refused(file.ask(Extend((kept(),))), Cause.ABSENT)
    refused(file.ask(Break("a")), Cause.ABSENT)
    assert granted(file.acquire(token="other")) == broken + 1


def test_look_tells_whether_an_attempt_would_succeed(file: File, clock: Clock) -> None:
    before = granted(file.ask(Look("a")))
    fence = granted(file.acquire(ttl_ms=150))
    assert fence == before + 1
    answer = refused(file.ask(Look("a")), Cause.HELD)
    assert answer.fence == fence
    assert answer.wait_ms == 150
    clock.advance(150)
    assert granted(file.ask(Look("a"))) == fence


def test_a_held_lock_is_refused_without_the_write_lock(make: Make) -> None:
    one, other = make(), make()
    one.acquire()
    other.ask(Join())
    writer = sqlite3.connect(one.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    started_at = time.perf_counter()
    refused(other.acquire(token="other"), Cause.HELD)
    refused(other.ask(Look("a")), Cause.HELD)
    refused(other.ask(Break("free")), Cause.ABSENT)
    refused(make().acquire(token="other"), Cause.HELD)  # also by one who opens the file just now
    assert time.perf_counter() - started_at < 2.0
    writer.close()


def test_polling_is_brisk_at_first_then_slow_and_never_regular() -> None:
    strategy = SqliteEngine("sqlite:///x.db", settings()).polling
    assert isinstance(strategy, Polling)
    assert Limit(strategy, 3).delay(4, random.random) is None  # it composes like the others
    polling: Any = strategy
    first = [polling.delay(1, random.random) for _ in range(200)]
    last = [polling.delay(10**6, random.random) for _ in range(200)]
    assert 0.0005 <= min(first) < statistics.mean(first) < max(first) <= 0.001
    assert 0.025 <= min(last) < statistics.mean(last) < max(last) <= 0.05
    assert len(set(first)) > 100
    delays = [polling.delay(attempt, lambda: 1.0) for attempt in range(1, 30)]
    assert delays == sorted(delays)
    assert sum(delays[:8]) < 0.06, "a lock that is held for some ms is not missed for long"
