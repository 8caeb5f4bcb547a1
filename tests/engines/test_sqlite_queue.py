"""The SQLite engine: queues in a file, what it answers to whoever waits in one, and what is left of them."""

from __future__ import annotations

import sqlite3
import time

import pytest

from quorumlock import EngineError, EngineTimeout
from quorumlock.core.requests import Acquire, Join, Leave, Release, Ticket
from quorumlock.core.votes import Answer, Cause, Vote
from quorumlock.engines.sqlite import pruning, schema, tickets

from .sqlite_clocks import Clock, clock
from .test_sqlite import TTL_MS, File, Make, file, granted, make, refused
from .test_sqlite_time import Reboot, reboot

__all__ = ["clock", "file", "make", "reboot"]  # fixtures

pytestmark = pytest.mark.real_time(1)
LONG = 30_000


def ticket(came: int, id_: str = "", patience_ms: int = LONG, locker: str = "") -> Ticket:
    return Ticket(id_ or f"id-{came}", locker, came, patience_ms)


def ask(file: File, shown: Ticket | None, *, name: str = "a", strict: bool = True) -> Answer:
    """An attempt with a token of its own, as each is."""
    token = f"token-{time.perf_counter_ns()}"
    return file.ask(Acquire(name, token, TTL_MS, 0, shown, strict))


def place(answer: Answer) -> int:
    """How many stand before one that must wait."""
    assert refused(answer, Cause.HELD).wait_ms > 0
    return answer.place


def queue(file: File, name: str = "a") -> list[str]:
    return [id_ for (id_,) in file.sql("SELECT ticket FROM tickets WHERE name = ? ORDER BY order_us, ticket", name)]


def lasts_ms(file: File, clock: Clock) -> int:
    ((expires_ms,),) = file.sql("SELECT expires_ms FROM tickets")
    return int(expires_ms - clock.ms)


# Whose turn it is.


def test_a_free_lock_is_granted_in_the_order_of_tickets_and_not_of_requests(make: Make) -> None:
    one, other = make(), make()
    granted(one.acquire())
    assert [place(ask(other, ticket(came))) for came in (300, 100, 200, 300)] == [0, 0, 1, 2]
    granted(one.ask(Release("a", "mine")))
    for head, behind in ((100, [200, 300]), (200, [300])):
        assert [place(ask(one, ticket(came))) for came in behind] == list(range(1, len(behind) + 1))
        granted(one.ask(Acquire("a", f"{head}", TTL_MS, 0, ticket(head), True)))
        assert queue(one) == [f":id-{came}" for came in behind], "its ticket goes with the grant"
        granted(other.ask(Release("a", f"{head}")))
    granted(ask(one, ticket(300)))
    assert queue(one) == []


def test_nobody_waits_for_those_behind_and_nobody_for_another_name(file: File) -> None:
    file.acquire("a")
    file.acquire("b")
    ask(file, ticket(200), name="a")
    ask(file, ticket(100), name="b")
    file.ask(Release("a", "mine"))
    granted(ask(file, ticket(150), name="a"))
    assert queue(file, "b") == [":id-100"]


def test_queues_are_behind_the_prefix_too(make: Make) -> None:
    one, other = make(prefix="one:"), make(prefix="other:")
    one.acquire()
    ask(one, ticket(100))
    granted(ask(other, ticket(200)))
    assert queue(one, "one:a") == [":id-100"]
    granted(other.ask(Leave("a", ":id-100")))
    assert queue(one, "one:a") == [":id-100"]
    granted(one.ask(Leave("a", ":id-100")))
    assert queue(one, "one:a") == []


def test_a_ticket_keeps_the_place_it_was_given(file: File) -> None:
    file.acquire()
    ask(file, ticket(300, "x"))
    ask(file, ticket(200, "y"))
    assert place(ask(file, ticket(100, "x"))) == 1
    file.sql("UPDATE tickets SET expires_ms = expires_ms - 600")  # so that it is written again
    assert place(ask(file, ticket(100, "x"))) == 1
    assert queue(file) == [":y", ":x"]


def test_who_came_in_the_same_instant_is_ordered_all_the_same(file: File) -> None:
    file.acquire()
    for id_ in "cab":
        ask(file, ticket(100, id_))
    assert [place(ask(file, ticket(100, id_))) for id_ in "abc"] == [0, 1, 2]


def test_lockers_are_part_of_a_ticket_and_told_nothing(file: File) -> None:
    file.acquire()
    ask(file, ticket(100, "x", locker="room"))
    ask(file, ticket(200, "x"))
    assert queue(file) == ["room:x", ":x"]
    granted(file.ask(Leave("a", "room:x")))
    assert queue(file) == [":x"]


def test_who_does_not_overtake_and_has_no_ticket_is_behind_everybody(file: File) -> None:
    granted(ask(file, None))
    assert place(ask(file, None)) == 0
    file.sql("DELETE FROM leases")
    file.acquire()
    ask(file, ticket(100))
    ask(file, ticket(200))
    file.ask(Release("a", "mine"))
    assert place(ask(file, None)) == 2
    assert queue(file) == [":id-100", ":id-200"], "it stores nothing"


