"""Servers of the tests' own, whichever they are: on loopback, in a temporary folder, gone with their owner.

Nothing waits for a disk where there is memory to write to, unless it is to be `durable`. As root they are run as
the user that their package made; otherwise as whoever runs the tests.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from quorumlock.lab.servers import free_port, give_back

READY_WITHIN = 60.0
_PR_SET_PDEATHSIG = 1
_MEMORY = "/dev/shm"


def needed(missing: Sequence[str]) -> None:
    """Skips a test whose server is not on this machine; never in CI."""
    if missing and os.environ.get("CI"):
        raise pytest.UsageError(f"CI must not skip: no {', '.join(missing)}")
    if missing:
        pytest.skip(f"no {', '.join(missing)} here")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stopped(pid: int) -> bool:
    """Have all of its threads stopped? One of them is told, and tells the others."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
    except OSError:
        return True  # it has ended, or a thread of it has
    return all(state in "TtZX" for state in states)


class Served:
    """One server process, its port and its folder. It keeps its data when it is killed."""

    USER: str
    STOP = signal.SIGKILL

    def __init__(self, *, durable: bool = False) -> None:
        self.port = free_port()
        self.durable = durable
        in_memory = not durable and os.access(_MEMORY, os.W_OK)
        self.folder = Path(tempfile.mkdtemp(prefix="ql-", dir=_MEMORY if in_memory else None))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(self.USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def serve(self) -> list[str]:
        """The command that serves."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Is it ready? An open port is not enough: some have one while they are starting up."""
        raise NotImplementedError

    def start(self, *, wait: bool = True) -> Self:
        """Starts the process; with `wait` until it answers."""
        self._process = self.spawn(self.serve())
        if wait:
            self.wait_until_ready()
        return self

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C"},
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                **self._as,
            )

    def wait_until_ready(self) -> None:
        end = time.monotonic() + READY_WITHIN
        while time.monotonic() < end and self._process is not None and self._process.poll() is None:
            if self.answers():
                return
            time.sleep(0.01)
        raise RuntimeError(f"{type(self).__name__} on port {self.port} did not come up: {self.log()}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-1000:]

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(self.STOP)
            self._process.wait(READY_WITHIN)

    def restart(self) -> None:
        """Killed, and started again with the same data on the same port."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP for it and its children: connections stand, and when this returns nothing is answered."""
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + READY_WITHIN
        while not all(_stopped(pid) for pid in (self.pid, *_children(self.pid))):
            assert time.monotonic() < end, "it does not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is None or self._process.poll() is not None:
            return  # it was killed
        for pid in (self.pid, *_children(self.pid)):
            with suppress(ProcessLookupError):  # a child that has just ended
                os.kill(pid, number)

    def stop(self) -> None:
        """Ends it, and removes its folder."""
        self.resume()
        self.kill()
        self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)
        give_back(self.port)

    def __enter__(self) -> Self:
        try:
            return self if self._process is not None else self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()
