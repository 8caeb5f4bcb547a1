"""Facts of this process that a fork changes, and the tokens that name it."""

from __future__ import annotations

import os
import re
import threading
import weakref
from typing import ClassVar, Protocol

HOST_CHARACTERS = 32


class Forgetful(Protocol):
    def forget(self) -> None:
        """In a forked child: drops what is the parent's."""


class Process:
    """Facts of this process that a fork changes."""

    generation = 0
    whoami = ""
    mutex = threading.RLock()
    """Guards the few lines in which any lease changes its state; a signal handler, or a finaliser that the
    collector runs just there, may release a lease, too."""
    keepers: ClassVar[weakref.WeakSet[Forgetful]] = weakref.WeakSet()

    @classmethod
    def forked(cls) -> None:
        cls.generation += 1
        cls.whoami = ""
        cls.mutex = threading.RLock()
        for keeper in list(cls.keepers):
            keeper.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process.forked)


_random_bytes = os.urandom


def anonymous_token(start: str = "") -> str:
    return start + _random_bytes(20).hex()[len(start) :]


def token(start: str = "") -> str:
    """Who: unguessable, new for every attempt, with a readable `@host:pid` behind it; begins with `start`."""
    if not Process.whoami:
        host = re.sub(r"[^A-Za-z0-9._-]", "", _host())[:HOST_CHARACTERS]
        Process.whoami = f"@{host}:{os.getpid()}"
    return start + _random_bytes(20).hex()[len(start) :] + Process.whoami


def _host() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # a command that is over in 0.1 s would notice

    return socket.gethostname()
