"""Interrupts a call wherever CPython would let a signal in, once at each place: KeyboardInterrupt, made repeatable.

The interpreter looks for signals when a function starts, when a generator is resumed (the innermost one, not those
that delegate to it), and when a call of a C function is over. These are events of a profile function, and what it
raises appears just there.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import quorumlock

T = TypeVar("T")

LIBRARY = str(Path(quorumlock.__file__).parent)


class Strike:
    """Raises KeyboardInterrupt at the k-th place inside the library's code, or does there what it is told to."""

    def __init__(self, k: int, deed: Callable[[], object] | None = None) -> None:
        self.left = k
        self.where = ""
        self._deed = deed

    @property
    def struck(self) -> bool:
        return bool(self.where)

    def run(self, call: Callable[[], T]) -> T | None:
        """What the call gave; None if it was interrupted."""
        gc.disable()  # what is struck in a finaliser is lost, and tells nothing about the call
        sys.setprofile(self._event)
        try:
            return call()
        except KeyboardInterrupt:
            assert self.struck
            return None
        finally:
            sys.setprofile(None)
            gc.enable()

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.struck or event not in ("call", "c_return"):
            return
        if not frame.f_code.co_filename.startswith(LIBRARY) or (event == "call" and _delegates(frame)):
            return
        if argument is open:
            return  # a file that nobody got is closed by the collector, and all who open one have that in common
        self.left -= 1
        if self.left == 0:
            file = Path(frame.f_code.co_filename).relative_to(LIBRARY)
            self.where = f"{file}:{frame.f_lineno} in {frame.f_code.co_name}, {event} {argument or ''}"
            sys.setprofile(None)
            if self._deed is None:
                raise KeyboardInterrupt
            self._deed()


def _delegates(frame: FrameType) -> bool:
    """Is this the resumption of a generator at its `yield from`? RESUME says so; no signal is let in there."""
    code = frame.f_code.co_code
    return dis.opname[code[frame.f_lasti]] == "RESUME" and code[frame.f_lasti + 1] & 3 >= 2
