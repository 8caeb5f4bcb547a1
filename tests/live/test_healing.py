"""A kept lease outlives its nodes' memory, one after another; what was forced open is not healed."""

from __future__ import annotations

import os

import pytest

from .stories import HEALING
from .stories.running import run_side_by_side

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time(0.3)]

LONG = bool(os.environ.get("QUORUMLOCK_LONG"))
ROUNDS = {"rolling": 2, "rolling-faster": 2, "forced-open": 8} if LONG else {
    "rolling": 1, "rolling-faster": 1, "forced-open": 4,
}  # fmt: skip


def test_healing(kind: str) -> None:
    assert ROUNDS.keys() == HEALING.keys()
    for summary in run_side_by_side(ROUNDS, kind, len(HEALING)):
        assert not summary.faults, "\n".join(summary.faults)
        assert summary.leases >= 2 * summary.rounds, f"{summary.story}: afterwards somebody else gets in"
