"""The SQLite engine among processes: readers, slots, several locks, leaders and cells; holders that were killed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock import LeaseLost, LossReason, VersionConflict
from quorumlock.clocks import boot_time
from tests.support.waiting import eventually

from .test_sqlite_processes import Process, Start, start, url

__all__ = ["start"]  # fixtures

pytestmark = pytest.mark.real_time(0.3)
SLACK = 20.0
"""What a loaded machine may add to a time that is promised."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def locks(path: Path) -> Iterator[quorumlock.Locker]:
    with quorumlock.connect(url(path)) as locks:
        yield locks


def program(path: Path, body: str, **told: object) -> str:
    """Says that it is ready, waits to be told to go on, and does `body` with `locks`."""
    given = "".join(f"{name} = {value!r}\n" for name, value in told.items())
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"""
import os, sys, time
{given}
with quorumlock.connect({url(path)!r}) as locks:
    locks.lock("makes the file").locked()
    print("ready", flush=True)
    sys.stdin.readline()
{indented}"""


def run(start: Start, *programs: str) -> None:
    """All at the same time, to their end."""
    started = [start(one) for one in programs]
    assert {one.line() for one in started} == {"ready"}
    for one in started:
        one.go()
    for one in started:
        one.end()


def held_by(start: Start, path: Path, body: str) -> Process:
    """A process that has what `body` acquires, until it is killed."""
    holder = start(program(path, f"{body}\nprint('held', flush=True)\ntime.sleep(600)"))
    assert holder.line() == "ready"
    holder.go()
    assert holder.line() == "held"
    return holder


WRITE = """
for _ in range(turns):
    with locks.read_write("pair").write(ttl=30):
        seen = int(open(left).read())
        for name in (left, right):
            with open(name, "w") as stream:
                stream.write(f"{seen + 1:09}")
            time.sleep(0.001)
"""
READ = """
for _ in range(turns):
    with locks.read_write("pair").read(ttl=30):
        seen = [open(name).read() for name in (left, right)]
        assert seen[0] == seen[1], seen
"""


def test_readers_never_see_a_half_of_what_a_writer_does(path: Path, start: Start, tmp_path: Path) -> None:
    told = {"left": str(tmp_path / "left"), "right": str(tmp_path / "right"), "turns": 25}
    for name in ("left", "right"):
        (tmp_path / name).write_text("000000000")
    writer, reader = program(path, WRITE, **told), program(path, READ, **told)
    run(start, writer, reader, reader, writer, reader)
    assert (tmp_path / "left").read_text() == (tmp_path / "right").read_text() == "000000050"


TOGETHER = """
with locks.read_write("a").read(ttl=60):
    open(mine, "w").close()
    give_up_at = time.monotonic() + 60
    while not all(os.path.exists(name) for name in everybody):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
"""


def test_readers_of_several_processes_are_in_it_at_the_same_time(path: Path, start: Start, tmp_path: Path) -> None:
    everybody = [str(tmp_path / f"reader-{n}") for n in range(3)]
    run(start, *(program(path, TOGETHER, mine=mine, everybody=everybody) for mine in everybody))


SLOT = """
for _ in range(turns):
    with locks.semaphore("s", 2, ttl=30) as lease:
        mark = os.path.join(folder, f"slot-{lease.slot}")
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        time.sleep(0.001)
        os.unlink(mark)
"""


def test_of_each_slot_there_is_one_holder_at_a_time(path: Path, start: Start, tmp_path: Path) -> None:
    run(start, *[program(path, SLOT, turns=25, folder=str(tmp_path))] * 4)
    assert not list(tmp_path.glob("slot-*"))


SEVERAL = """
for _ in range(turns):
    with locks.multi(names, ttl=30) as lease:
        assert set(lease.fences) == set(names) and lease.fence == max(lease.fences.values())
        for name in names:
            path = os.path.join(folder, name)
            seen, fence = open(path).read().split()
            assert int(fence) < lease.fences[name]
            with open(path, "w") as stream:
                stream.write(f"{int(seen) + 1} {lease.fences[name]}")
"""


def test_sets_of_names_that_overlap_neither_deadlock_nor_lose_an_update(
    path: Path, start: Start, tmp_path: Path
) -> None:
    for name in "abc":
        (tmp_path / name).write_text("0 0")
    run(
        start,
        *(program(path, SEVERAL, turns=20, folder=str(tmp_path), names=list(s)) for s in ("ab", "bc", "ca", "cba")),
    )
    assert [(tmp_path / name).read_text().split()[0] for name in "abc"] == ["60"] * 3


COUNT = """
cell = locks.cell("count")
for _ in range(turns):
    cell.update(lambda seen: (seen or 0) + 1, attempts=1000)
"""


def test_processes_lose_no_update_of_a_cell(path: Path, start: Start, locks: quorumlock.Locker) -> None:
    run(start, *[program(path, COUNT, turns=30)] * 4)
    value, version = locks.cell("count").get()
    assert value == 120
    with pytest.raises(VersionConflict):
        locks.cell("count").set(0, version - 1)


# Holders that were killed.

