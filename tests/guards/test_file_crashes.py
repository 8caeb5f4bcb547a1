"""A writer of a file, killed before each of its steps in turn: what it leaves is whole, and can be gone on with."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorumlock import StaleFence
from quorumlock.guards import Claim, Fenced, FileGuard

from .fronts import forked

EARLIER, WRITER, NEXT = Claim("report", 7), Claim("report", 8), Claim("report", 9)
NEW = b"new, and longer than before"
STEPS = ("open", "close", "fsync", "rename", "fchmod", "unlink", "dup", "stat", "fstat", "scandir")
"""What a guard asks of the system, besides flock."""
MOST = 200


@pytest.fixture(autouse=True)
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, not machines: the disk need not be waited for."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def killed_before(step: int, write: Callable[[], None]) -> bool:
    """Whether a child that writes was killed before its call number `step`; if not, it has no so many."""
    calls = iter(range(step))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call

    def task() -> None:
        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        fcntl.flock = counted(fcntl.flock)
        write()

    _, status = os.waitpid(forked(task), 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def mark(path: Path) -> int:
    return int(json.loads(path.with_name("report.fence").read_text())["fence"])


def reset(path: Path, before: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if before is not None:
        path.write_bytes(before)
    path.with_name("report.fence").write_text(json.dumps({"resource": "report", "fence": 7}))


def wrong(path: Path, before: bytes | None) -> list[str]:
    """What a killed writer should not have left."""
    found = []
    if content(path) not in (before, NEW):
        found.append(f"torn: {content(path)!r}")
    if mark(path) < 8 and content(path) != before:
        found.append("a write without its mark")
    if mark(path) == 8:
        with pytest.raises(StaleFence):
            FileGuard(path).write(EARLIER, b"from the past")
    FileGuard(path).write(NEXT, b"gone on with")
    if (names := {one.name for one in path.parent.iterdir()}) != {"report", "report.fence", "report.fence.lock"}:
        found.append(f"left: {names}")
    return found


def played(guard: FileGuard, path: Path, before: bytes | None) -> Iterator[tuple[bool, int, list[str]]]:
    """For each death: whether the write was done, the mark, and what is wrong."""
    for step in range(MOST):
        reset(path, before)
        if not killed_before(step, lambda: guard.write(WRITER, NEW)):
            return
        yield content(path) == NEW, mark(path), wrong(path, before)
    raise AssertionError("a write has no end")


@pytest.mark.parametrize("before", [None, b"as it was"])
def test_wherever_a_writer_is_killed_what_it_leaves_is_whole(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "report"
    ends = []
    for written, marked, faults in played(FileGuard(path), path, before):
        assert faults == []
        ends.append((written, marked))
    assert (content(path), mark(path)) == (NEW, 8), "who is not killed has written"
    assert set(ends) == {(False, 7), (False, 8), (True, 8)}, "killed before the mark, before the write, after it"
    assert ends == sorted(ends)
    assert len(ends) > 20


class MarkedLater(FileGuard):
    """The fault: the write is done first."""

    def _begin(self, lease: Fenced) -> Any:
        with self._locked():
            return self._draft()

    def _commit(self, draft: Any, lease: Fenced) -> None:
        with self._locked():
            draft.finish()
            os.rename(draft.path, self.path)
            self._admit(lease.resource, lease.fence)


class Untidy(FileGuard):
    """The fault: what is being written is known by a name that nobody sweeps."""

    def _draft(self) -> Any:
        draft = super()._draft()
        os.rename(draft.path, f"{draft.path}.mine")
        draft.path += ".mine"
        return draft


@pytest.mark.parametrize(("kind", "fault"), [(MarkedLater, "a write without its mark"), (Untidy, "left: ")])
def test_a_guard_with_a_fault_is_found_out(tmp_path: Path, kind: type[FileGuard], fault: str) -> None:
    path = tmp_path / "report"
    assert any(fault in one for *_, faults in played(kind(path), path, b"as it was") for one in faults)
