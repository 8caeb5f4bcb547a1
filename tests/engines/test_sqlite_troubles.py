"""The SQLite engine: files and disks that are wrong are named, nothing is locked, and it gets over it."""

from __future__ import annotations

import ctypes
import os
import resource
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import quorumlock
from quorumlock import EngineError, EngineTimeout
from quorumlock.core.requests import Acquire, Extend, Join, Look
from quorumlock.core.votes import Cause
from quorumlock.engines.sqlite import engine
from tests.support.processes import in_child

from .test_sqlite import File, Make, file, granted, kept, make, open_files, refused

__all__ = ["file", "make"]  # fixtures

pytestmark = pytest.mark.real_time(1)
CLONE_NEWNS = 0x00020000
QUICK = 0.01


def as_nobody(task: Callable[[], None]) -> None:
    """Runs `task` as a user who may not do everything."""

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        task()

    in_child(child)


# Locked.


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a `node_timeout` of `QUICK`, or it is longer."""
    monkeypatch.setattr("quorumlock.engines.sqlite.engine.PATIENCE", 0.2)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody who takes the write lock and does not give it back."""
    db = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
    yield db
    db.close()


def test_a_database_that_stays_locked_is_a_timeout_that_says_so(make: Make, writer: sqlite3.Connection) -> None:
    one = make(node_timeout=QUICK)
    one.acquire("held")
    writer.execute("BEGIN IMMEDIATE")
    started_at = time.perf_counter()
    with pytest.raises(EngineTimeout, match="the database is locked by another process") as error:
        one.acquire()
    assert 0.2 <= time.perf_counter() - started_at < 4
    assert str(one.path) in str(error.value)
    assert error.value.node == str(one.path)
    writer.execute("ROLLBACK")
    granted(one.acquire())


def test_a_database_that_is_locked_while_it_is_opened(make: Make, writer: sqlite3.Connection) -> None:
    first = make()
    first.acquire("held")
    first.engine.close()
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("DELETE FROM leases WHERE name = 'x'")
    one = make(node_timeout=QUICK)
    before = open_files(one.path)
    with pytest.raises(EngineTimeout, match="locked by another process"):
        one.ask(Join())
    writer.close()
    assert before
    assert open_files(one.path) == []
    refused(one.acquire("held", "other"), Cause.HELD)


def test_the_caller_waits_once_for_a_locked_database(make: Make, writer: sqlite3.Connection) -> None:
    """Nothing was executed, so nothing is undone, which would have to wait again."""
    one = make()
    one.acquire("held")
    with quorumlock.connect(f"sqlite:///{one.path}", node_timeout=QUICK) as locks:
        assert not locks.lock("a", keep=False).locked()
        writer.execute("BEGIN IMMEDIATE")
        asked: Any = locks.engine
        with patch.object(asked, "perform", wraps=asked.perform) as perform, pytest.raises(EngineTimeout):
            locks.lock("a", keep=False).try_acquire()
        assert [type(call.args[0].requests[0]) for call in perform.call_args_list] == [Acquire]
        assert locks.lock("held", keep=False).try_acquire() is None
        writer.execute("ROLLBACK")
        locks.lock("a", keep=False).acquire().release()


def test_patience_grows_with_node_timeout(make: Make) -> None:
    assert make(node_timeout=0.001).engine._patience == 0.2
    assert make(node_timeout=0.2).engine._patience == 4.0


def test_patience_is_that_of_sqlite_itself_but_for_renewals(
    make: Make, monkeypatch: pytest.MonkeyPatch, writer: sqlite3.Connection
) -> None:
    monkeypatch.undo()
    one = make()
    one.acquire()
    assert (one.engine._patience, engine.RENEWAL_PATIENCE) == (5.0, 1.0)
    monkeypatch.setattr(engine, "RENEWAL_PATIENCE", 0.2)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(EngineTimeout, match=r"for more than 0\.2 s"):
        one.ask(Extend((kept(),)))


# The disk.