HOLDERS = {
    "reader": 'reader = locks.read_write("r").read(ttl=1.5).acquire()',
    "writer": 'writer = locks.read_write("w").write(ttl=1.5).acquire()',
    "slot": 'slot = locks.semaphore("s", 1, ttl=1.5).acquire()',
    "several": 'several = locks.multi(["a", "b"], ttl=1.5).acquire()',
    "leader": 'leader = locks.election("l", ttl=1.5).lead().__enter__()',
}


def test_a_killed_holder_is_waited_for_until_its_ttl_is_over(
    path: Path, start: Start, locks: quorumlock.Locker
) -> None:
    """Whatever it holds. A lease that it keeps does not end while it lives."""
    wanted: dict[str, Any] = {
        "r": locks.read_write("r").write(ttl=30),
        "w": locks.read_write("w").read(ttl=30),
        "s#0": locks.semaphore("s", 1, ttl=30),
        "b": locks.multi(["b", "c"], ttl=30),
        "l": locks.lock("l", ttl=30, fair=True),
    }
    holder = held_by(start, path, "\n".join(HOLDERS.values()))
    first_ends_at = boot_time() + 1.5
    while boot_time() < first_ends_at + 0.2:
        assert [name for name, lock in wanted.items() if lock.try_acquire() is not None] == []
        time.sleep(0.01)
    for name in wanted:
        seen = locks.inspect(name)
        assert seen.holder is not None
        assert seen.holder.pid == holder.pid
    holder.kill()
    assert [name for name, lock in wanted.items() if lock.try_acquire() is not None] == []
    for lock in wanted.values():
        lock.acquire(timeout=1.5 + SLACK).release()


def test_of_readers_the_killed_one_is_waited_for_and_the_others_go_on(
    path: Path, start: Start, locks: quorumlock.Locker
) -> None:
    mine = locks.read_write("r").read(ttl=30).acquire()
    holder = held_by(start, path, HOLDERS["reader"])
    assert len(locks.inspect("r").holders) == 2
    holder.kill()
    assert eventually(lambda: len(locks.inspect("r").holders) == 1)
    assert locks.lock("r").try_acquire() is None
    mine.check()
    mine.release()
    locks.lock("r").acquire(timeout=SLACK).release()


WAITER = """
from quorumlock.engines.sqlite import tickets
tickets.LASTS_MS = 800
locks.read_write("a").write(ttl=30).acquire()
"""
"""A ticket is good for 2 s usually: `test_to_ask_again_is_to_read_and_a_ticket_is_written_before_it_is_old`."""


def test_a_killed_writer_in_the_queue_keeps_readers_waiting_until_its_ticket_is_over(
    path: Path, start: Start, locks: quorumlock.Locker
) -> None:
    mine = locks.read_write("a").read(ttl=60).acquire()
    waiter = start(program(path, WAITER))
    assert waiter.line() == "ready"
    waiter.go()
    assert eventually(lambda: locks.inspect("a").waiters)
    with quorumlock.connect(url(path)) as others:
        assert others.read_write("a").read(ttl=30).try_acquire() is None
        waiter.kill()
        others.read_write("a").read(ttl=30).acquire(timeout=SLACK).release()
    mine.release()


def test_what_another_process_breaks_is_lost_to_all_who_shared_it(
    path: Path, start: Start, locks: quorumlock.Locker
) -> None:
    leases = [locks.read_write("a").read(ttl=2).acquire() for _ in range(2)]
    run(start, program(path, 'locks.break_("a")'))
    for lease in leases:
        assert lease.lost.wait(SLACK)
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.BROKEN
    locks.lock("a").acquire(timeout=SLACK).release()


# Tasks.


def test_every_kind_among_tasks(path: Path) -> None:
    async def main() -> None:
        async with quorumlock.connect_async(url(path)) as locks, quorumlock.connect_async(url(path)) as others:
            pair = locks.read_write("a")
            async with pair.read(ttl=30) as one, others.read_write("a").read(ttl=30) as two:
                assert one.fence == two.fence
                assert await others.lock("a").try_acquire() is None
            writer = await pair.write(ttl=30).acquire()
            shared = await pair.downgrade(writer)
            assert shared.fence == writer.fence
            async with others.read_write("a").read(ttl=30):
                assert (await others.inspect("a")).state == "shared"
            await shared.release()
            async with locks.semaphore("s", 2, ttl=30) as one, others.semaphore("s", 2, ttl=30) as two:
                assert {one.slot, two.slot} == {0, 1}
                assert await others.semaphore("s", 2, ttl=30).try_acquire() is None
            async with locks.multi(["x", "y"], ttl=30):
                assert await others.multi(["y", "z"], ttl=30).try_acquire() is None
                assert await others.list("?") == ["x", "y"]
            async with locks.election("e", ttl=30).lead():
                leader = await others.election("e", ttl=30).leader()
                assert leader is not None
                assert leader.pid == os.getpid()
            version = await locks.cell("c").set({"n": 1}, 0)
            assert await others.cell("c").get() == ({"n": 1}, version)
            lock = locks.lock("r", ttl=30, reentrant=True)
            async with lock as one, lock as two:
                assert one.fence == two.fence

    asyncio.run(asyncio.wait_for(main(), 100))
