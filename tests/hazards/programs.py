"""Programs that a test starts, to see how they end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRELUDE = """
import asyncio, gc, os, signal, sys, threading, time
from tests.hazards import canaries
canaries.apply_inherited()
import quorumlock
urls = sys.argv[1:]
"""


@contextmanager
def start(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program under way, which does not outlive its block; the library in it is broken as it is here."""
    program = subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", PRELUDE + source, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with program:
        try:
            yield program
        finally:
            program.kill()  # without effect if it has ended


def ended(program: subprocess.Popen[str], within: float = 10.0) -> tuple[str, str]:
    """What it printed and what it complained of; fails if it does not end in time."""
    try:
        return program.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the program did not end within {within:g} s") from None
