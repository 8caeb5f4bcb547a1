"""A kept lease outlives its nodes' memory, one after another; what was forced open is not healed."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from .stories import HEALING
from .stories.running import run

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

ROUNDS = {"rolling": 2, "rolling-faster": 2, "forced-open": 4}


@pytest.mark.parametrize("story", HEALING)
def test_healing(story: str, kind: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        seed = f"{random.randrange(2**32):x}"
        summary = run(story, ROUNDS[story], threads, [kind], seed, at_a_time=2)
    assert not summary.faults, "\n".join(summary.faults)
    assert summary.leases >= 2 * ROUNDS[story], "and afterwards somebody else gets in"
