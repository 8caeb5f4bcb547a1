"""The leash of a job: a small process that ends it when nobody vouches for its lock any more.

It is forked before there are threads, leads the process group that the job is put into, and reads from a pipe until
when the lock is certainly held. If that time comes, or the pipe ends because whoever held it was killed, it kills
the group, and so itself. A process that has left the group, for a session of its own, is out of reach.

Since the group is its own, there is no moment at which a job runs without it: a job that is started when the leash
is gone cannot join the group, and is not started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time

from ..clocks import boot_time

SAID = struct.Struct("d")
LET_GO = -1.0
FOR_EVER = float("inf")
NAP = 1.0
"""The longest sleep: the clock of poll stands still while the machine sleeps."""


def readable(fd: int, within: float) -> bool:
    """Is there something to read, within so many seconds?

    By poll: select would add the time for which we were stopped, or our container was paused.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(within * 1000))


class Leash:
    """This process's end of it."""

    def __init__(self) -> None:
        self._gone = False
        reader, self._writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._writer)
                _watch(reader)
            finally:
                os._exit(1)
        os.close(reader)
        with contextlib.suppress(OSError):  # the other end does the same: whoever is first
            os.setpgid(self.pid, self.pid)

    def vouch(self, until: float) -> None:
        """The lock is held until then, by the clock that goes on while the machine sleeps."""
        with contextlib.suppress(BrokenPipeError):  # it has killed the job, and this is seen elsewhere
            if not self._gone:
                os.write(self._writer, SAID.pack(until))

    def signal(self, number: int) -> None:
        """To everybody in the group; the leash itself minds only SIGKILL and SIGSTOP."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def let_go(self) -> None:
        """The job is over; what it left in the background may stay."""
        self.vouch(LET_GO)
        self._bury()

    @property
    def tight(self) -> bool:
        """Has it killed the job?"""
        if not self._gone and os.waitpid(self.pid, os.WNOHANG)[0]:
            self._gone = True
            os.close(self._writer)
        return self._gone

    def _bury(self) -> None:
        if not self._gone:
            self._gone = True
            os.close(self._writer)
            os.waitpid(self.pid, 0)

    def end(self, within: float) -> bool:
        """Kills the group; True when nothing is left of it."""
        self.signal(signal.SIGKILL)
        self._bury()
        until = time.monotonic() + within
        while _anybody(self.pid):
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        return True


def _anybody(group: int) -> bool:
    """Does anybody of a group run? The dead count as long as nobody buries them, unless /proc tells them apart."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # gone, and perhaps the number is somebody else's by now
        return False
    numbers = [name for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc/self") else []
    return not numbers or any(_runs(number, group) for number in numbers)


def _runs(number: str, group: int) -> bool:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            state, _, its_group, *_ = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(its_group) == group and state not in b"ZX"


def _watch(reader: int) -> None:
    os.setpgid(0, 0)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # nobody waits for us to close them
        os.dup2(nowhere, standard)
    until = FOR_EVER
    while True:
        left = until - boot_time()
        if left > 0 and readable(reader, min(left, NAP)):
            said = os.read(reader, 512 * SAID.size)
            if not said:
                break
            until = SAID.unpack(said[-SAID.size :])[0]
            if until == LET_GO:
                os._exit(0)
        elif left <= 0:
            break
    os.kill(0, signal.SIGKILL)
