"""The SQLite engine: leases of other boots, leases that are over, and fences through reboots and power cuts."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import quorumlock
from quorumlock.clocks import boot_time
from quorumlock.core.requests import Break, Extend, Join, Look, Release
from quorumlock.core.votes import Cause, Vote
from quorumlock.engines.sqlite import boot, fences, pruning, session
from quorumlock.engines.sqlite.boot import Boot, this_boot
from tests.support.waiting import eventually

from .sqlite_clocks import Clock, clock
from .test_sqlite import MAX_TTL, File, Make, file, granted, kept, make, refused

__all__ = ["clock", "file", "make"]  # fixtures
pytestmark = pytest.mark.real_time(1)

SHORT, SHORT_MS = 0.06, 60
"""A max_ttl."""


class Reboot:
    """Sessions that are opened from now on are of another boot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, machine: str, clock: str | None = None, *, known: bool = True) -> None:
        self._monkeypatch.setattr(session, "this_boot", lambda: Boot(machine, clock or machine, known))


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Reboot:
    return Reboot(monkeypatch)


def of_another_boot(file: File, name: str = "a") -> None:
    """As if the machine had restarted since, and its clock begun again."""
    file.sql("UPDATE leases SET boot = 'another', expires_ms = 5 WHERE name = ?", name)


def test_a_lease_of_another_boot_is_waited_out_for_max_ttl(make: Make, clock: Clock) -> None:
    one = make(max_ttl=SHORT)
    fence = granted(one.acquire(ttl_ms=10))
    of_another_boot(one)
    for left_ms in (SHORT_MS, 1):
        answer = refused(one.acquire(token="other"), Cause.HELD)
        assert (answer.wait_ms, answer.fence) == (left_ms, fence)
        clock.advance(left_ms - 1 or 1)
    assert granted(one.acquire(token="other")) > fence
    row = one.row()
    assert row is not None
    assert (row[0], row[4]) == ("other", this_boot().clock)


def test_a_lease_longer_than_my_max_ttl_is_waited_out_for_its_own(make: Make) -> None:
    one = make(max_ttl=SHORT)
    one.acquire(ttl_ms=30_000)
    of_another_boot(one)
    assert refused(one.acquire(token="other"), Cause.HELD).wait_ms > 20_000
    assert refused(one.ask(Look("a")), Cause.HELD).wait_ms > 20_000


def test_all_processes_of_a_boot_wait_together(make: Make, clock: Clock) -> None:
    """What one has seen, the others need not see from the beginning."""
    one = make(max_ttl=SHORT)
    one.acquire()
    one.sql("UPDATE leases SET boot = 'another', ttl_ms = 10")
    refused(one.acquire(token="other"), Cause.HELD)
    clock.advance(SHORT_MS)
    granted(make(max_ttl=SHORT).acquire(token="third"))


def test_a_renewal_elsewhere_starts_the_wait_anew(make: Make, clock: Clock) -> None:
    one = make(max_ttl=SHORT)
    one.acquire()
    for expires_ms in (5, 6, 7, 8):
        one.sql("UPDATE leases SET boot = 'another', ttl_ms = 10, expires_ms = ?", expires_ms)
        assert refused(one.acquire(token="other"), Cause.HELD).wait_ms == SHORT_MS
        clock.advance(SHORT_MS - 1)
        assert refused(one.acquire(token="other"), Cause.HELD).wait_ms == 1
    clock.advance(1)
    granted(one.acquire(token="other"))


def test_a_holder_goes_on_whoever_has_seen_it_meanwhile(make: Make, reboot: Reboot, clock: Clock) -> None:
    """Two boots at a time: time namespaces, or a system that does not tell boots apart."""
    holder = make(max_ttl=SHORT)
    fence = granted(holder.acquire(ttl_ms=300))
    reboot("elsewhere")
    waiter = make(max_ttl=SHORT)
    for _ in range(50):
        refused(waiter.acquire(token="other"), Cause.HELD)
        granted(holder.ask(Extend((kept(ttl_ms=300),))))
        clock.advance(10)
    row = holder.row()
    assert row is not None
    assert (row[:2], row[4]) == (("mine", fence), this_boot().clock)
    granted(holder.ask(Release("a", "mine")))
    granted(waiter.acquire(token="other"))


