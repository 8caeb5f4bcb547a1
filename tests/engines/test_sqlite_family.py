"""The SQLite engine: one of several locks, and several locks at once."""

from __future__ import annotations

import time

import pytest

from quorumlock import Unsupported
from quorumlock.core.requests import (
    Acquire,
    AcquireAll,
    AcquireAny,
    ConfirmAll,
    Extend,
    Leave,
    Release,
    Request,
    Ticket,
)
from quorumlock.core.votes import Answer, Cause, Vote
from quorumlock.engines.sqlite import pruning, session
from quorumlock.engines.sqlite.boot import this_boot
from tests.support.waiting import eventually

from .test_sqlite import TTL_MS, File, Make, file, granted, kept, make, refused
from .test_sqlite_queue import place, queue, ticket
from .test_sqlite_readers import read, rows
from .test_sqlite_time import SHORT, Reboot, of_another_boot, reboot

__all__ = ["file", "make", "reboot"]  # fixtures

SLOTS = ("s#2", "s#0", "s#1")
"""In the order of a client."""


def slot(
    file: File, token: str, shown: Ticket | None = None, *, names: tuple[str, ...] = SLOTS, strict: bool = False
) -> Answer:
    return file.ask(AcquireAny(names, "s", token, TTL_MS, 0, shown, strict, "slot main x"))


def both(
    file: File, token: str, shown: Ticket | None = None, names: tuple[str, ...] = ("a", "b"), ttl_ms: int = TTL_MS
) -> Answer:
    return file.ask(AcquireAll(names, token, ttl_ms, 0, shown, "multi main x"))


def holders(file: File) -> dict[str, str]:
    return dict(file.sql("SELECT name, token FROM leases"))


def statements(file: File, request: AcquireAny | AcquireAll) -> set[str]:
    """The first words of what is said to SQLite."""
    assert file.engine._session is not None
    said: list[str] = []
    file.engine._session._db.set_trace_callback(said.append)
    file.ask(request)
    file.engine._session._db.set_trace_callback(None)
    return {statement.split()[0] for statement in said}


# One of several.


def test_the_first_that_is_free_is_granted_in_the_order_given(make: Make) -> None:
    one, other = make(), make()
    one.acquire("s#2", token="somebody")
    answers = [slot(one, "one"), slot(other, "two")]
    assert [answer.choice for answer in answers] == [1, 2]
    assert granted(answers[0]) < granted(answers[1])
    assert 5000 < refused(slot(other, "three"), Cause.HELD).wait_ms <= TTL_MS + 1
    assert holders(one) == {"s#2": "somebody", "s#0": "one", "s#1": "two"}
    granted(one.ask(Release("s#0", "one", True, names=SLOTS, line="s")))
    third = slot(other, "three")
    assert (third.choice, granted(third) > granted(answers[1])) == (1, True)


def test_a_request_that_is_sent_again_is_granted_the_same_slot(file: File) -> None:
    file.acquire("s#2", token="somebody")
    first = slot(file, "one")
    file.ask(Release("s#2", "somebody"))
    again = slot(file, "one")
    assert (again.choice, granted(again)) == (first.choice, granted(first))
    assert holders(file) == {"s#0": "one"}


def test_slots_are_behind_the_prefix_and_are_locks_of_their_own(make: Make) -> None:
    one, other = make(prefix="one:"), make(prefix="other:")
    assert [slot(one, "x").choice, slot(other, "x").choice] == [0, 0]
    refused(one.acquire("s#2"), Cause.HELD)
    granted(one.ask(Extend((kept("s#2", "x"),))))


def test_what_is_waited_for_is_the_slot_that_is_over_first(file: File) -> None:
    for name, ttl_ms in zip(SLOTS, (30_000, 20_000, 40_000), strict=True):
        file.acquire(name, ttl_ms=ttl_ms)
    assert 15_000 < refused(slot(file, "one"), Cause.HELD).wait_ms <= 20_001
    file.sql("UPDATE leases SET expires_ms = 5 WHERE name = 's#1'")
    assert slot(file, "one").choice == 2


def test_a_thousand_slots_are_looked_at_in_a_few_statements(file: File) -> None:
    names = tuple(f"s#{n}" for n in range(1000))
    granted(both(file, "all", names=names))
    assert holders(file) == dict.fromkeys(names, "all")
    started_at = time.perf_counter()
    for n in range(20):
        refused(slot(file, f"{n}", names=names), Cause.HELD)
    assert time.perf_counter() - started_at < 5
    file.ask(Release("s#999", "all", names=("s#999",)))
    assert slot(file, "one", names=names).choice == 999


