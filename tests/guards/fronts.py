"""One way to call both fronts of a guard, and small things that several tests of guards need."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .writers import ROOT


class Blocking:
    """An asyncio guard, or client, whose methods are called like those for threads."""

    def __init__(self, inner: object, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: object, **options: object) -> Any:
            result = method(*args, **options)
            if hasattr(result, "__aenter__"):
                return self._entered(result)
            return self._loop.run_until_complete(result) if inspect.isawaitable(result) else result

        return call

    @contextlib.contextmanager
    def _entered(self, manager: Any) -> Iterator[Any]:
        value = self._loop.run_until_complete(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self._loop.run_until_complete(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._loop.run_until_complete(manager.__aexit__(None, None, None))


def forked(task: Callable[[], None]) -> int:
    """The process id of a child that does a task, and nothing else; it ends with 1 if that fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the child needs none of them
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # a child that hangs is not left behind
        task()
        status = 0
    finally:
        os._exit(status)


def example(name: str) -> str:
    """What a program of `examples/` prints."""
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
