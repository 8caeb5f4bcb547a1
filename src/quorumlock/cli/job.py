"""A command that runs while a lock is held: started, watched over, and ended before the lock is over.

1. It has a process group of its own, led by its leash (see leash.py).
2. Signals that ask us to end are passed on to all of the group; what becomes of the command, becomes of us.
3. While the lock is renewed there is always more left than `grace`. When there is not, the group is asked to end,
   and killed a `margin` before the lock is over. The leash does so where we are stopped or killed.
4. A command that has ended is never killed, nor said to have lost its lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..clocks import boot_time
from .leash import FOR_EVER, Leash, readable

PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
ON_LOST = ("term", "kill", "ignore")


class Held(Protocol):
    """A lease, as far as a job is concerned."""

    def remaining(self) -> float: ...


class Ending:
    """How a job ended."""

    def __init__(self, status: int, *, lost: bool = False) -> None:
        self.code = os.waitstatus_to_exitcode(status)
        if self.code < 0:
            self.code = 128 - self.code
        self.lost = lost
        """Was it ended because of the lock?"""
        self.gone = True
        """Is nobody of its group left? Only a process that hangs in the kernel does not die of SIGKILL."""


class Job:
    """One command and its process group."""

    def __init__(self, leash: Leash, command: Sequence[str]) -> None:
        self.leash = leash
        self.command = list(command)
        self.pid = 0
        self._ears, self._bell = os.pipe()
        os.set_blocking(self._bell, False)

    def ring(self, *_: object) -> None:
        """Something has happened, perhaps in another thread."""
        with contextlib.suppress(BlockingIOError):  # it has been rung often enough
            os.write(self._bell, b"\0")

    def run(self, environment: Mapping[str, str], lease: Held, on_lost: str, grace: float, margin: float) -> Ending:
        """From start to end; raises OSError where it cannot be started."""
        minding = on_lost != "ignore"
        with self._listening(), self._foreground():
            self._vouch(lease, minding, margin)
            self.pid = os.posix_spawnp(
                self.command[0], self.command, dict(environment), setpgroup=self.leash.pid,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ], setsigmask=[],
            )  # fmt: skip
            ending = self._watch(lease, minding, on_lost, grace, margin)
        if not ending.lost:
            self.leash.let_go()
        else:
            ending.gone = self.leash.end(within=max(margin, 1.0))
        return ending

    def _watch(self, lease: Held, minding: bool, on_lost: str, grace: float, margin: float) -> Ending:
        asked = False
        while True:
            if (status := self._ended()) is not None:
                return Ending(status, lost=asked or self.leash.tight)
            left = lease.remaining() if minding else FOR_EVER
            if left <= margin or (asked and on_lost == "kill"):
                self.leash.signal(signal.SIGKILL)
                return Ending(os.waitpid(self.pid, 0)[1], lost=True)
            if left <= margin + grace and not asked:
                asked = True
                if on_lost == "term":
                    self.leash.signal(signal.SIGTERM)
                continue
            self._vouch(lease, minding, margin)
            self._sleep(left - margin - (0.0 if asked else grace))

    def _vouch(self, lease: Held, minding: bool, margin: float) -> None:
        self.leash.vouch(boot_time() + lease.remaining() - margin / 2 if minding else FOR_EVER)

    def _sleep(self, longest: float) -> None:
        if readable(self._ears, min(longest, 3600.0)):
            for number in os.read(self._ears, 4096):
                if number in PASSED_ON:
                    self.leash.signal(number)

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if not os.WIFSTOPPED(status):
            return status
        if self._terminal is not None:
            self._stand_by(self._terminal)
        return None

    def _stand_by(self, terminal: int) -> None:
        """Ctrl-Z: we stop with it, as far as a shell can see, and go on with it."""
        _give(terminal, os.getpgrp())
        os.kill(os.getpid(), signal.SIGSTOP)
        _give(terminal, self.leash.pid)
        self.leash.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Signals are bytes in a pipe. Those that were ignored, as by nohup, stay so."""
        heard = [one for one in (*PASSED_ON, signal.SIGCHLD) if signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, lambda *_: None) for one in heard}
        signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for one, handler in before.items():
                signal.signal(one, handler)

    @contextlib.contextmanager
    def _foreground(self) -> Iterator[None]:
        """On a terminal, the job is who reads from it, and whom Ctrl-C is for."""
        self._terminal: int | None = None
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(0) == os.getpgrp():
                self._terminal = 0
        if self._terminal is None:
            yield
            return
        _give(self._terminal, self.leash.pid)
        try:
            yield
        finally:
            _give(self._terminal, os.getpgrp())


def _give(terminal: int, group: int) -> None:
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError, termios.error):  # it may have hung up
            os.tcsetpgrp(terminal, group)
    finally:
        signal.signal(signal.SIGTTOU, before)
