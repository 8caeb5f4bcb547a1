"""The SQLite engine: cells, whose versions never come again, and by whose time they end."""

from __future__ import annotations

import sqlite3
import time

import pytest

from quorumlock.clocks import boot_time
from quorumlock.core.requests import CellEnter, CellGet, CellPut, CellSwap, Join
from quorumlock.core.votes import Answer, Cause
from quorumlock.engines.sqlite import cells, pruning

from .test_sqlite import File, Make, file, granted, make, refused
from .test_sqlite_time import Reboot, reboot

__all__ = ["file", "make", "reboot"]  # fixtures

DAY_MS = 86_400_000


def swap(file: File, version: int, value: bytes = b"value", name: str = "a", ttl_ms: int = DAY_MS) -> Answer:
    return file.ask(CellSwap(name, value, version, ttl_ms))


def got(file: File, name: str = "a") -> tuple[bytes, int]:
    answer = file.ask(CellGet(name))
    return answer.value, granted(answer)


def names(file: File) -> list[str]:
    return [name for (name,) in file.sql("SELECT name FROM cells ORDER BY name")]


def test_a_cell_is_set_by_whoever_has_seen_its_version(make: Make) -> None:
    one, other = make(), make()
    assert got(one) == (b"", 0)
    first = granted(swap(one, 0, b"one"))
    assert got(other) == (b"one", first)
    assert refused(swap(other, 0, b"lost"), Cause.CHANGED).fence == first
    second = granted(swap(other, first, b"\x00\xff"))
    assert second > first
    assert refused(swap(one, first, b"lost"), Cause.CHANGED).fence == second
    assert got(one) == (b"\x00\xff", second)


def test_cells_are_behind_the_prefix_and_are_no_locks(make: Make) -> None:
    one, other = make(prefix="one:"), make(prefix="other:")
    granted(swap(one, 0))
    assert got(other) == (b"", 0)
    granted(one.acquire())
    assert names(one) == ["one:a"]


@pytest.mark.parametrize("size", [0, 1, 2**20 + 1])
def test_values_of_any_size_that_is_allowed(file: File, size: int) -> None:
    value = bytes(size)
    version = granted(swap(file, 0, value))
    assert got(file) == (value, version)


def test_a_version_never_comes_again(make: Make, reboot: Reboot) -> None:
    """Else somebody who has seen the old one would overwrite what he never saw."""
    one = make()
    version = granted(swap(one, 0))
    one.sql("UPDATE cells SET expires_ms = 5")
    assert got(one) == (b"", 0)
    anew = granted(swap(one, 0))
    assert anew > version
    one.sql("DELETE FROM cells")
    reboot("next boot")
    assert granted(swap(make(), 0)) > anew
    assert granted(make().acquire()) > anew, "they are steps of the same counter as fences"


def test_it_ends_by_the_boot_clock_however_the_wall_clock_is_set(file: File) -> None:
    version = granted(swap(file, 0))
    file.sql("UPDATE cells SET wall_ms = 5")
    assert got(file) == (b"value", version)
    file.sql("UPDATE cells SET expires_ms = ?, wall_ms = wall_ms + ?", int(boot_time() * 1000), 10 * DAY_MS)
    assert got(file) == (b"", 0)
    refused(swap(file, version), Cause.CHANGED)


def test_it_outlives_a_reboot_and_ends_by_the_wall_clock_then(make: Make, reboot: Reboot) -> None:
    one = make()
    version = granted(swap(one, 0))
    one.sql("UPDATE cells SET expires_ms = 5")
    reboot("next boot")
    later = make()
    assert got(later) == (b"value", version)
    one.sql("UPDATE cells SET wall_ms = ?", time.time_ns() // 1_000_000 - 5)
    assert got(later) == (b"", 0)


def test_to_set_it_is_to_keep_it_for_longer_and_to_read_it_is_not(file: File) -> None:
    version = granted(swap(file, 0, ttl_ms=3_600_000))
    before = file.sql("SELECT expires_ms, wall_ms FROM cells")
    got(file)
    assert file.sql("SELECT expires_ms, wall_ms FROM cells") == before
    granted(swap(file, version))
    ((expires_ms, wall_ms),) = file.sql("SELECT expires_ms, wall_ms FROM cells")
    assert expires_ms - boot_time() * 1000 == pytest.approx(DAY_MS, abs=60_000)
    assert wall_ms - time.time() * 1000 == pytest.approx(DAY_MS, abs=60_000)


def test_a_read_waits_for_nobody_who_writes(file: File) -> None:
    version = granted(swap(file, 0))
    writer = sqlite3.connect(file.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert got(file) == (b"value", version)
    writer.close()


def test_what_several_nodes_would_be_asked_is_answered_alike(file: File) -> None:
    assert granted(file.ask(CellEnter("a", 10, DAY_MS))) == 0
    assert got(file) == (b"", 0)
    assert refused(file.ask(CellEnter("a", 9, DAY_MS)), Cause.CHANGED).fence == 10
    assert refused(file.ask(CellPut("a", b"late", 9, DAY_MS)), Cause.CHANGED).fence == 10
    assert granted(file.ask(CellPut("a", b"ten", 10, DAY_MS))) == 10
    answer = file.ask(CellEnter("a", 12, DAY_MS))
    assert (granted(answer), answer.value) == (10, b"ten")
    assert refused(file.ask(CellPut("a", b"late", 11, DAY_MS)), Cause.CHANGED).fence == 12
    high = 2**52
    assert granted(file.ask(CellPut("a", b"high", high, DAY_MS))) == high
    assert granted(swap(file, high)) == high + 1


def test_cells_that_are_over_are_pruned_and_others_are_not(make: Make, reboot: Reboot) -> None:
    one = make()
    for name in "abc":
        granted(swap(one, 0, name=name))
    one.sql("UPDATE cells SET expires_ms = 5 WHERE name = 'a'")
    make().ask(Join())
    assert names(one) == ["b", "c"]
    one.sql("UPDATE cells SET wall_ms = 5 WHERE name = 'b'")
    make().ask(Join())
    assert names(one) == ["b", "c"]
    reboot("next boot")
    make().ask(Join())
    assert names(one) == ["c"]


def test_cells_are_pruned_every_so_many_changes_in_portions(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PRUNE_EVERY", 5)
    monkeypatch.setattr(pruning, "CELLS_MOST", 3)
    for n in range(5):
        granted(swap(file, 0, name=f"name-{n}"))
    file.sql("UPDATE cells SET expires_ms = 5")
    granted(swap(file, 0))
    assert len(names(file)) == 3
    version = 0
    for _ in range(5):
        version = granted(swap(file, version, name="b"))
    assert names(file) == ["a", "b"]


def test_a_value_that_is_not_asked_for_is_not_read(file: File) -> None:
    """What tells whether a cell is over stands before its value: large cells are pruned at no great cost."""
    granted(swap(file, 0))
    columns = [name for (name,) in file.sql("SELECT name FROM pragma_table_info('cells')")]
    assert columns[-1] == "value"
    assert "value" not in cells._KNOWN
