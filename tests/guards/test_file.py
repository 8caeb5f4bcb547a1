"""The guard of a file: replaced as a whole by the newest holder, or not at all."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError, EngineError, StaleFence, Unsupported
from quorumlock.guards import MAX_FENCE, AsyncFileGuard, Claim, FileGuard
from quorumlock.guards import file as module

from .fronts import Blocking, example

PAUSED, CURRENT, NEXT = Claim("report", 7), Claim("report", 8), Claim("report", 9)

Make = Callable[[Path], Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.txt"


@pytest.fixture(params=["threads", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Guards on one of the two fronts."""
    loop = asyncio.new_event_loop()
    yield lambda path: FileGuard(path) if request.param == "threads" else Blocking(AsyncFileGuard(path), loop)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def guard(make: Make, path: Path) -> Any:
    return make(path)


def mark(path: Path) -> Any:
    return json.loads(path.with_name(path.name + ".fence").read_text())


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def enter(guard: Any, claim: Claim) -> None:
    guard.enter(claim)


OURS = {"report.txt.fence", "report.txt.fence.lock"}


def replace(guard: Any, claim: Claim) -> None:
    with guard.replace(claim) as file:
        file.write(b"replaced")


WRITES: dict[str, Callable[[Any, Claim], None]] = {
    "bytes": lambda guard, claim: guard.write(claim, b"replaced"),
    "text": lambda guard, claim: guard.write(claim, "replaced"),
    "block": replace,
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@writes
def test_the_file_is_made_and_replaced(guard: Any, path: Path, write: Callable[..., None]) -> None:
    write(guard, PAUSED)
    assert path.read_bytes() == b"replaced"
    assert mark(path) == {"resource": "report", "fence": 7}
    path.write_text("something else, and longer")
    write(guard, PAUSED)
    write(guard, CURRENT)
    assert path.read_bytes() == b"replaced"
    assert mark(path)["fence"] == 8
    assert names(path.parent) == {path.name, *OURS}


@writes
def test_a_holder_of_the_past_is_refused_and_writes_nothing(
    guard: Any, path: Path, write: Callable[..., None]
) -> None:
    path.write_text("as it was")
    guard.enter(CURRENT)
    with pytest.raises(StaleFence, match="'report' has seen fence 8; 7 is of an earlier holder") as refused:
        write(guard, PAUSED)
    assert (refused.value.fence, refused.value.seen) == (7, 8)
    assert path.read_text() == "as it was"
    assert names(path.parent) == {path.name, *OURS}


def test_entering_alone_makes_no_file(guard: Any, path: Path) -> None:
    guard.enter(CURRENT)
    guard.enter(CURRENT)
    with pytest.raises(StaleFence):
        guard.enter(PAUSED)
    assert names(path.parent) == OURS


def test_a_newer_holder_may_come_while_content_is_written(guard: Any, make: Make, path: Path) -> None:
    path.write_text("as it was")

    def write_slowly() -> None:
        with guard.replace(PAUSED) as file:
            file.write(b"from the past")
            make(path).write(CURRENT, "new")  # the lock is not held meanwhile, or this would wait for ever

    with pytest.raises(StaleFence):
        write_slowly()
    assert path.read_text() == "new"
    assert names(path.parent) == {path.name, *OURS}


def test_a_block_that_fails_leaves_the_old_file(guard: Any, path: Path) -> None:
    path.write_text("as it was")

    def fail() -> None:
        with guard.replace(CURRENT) as file:
            file.write(b"half")
            file.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "as it was"
    assert names(path.parent) == {path.name, *OURS}
    with pytest.raises(StaleFence):  # a mark without its write harms nobody
        guard.enter(PAUSED)


def test_the_block_may_seek_read_and_close(guard: Any, path: Path) -> None:
    with guard.replace(CURRENT) as file:
        file.write(b"later")
        file.seek(0)
        assert file.read() == b"later"
        file.seek(0)
        file.write(b"sooner")
        file.close()
    assert path.read_bytes() == b"sooner"


def test_fences_up_to_the_largest_are_told_apart(guard: Any, path: Path) -> None:
    for fence in (MAX_FENCE - 1, MAX_FENCE):
        guard.write(Claim("report", fence), str(fence))
    with pytest.raises(StaleFence) as refused:
        guard.write(Claim("report", MAX_FENCE - 1), "")
    assert (refused.value.fence, refused.value.seen) == (MAX_FENCE - 1, MAX_FENCE)
    assert path.read_text() == str(MAX_FENCE)


def test_a_file_is_guarded_for_one_resource(guard: Any, path: Path) -> None:
    guard.write(CURRENT, "mine")
    for write in (*WRITES.values(), enter):
        with pytest.raises(ConfigurationError, match="guarded for 'report', not for 'other'"):
            write(guard, Claim("other", 99))
    assert path.read_text() == "mine"
    assert mark(path) == {"resource": "report", "fence": 8}


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"{",
        b"[]",
        b"8",
        b'{"resource": "report"}',
        b'{"resource": "report", "fence": "8"}',
        b'{"resource": "report", "fence": 0}',
        b'{"resource": "report", "fence": 1e3}',
        b"\xff\xfe",
        b"{" * 70_000,
    ],
)
def test_a_mark_that_is_no_fence_is_not_guessed_at(guard: Any, path: Path, told: bytes) -> None:
    path.write_text("as it was")
    path.with_name("report.txt.fence").write_bytes(told)
    for write in (*WRITES.values(), enter):
        with pytest.raises(EngineError, match=r"report\.txt\.fence holds no fence"):
            write(guard, CURRENT)
    assert path.read_text() == "as it was"
    assert path.with_name("report.txt.fence").read_bytes() == told
    assert names(path.parent) == {path.name, *OURS}