def test_who_waits_for_a_slot_stands_in_the_queue_of_the_whole(file: File) -> None:
    for token in "xyz":
        slot(file, token)
    assert [place(slot(file, f"{came}", ticket(came), strict=True)) for came in (200, 100)] == [0, 0]
    assert (queue(file, "s"), file.sql("SELECT DISTINCT name FROM tickets")) == ([":id-100", ":id-200"], [("s",)])
    assert statements(file, AcquireAny(SLOTS, "s", "200", TTL_MS, 0, ticket(200), True)) == {"SELECT"}
    granted(file.ask(Release("s#0", "y", True, names=SLOTS, line="s")))
    assert place(slot(file, "200", ticket(200), strict=True)) == 1
    assert place(slot(file, "rude", strict=True)) == 2, "nor may one overtake that has no ticket"
    assert place(slot(file, "new", ticket(300), strict=True)) == 2, "nor one that has just come"
    granted(file.ask(Leave("s", ":id-300", SLOTS, "s")))
    assert slot(file, "100", ticket(100), strict=True).choice == 1
    assert queue(file, "s") == [":id-200"], "its ticket goes with the grant"
    granted(file.ask(Leave("s", ":id-200", SLOTS, "s")))
    assert queue(file, "s") == []


def test_who_may_overtake_takes_a_free_slot(file: File) -> None:
    for token in "xyz":
        slot(file, token)
    slot(file, "100", ticket(100), strict=True)
    file.ask(Release("s#0", "y", names=SLOTS, line="s"))
    assert slot(file, "rude").choice == 1


def test_a_release_of_slots_is_of_ones_own(file: File) -> None:
    slot(file, "one")
    slot(file, "two")
    slot(file, "three")
    place(slot(file, "100", ticket(100)))
    granted(file.ask(Release("s#1", "three", names=SLOTS, line="s")))
    file.acquire("other", token="one")
    granted(file.ask(Release("s#0", "two", True, ":id-100", names=SLOTS, line="s")))
    assert holders(file) == {"s#2": "one", "other": "one"}
    assert queue(file, "s") == []
    refused(file.ask(Release("s#0", "two", names=SLOTS, line="s")), Cause.HELD)
    granted(file.ask(Release("s#2", "one", names=SLOTS, line="s", stay_ms=5000)))
    assert holders(file) == {"s#2": "ql:closed", "other": "one"}
    assert [slot(file, token).choice for token in ("three", "four")] == [1, 2]
    refused(slot(file, "five"), Cause.HELD)
    file.sql("DELETE FROM leases")
    refused(file.ask(Release("s#0", "two", names=SLOTS, line="s")), Cause.ABSENT)


def test_slots_of_another_boot_are_waited_out_each_by_itself(make: Make) -> None:
    one = make(max_ttl=SHORT)
    for name, ttl_ms in zip(SLOTS, (10, 30_000, 30_000), strict=True):
        one.acquire(name, ttl_ms=ttl_ms)
        of_another_boot(one, name)
    assert SHORT * 500 < refused(slot(one, "one"), Cause.HELD).wait_ms <= SHORT * 1000 + 1
    assert eventually(lambda: slot(one, "one").vote is Vote.GRANTED)
    assert slot(one, "one").choice == 0
    assert refused(slot(one, "two"), Cause.HELD).wait_ms <= TTL_MS + 1


# Several at once.


def test_all_or_none(make: Make) -> None:
    one, other = make(), make()
    earlier = granted(other.acquire("b", token="somebody"))
    assert refused(both(one, "one"), Cause.HELD).wait_ms > 5000
    assert holders(one) == {"b": "somebody"}
    other.ask(Release("b", "somebody"))
    answer = both(one, "one")
    assert (granted(answer), len(answer.fences)) == (max(answer.fences), 2)
    assert min(answer.fences) > earlier
    assert holders(one) == {"a": "one", "b": "one"}
    for name in "ab":
        refused(other.acquire(name), Cause.HELD)
    refused(both(other, "two", names=("c", "b")), Cause.HELD)
    granted(one.ask(Extend((kept("a", "one"), kept("b", "one")))))
    granted(one.ask(Release("a", "one", True, names=("a", "b"))))
    assert holders(one) == {}
    later = both(other, "two", names=("c", "b"))
    assert min(later.fences) > granted(answer)


def test_all_that_are_sent_again_are_granted_again(file: File) -> None:
    first = both(file, "one")
    assert both(file, "one") == first
    file.ask(Release("b", "one"))
    again = both(file, "one")
    assert again.fences[0] == first.fences[0] < again.fences[1] == granted(again)


