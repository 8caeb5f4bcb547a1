"""`quorumlock demo`: what it shows, in a pipe and on a terminal; that it can fail, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quorumlock.lab import demo_screen
from quorumlock.lab.demo_counter import Counter
from quorumlock.lab.demo_screen import Plain, new_screen
from quorumlock.lab.demo_story import Story

SECONDS = "0.4"
MS = r"[\d.]+ / [\d.]+ ms"

# Whoever runs the tests may ignore SIGINT (a shell's background job does), and processes inherit that.
START = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
COMMAND = f"{START} from quorumlock.cli import main; sys.exit(main(['demo', '--seconds', '{SECONDS}']))"
CUT_SHORT = COMMAND.replace(SECONDS, "0.1")
CARELESS = f"{START} from quorumlock.lab.demo import demo; sys.exit(demo(seconds={SECONDS}, fenced=False))"

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")


class Running:
    """A demo in a process of its own, with a folder for all that is temporary."""

    def __init__(self, process: subprocess.Popen[str], temporary: Path) -> None:
        self.process = process
        self.temporary = temporary
        self.said = ""

    def until(self, word: str) -> None:
        """Reads until it has said that."""
        assert self.process.stdout is not None
        while word not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line

    def end(self) -> int:
        """Its exit code, at the latest after a few seconds."""
        rest, errors = self.process.communicate(timeout=20)
        self.said += rest
        assert errors == ""
        return self.process.returncode

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def workers(self) -> list[int]:
        return [pid for pid in self.children() if b"demo_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def running(program: str, temporary: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd="/",
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Running(process, temporary)
        finally:
            process.kill()


def facts(text: str) -> dict[str, int]:
    """The closing table."""
    found = re.findall(r"^\W*((?:\w+ )+) +(\d+)   +[\w]", text, re.MULTILINE)
    return {what.strip(): int(value) for what, value in found}


def assert_well(text: str) -> None:
    rows = facts(text)
    assert rows["increments done"] > 20
    assert rows["increments lost"] == 0
    assert rows["stale writes refused"] >= 1  # more, if the machine was so busy that other leases ran out
    assert rows["leases lost and told"] >= 1
    assert rows["fences of the writes"] == rows["increments done"]
    assert re.search(r"time to acquire, p50 / p99 +5 of 5 nodes +3 of 5 nodes", text)
    assert re.search(rf"a lock that is free +{MS} +{MS}", text)
    assert re.search(rf"the counter's, waiting included +{MS} +{MS}", text)
    assert "Without the fence the late write would have" in text
    assert "Nothing was lost" in text


@pytest.mark.live
@pytest.mark.real_time
def test_in_a_pipe_it_is_plain_lines(tmp_path: Path) -> None:
    with running(COMMAND, tmp_path) as demo:
        assert demo.end() == 0, demo.said
    assert demo.said.isascii()
    assert "\x1b" not in demo.said
    assert "\r" not in demo.said
    assert max(len(line) for line in demo.said.splitlines()) < 80
    news = [
        "5 nodes are up", "3 workers", "are killed (SIGKILL)", "stopped (SIGSTOP)", "gets the lock", "(SIGCONT)",
        "refused", "LeaseLost (", "increments done", "Nothing was lost",
    ]  # fmt: skip
    places = [demo.said.index(one) for one in news]
    assert places == sorted(places)
    assert_well(demo.said)
    assert not list(tmp_path.iterdir())


@pytest.mark.live
@pytest.mark.real_time
def test_on_a_terminal_it_is_a_picture_of_80_columns() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "quorumlock", "demo", "--seconds", SECONDS],
        env=inherited | {"TERM": "xterm-256color", "PYTHONUTF8": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert process.wait(timeout=30) == 0, text
    *frames, last = text.split("╭")
    assert len(frames) > 10
    assert max(len(frame.splitlines()) for frame in frames) <= 24
    assert max(len(line) for line in re.split(r"[\r\n]+", text)) <= 80
    picture = frames[-1]
    assert "three workers" in picture
    assert "✕ 2" in picture
    assert re.search("━.?✕", picture)  # stopped, then refused
    assert re.search(r" s  worker 2 is told at the end of its block: LeaseLost \(\w+\) +│", picture)
    assert_well(last)


@pytest.mark.live
@pytest.mark.real_time
def test_without_the_fence_it_finds_out_what_was_lost(tmp_path: Path) -> None:
    with running(CARELESS, tmp_path) as demo:
        assert demo.end() == 1, demo.said
    rows = facts(demo.said)
    assert rows["increments lost"] > 0
    assert rows["stale writes refused"] == 0
    assert "Nothing was lost" not in demo.said
    said = " ".join(demo.said.split())
    assert f"{rows['increments lost']} of {rows['increments done']} acknowledged increments were lost" in said
    assert "fences did not grow" in said
    assert "no stale write was refused" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.live
@pytest.mark.real_time
@needs_proc
def test_a_worker_that_dies_fails_the_demo(tmp_path: Path) -> None:
    with running(CUT_SHORT, tmp_path) as demo:
        demo.until("3 workers")
        children = demo.children()
        os.kill(demo.workers()[0], signal.SIGKILL)
        assert demo.end() == 1
    assert re.search(r"Failed: worker \d ended by itself: killed by SIGKILL\.", demo.said)
    assert "Nothing was lost" not in demo.said
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


@pytest.mark.live
@pytest.mark.real_time
@needs_proc
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_with_a_worker_stopped_it_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    with running(CUT_SHORT, tmp_path) as demo:
        demo.until("SIGSTOP")
        children = demo.children()
        assert len(children) == 6  # three nodes and three workers, one of which stands still
        demo.process.send_signal(number)
        demo.process.send_signal(number)  # impatience does not disturb the clean-up
        assert demo.end() == code
    assert "Traceback" not in demo.said
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


@pytest.mark.live
@pytest.mark.real_time
@needs_proc
def test_when_nobody_listens_any_more_it_leaves_nothing(tmp_path: Path) -> None:
    with running(CUT_SHORT, tmp_path) as demo:
        demo.until("3 workers")
        children = demo.children()
        assert demo.process.stdout is not None
        demo.process.stdout.close()
        assert demo.process.wait(timeout=20) == 1
        assert demo.process.stderr is not None
        assert demo.process.stderr.read() == ""
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())


def test_without_rich_it_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_screen, "_can_draw", lambda: True)
    monkeypatch.delitem(sys.modules, "quorumlock.lab.demo_live", raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)  # importing it fails
    assert isinstance(new_screen(Story(5, 3), plain=False), Plain)


def happy_story() -> Story:
    """Three increments of three workers, of which one was late once."""
    story = Story(5, 3)
    story.heard(0, "increment", at=time.monotonic(), fence=1)
    story.killed({1, 3})
    for number in (1, 2):
        story.heard(number, "increment", at=time.monotonic() + 1, fence=number + 1)
    story.heard(1, "refused", wanted=2, value=3)
    story.heard(1, "lost", reason="expired")
    story.settle(3, [1, 2, 3])
    return story


def test_all_is_well_only_if_everything_happened() -> None:
    assert Story(5, 3).troubles() == ["it ended before anything could be counted"]
    story = happy_story()
    assert story.troubles() == []
    assert story.moral().endswith("from 3 to 2: 2 increments of others, acknowledged and lost.")

    story.settle(2, [1, 2, 3])
    assert story.troubles() == ["1 of 3 acknowledged increments were lost"]
    story.settle(4, [1, 2, 3])
    assert story.troubles() == ["the counter holds 1 more than was acknowledged"]
    for fences in ([1, 3, 2], [1, 2, 2]):
        story.settle(3, fences)
        assert story.troubles() == ["fences did not grow: 1 of 3 not above the one before"]

    story = happy_story()
    story.workers[1].refused_at.clear()
    assert story.troubles() == ["no stale write was refused"]
    story = happy_story()
    story.workers[1].losses.clear()
    assert story.troubles() == ["nobody was told of a lost lease"]
    story = happy_story()
    story.killed_at = time.monotonic() + 2
    assert story.troubles() == ["nothing was incremented after the nodes had died"]
    story.failure = "worker 1 ended by itself"
    assert story.troubles() == ["worker 1 ended by itself"]


def test_latencies_are_of_before_and_after_the_kill() -> None:
    story = Story(5, 3)
    story.struck_at = 10.0
    story.workers[1].stopped_at, story.workers[1].woke_at = 20.0, 22.0
    for asked_at, took in ((1.0, 0.001), (9.9999, 0.002), (11.0, 0.003), (21.0, 0.004)):
        for free in (True, False):
            story.heard(0, "acquired", asked_at=asked_at, at=asked_at + took, free=free)

    def waited(*, free: bool, all_nodes: bool) -> list[float]:
        return [round(seconds, 6) for seconds in story.waited(free=free, all_nodes=all_nodes)]

    assert waited(free=True, all_nodes=True) == [0.001]
    assert waited(free=True, all_nodes=False) == [0.002, 0.003, 0.004]
    assert waited(free=False, all_nodes=True) == [0.001]
    assert waited(free=False, all_nodes=False) == [0.002, 0.003]  # and not that for the stopped worker


def test_the_row_refuses_whoever_is_late(tmp_path: Path) -> None:
    with Counter(tmp_path / "counter") as counter, Counter(tmp_path / "counter", fenced=False) as careless:
        counter.create()
        assert counter.enter(5)
        assert counter.read() == 0
        assert counter.enter(6)  # a newer holder, that has not written yet
        assert counter.write(1, 5) == (False, 0)
        assert not counter.enter(5)
        assert counter.write(1, 6) == (True, 1)
        assert counter.fences() == [6]
        assert careless.write(1, 5) == (True, 1)
        assert counter.fences() == [6, 5]