def test_waiters_of_different_boots_do_not_put_the_end_off_for_ever(
    make: Make, reboot: Reboot, clock: Clock
) -> None:
    dead = make(max_ttl=SHORT)
    dead.acquire(ttl_ms=10)
    waiters = []
    for name in ("boot-b", "boot-c"):
        reboot(name)
        waiters.append(make(max_ttl=SHORT))
        waiters[-1].ask(Join())
    until_ms = clock.ms + 10 * SHORT_MS
    while not any(waiter.acquire(token=f"waiter-{n}").vote is Vote.GRANTED for n, waiter in enumerate(waiters)):
        clock.advance(6)
        assert clock.ms < until_ms, "each put off the other's end"


@pytest.mark.parametrize("request_", [Release("a", "mine"), Break("a")], ids=["release", "break"])
def test_a_lease_of_another_boot_can_be_released_and_broken(file: File, request_: Release | Break) -> None:
    granted(file.acquire())
    of_another_boot(file)
    granted(file.ask(request_))
    granted(file.acquire(token="other"))


def test_a_holder_that_renews_counts_by_its_own_clock_again(file: File, clock: Clock) -> None:
    granted(file.acquire())
    of_another_boot(file)
    granted(file.ask(Extend((kept(ttl_ms=7000),))))
    row = file.row()
    assert row is not None
    assert row[4] == this_boot().clock
    assert row[2] == clock.ms + 7000


def test_leases_of_another_boot_are_pruned_when_they_are_over_and_not_before(make: Make, clock: Clock) -> None:
    one = make(max_ttl=0.3)
    for n in range(5):
        one.acquire(f"name-{n}", ttl_ms=10)
        of_another_boot(one, f"name-{n}")
    make(max_ttl=0.3).ask(Join())
    assert one.sql("SELECT count(*) FROM leases") == [(5,)]
    refused(one.ask(Look("name-0")), Cause.HELD)
    clock.advance(300)
    granted(one.ask(Look("name-0")))
    make(max_ttl=0.3).ask(Join())
    assert one.sql("SELECT count(*) FROM leases") == [(0,)]
    assert one.sql("SELECT count(*) FROM sightings") == [(0,)]


def test_the_boot_is_known_here_and_the_same_for_everybody() -> None:
    mine = this_boot()
    assert mine.known
    assert mine == this_boot()
    program = "from quorumlock.engines.sqlite.boot import this_boot; print(*this_boot(), sep='|')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "|".join(map(str, mine))


def test_where_nothing_is_told_every_process_is_a_machine_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "PROC", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    mine = this_boot()
    assert not mine.known
    assert mine == this_boot()
    assert mine.clock.startswith("process-")


