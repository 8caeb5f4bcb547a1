"""An environment of its own for each peer: they pin conflicting versions and share module names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench-envs"
INSTALL_WITHIN = 300


class NotInstalled(Exception):
    """Says in one line why a peer cannot be measured."""


def python_of(packages: tuple[str, ...]) -> Path:
    """The Python of the environment that has `packages`, made on first use; the first one names it."""
    folder = FOLDER / packages[0]
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = f"{sys.version_info.major}.{sys.version_info.minor} {' '.join(packages)}\n"
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    print(f"making an environment for {packages[0]} …", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", *packages])
    stamp.write_text(wanted)
    return python


def versions(python: Path, packages: tuple[str, ...]) -> str:
    """What was really installed."""
    names = [*packages, *(["redis"] if "redis" not in packages and "valkey" not in packages else [])]
    code = "import importlib.metadata as m, sys; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    return _run([str(python), "-c", code, *names]).strip()


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_WITHIN, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(type(error).__name__) from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if re.match(r"ERROR|\w*Error", line)]
        raise NotInstalled((said or done.stderr.splitlines() or ["no reason given"])[-1][:200])
    return done.stdout
