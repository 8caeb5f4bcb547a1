"""`quorumlock top` on a real terminal: what it shows, how it fits, and how it ends."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quorumlock as ql
from tests.cli.tools import complaint, quorumlock
from tests.support.waiting import eventually

pytestmark = pytest.mark.real_time(0.3)
SOON = 60.0
BEGINS, ENDS = b"\x1b[?1049h", b"\x1b[?1049l"
"""How a program takes the whole screen, and gives it back."""


class Screen:
    """Somebody at a terminal of a certain size, in front of `top`."""

    def __init__(self, url: str, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self._fd, theirs = os.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quorumlock", "top", *arguments, "--every", "0.2"],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=os.environ | {"QUORUMLOCK_URL": url, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        self.raw = b""

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self) -> None:
        while select.select([self._fd], [], [], 0.05)[0]:
            self.raw += os.read(self._fd, 65536)

    def frame(self) -> list[str]:
        """The lines of the last picture that is whole."""
        pictures = re.split(rb"\x1b\[H", self.raw.partition(BEGINS)[2].partition(ENDS)[0])
        text = pictures[-2].decode("utf-8", "replace") if len(pictures) > 2 else ""
        return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")]

    def until(self, condition: Callable[[list[str]], object]) -> list[str]:
        """The first picture of which this is true."""
        end = time.monotonic() + SOON
        while not condition(self.frame()):
            assert time.monotonic() < end, "\n".join(self.frame()) or self.raw
            assert self.process.poll() is None, self.raw
            self.read()
        return self.frame()

    def shows(self, *words: str) -> list[str]:
        return self.until(lambda lines: all(word in "\n".join(lines) for word in words))

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ends(self) -> int:
        end = time.monotonic() + SOON
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end"
            self.read()
        self.read()
        assert self.raw.rstrip().endswith((ENDS, b"\x1b[?25h")), "the screen is given back"
        assert ENDS in self.raw
        assert termios.tcgetattr(self._theirs) == self.before, "and so are the keys"
        assert b"Traceback" not in self.raw
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SOON)
        os.close(self._fd)
        os.close(self._theirs)


@pytest.fixture
def screen() -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def start(url: str, *arguments: str, columns: int = 80, lines: int = 24) -> Screen:
        made.append(Screen(url, *arguments, columns=columns, lines=lines))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def test_it_shows_what_is_held_and_changes_with_it(url: str, screen: Callable[..., Screen]) -> None:
    shown = screen(url)
    shown.shows("no lock is held", "q quit")
    with ql.connect(url) as locks, locks.lock("orders:1"), locks.read_write("doc").read():
        lines = shown.shows("2 held", "orders:1", "doc", "1-2 of 2")
        assert lines[1].split() == ["NAME", "STATE", "HOLDER", "FOR", "WAIT"]
        assert [line.split()[:2] for line in lines[2:4]] == [["doc", "shared"], ["orders:1", "held"]]
        assert f":{os.getpid()}" in lines[3]
    shown.shows("no lock is held")
    shown.types("q")
    assert shown.ends() == 0


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (200, 50)])
def test_it_fits_whatever_the_names(url: str, screen: Callable[..., Screen], columns: int, lines: int) -> None:
    names = [f"{index:02}-{'long name ' * 90}" for index in range(60)]
    with ql.connect(url) as locks, locks.multi(names), locks.lock("00-short", note="why " * 100):
        shown = screen(url, columns=columns, lines=lines)
        seen = shown.shows("61 held", "00-short", "…")
        assert len(seen) <= lines
        assert max(len(line) for line in seen) <= columns
        rows = [line for line in seen if re.match(r"\d\d-", line)]
        page = lines - 4
        assert len(rows) == page
        assert all("multi" in row or "00-short" in row for row in rows), rows
        assert f"1-{page} of 61" in seen[-1]
        if columns == 200:
            assert "why why" in "\n".join(seen)
        shown.types(" ")
        shown.shows(f"{min(page, 61 - page) + 1}-")
        shown.types("\x1b[A")
        shown.shows(f"{min(page, 61 - page)}-")
        shown.types("b")
        shown.shows(f"1-{page} of 61")
        shown.types("jkq")  # several at once
        assert shown.ends() == 0


def test_it_is_sorted_as_one_likes(url: str, screen: Callable[..., Screen]) -> None:
    with ql.connect(url) as locks, locks.lock("b") as older:
        at_first = older.remaining()
        assert eventually(lambda: older.remaining() < at_first - 0.01)
        with locks.lock("a"):
            shown = screen(url)
            by_name = shown.shows("2 held", "by name")
            shown.types("s")
            by_age = shown.shows("by longest held")
            assert [line.split()[0] for line in by_name[2:4]] == ["a", "b"]
            assert [line.split()[0] for line in by_age[2:4]] == ["b", "a"]
            shown.types("s")
            shown.shows("by most waiting")
            shown.types("s")
            shown.shows("by name")


def test_another_size_is_another_picture(url: str, screen: Callable[..., Screen]) -> None:
    with ql.connect(url) as locks, locks.multi([f"name-{index:02}" for index in range(60)]):
        shown = screen(url)
        shown.shows("1-20 of 60")
        shown.resize(120, 40)
        seen = shown.shows("1-36 of 60")
        assert "FENCE" in seen[1]


def test_ctrl_c_ends_it_too(url: str, screen: Callable[..., Screen]) -> None:
    shown = screen(url)
    shown.shows("no lock is held")
    shown.process.send_signal(signal.SIGINT)
    assert shown.ends() == 0


def test_where_nobody_can_tell_it_does_not_say_that_nothing_is_held(screen: Callable[..., Screen]) -> None:
    shown = screen("redis://127.0.0.1:1")
    lines = shown.shows("nobody can tell what is held")
    assert not any("0 held" in line for line in lines)
    shown.types("q")
    assert shown.ends() == 0


def test_without_a_terminal_it_says_so(url: str) -> None:
    assert "needs a terminal" in complaint(quorumlock("top", env={"QUORUMLOCK_URL": url}), 64)
    assert "ls --json" in quorumlock("top", "--help").stdout


def test_without_rich_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from quorumlock.cli import main

    for stream in (sys.stdout, sys.stdin):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich", None)  # importing it fails
    assert main(["top"]) == 64
    assert "pip install 'quorumlock[cli]'" in capsys.readouterr().err
