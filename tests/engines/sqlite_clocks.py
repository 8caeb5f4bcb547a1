"""Clocks for SQLite's files: one that a test moves by hand, and one that it can put forward."""

from __future__ import annotations

from fractions import Fraction

import pytest

from quorumlock.clocks import boot_time
from quorumlock.engines.sqlite import SqliteEngine, boot


class Clock:
    """The boot clock for all files of this process. It stands still until it is moved."""

    ms = 1_000_000

    def __call__(self) -> Fraction:
        return Fraction(self.ms, 1000)

    def advance(self, ms: int) -> None:
        self.ms += ms


class Forward:
    """The boot clock for all files and leases of this process. It goes on, and can be put forward.

    In the file an end is rounded up to the next millisecond, twice where a rest is written. A test that puts the
    clock forward to an end means that it has passed, and must not depend on how fast the machine gets there.
    """

    ROUNDED = 0.002

    def __init__(self) -> None:
        self._by = 0.0

    def __call__(self) -> float:
        return boot_time() + self._by

    def advance(self, seconds: float) -> None:
        self._by += seconds + self.ROUNDED


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """For tests that ask the engine. Nothing waits for it: a Locker would wait for ever."""
    clock = Clock()
    monkeypatch.setattr(boot, "boot_time", clock)
    return clock


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> Forward:
    """For tests with Lockers that are connected from now on."""
    forward = Forward()
    monkeypatch.setattr(boot, "boot_time", forward)
    monkeypatch.setattr(SqliteEngine, "clock", staticmethod(forward))
    return forward
