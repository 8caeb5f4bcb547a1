"""The freezer stops every process of a command, lets them go on, and leaves alone what a test has stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.freezer import descendants, state_of
from tests.support.waiting import eventually

FREEZER = Path(__file__).parents[2] / "scripts" / "freezer.py"

CLOCK = """
import sys, time
from pathlib import Path
gaps, before = [], time.monotonic()
while sum(gap > 0.15 for gap in gaps) < 3:
    time.sleep(0.005)
    gaps.append(time.monotonic() - before)
    before = time.monotonic()
Path(sys.argv[1]).write_text("frozen three times")
"""
"""Ends when it was frozen three times."""

STOPS_A_CHILD = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
os.kill(child.pid, signal.SIGSTOP)
state = lambda: open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0]
gaps = 0
while gaps < 3:
    before = time.monotonic()
    time.sleep(0.005)
    gaps += time.monotonic() - before > 0.15
    if gaps:
        assert state() in "tT", state()
child.kill()
child.wait()
"""

WAYS = [
    pytest.param([], id="as this machine can"),
    pytest.param(["--signals"], id="by signals"),
]


def freeze(*options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    quick = ["--every", "0.3", "--least", "0.2", "--most", "0.3"]
    return subprocess.run(
        [sys.executable, str(FREEZER), *quick, *options, "--", *command],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_command_and_its_children_are_frozen(way: list[str], tmp_path: Path) -> None:
    grandchild = f"{sys.executable} -c '{CLOCK}' {tmp_path / 'seen'} & wait; exit 7"
    result = freeze(*way, command=["sh", "-c", grandchild])
    assert result.returncode == 7, result.stdout
    assert (tmp_path / "seen").read_text() == "frozen three times"
    assert "frozen" in result.stdout


@pytest.mark.parametrize("way", WAYS)
def test_what_a_test_has_stopped_stays_stopped(way: list[str]) -> None:
    result = freeze(*way, command=[sys.executable, "-c", STOPS_A_CHILD])
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("way", WAYS)
def test_nothing_stays_frozen_behind_a_freezer_that_is_ended(way: list[str], tmp_path: Path) -> None:
    """It is frozen all the time, but for a moment."""
    started, ended = tmp_path / "started", tmp_path / "ended"
    command = f"trap 'touch {ended}; exit 0' INT; touch {started}; while :; do sleep 0.01; done"
    always = ["--every", "0.05", "--least", "5", "--most", "5"]
    with subprocess.Popen([sys.executable, str(FREEZER), *always, *way, "--", "sh", "-c", command]) as freezer:
        assert eventually(started.exists)
        os.kill(freezer.pid, signal.SIGTERM)
        assert freezer.wait(30) is not None
    assert ended.exists()


ENDED_EARLY = """
import os, signal, sys, time
from scripts import freezer

def waits(pid):
    told = open(f"/proc/{pid}/status").read().partition("ShdPnd:")[2].split()[0]
    return int(told, 16) >> (signal.SIGTERM - 1) & 1

class Joining(freezer.Signals):
    def join(self):
        parent = os.getppid()
        os.kill(parent, signal.SIGTERM)
        while os.getppid() == parent and not waits(parent):
            time.sleep(0.005)

freezer.Signals = Joining
sys.exit(freezer.main(["--signals", "--", "sleep", "60"]))
"""
"""A freezer that is sent SIGTERM while it starts its command, which begins once that signal waits or has struck."""


def test_a_freezer_that_is_ended_at_once_ends_its_command() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDED_EARLY], cwd=FREEZER.parents[1], stdout=subprocess.PIPE, text=True
    ) as freezer:
        output, _ = freezer.communicate(timeout=30)  # until the command has ended, too: it has the same output
        assert "frozen 0 times" in output


IGNORING = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(subprocess.call(sys.argv[1:]))
"""
"""Starts a command as a shell starts one in the background."""


def test_a_freezer_in_the_background_ends_its_command(tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = [sys.executable, str(FREEZER), "--", "sh", "-c", f"touch {started}; exec sleep 60"]
    with subprocess.Popen([sys.executable, "-c", IGNORING, *command]) as shell:
        assert eventually(started.exists)
        ((freezer, _), *_) = descendants(shell.pid)
        os.kill(freezer, signal.SIGTERM)
        assert shell.wait(30) != 0


def test_descendants_come_behind_their_parents() -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & wait"])
    try:
        assert eventually(lambda: len(list(descendants(shell.pid))) == 1)
        ((child, _),) = descendants(shell.pid)
        found = [pid for pid, _ in descendants(os.getpid())]
        assert found.index(shell.pid) < found.index(child)
    finally:
        for pid, _ in list(descendants(shell.pid)):
            os.kill(pid, signal.SIGKILL)
        shell.kill()
        shell.wait()
    assert state_of(shell.pid) == "X"