def on_a_tiny_disk(task: Callable[[Path], None], folder: Path) -> None:
    """Runs `task` in a child with a disk of 256 KiB, which nobody else sees and which ends with it."""
    try:
        subprocess.run(["unshare", "--mount", "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")

    def child() -> None:
        assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
        for command in ("mount --make-rprivate /", f"mount -t tmpfs -o size=256k tmpfs {folder}"):
            subprocess.run(command.split(), check=True, timeout=10)
        task(folder)

    in_child(child)


def fill(folder: Path) -> Path:
    """To the last byte."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as stream:
        for size in (4096, 1):
            try:
                while stream.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


def test_a_full_disk_is_an_error_no_lock_and_soon_forgotten(tmp_path: Path) -> None:
    def task(folder: Path) -> None:
        one = File(folder / "locks.db")
        fence = granted(one.acquire("held"))
        filler = fill(folder)

        def use_up() -> None:
            """What was allotted to the WAL."""
            nonlocal fence
            for n in range(300):
                fence = granted(one.acquire(f"name-{n}"))

        with pytest.raises(EngineError, match="the disk is full") as error:
            use_up()
        assert error.value.node == str(one.path)
        for n in range(300, 303):
            with pytest.raises(EngineError, match="the disk is full"):
                one.acquire(f"name-{n}")
        assert one.sql("SELECT max(fence) FROM leases") == [(fence,)], "no row of an attempt that failed"
        refused(one.acquire("held", "other"), Cause.HELD)
        filler.unlink()
        assert granted(one.acquire("later")) > fence
        assert one.sql("PRAGMA integrity_check") == [("ok",)]

    on_a_tiny_disk(task, tmp_path)


def test_a_file_that_cannot_be_made_on_a_full_disk(tmp_path: Path) -> None:
    def task(folder: Path) -> None:
        filler = fill(folder)
        one = File(folder / "locks.db")
        with pytest.raises(EngineError, match="full"):
            one.acquire()
        assert open_files(one.path) == []
        filler.unlink()
        granted(one.acquire())

    on_a_tiny_disk(task, tmp_path)


def test_a_disk_that_cannot_be_written_is_an_error_and_no_lock(make: Make) -> None:
    """A limit on the size of files, which SQLite meets as an I/O error."""
    one = make()
    granted(one.acquire("held"))
    one.engine.close()

    def child() -> None:
        mine = File(one.path)
        mine.ask(Join())
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        with pytest.raises(EngineError, match="disk") as error:
            mine.acquire()
        assert error.value.node == str(one.path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert mine.row() is None
        granted(mine.acquire())

    in_child(child)
    refused(make().acquire(token="other"), Cause.HELD)


# Permissions.


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder that others may enter: those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="quorumlock-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_a_read_only_file_is_an_error_that_says_so(make: Make, shared: Path) -> None:
    one = make(shared / "locks.db")
    one.acquire("held", ttl_ms=10)
    one.path.chmod(0o444)
    if os.geteuid() != 0:
        one.engine.close()

    def child() -> None:
        for name in ("held", "free"):
            with pytest.raises(EngineError, match=r"read-only for this user \(uid \d+\)") as error:
                File(one.path).acquire(name)
            assert error.value.node == str(one.path)

    as_nobody(child)


def test_a_read_only_folder_is_an_error_that_says_so(make: Make, shared: Path) -> None:
    """The file itself may be written, its -wal and -shm cannot be made."""
    one = make(shared / "locks.db")
    one.acquire("held")
    one.engine.close()
    one.path.chmod(0o666)
    shared.chmod(0o555)

    def child() -> None:
        mine = File(one.path)
        with pytest.raises(EngineError, match="folder"):
            mine.acquire()
        with pytest.raises(EngineError, match="folder"):
            File(shared / "new.db").acquire()
        assert open_files(shared) == []

    as_nobody(child)
    shared.chmod(0o755)


def test_a_folder_that_may_not_be_entered_is_an_error_that_says_so(make: Make, shared: Path) -> None:
    folder = shared / "private"
    folder.mkdir(mode=0o700)
    one = make(folder / "locks.db")
    one.ask(Look("a"))
    if os.geteuid() != 0:
        folder.chmod(0)

    def child() -> None:
        with pytest.raises(EngineError, match=r"cannot be reached \(Permission denied\)") as error:
            File(one.path).acquire()
        assert error.value.node == str(one.path)

    as_nobody(child)
    folder.chmod(0o700)