def test_who_may_overtake_is_granted_a_free_lock_and_queued_at_one_that_is_held(file: File) -> None:
    file.acquire()
    ask(file, ticket(100))
    assert place(ask(file, ticket(200), strict=False)) == 1
    file.ask(Release("a", "mine"))
    granted(ask(file, ticket(200), strict=False))
    assert queue(file) == [":id-100"]


def test_a_request_that_is_sent_again_is_granted_again_whoever_waits(file: File) -> None:
    request = Acquire("a", "mine", TTL_MS, 0, ticket(200), True)
    fence = granted(file.ask(request))
    ask(file, ticket(100))
    assert granted(file.ask(request)) == fence
    assert queue(file) == [":id-100"]


def test_who_leaves_waits_no_more(file: File) -> None:
    file.acquire()
    for came in (100, 200, 300):
        ask(file, ticket(came))
    granted(file.ask(Leave("a", ":id-100")))
    granted(file.ask(Leave("a", ":id-100")))
    assert place(ask(file, ticket(300))) == 1
    granted(file.ask(Release("a", "mine", True, ":id-200")))
    assert queue(file) == [":id-300"]
    granted(ask(file, ticket(300)))


def test_a_ticket_that_cannot_be_taken_away_hides_no_other_trouble(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken away by whoever gives up, or is cancelled: that is what is to be told."""
    monkeypatch.setattr("quorumlock.engines.sqlite.engine.PATIENCE", 0.1)
    one = make(node_timeout=0.001)
    one.acquire()
    ask(one, ticket(100))
    writer = sqlite3.connect(one.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    answer = one.ask(Leave("a", ":id-100"))
    assert (answer.vote, answer.cause) == (Vote.UNKNOWN, Cause.FAILED)
    assert "locked by another process" in answer.detail
    with pytest.raises(EngineTimeout):
        one.ask(Release("a", "mine"))
    writer.close()
    granted(one.ask(Leave("a", ":id-100")))
    assert queue(one) == []


def test_a_lease_that_is_over_is_the_heads(file: File, clock: Clock) -> None:
    file.acquire(ttl_ms=30)
    assert place(ask(file, ticket(100))) == 0
    clock.advance(30)
    assert place(ask(file, ticket(200))) == 1
    granted(ask(file, ticket(100)))


# What it costs.


def statements(file: File, *requests: Acquire | Release) -> list[list[str]]:
    """What is said to SQLite for each of them."""
    file.ask(Join())
    assert file.engine._session is not None
    said: list[str] = []
    each = []
    file.engine._session._db.set_trace_callback(said.append)
    for request in requests:
        said.clear()
        file.ask(request)
        each.append(list(said))
    file.engine._session._db.set_trace_callback(None)
    return each


def test_a_plain_request_does_not_look_at_the_queue(file: File) -> None:
    file.acquire()
    ask(file, ticket(100))
    held, release, acquire = statements(
        file, Acquire("a", "other", TTL_MS, 0), Release("a", "mine", True), Acquire("a", "other", TTL_MS, 0)
    )
    assert "tickets" not in str([held, acquire, release])
    assert [len(held), len(release), len(acquire)] == [1, 1, 7]
    begun = ["SELECT", "BEGIN", "SELECT", "SELECT", "UPDATE", "INSERT", "COMMIT"]
    assert [statement.split()[0] for statement in acquire] == begun


def test_to_ask_again_is_to_read_and_a_ticket_is_written_before_it_is_old(make: Make, clock: Clock) -> None:
    one, other = make(), make()
    one.acquire()
    ask(other, ticket(100))
    assert lasts_ms(one, clock) == 2000, "whatever the patience: the bound that is promised"
    writer = sqlite3.connect(one.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    started_at = time.perf_counter()
    assert place(ask(other, ticket(100))) == 0
    assert place(ask(other, None)) == 1
    assert time.perf_counter() - started_at < 2.0
    writer.close()
    clock.advance(600)
    assert lasts_ms(one, clock) == 1400
    ask(other, ticket(100))
    assert lasts_ms(one, clock) == 2000


def test_who_likes_to_ask_seldom_is_told_to_keep_its_ticket_good(file: File) -> None:
    file.acquire()
    assert ask(file, ticket(100)).wait_ms == tickets.LASTS_MS // 4
    assert ask(file, ticket(100)).wait_ms == tickets.LASTS_MS // 4
    assert ask(file, None).wait_ms > 5000
    file.ask(Release("a", "mine"))
    assert 1000 < ask(file, None).wait_ms <= tickets.LASTS_MS + 1
    assert ask(file, ticket(200)).wait_ms == tickets.LASTS_MS // 4


# Who is not there any more.


def test_a_ticket_that_is_not_shown_is_passed_over_and_has_its_place_again_when_it_is(
    make: Make, clock: Clock
) -> None:
    one, other = make(), make()
    one.acquire()
    ask(one, ticket(100))
    ask(one, ticket(200, patience_ms=20))
    clock.advance(20)
    assert place(ask(other, ticket(300))) == 1
    one.sql("UPDATE tickets SET expires_ms = 5 WHERE ticket = ':id-100'")
    assert place(ask(other, ticket(300))) == 0
    assert place(ask(one, ticket(100))) == 0
    assert place(ask(other, ticket(300))) == 1
    one.ask(Release("a", "mine"))
    one.sql("UPDATE tickets SET expires_ms = 5 WHERE ticket = ':id-100'")
    granted(ask(other, ticket(300)))


def test_tickets_of_another_clock_are_waited_for_while_they_are_shown(make: Make, reboot: Reboot) -> None:
    here = make()
    here.acquire()
    reboot("elsewhere")
    there = make()
    there.ask(Join())
    assert place(ask(there, ticket(100))) == 0
    assert place(ask(here, ticket(200))) == 1
    here.ask(Release("a", "mine"))
    assert place(ask(here, ticket(200))) == 1
    granted(ask(there, ticket(100)))


@pytest.mark.parametrize("seconds", [-5, 5, 3600], ids=["old", "clock-set-back", "clock-set-far-back"])
def test_tickets_of_another_boot_are_dead_if_their_wall_clock_says_so_or_nothing_sensible(
    make: Make, reboot: Reboot, seconds: int
) -> None:
    one = make()
    one.acquire()
    ask(one, ticket(100))
    assert place(ask(one, None)) == 1
    one.sql("UPDATE tickets SET wall_ms = wall_ms + ?", seconds * 1000)
    one.ask(Release("a", "mine"))
    assert place(ask(one, None)) == 1, "to its own clock nothing has changed"
    reboot("next boot")
    granted(ask(make(), ticket(200)))


# What is left behind.


def leave_behind(file: File, count: int) -> None:
    """Tickets of waiters that were killed, each waiting for another name."""
    for n in range(count):
        file.acquire(f"name-{n}")
        ask(file, ticket(100), name=f"name-{n}")
    file.sql("UPDATE tickets SET expires_ms = 5")


def test_dead_tickets_are_pruned_at_opening_and_live_ones_are_not(make: Make, reboot: Reboot) -> None:
    one = make()
    leave_behind(one, 5)
    one.acquire()
    ask(one, ticket(100))
    make().ask(Join())
    assert one.sql("SELECT name FROM tickets") == [("a",)]
    one.sql("UPDATE tickets SET wall_ms = 5")
    make().ask(Join())
    assert one.sql("SELECT name FROM tickets") == [("a",)]
    reboot("next boot")
    make().ask(Join())
    assert one.sql("SELECT name FROM tickets") == []


def test_dead_tickets_are_pruned_every_so_many_grants(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PRUNE_EVERY", 10)
    leave_behind(file, 5)
    for n in range(11):
        granted(file.acquire(f"later-{n}"))
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)]


def test_dead_tickets_of_a_neglected_file_are_pruned_in_portions(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PRUNE_MOST", 4)
    one = make()
    leave_behind(one, 10)
    for left in (6, 2, 0):
        make().ask(Join())
        assert one.sql("SELECT count(*) FROM tickets") == [(left,)]


def test_who_comes_into_a_queue_takes_the_dead_away(file: File) -> None:
    file.acquire()
    for came in range(100, 130):
        ask(file, ticket(came))
    file.sql("UPDATE tickets SET expires_ms = 5 WHERE order_us < 129")
    ask(file, ticket(200))
    assert queue(file) == [":id-129", ":id-200"]


# Files that were made before there were queues.


def test_a_file_without_queues_is_given_them_and_keeps_what_it_has(make: Make) -> None:
    old = make()
    fence = granted(old.acquire())
    old.engine.close()
    old.sql("DROP TABLE tickets")
    assert place(ask(make(), ticket(100))) == 0
    assert queue(old) == [":id-100"]
    row = old.row()
    assert row is not None
    assert row[:2] == ("mine", fence)
    assert old.sql("PRAGMA user_version") == [(schema.FORMAT,)]


def test_queues_are_given_once_by_whoever_is_first(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make()
    old.acquire()
    old.engine.close()
    old.sql("DROP TABLE tickets")
    look, faster = schema._missing, make()

    def too_late(cursor: sqlite3.Cursor, path: str) -> tuple[str, ...]:
        found = look(cursor, path)
        monkeypatch.setattr(schema, "_missing", look)
        ask(faster, ticket(100))
        return found

    monkeypatch.setattr(schema, "_missing", too_late)
    assert place(ask(make(), ticket(200))) == 1


def test_a_version_that_knows_no_queues_goes_on_in_the_same_file(make: Make) -> None:
    """It is open there while the table is added."""
    old = make()
    old.acquire()
    old.sql("DROP TABLE tickets")
    new = make()
    assert place(ask(new, ticket(100))) == 0
    granted(old.ask(Release("a", "mine")))
    granted(old.acquire())


def test_what_belongs_to_every_file_is_not_made_again(make: Make) -> None:
    """Else a damaged file would be taken for one in which nobody holds anything."""
    one = make()
    one.acquire()
    one.engine.close()
    one.sql("DROP TABLE leases")
    with pytest.raises(EngineError, match="no such table"):
        make().acquire(token="other")
