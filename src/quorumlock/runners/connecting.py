"""Connections for threads are made in the background, and the thread that polls is woken when one is there."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import Any

from ..engines.base import WireEngine

BELL_SIZE = 8192


class Bell:
    """Rung by a thread that has connected, heard by the thread that polls."""

    __slots__ = ("_ear", "_rope", "fd")

    def __init__(self) -> None:
        self._ear, self._rope = socket.socketpair()
        self._ear.setblocking(False)
        self.fd = self._ear.fileno()

    def ring(self) -> None:
        """Raises OSError if nobody can hear it any more."""
        self._rope.send(b"!")

    def hear(self) -> None:
        with suppress(BlockingIOError):  # poll may be wrong: to wait here would be to wait without a timeout
            self._ear.recv(BELL_SIZE)

    def close(self) -> None:
        self._ear.close()
        self._rope.close()

    def __del__(self) -> None:
        """Both ends are ours: where an interrupt has lost a cable, nothing is left open."""
        with suppress(AttributeError):  # it struck while this was made
            self.close()


def connect(engine: WireEngine, node: int, opened: deque[tuple[int, Any]], bell: Bell) -> None:
    """In a thread of its own: connects, leaves the result, rings."""
    made: Any
    try:
        made = engine.open(node)
    except Exception as error:
        made = error
    opened.append((node, made))
    try:
        bell.ring()
    except OSError:
        # The cable was closed meanwhile; nobody will attach what we bring.
        if not isinstance(made, Exception):
            made.disconnect()
