"""The SQLite engine: locks that are shared, what a file answers to readers, and in which order."""

from __future__ import annotations

from quorumlock.clocks import boot_time
from quorumlock.core.requests import Acquire, Break, Downgrade, Extend, Heal, Leave, Look, Release, Ticket
from quorumlock.core.votes import Answer, Cause
from quorumlock.engines.sqlite.boot import this_boot

from .sqlite_clocks import Clock, clock
from .test_sqlite import TTL_MS, File, Make, file, granted, kept, make, refused
from .test_sqlite_queue import place, queue, statements, ticket
from .test_sqlite_time import Reboot, reboot

__all__ = ["clock", "file", "make", "reboot"]  # fixtures


def read(
    file: File,
    token: str = "r:one",
    ttl_ms: int = TTL_MS,
    shown: Ticket | None = None,
    *,
    name: str = "a",
    strict: bool = False,
) -> Answer:
    return file.ask(Acquire(name, token, ttl_ms, 0, shown, strict, "read here", shared=True))


def write(file: File, shown: Ticket | None = None, token: str = "mine") -> Answer:
    return file.ask(Acquire("a", token, TTL_MS, 0, shown, True))


def reader(came: int) -> Ticket:
    return ticket(came, f"id-{came}~r")


def rows(file: File) -> list[str]:
    return [token for (token,) in file.sql("SELECT token FROM readers ORDER BY token")]


# Many of them, or one alone.


def test_many_share_and_nobody_has_it_alone_before_the_last_is_gone(make: Make) -> None:
    one, other = make(), make()
    granted(read(one))
    granted(read(other, "r:two"))
    refused(one.acquire(), Cause.HELD)
    granted(one.ask(Release("a", "r:one", True)))
    assert 5000 < refused(one.acquire(), Cause.HELD).wait_ms <= TTL_MS + 1
    granted(other.ask(Release("a", "r:two", True)))
    assert (one.row(), rows(one)) == (None, []), "nothing stays of what was released"
    granted(one.acquire())
    refused(read(other), Cause.HELD)
    assert rows(one) == []


def test_what_is_closed_is_closed_to_readers_too(file: File) -> None:
    file.acquire()
    granted(file.ask(Release("a", "mine", stay_ms=TTL_MS)))
    refused(read(file), Cause.HELD)


def test_readers_of_one_name_are_none_of_another_nor_behind_another_prefix(make: Make) -> None:
    one, other = make(prefix="one:"), make(prefix="other:")
    granted(read(one))
    granted(one.acquire("b"))
    granted(other.acquire())
    refused(other.ask(Release("a", "r:one")), Cause.HELD)
    refused(one.acquire(), Cause.HELD)


def test_a_reader_fence_is_between_those_of_the_writers_around_it(file: File) -> None:
    first = granted(file.acquire())
    file.ask(Release("a", "mine"))
    file.acquire("b")
    shared = granted(read(file))
    file.acquire("c")
    assert granted(read(file, "r:two")) == shared, "they need no order among themselves"
    for token in ("r:one", "r:two"):
        file.ask(Release("a", token))
    assert first <= shared < granted(file.acquire())


def test_a_reader_fence_is_above_those_before_a_reboot(make: Make, reboot: Reboot) -> None:
    fence = granted(make().acquire())
    make().ask(Release("a", "mine"))
    reboot("next boot")
    one = make()
    shared = granted(read(one))
    one.ask(Release("a", "r:one"))
    assert fence < shared < granted(one.acquire())


def test_a_request_that_is_sent_again_is_granted_again_and_once(file: File) -> None:
    fence = granted(read(file, strict=True))
    place(write(file, ticket(100)))
    assert granted(read(file, strict=True)) == fence
    assert rows(file) == ["r:one"]


def test_each_has_its_own_time(file: File, clock: Clock) -> None:
    granted(read(file, "r:short", 30))
    granted(read(file, "r:long"))
    clock.advance(30)
    refused(file.ask(Extend((kept(token="r:short"),))), Cause.ABSENT)
    refused(file.acquire(), Cause.HELD)
    file.sql("UPDATE readers SET expires_ms = 5")
    granted(file.acquire())
    assert rows(file) == [], "they went when the lock was given to somebody else"


