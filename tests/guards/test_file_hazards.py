"""The guard of a file when something goes wrong: killed writers, links, modes, cancellation, full disks."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import re
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorumlock import ConfigurationError, EngineError, EngineTimeout, StaleFence
from quorumlock.guards import AsyncFileGuard, Claim, FileGuard
from tests.support.waiting import eventually_async, forever

from .fronts import forked

pytestmark = pytest.mark.real_time(0.3)

PAUSED, CURRENT, NEXT = Claim("report", 7), Claim("report", 8), Claim("report", 9)
DRAFT = re.compile(r"report\.txt\.fence-[0-9a-f]{16}\.tmp")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.txt"


def drafts(path: Path) -> list[Path]:
    return [one for one in path.parent.iterdir() if DRAFT.fullmatch(one.name)]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def killed_while_writing(path: Path, claim: Claim) -> None:
    reading, writing = os.pipe()

    def task() -> None:
        with FileGuard(path).replace(claim) as file:
            file.write(b"half")
            file.flush()
            os.write(writing, b"!")
            signal.pause()

    pid = forked(task)
    os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_what_killed_writers_left_is_swept_by_the_next_holder(path: Path) -> None:
    path.write_text("as it was")
    killed_while_writing(path, PAUSED)
    killed_while_writing(path, PAUSED)
    assert len(drafts(path)) == 2
    assert path.read_text() == "as it was"
    FileGuard(path).enter(CURRENT)
    assert drafts(path) == []


def test_what_a_living_writer_writes_is_not_swept(path: Path) -> None:
    def write_slowly() -> None:
        with FileGuard(path).replace(PAUSED) as file:
            FileGuard(path).write(CURRENT, "new")
            assert len(drafts(path)) == 1
            file.close()  # what it wrote is still its own
            FileGuard(path).write(NEXT, "newer")
            assert len(drafts(path)) == 1

    with pytest.raises(StaleFence):
        write_slowly()
    assert drafts(path) == []


def test_only_what_is_ours_is_swept(path: Path) -> None:
    others = {
        "report.txt.fence-0123456789abcdef.tmp.keep",
        "other.txt.fence-0123456789abcdef.tmp",
        "report.txt.fence-0123456789ABCDEF.tmp",
        "report-txt.fence-0123456789abcdef.tmp",
        "report.txt.tmp",
    }
    for name in others:
        path.with_name(name).write_text("mine")
    linked = path.with_name("report.txt.fence-0123456789abcdef.tmp")
    linked.symlink_to(path.with_name("report.txt.tmp"))
    FileGuard(path).write(CURRENT, "new")
    assert {one.name for one in path.parent.iterdir()} >= {*others, linked.name}


def test_a_link_stays_and_what_it_leads_to_is_replaced(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(path)
    guard = FileGuard(link)
    guard.write(CURRENT, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert not path.is_symlink()
    with pytest.raises(StaleFence):  # both names are one file, with one mark
        FileGuard(path).write(PAUSED, "old")


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o444, 0o755])
def test_the_mode_of_a_file_is_kept(path: Path, kept: int) -> None:
    path.write_text("as it was")
    path.chmod(kept)
    guard = FileGuard(path)
    with guard.replace(CURRENT) as file:
        assert mode(drafts(path)[0]) == 0o600, "nobody reads meanwhile who could not before"
        file.write(b"new")
    guard.write(NEXT, "newer")
    assert mode(path) == kept
    assert mode(path.with_name("report.txt.fence")) == kept


def test_a_new_file_has_the_mode_that_new_files_have(path: Path) -> None:
    before = os.umask(0o027)
    try:
        FileGuard(path).write(CURRENT, "new")
    finally:
        os.umask(before)
    assert mode(path) == mode(path.with_name("report.txt.fence")) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_file_is_kept_where_the_system_allows_it(path: Path) -> None:
    path.write_text("as it was")
    os.chown(path, 1234, 2345)
    path.chmod(0o640)
    FileGuard(path).write(CURRENT, "new")
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (1234, 2345, 0o640)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A file in a folder of everybody's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder) / "report.txt"


def as_nobody(task: Callable[[], None]) -> bool:
    """Whether another user can do it."""

    def changed() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        task()

    return os.waitpid(forked(changed), 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another")
def test_users_who_share_a_folder_share_the_guard(shared: Path) -> None:
    FileGuard(shared).write(PAUSED, "root's")
    assert as_nobody(lambda: FileGuard(shared).write(CURRENT, "nobody's"))
    assert shared.read_text() == "nobody's"
    assert shared.stat().st_uid == 65534
    with pytest.raises(StaleFence):
        FileGuard(shared).write(PAUSED, "old")
    FileGuard(shared).write(NEXT, "root's again")
    assert shared.stat().st_uid == 65534, "the owner is kept"
    shared.parent.chmod(0o755)
    assert not as_nobody(lambda: FileGuard(shared).write(Claim("report", 10), "not allowed"))
    assert shared.read_text() == "root's again"


def test_a_mark_is_on_the_disk_before_what_it_admits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = FileGuard(path)
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def syncing(fd: int) -> None:
        folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        done.append("sync folder" if folder else f"sync {os.fstat(fd).st_size}")
        fsync(fd)

    def renaming(source: str, target: str) -> None:
        done.append(f"rename to {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    guard.write(CURRENT, "new")
    size = path.with_name("report.txt.fence").stat().st_size
    marked = [f"sync {size}", "rename to report.txt.fence", "sync folder"]
    assert done == [*marked, "sync 3", "rename to report.txt", "sync folder"]
    done.clear()
    guard.write(CURRENT, "more")
    assert done == ["sync 4", "rename to report.txt", "sync folder"]


@pytest.mark.parametrize("step", ["fsync", "rename", "fchmod"])
def test_an_error_of_the_disk_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path.write_text("as it was")
    guard = FileGuard(path)
    guard.enter(CURRENT)

    def failing(*args: Any) -> None:
        raise OSError(errno.EIO, "the disk is dying")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, failing)
        with pytest.raises(OSError, match="dying"):
            guard.write(CURRENT, "new")
        with pytest.raises(OSError, match="dying"):
            guard.enter(NEXT)
    assert path.read_text() == "as it was"
    assert drafts(path) == []
    assert json.loads(path.with_name("report.txt.fence").read_text())["fence"] == 8


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_told_when_the_block_ends(path: Path) -> None:
    path.write_text("as it was")

    def fill() -> None:
        with FileGuard(path).replace(CURRENT) as file, open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), file.fileno())
            file.write(b"new")  # into a buffer, which is written when the guard closes the file

    with pytest.raises(OSError, match="No space left"):
        fill()
    assert path.read_text() == "as it was"
    assert drafts(path) == []


def test_writers_wait_for_the_lock_and_for_the_one_that_is_there(path: Path) -> None:
    guard = FileGuard(path)
    guard.enter(PAUSED)
    lock = path.with_name("report.txt.fence.lock")
    held = lock.open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    entering = threading.Thread(target=guard.enter, args=[CURRENT])
    entering.start()
    entering.join(0.1)
    assert entering.is_alive()
    lock.unlink()  # somebody tidied up: the one that is waited for is not the one that others take
    again = lock.open("wb")
    fcntl.flock(again, fcntl.LOCK_EX)
    held.close()
    entering.join(0.1)
    assert entering.is_alive()
    again.close()
    entering.join(20)
    assert not entering.is_alive()


@pytest.mark.parametrize("step", ["enter", "write", "replace"])
def test_who_does_not_want_to_wait_for_ever_is_told(path: Path, step: str) -> None:
    guard = FileGuard(path, timeout=0.05)
    guard.enter(PAUSED)

    def use() -> None:
        if step == "replace":
            with guard.replace(CURRENT):
                raise AssertionError("it is locked")
        getattr(guard, step)(CURRENT, *["new"] * (step == "write"))

    with path.with_name("report.txt.fence.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EngineTimeout, match=r"locked by others for 0\.05 s"):
            use()
    guard.write(CURRENT, "new")
    assert drafts(path) == []
    with pytest.raises(ConfigurationError, match="timeout=0"):
        FileGuard(path, timeout=0)


def test_a_forked_child_does_not_keep_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = FileGuard(path)
    children: list[int] = []
    monkeypatch.setattr(guard, "_sweep", lambda: children.append(forked(signal.pause)))
    guard.enter(PAUSED)
    try:
        other = threading.Thread(target=FileGuard(path).write, args=[CURRENT, "new"])
        other.start()
        other.join(20)
        assert not other.is_alive()
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


async def turns_of_the_loop() -> None:
    """More than a cancellation takes to get through."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every lock that is asked for, before it is waited for."""
    asked: list[int] = []
    flock = fcntl.flock

    def noted(fd: Any, how: int) -> None:
        asked.append(how)
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", noted)
    return asked


