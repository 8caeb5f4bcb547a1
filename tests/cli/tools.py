"""Runs the command: in this process, in a forked one, or as users do."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from quorumlock.cli import main
from tests.support.processes import fork

SCRIPT = Path(sys.executable).with_name("quorumlock")
Completed = subprocess.CompletedProcess[str]
OWN_PROCESS = (("run",), ("elect",), ("demo",))
"""Commands that fork, and set handlers of signals for the life of their process."""


def environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """Ours, which knows of no fleet unless `env` says so."""
    inherited = {key: value for key, value in os.environ.items() if key != "QUORUMLOCK_URL"}
    return inherited | dict(env or {})


def quorumlock(*arguments: str, env: Mapping[str, str] | None = None) -> Completed:
    """The command, called in this process where that shows the same."""
    if arguments[:1] in OWN_PROCESS or any(key.startswith("PYTHON") for key in env or ()):
        return process(*arguments, env=env)
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment(env), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
        logging_as_of_a_new_process(),
    ):
        code = called(*arguments)
    return Completed(arguments, code, out.getvalue(), err.getvalue())


def called(*arguments: str) -> int:
    """The exit code; an exception is printed as an interpreter that ends prints it."""
    try:
        return main(arguments)
    except Exception:
        traceback.print_exc()
        return 1


@contextmanager
def logging_as_of_a_new_process() -> Iterator[None]:
    """Without the handlers of pytest, so that warnings go to stderr."""
    root = logging.getLogger()
    before = root.handlers
    root.handlers = []
    try:
        yield
    finally:
        root.handlers = before


def process(*arguments: str, env: Mapping[str, str] | None = None) -> Completed:
    """The command in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-m", "quorumlock", *arguments],
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=60,
    )


def forked(*arguments: str, env: Mapping[str, str] | None = None) -> Completed:
    """The command in a forked child, which has signals, children, and an exit code of its own.

    Nobody in this process may have the same SQLite file open: its locks would seem to be the child's.
    """
    return forking(*arguments, env=env)()


def forking(*arguments: str, env: Mapping[str, str] | None = None) -> Callable[[], Completed]:
    """The same, begun; what is returned waits for its end."""
    files = ExitStack()
    out = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    err = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    pid = fork()
    if pid == 0:
        _become(arguments, environment(env), out.fileno(), err.fileno())

    def end() -> Completed:
        with files:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            err.seek(0)
            return Completed(arguments, code, out.read().decode(), err.read().decode())

    return end


def _become(arguments: tuple[str, ...], env: Mapping[str, str], out: int, err: int) -> None:
    """The rest of a child's life."""
    code = 1
    try:
        for ours, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
            os.dup2(ours, standard)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        logging.getLogger().handlers = []
        os.environ.clear()
        os.environ.update(env)
        code = called(*arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def complaint(done: Completed, code: int) -> str:
    """What a failed command said: nothing on stdout, a line or two on stderr, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("quorumlock: ")
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
