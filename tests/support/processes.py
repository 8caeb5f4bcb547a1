"""Other processes of a test: forked children, and whether a process runs."""

from __future__ import annotations

import faulthandler
import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

CHILD_WITHIN = 30.0


def fork() -> int:
    """`os.fork()` beside other threads, which is what such tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(task: Callable[[], None], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Runs `task` in a forked child; fails with the child's traceback if it fails or hangs there."""
    reader, writer = os.pipe()
    pid = fork()
    if pid == 0:
        status = 1
        try:
            faulthandler.dump_traceback_later(CHILD_WITHIN, exit=True, file=writer)
            os.close(reader)
            task()
            status = 0
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(status)
    os.close(writer)
    meanwhile()
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, output or f"the child ended with {status}"


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