def test_who_is_cancelled_waits_for_the_step_that_runs(path: Path, asked: list[int]) -> None:
    async def main() -> None:
        guard = AsyncFileGuard(path)
        await guard.enter(PAUSED)
        with path.with_name("report.txt.fence.lock").open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            asked.clear()
            writing = asyncio.create_task(guard.write(CURRENT, "new"))
            assert await eventually_async(lambda: fcntl.LOCK_EX in asked)
            for _ in range(2):
                writing.cancel()
                await turns_of_the_loop()
            assert not writing.done()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert await asyncio.to_thread(path.read_text) == "new", "it ended before the cancellation was told"

    asyncio.run(main())
    assert drafts(path) == []


def test_a_block_that_is_cancelled_leaves_the_old_file(path: Path) -> None:
    path.write_text("as it was")
    begun = asyncio.Event()

    async def write(guard: AsyncFileGuard) -> None:
        async with guard.replace(CURRENT) as file:
            file.write(b"half")
            begun.set()
            await forever()

    async def main() -> None:
        writing = asyncio.create_task(write(AsyncFileGuard(path)))
        await begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    asyncio.run(main())
    assert path.read_text() == "as it was"
    assert drafts(path) == []


def test_cancelled_before_the_block_begins_nothing_is_left(path: Path, asked: list[int]) -> None:
    async def enter(guard: AsyncFileGuard) -> None:
        async with guard.replace(CURRENT):
            raise AssertionError("it was cancelled")

    async def main() -> None:
        guard = AsyncFileGuard(path)
        await guard.enter(PAUSED)
        with path.with_name("report.txt.fence.lock").open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            asked.clear()
            entering = asyncio.create_task(enter(guard))
            assert await eventually_async(lambda: fcntl.LOCK_EX in asked)
            entering.cancel()
            await turns_of_the_loop()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(main())
    assert drafts(path) == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["a pipe", "a folder", "brackets"])
def test_a_mark_that_is_none_keeps_nobody_waiting(path: Path, what: str) -> None:
    mark = Path(f"{path}.fence")
    if what == "a pipe":
        os.mkfifo(mark)
    elif what == "a folder":
        mark.mkdir()
    else:
        mark.write_text("[" * 50_000)
    with pytest.raises(EngineError, match="holds no fence"):
        FileGuard(path).write(CURRENT, b"new")
    assert not path.exists()
