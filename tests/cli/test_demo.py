"""`quorumlock demo`, in a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from quorumlock.lab.demo_screen import Story

from .tools import quorumlock

pytestmark = pytest.mark.live


def table(text: str) -> dict[str, str]:
    """The closing table."""
    return {what: value for line in text.splitlines() if len(parts := re.split(r" {3,}", line.strip())) == 2
            for what, value in [parts]}  # fmt: skip


def assert_well(text: str) -> None:
    rows = table(text)
    assert int(rows["increments done"]) > 20
    assert rows["increments lost"] == "0"
    assert rows["stale writes refused"] == "1"
    assert rows["leases lost, and told"] == "1"
    assert re.fullmatch(r"[\d.]+ / [\d.]+ ms", rows["lock taken in, p50 / p99, 4 of 5 nodes"])
    assert "Nothing was lost" in text


def test_in_a_pipe_it_is_plain_lines() -> None:
    done = quorumlock("demo", "--seconds", "0.6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "node 3 is killed" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) < 80
    assert_well(done.stdout)


def test_on_a_terminal_it_is_a_picture_of_80_columns() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "quorumlock", "demo", "--seconds", "0.6"],
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"},
        stdin=subprocess.DEVNULL,
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
    assert "three workers" in text
    assert "✕" in text
    assert max(len(line) for line in re.split(r"[\r\n]+", text)) <= 80
    assert_well(text.rpartition("╯")[2])


def test_what_is_lost_is_found_out() -> None:
    story = Story([1, 2, 3, 4, 5], workers=3)
    assert not story.is_well()  # nothing has happened yet
    for number in (0, 1, 2):
        story.heard(number, "increment", fence=number + 1, took=0.001)
    story.settle(2)
    assert not story.is_well()
    assert dict(story.rows())["increments lost"] == "1"
    assert "1 of 3 increments were lost" in story.verdict()
    story.settle(3)
    assert story.is_well()
    story.failure = "worker 1 ended by itself"
    assert not story.is_well()
