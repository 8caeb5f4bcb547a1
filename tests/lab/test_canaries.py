"""The test of the tests: every checker finds out what it is there to find out, by itself and soon."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain

import pytest

from quorumlock.lab.checkers import CHECKERS
from quorumlock.lab.fuzz import quiet, told
from quorumlock.lab.run import simulate

from .canaries import CANARIES, Canary

SEEDS_MOST = 2000


def test_every_checker_has_a_canary() -> None:
    assert {one.checker for one in CANARIES} == set(CHECKERS)


def seeds(canary: Canary) -> Iterable[int]:
    """The long form looks from the beginning on, and does not know where to look."""
    everywhere = range(SEEDS_MOST)
    return everywhere if os.environ.get("QUORUMLOCK_LONG") else chain([canary.known_at], everywhere)


@pytest.mark.parametrize("canary", CANARIES, ids=str)
def test_a_broken_core_is_found_out_by_its_checker(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    canary.break_it(monkeypatch)
    with quiet():
        for seed in seeds(canary):
            verdict = simulate(seed, canary.options)
            if any(one.checker == canary.checker for one in verdict.wrong):
                print(f"seed {seed}: {told(verdict)}")
                return
            assert not verdict.crash, f"seed {seed} crashed instead: {verdict.crash}"
    pytest.fail(f"nothing was found out in {SEEDS_MOST} seeds")
