"""`quorumlock run` on a terminal: the job reads from it, Ctrl-C is for the job, and Ctrl-Z is for both."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time
SOON = 30.0


class Terminal:
    """Somebody at a terminal, with one program on it."""

    def __init__(self, command: list[str], url: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, os.environ | {"QUORUMLOCK_URL": url, "PS1": "$ "})
        self.seen = b""
        self.code: int | None = None

    def sees(self, text: str) -> None:
        """Reads until that is there, behind what was seen before."""
        until = time.monotonic() + SOON
        while text.encode() not in self.seen:
            assert time.monotonic() < until, f"no {text!r} in {self.seen!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self.seen += os.read(self._fd, 4096)
        self.seen = self.seen.partition(text.encode())[2]

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ends(self) -> int:
        until = time.monotonic() + SOON
        while self.code is None:
            assert time.monotonic() < until, "it does not end"
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if done else None
            time.sleep(0.01)
        return self.code

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    open_ones: list[Terminal] = []
    yield open_ones
    for terminal in open_ones:
        terminal.close()


def run(tmp_path: Path, terminals: list[Terminal], job: str) -> Terminal:
    call = [sys.executable, "-m", "quorumlock", "run", "job", "-c", job]
    terminals.append(Terminal(call, f"sqlite:///{tmp_path}/locks.db"))
    return terminals[-1]


def test_the_job_reads_what_is_typed(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = run(tmp_path, terminals, "echo ready; read line; echo got $line; exit 3")
    terminal.sees("ready")
    terminal.types("hello\n")
    terminal.sees("got hello")
    assert terminal.ends() == 3


def test_ctrl_c_is_for_the_job(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = run(tmp_path, terminals, "trap 'echo tidied; exit 5' INT; echo ready; while :; do sleep 0.05; done")
    terminal.sees("ready")
    terminal.types("\x03")
    terminal.sees("tidied")
    assert terminal.ends() == 5


def test_ctrl_z_stops_both_and_fg_goes_on(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], f"sqlite:///{tmp_path}/locks.db")
    terminals.append(terminal)
    job = "echo rea''dy; read line; echo g''ot $line"  # no process is started: a shell in vfork does not stop
    terminal.types(f"{sys.executable} -m quorumlock run job -c {shlex.quote(job)}\n")
    terminal.sees("ready")
    terminal.types("\x1a")
    terminal.sees("Stopped")
    terminal.types("fg\n")
    terminal.sees("quorumlock run job")  # the shell says what it brings back
    terminal.types("hello\n")
    terminal.sees("got hello")
    terminal.types("echo code=$?\n")
    terminal.sees("code=0")
    terminal.types("exit\n")
    assert terminal.ends() == 0
