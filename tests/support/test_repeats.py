"""Canaries of the rule that a failure during a stall is no verdict: what is repeated, and what never is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes import alive
from tests.support.waiting import eventually

HEAD = """
import time
from pathlib import Path
import pytest

def run_of(test):
    runs = Path({folder!r}) / test
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    return len(runs.read_text())

def wait_for_a_stall():
    (Path({folder!r}) / "ready").touch()
    while not (Path({folder!r}) / "stalled").exists():
        time.sleep(0.005)
"""
FAILS = """
@pytest.mark.real_time(30)
def test_fails():
    run_of("fails")
    assert False
"""
FAILS_ONCE = """
@pytest.mark.real_time(0.8)
def test_fails_during_a_stall():
    if run_of("once") == 1:
        wait_for_a_stall()
        assert False, "it was too slow"
"""
KEEPS_FAILING = """
@pytest.mark.real_time(0.8)
def test_fails_for_good():
    if run_of("good") == 1:
        wait_for_a_stall()
    assert False
"""
COUNTS = """
def test_in_which_no_time_counts():
    run_of("plain")
    wait_for_a_stall()
    assert False
"""


class Run:
    """A run of pytest, on tests of its own."""

    def __init__(self, folder: Path, *tests: str) -> None:
        self.folder = folder
        file = folder / "test_it.py"
        file.write_text(HEAD.format(folder=str(folder)) + "".join(tests))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.support.repeats", "-p", "no:cacheprovider", str(file)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )

    def stall(self, seconds: float) -> None:
        """Stops all of its processes for so long, once its test is ready."""
        assert eventually((self.folder / "ready").exists)
        processes = [self._process.pid, *self._children()]
        assert len(processes) > 1, "its meter runs"
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + seconds
        eventually(lambda: time.monotonic() > end)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        (self.folder / "stalled").touch()

    def _children(self) -> list[int]:
        pid = self._process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self) -> tuple[int, str]:
        """The exit code and the output."""
        output, _ = self._process.communicate(timeout=60)
        assert not any(alive(pid) for pid in ([] if self._process.poll() is not None else self._children()))
        return self._process.returncode, output

    def runs(self, test: str) -> int:
        """How often a test was run."""
        return len((self.folder / test).read_text())


def test_a_failure_without_a_stall_is_a_failure_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, FAILS)
    code, output = run.end()
    assert code == 1, output
    assert run.runs("fails") == 1
    assert "0 repeated because of a stall" in output


def test_a_failure_during_a_stall_is_judged_again(tmp_path: Path) -> None:
    run = Run(tmp_path, FAILS_ONCE)
    run.stall(1.2)
    code, output = run.end()
    assert code == 0, output
    assert run.runs("once") == 2
    assert "1 repeated because of a stall" in output
    assert "test_fails_during_a_stall: a stall of" in output
    assert "(clock), run again once: passed" in output


def test_a_test_that_fails_again_without_a_stall_has_failed(tmp_path: Path) -> None:
    run = Run(tmp_path, KEEPS_FAILING)
    run.stall(1.2)
    code, output = run.end()
    assert code == 1, output
    assert run.runs("good") == 2
    assert "run again once: FAILED" in output


def test_a_test_in_which_no_time_counts_is_not_repeated(tmp_path: Path) -> None:
    run = Run(tmp_path, COUNTS)
    run.stall(1.2)
    code, output = run.end()
    assert code == 1, output
    assert run.runs("plain") == 1


def test_a_test_forgives_a_tenth_of_a_second_at_least(tmp_path: Path) -> None:
    run = Run(tmp_path, "@pytest.mark.real_time(0.05)\ndef test_impatient():\n    pass\n")
    code, output = run.end()
    assert code != 0
    assert "real_time(0.05) is less than 0.1" in output