def test_a_time_namespace_has_a_clock_of_its_own_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "PROC", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("id\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    offsets = tmp_path / "self/timens_offsets"
    offsets.write_text("monotonic           0         0\nboottime            0         0\n")
    assert this_boot() == Boot("id", "id", True)
    offsets.write_text("monotonic           0         0\nboottime         7000         0\n")
    assert this_boot() == Boot("id", "id+monotonic/0/0+boottime/7000/0", True)
    # A namespace made for children: the offsets are theirs, and one's own are not told.
    (tmp_path / "self/ns/time").symlink_to("time:[1]")
    (tmp_path / "self/ns/time_for_children").symlink_to("time:[2]")
    assert this_boot().machine == "id"
    assert this_boot().clock.startswith("process-")


def test_a_lease_from_a_real_time_namespace_is_not_taken_for_expired(make: Make) -> None:
    one = make()
    program = (
        f"import quorumlock, sys; locks = quorumlock.connect('sqlite:///{one.path}')\n"
        "lease = locks.lock('a', ttl=5, keep=False).acquire(); print(lease.fence); locks.close()"
    )
    command = ["unshare", "--time", "--boottime", "-1000", "--fork", sys.executable, "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no time namespaces here: {error}")
    row = one.row()
    assert row is not None
    assert row[2] < boot_time() * 1000, "to this clock its end is long past"
    answer = refused(one.acquire(token="other"), Cause.HELD)
    assert answer.fence == int(done.stdout)
    assert answer.wait_ms > (MAX_TTL - 10) * 1000


# Pruning.


def test_rows_of_names_never_used_again_are_pruned_at_opening(make: Make, clock: Clock) -> None:
    one = make()
    for n in range(20):
        one.acquire(f"name-{n}", ttl_ms=10)
    one.acquire("alive")
    clock.advance(10)
    assert one.sql("SELECT count(*) FROM leases") == [(21,)]
    make().ask(Join())
    assert one.sql("SELECT name FROM leases") == [("alive",)]


def test_rows_are_pruned_every_so_many_grants(file: File, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(pruning, "PRUNE_EVERY", 50)
    for n in range(300):
        file.acquire(f"name-{n}", ttl_ms=10)
        if n % 10 == 0:
            clock.advance(2)
    clock.advance(10)
    for n in range(51):
        file.acquire(f"later-{n}")
    assert file.sql("SELECT count(*) FROM leases WHERE name LIKE 'name-%'") == [(0,)]


def test_a_neglected_file_is_pruned_in_portions(make: Make, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(pruning, "PRUNE_MOST", 8)
    one = make()
    for n in range(20):
        one.acquire(f"name-{n}", ttl_ms=10)
    clock.advance(10)
    for left in (12, 4, 0):
        make().ask(Join())
        assert one.sql("SELECT count(*) FROM leases") == [(left,)]


def test_pruning_waits_for_nobody(make: Make, clock: Clock) -> None:
    one = make()
    one.acquire("held")
    one.acquire("over", ttl_ms=10)
    clock.advance(10)
    writer = sqlite3.connect(one.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    started_at = time.perf_counter()
    refused(make().acquire("held", "other"), Cause.HELD)
    assert time.perf_counter() - started_at < 2.0
    writer.close()


# Fences.


def test_a_new_file_starts_at_the_wall_clock(file: File) -> None:
    before = time.time_ns() // 1000
    fence = granted(file.acquire())
    assert before < fence <= time.time_ns() // 1000 + 1
    assert fence < 2**53


def test_a_file_that_was_deleted_and_made_again_goes_on_above(make: Make) -> None:
    one = make()
    fence = max(granted(one.acquire(f"name-{n}")) for n in range(50))
    one.engine.close()
    one.path.unlink()
    assert eventually(lambda: time.time_ns() // 1000 > fence), "no new file starts at an instant that was used"
    assert granted(make().acquire()) > fence


def test_one_counter_for_all_names_without_gaps_while_the_kernel_runs(make: Make) -> None:
    fence = granted(make().acquire())
    for n in range(1, 6):
        again = make()  # a process that starts anew
        assert granted(again.acquire(f"name-{n}")) == fence + n
        again.engine.close()


def meta(file: File) -> tuple[int, int, str]:
    (row,) = file.sql("SELECT fence, reserved, boot FROM meta")
    return row  # type: ignore[no-any-return]


def test_fences_are_below_what_was_reserved_and_more_is_reserved_in_time(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "BLOCK", 7)
    last = 0
    for n in range(40):
        fence = granted(file.acquire(f"name-{n}"))
        now, reserved, _ = meta(file)
        assert last < fence == now < reserved
        last = fence


def test_after_a_reboot_the_fence_leaps_over_what_may_have_been_lost(make: Make, reboot: Reboot) -> None:
    """A power cut: the file comes back as of the last commit that waited for the disk."""
    one = make()
    granted(one.acquire("first"))
    folder, disk = one.path.parent, one.path.parent / "disk"
    disk.mkdir()
    # By another process: to close a file is to lose this process's locks on it, SQLite's too.
    subprocess.run(["cp", *folder.glob("locks.db*"), disk], check=True, timeout=10)
    handed_out = max(granted(one.acquire(f"name-{n}")) for n in range(300))
    reserved = meta(one)[1]
    one.engine.close()
    for lost in folder.glob("locks.db*"):
        lost.unlink()
    subprocess.run(["cp", *disk.iterdir(), folder], check=True, timeout=10)
    reboot("next boot")
    again = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fences, "wall_us", lambda: 1)  # a clock that lost its battery: it must do without
        fence = granted(again.acquire("later"))
    assert handed_out < reserved < fence < 2**53
    assert meta(again)[2] == "next boot"
    assert granted(again.acquire("next")) == fence + 1, "once per boot"


def test_after_a_reboot_the_fence_is_not_below_the_wall_clock(make: Make, reboot: Reboot) -> None:
    """An old copy of the file was put back before the start."""
    one = make()
    one.acquire()
    one.sql("UPDATE meta SET fence = 1000, reserved = 2000, boot = 'before'")
    assert granted(one.acquire("b")) >= time.time_ns() // 1000 - 60_000_000


def test_what_is_reserved_waits_for_the_disk_and_nothing_else_does(file: File) -> None:
    file.ask(Join())
    assert file.engine._session is not None
    said: list[str] = []
    file.engine._session._db.set_trace_callback(said.append)
    granted(file.acquire("a"))
    assert not any("synchronous" in statement for statement in said)
    file.sql("UPDATE meta SET reserved = fence + 1")
    said.clear()
    granted(file.acquire("b"))
    told = [one.split("(")[0].strip() for one in said if not one.startswith("SELECT")]
    full, normal = told.index("PRAGMA synchronous = FULL"), told.index("PRAGMA synchronous = NORMAL")
    assert [one.partition(" SET")[0] for one in told[full + 1 : normal]] == [
        "BEGIN IMMEDIATE",
        "UPDATE meta",
        "COMMIT",
    ]
    assert told[normal + 1] == "BEGIN IMMEDIATE"
    assert "INSERT OR REPLACE INTO leases" in told[normal + 2 :]


def test_another_time_namespace_is_no_reboot_to_the_fence(make: Make, reboot: Reboot) -> None:
    reboot("machine", "clock-1")
    one = make()
    fence = granted(one.acquire("a"))
    reboot("machine", "clock-2")
    assert granted(make().acquire("b")) == fence + 1


def test_where_boots_are_unknown_processes_in_turn_use_up_fences_slowly(make: Make, reboot: Reboot) -> None:
    files = []
    for name in ("process-1", "process-2"):
        reboot(name, known=False)
        files.append(make())
        files[-1].ask(Join())
    found = [granted(files[n % 2].acquire(f"name-{n}")) for n in range(20)]
    assert found == sorted(set(found))
    assert found[-1] - found[0] < fences.BLOCK


def test_fences_that_are_used_up_are_an_error_and_no_lock(file: File) -> None:
    file.ask(Join())
    file.sql("UPDATE meta SET fence = ?, reserved = ?", 2**53 - 10, 2**53 - 9)
    with pytest.raises(quorumlock.EngineError, match="used up"):
        file.acquire()
    assert file.row() is None
    file.sql("BEGIN IMMEDIATE")  # nobody holds the write lock


@pytest.mark.parametrize("wrong", [-5.0, 0.0, 2.0**53 / 1e6])
def test_an_absurd_wall_clock_does_not_use_up_the_fences(
    make: Make, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: int(wrong * 1e9))
    assert 0 < granted(make().acquire()) < 2**40