def test_several_are_confirmed_if_all_are_as_they_were_granted(file: File) -> None:
    fences = both(file, "one").fences
    assert file.ask(ConfirmAll(("a", "b"), "one", fences, fences)).fences == fences
    raised = (fences[0], fences[1] + 1)
    refused(file.ask(ConfirmAll(("a", "b"), "one", fences, raised)), Cause.CHANGED)
    refused(file.ask(ConfirmAll(("a", "b"), "other", fences, fences)), Cause.CHANGED)
    file.ask(Release("b", "one"))
    refused(file.ask(ConfirmAll(("a", "b"), "one", fences, fences)), Cause.CHANGED)


def test_who_waits_for_several_stands_in_the_queue_of_the_first_that_is_busy_and_in_no_other(file: File) -> None:
    file.acquire("a")
    file.acquire("b")
    assert place(both(file, "one", ticket(100))) == 0
    assert [queue(file, name) for name in "ab"] == [[":id-100"], []]
    assert statements(file, AcquireAll(("a", "b"), "one", TTL_MS, 0, ticket(100))) == {"SELECT"}
    file.ask(Release("a", "mine"))
    assert place(both(file, "one", ticket(100))) == 0
    assert [queue(file, name) for name in "ab"] == [[], [":id-100"]]
    granted(file.ask(Acquire("a", "fair", TTL_MS, 0, ticket(200), True)))
    file.ask(Release("a", "fair"))
    file.ask(Release("b", "mine"))
    granted(both(file, "one", ticket(100)))
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)]
    refused(both(file, "two", ticket(300)), Cause.HELD)
    granted(file.ask(Leave("a", ":id-300", ("a", "b"))))
    assert file.sql("SELECT count(*) FROM tickets") == [(0,)]


def test_a_release_of_several_takes_the_ticket_out_of_all_queues(file: File) -> None:
    both(file, "one")
    for name in "abc":
        file.sql("INSERT INTO tickets VALUES (?, ':x', 1, ?, ?, 0)", name, 2**60, this_boot().clock)
    granted(file.ask(Release("a", "one", True, ":x", names=("a", "b"), stay_ms=5000)))
    assert file.sql("SELECT name FROM tickets") == [("c",)]
    assert set(holders(file).values()) == {"ql:closed"}


def test_readers_are_in_the_way_of_slots_and_of_several(file: File) -> None:
    granted(read(file, name="s#2"))
    granted(read(file, name="b"))
    assert slot(file, "one").choice == 1
    refused(both(file, "one"), Cause.HELD)
    file.sql("UPDATE readers SET expires_ms = 5")
    assert slot(file, "two").choice == 0
    granted(both(file, "one"))
    assert rows(file) == []


def test_one_of_another_boot_is_waited_out_before_all_are_granted(make: Make) -> None:
    one = make(max_ttl=SHORT)
    one.acquire("b", ttl_ms=10)
    of_another_boot(one, "b")
    refused(both(one, "one"), Cause.HELD)
    assert holders(one) == {"b": "mine"}
    assert eventually(lambda: both(one, "one").vote is Vote.GRANTED)
    assert holders(one) == {"a": "one", "b": "one"}


def test_a_lease_of_several_expires_as_a_whole_and_is_pruned(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PRUNE_EVERY", 4)
    one = make()
    both(one, "one", names=("a", "b", "c", "d"))
    one.sql("UPDATE leases SET expires_ms = 5")
    granted(slot(one, "two"))
    assert holders(one) == {"s#2": "two"}


def test_fences_of_several_are_above_those_before_a_reboot(make: Make, reboot: Reboot) -> None:
    fence = granted(both(make(), "one"))
    reboot("next boot")
    assert min(both(make(), "two", names=("c", "d")).fences) > fence


# What there is no answer to.


def test_a_request_that_it_does_not_know_is_said_to_be_unsupported(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(file.acquire())
    assert file.engine._session is not None
    monkeypatch.delitem(file.engine._session._answers, ConfirmAll)
    with pytest.raises(Unsupported, match=r"locks\.db: .*ConfirmAll"):
        file.ask(ConfirmAll(("a",), "mine", (1,), (1,)))
    granted(file.ask(Release("a", "mine")))


def test_every_request_that_there_is_has_an_answer(file: File) -> None:
    file.acquire()
    assert isinstance(file.engine._session, session.Session)
    assert set(file.engine._session._answers) == set(Request.__args__)