def test_readers_are_renewed_and_healed_like_others(file: File) -> None:
    granted(read(file))
    granted(file.acquire("b"))
    granted(file.ask(Extend((kept(token="r:one", ttl_ms=20_000), kept("b")))))
    assert refused(file.acquire(token="other"), Cause.HELD).wait_ms > 15_000
    granted(file.ask(Extend((kept(token="r:one"),))))
    assert refused(file.acquire(token="other"), Cause.HELD).wait_ms > 15_000, "what comes late undoes nothing"
    granted(file.ask(Heal((kept(token="r:one"),))))
    refused(file.ask(Heal((kept(token="r:two"),))), Cause.ABSENT)
    assert rows(file) == ["r:one"]


def test_who_shares_no_more_is_told_by_whom(file: File) -> None:
    refused(file.ask(Extend((kept(token="r:one"),))), Cause.ABSENT)
    granted(read(file))
    refused(file.ask(Extend((kept(token="mine"),))), Cause.HELD)
    refused(file.ask(Release("a", "r:two")), Cause.HELD)
    file.sql("UPDATE readers SET expires_ms = 5")
    refused(file.ask(Extend((kept(token="mine"),))), Cause.ABSENT)
    granted(file.acquire())
    refused(file.ask(Extend((kept(token="r:one"),))), Cause.HELD)
    refused(file.ask(Release("a", "r:one")), Cause.HELD)
    granted(file.ask(Release("a", "mine")))
    refused(file.ask(Release("a", "r:one")), Cause.ABSENT)


def test_a_look_tells_whether_it_can_be_shared(file: File) -> None:
    granted(file.ask(Look("a", shared=True)))
    fence = granted(read(file))
    assert granted(file.ask(Look("a", shared=True))) == fence
    refused(file.ask(Look("a")), Cause.HELD)
    file.sql("UPDATE readers SET expires_ms = 5")
    granted(file.ask(Look("a")))
    file.acquire()
    refused(file.ask(Look("a", shared=True)), Cause.HELD)


def test_to_break_it_is_to_end_all_readers(file: File) -> None:
    fence = granted(read(file))
    read(file, "r:two")
    assert granted(file.ask(Break("a"))) > fence
    assert (file.row(), rows(file)) == (None, [])
    refused(file.ask(Extend((kept(token="r:one"),))), Cause.ABSENT)
    refused(file.ask(Break("a")), Cause.ABSENT)
    granted(read(file, "r:three"))
    refused(file.ask(Extend((kept(token="r:one"),))), Cause.ABSENT)


def test_a_writer_becomes_a_reader_without_anybody_in_between(file: File) -> None:
    fence = granted(file.acquire())
    request = Downgrade("a", "mine", TTL_MS, "r:mine", "")
    assert granted(file.ask(request)) == fence
    assert granted(file.ask(request)) == fence, "if it is sent again"
    assert granted(read(file)) == fence
    refused(file.acquire(token="other"), Cause.HELD)
    refused(file.ask(Release("a", "mine")), Cause.HELD)
    assert rows(file) == ["r:mine", "r:one"]
    for token in ("r:mine", "r:one"):
        granted(file.ask(Release("a", token)))
    assert granted(file.acquire(token="other")) > fence
    refused(file.ask(Downgrade("a", "mine", TTL_MS, "r:mine")), Cause.CHANGED)
    refused(file.ask(Downgrade("b", "mine", TTL_MS, "r:mine")), Cause.CHANGED)
    assert rows(file) == []


def test_what_is_over_is_not_downgraded(file: File) -> None:
    file.acquire()
    file.sql("UPDATE leases SET expires_ms = 5")
    refused(file.ask(Downgrade("a", "mine", TTL_MS, "r:mine")), Cause.CHANGED)
    assert rows(file) == []


# In turn.


