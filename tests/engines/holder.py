"""A process of its own that holds a lock, to be stopped or killed."""

from __future__ import annotations

import os
import signal
from typing import Self

import quorumlock
from tests.support.processes import fork


class Holder:
    """A forked child that holds the lock "a" until it is killed, or told to say whether it still does."""

    def __init__(self, url: str, ttl: float) -> None:
        told, self._say = os.pipe()
        self._hear, said = os.pipe()
        self.pid = fork()
        if not self.pid:
            try:
                self._hold(url, ttl, told, said)
            finally:
                os._exit(0)
        os.close(told)
        os.close(said)
        self.fence = int(self._line())

    @staticmethod
    def _hold(url: str, ttl: float, told: int, said: int) -> None:
        locks = quorumlock.connect(url, node_timeout=0.2)
        lease = locks.lock("a", ttl=ttl).acquire(timeout=20)
        os.write(said, f"{lease.fence}\n".encode())
        os.read(told, 1)
        try:
            lease.check()
        except quorumlock.LeaseLost as lost:
            os.write(said, f"lost {lost.reason.name}\n".encode())
        else:
            os.write(said, b"valid\n")

    def _line(self) -> str:
        return os.read(self._hear, 100).decode()

    def woken(self) -> str:
        """What it says of its lease when it runs again, before it hears of anybody."""
        os.write(self._say, b"!")
        os.kill(self.pid, signal.SIGCONT)
        return self._line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._say)
        os.close(self._hear)
