"""The SQLite engine: readers of other boots, and what is left of dead ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quorumlock.core.requests import Extend, Join, Look, Release
from quorumlock.core.votes import Cause
from quorumlock.engines.sqlite import pruning
from quorumlock.engines.sqlite.boot import this_boot

from .sqlite_clocks import Clock, clock
from .test_sqlite import File, Make, file, granted, kept, make, refused
from .test_sqlite_readers import read, rows
from .test_sqlite_time import SHORT, SHORT_MS, Reboot, reboot

__all__ = ["clock", "file", "make", "reboot"]  # fixtures


# Other clocks.


def of_another_boot(file: File) -> None:
    file.sql("UPDATE readers SET boot = 'another', expires_ms = 5")


def test_a_reader_of_another_boot_is_waited_out_for_max_ttl(make: Make, clock: Clock) -> None:
    one = make(max_ttl=SHORT)
    granted(read(one, ttl_ms=10))
    of_another_boot(one)
    refused(one.ask(Look("a")), Cause.HELD)
    assert refused(one.acquire(), Cause.HELD).wait_ms == SHORT_MS
    clock.advance(SHORT_MS - 1)
    assert refused(one.acquire(), Cause.HELD).wait_ms == 1
    clock.advance(1)
    granted(one.acquire())
    assert rows(one) == []


def test_a_reader_longer_than_my_max_ttl_is_waited_out_for_its_own(make: Make) -> None:
    one = make(max_ttl=SHORT)
    granted(read(one, ttl_ms=30_000))
    of_another_boot(one)
    assert refused(one.acquire(), Cause.HELD).wait_ms > 20_000
    assert refused(make(max_ttl=SHORT).acquire(), Cause.HELD).wait_ms <= 30_001


def test_of_several_readers_of_other_clocks_each_is_waited_out(make: Make) -> None:
    """The first that is over does not make the others so; nor does one that is renewed keep the others alive."""
    one = make(max_ttl=SHORT)
    for token, ttl_ms in (("r:short", 10), ("r:long", 30_000)):
        granted(read(one, token, ttl_ms))
    of_another_boot(one)
    refused(one.acquire(), Cause.HELD)
    seen = one.sql("SELECT token, until_ms FROM reader_sightings ORDER BY until_ms")
    assert [token for token, _ in seen] == ["r:short", "r:long"]
    one.sql("UPDATE reader_sightings SET until_ms = 5 WHERE token = 'r:short'")
    assert refused(one.acquire(), Cause.HELD).wait_ms > 20_000
    one.sql("UPDATE readers SET expires_ms = 6 WHERE token = 'r:long'")
    assert refused(one.acquire(), Cause.HELD).wait_ms > 20_000
    one.sql("UPDATE reader_sightings SET until_ms = 5")
    granted(one.acquire())


def test_a_renewal_elsewhere_starts_the_wait_anew(make: Make) -> None:
    one = make(max_ttl=SHORT)
    granted(read(one, ttl_ms=10))
    for expires_ms in (5, 6, 7):
        one.sql("UPDATE readers SET boot = 'another', expires_ms = ?", expires_ms)
        refused(one.acquire(), Cause.HELD)
        one.sql("UPDATE reader_sightings SET until_ms = 5")
    granted(one.acquire())


def test_readers_of_two_clocks_share_and_each_goes_on(make: Make, reboot: Reboot) -> None:
    here = make(max_ttl=SHORT)
    granted(read(here, "r:here"))
    reboot("elsewhere")
    there = make(max_ttl=SHORT)
    granted(read(there, "r:there"))
    for one, token in ((here, "r:here"), (there, "r:there")):
        granted(one.ask(Extend((kept(token=token),))))
        refused(one.acquire(), Cause.HELD)
    granted(there.ask(Release("a", "r:there")))
    refused(there.acquire(), Cause.HELD)
    granted(here.ask(Release("a", "r:here")))
    granted(there.acquire())


def test_a_reader_that_reads_another_clock_now_goes_on(make: Make) -> None:
    """A process that moved to another time namespace: by the numbers alone it would be over."""
    one = make()
    granted(read(one))
    of_another_boot(one)
    granted(one.ask(Extend((kept(token="r:one"),))))
    assert one.sql("SELECT boot FROM readers") == [(this_boot().clock,)]
    granted(one.ask(Release("a", "r:one")))


# What is left behind.


def test_dead_readers_are_pruned_at_opening_and_live_ones_are_not(make: Make) -> None:
    one = make()
    for n in range(5):
        read(one, name=f"name-{n}")
    one.sql("UPDATE readers SET expires_ms = 5")
    read(one, "r:dead")
    one.sql("UPDATE readers SET expires_ms = 5")
    granted(read(one, "r:alive"))
    one.sql("INSERT INTO readers SELECT name, 'r:gone', 5, ttl_ms, boot FROM readers WHERE token = 'r:alive'")
    make().ask(Join())
    assert rows(one) == ["r:alive"]
    assert one.sql("SELECT name FROM leases") == [("a",)]
    refused(one.acquire(), Cause.HELD)


def test_readers_of_another_boot_are_pruned_when_they_are_over_and_not_before(make: Make) -> None:
    one = make(max_ttl=SHORT)
    for n in range(3):
        read(one, name=f"name-{n}", ttl_ms=10)
    of_another_boot(one)
    make(max_ttl=SHORT).ask(Join())
    assert len(rows(one)) == 3
    one.sql("UPDATE reader_sightings SET until_ms = 5 WHERE name = 'name-0'")
    one.sql("UPDATE reader_sightings SET until_ms = ? WHERE name <> 'name-0'", 2**60)
    make(max_ttl=SHORT).ask(Join())
    assert len(rows(one)) == 2
    assert one.sql("SELECT name FROM reader_sightings") == one.sql("SELECT name FROM leases")
    one.sql("UPDATE reader_sightings SET until_ms = 5")
    make(max_ttl=SHORT).ask(Join())
    assert [one.sql(f"SELECT count(*) FROM {table}") for table in ("readers", "reader_sightings", "leases")] == [
        [(0,)]
    ] * 3


def test_dead_readers_are_pruned_every_so_many_readers(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PRUNE_EVERY", 10)
    for n in range(10):
        read(file, f"r:{n}", name=f"name-{n}")
    file.sql("UPDATE readers SET expires_ms = 5")
    granted(read(file))
    assert rows(file) == ["r:one"]


def test_live_readers_are_no_reason_to_write_when_a_file_is_opened(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("nothing is to be pruned")

    granted(read(make()))
    monkeypatch.setattr(pruning, "_PRUNE", Never())
    make().ask(Join())