def test_a_waiting_writer_is_not_overtaken_by_later_readers_and_earlier_ones_pass(make: Make) -> None:
    one, other = make(), make()
    granted(read(one, strict=True))
    assert place(write(other, ticket(200))) == 0
    assert place(read(one, "r:late", shown=reader(300), strict=True)) == 1
    assert place(read(one, "r:late", strict=True)) == 1, "nor without a ticket"
    granted(read(one, "r:early", shown=reader(100), strict=True))
    granted(read(one, "r:rude", shown=reader(400)))
    for token in ("r:one", "r:early", "r:rude"):
        one.ask(Release("a", token, True))
    assert place(read(one, "r:late", shown=reader(300), strict=True)) == 1, "not when it is free, either"
    granted(write(other, ticket(200)))
    assert queue(one) == [":id-300~r"]
    assert place(read(one, "r:late", shown=reader(300), strict=True)) == 0
    other.ask(Release("a", "mine"))
    granted(read(one, "r:late", shown=reader(300), strict=True))
    assert queue(one) == [], "its ticket goes with the grant"


def test_waiting_readers_pass_one_another_and_a_writer_waits_behind_them(file: File) -> None:
    file.acquire()
    for came in (100, 200):
        assert place(read(file, f"r:{came}", shown=reader(came), strict=True)) == 0
    assert place(write(file, ticket(300), "other")) == 2
    file.ask(Release("a", "mine"))
    assert place(write(file, ticket(300), "other")) == 2
    granted(read(file, "r:200", shown=reader(200), strict=True))
    granted(read(file, "r:100", shown=reader(100), strict=True))
    assert place(write(file, ticket(300), "other")) == 0
    for token in ("r:100", "r:200"):
        file.ask(Release("a", token))
    granted(write(file, ticket(300), "other"))


def test_a_dead_writer_keeps_readers_waiting_until_its_ticket_is_over(file: File, clock: Clock) -> None:
    granted(read(file))
    write(file, ticket(200))
    assert 1 <= refused(read(file, "r:two", strict=True), Cause.HELD).wait_ms <= 2001, "not for the readers' ttl"
    file.sql("UPDATE tickets SET expires_ms = ?", clock.ms + 200)
    assert refused(read(file, "r:two", shown=reader(300), strict=True), Cause.HELD).wait_ms <= 201
    file.sql("UPDATE tickets SET expires_ms = 5")
    granted(read(file, "r:two", strict=True))


def test_who_leaves_or_downgrades_lets_readers_in(file: File) -> None:
    granted(read(file))
    write(file, ticket(100))
    place(read(file, "r:two", strict=True))
    granted(file.ask(Leave("a", ":id-100")))
    granted(read(file, "r:two", strict=True))
    for token in ("r:one", "r:two"):
        file.ask(Release("a", token))
    granted(write(file, ticket(100)))
    file.sql("INSERT INTO tickets SELECT 'a', ':id-100', 100, ?, ?, 0", _now_ms() + 2000, this_boot().clock)
    granted(file.ask(Downgrade("a", "mine", TTL_MS, "r:mine", ":id-100")))
    assert queue(file) == []
    granted(read(file, "r:two", strict=True))
    file.sql("INSERT INTO tickets SELECT 'a', ':x~r', 100, ?, ?, 0", _now_ms() + 2000, this_boot().clock)
    granted(file.ask(Release("a", "r:two", True, ":x~r")))
    assert queue(file) == []


def _now_ms() -> int:
    return int(boot_time() * 1000)


# What it costs.


def test_who_wants_it_alone_pays_nothing_for_readers_that_are_not_there(file: File) -> None:
    said = statements(file, Acquire("a", "mine", TTL_MS, 0, card="mutex main x"), Release("a", "mine", True))
    assert [len(one) for one in said] == [7, 1]
    assert "readers" not in str(said)


def test_to_ask_for_what_is_held_is_to_read(make: Make) -> None:
    one, other = make(), make()
    one.acquire()
    place(read(other, shown=reader(100), strict=True))
    (again,) = statements(other, Acquire("a", "r:one", TTL_MS, 0, reader(100), True, shared=True))
    assert {statement.split()[0] for statement in again} == {"SELECT"}
    one.ask(Release("a", "mine"))
    granted(read(one))
    (alone,) = statements(other, Acquire("a", "other", TTL_MS, 0))
    assert [statement.split()[0] for statement in alone] == ["SELECT", "SELECT"]
    (beside,) = statements(other, Acquire("a", "r:two", TTL_MS, 0, shared=True))
    assert [" ".join(statement.split()[:5]) for statement in beside if not statement.startswith("SELECT")] == [
        "BEGIN IMMEDIATE",
        "INSERT OR REPLACE INTO readers",
        "COMMIT",
    ]
