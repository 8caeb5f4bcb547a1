"""Runs the command as users do: as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("quorumlock")


def quorumlock(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command, with an environment that knows of no fleet unless `env` says so."""
    inherited = {key: value for key, value in os.environ.items() if key != "QUORUMLOCK_URL"}
    return subprocess.run(
        [sys.executable, "-m", "quorumlock", *arguments],
        env=inherited | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=60,
    )


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """What a failed command said: nothing on stdout, a line or two on stderr, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("quorumlock: ")
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
