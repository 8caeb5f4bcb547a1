"""Memory lost inside a lease, in every way we know: nobody gets in while it may be valid. See `make soak`."""

from __future__ import annotations

import os

import pytest

from .stories import QUARANTINE
from .stories.running import Summary, run_side_by_side

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

LONG = bool(os.environ.get("QUORUMLOCK_LONG"))
ROUNDS = 6 if LONG else 2
ROUNDS_MOST = 12
"""In so many rounds without quarantine an overlap is seen for certain; mostly in the first."""
AT_A_TIME = 6


def shows_overlap(summary: Summary) -> bool:
    return summary.overlaps > 0


def test_nobody_gets_in_while_a_lease_may_be_valid(kind: str) -> None:
    summaries = run_side_by_side(dict.fromkeys(QUARANTINE, ROUNDS), kind, AT_A_TIME)
    assert [summary.story for summary in summaries] == list(QUARANTINE)
    for summary in summaries:
        assert not summary.faults, "\n".join(summary.faults)
        assert summary.leases >= 2 * ROUNDS, f"{summary.story}: afterwards somebody gets in"


@pytest.mark.one_kind
def test_without_quarantine_somebody_does(kind: str) -> None:
    """The test of the test above."""
    rounds = dict.fromkeys(QUARANTINE, ROUNDS_MOST)
    for summary in run_side_by_side(rounds, kind, AT_A_TIME, quarantine=False, progress=shows_overlap):
        told = f"{summary.story}: none in {summary.rounds} rounds, {len(summary.voids)} void: {summary.voids[-1:]}"
        assert summary.overlaps, told