def test_what_is_no_content_is_told(guard: Any, path: Path) -> None:
    with pytest.raises(ConfigurationError, match="bytes or text, not int"):
        guard.write(CURRENT, 5)
    assert names(path.parent) == set()
    guard.write(CURRENT, bytearray(b"these"))
    guard.write(CURRENT, memoryview(b"those"))
    guard.write(CURRENT, "größer")
    assert path.read_bytes() == "größer".encode()


@pytest.mark.parametrize("wrong", ["", b"bytes", "a\0b", 5, None])
def test_what_is_no_path_is_told(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="the path of a file"):
        FileGuard(wrong)


def test_a_name_that_leaves_no_room_for_others_beside_it_is_told(tmp_path: Path) -> None:
    longest = "x" * 228
    FileGuard(tmp_path / longest).write(CURRENT, "fits")
    with pytest.raises(ConfigurationError, match="too long: 228 bytes"):
        FileGuard(tmp_path / (longest + "x"))
    with pytest.raises(ConfigurationError, match="too long: 228 bytes"):
        FileGuard(tmp_path / ("ü" * 115))
    assert len(names(tmp_path)) == 3


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a file"):
        FileGuard(tmp_path)


def test_a_folder_that_is_missing_is_the_systems_own_error(guard: Any, make: Make, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "none" / "report.txt").write(CURRENT, "")


def test_a_system_without_flock_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fcntl", None)
    for kind in (FileGuard, AsyncFileGuard):
        with pytest.raises(Unsupported, match="flock"):
            kind(path)


def test_the_path_is_where_it_was_when_the_guard_was_made(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guard = make(Path("report.txt"))
    monkeypatch.chdir("/")
    guard.write(CURRENT, "here")
    assert (tmp_path / "report.txt").read_text() == "here"


def test_two_holders_of_a_real_lock(guard: Any, path: Path) -> None:
    with quorumlock.connect("memory://") as locks:
        paused = locks.lock("report", keep=False).acquire()
        guard.enter(paused)
        locks.engine.clock.advance(60)
        with locks.lock("report") as lease:
            guard.write(lease, "new")
            with pytest.raises(StaleFence) as refused:
                guard.write(paused, "old")
    assert (refused.value.fence, refused.value.seen) == (paused.fence, lease.fence)
    assert path.read_text() == "new"


def test_no_file_stays_open(guard: Any, path: Path) -> None:
    guard.write(PAUSED, "warm")
    before = len(os.listdir("/proc/self/fd"))
    for write in WRITES.values():
        write(guard, CURRENT)
        with pytest.raises(StaleFence):
            write(guard, PAUSED)
    with pytest.raises(ZeroDivisionError), guard.replace(CURRENT):
        raise ZeroDivisionError
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_example_runs() -> None:
    assert "refused" in example("guard_file.py")
