"""Canaries: the judge of failover runs finds out locks that exclude nobody, and is not misled by late workers."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import quorumlock
from tests.support.waiting import eventually

from . import failover
from .failover import Judge, working


def test_locks_that_exclude_nobody_are_found_out(tmp_path: Path) -> None:
    """The same workers as in failover runs, but each of them locks in a memory of its own."""
    judge = Judge(tmp_path)
    with working(judge, lambda seed: f"memory://canary-{tmp_path.name}-{seed}"):
        assert eventually(lambda: any("was valid" in one for one in judge.violations))
        assert eventually(lambda: any("comes after a fence" in one for one in judge.violations))


@pytest.mark.parametrize(("first", "second"), list(product(["write", "read"], repeat=2)))
def test_whatever_excludes_another_must_not_be_valid_beside_it(tmp_path: Path, first: str, second: str) -> None:
    judge = Judge(tmp_path)
    with (
        quorumlock.connect(f"memory://{tmp_path.name}-1") as ours,
        quorumlock.connect(f"memory://{tmp_path.name}-2") as theirs,
        getattr(ours.read_write("a"), first)(ttl=20) as one,
        getattr(theirs.read_write("a"), second)(ttl=20) as other,
        judge.inside(one, shared=first == "read"),
        judge.inside(other, shared=second == "read"),
    ):
        assert any("was valid" in one for one in judge.violations) is ((first, second) != ("read", "read"))
    assert judge.verdicts == 2


def test_a_lease_that_was_lost_before_it_was_judged_is_no_verdict(tmp_path: Path) -> None:
    judge = Judge(tmp_path)
    with quorumlock.connect(f"memory://{tmp_path.name}") as locks:
        late = locks.lock("a", ttl=5, keep=False).acquire()
        locks.engine.clock.advance(6)
        with locks.lock("a", ttl=5) as lease, judge.inside(lease), judge.inside(late):
            assert late.fence < lease.fence
    assert judge.violations == []
    assert (judge.verdicts, judge.claims.late) == (1, 1)


def test_a_fence_that_does_not_grow_is_found_out(tmp_path: Path) -> None:
    judge = Judge(tmp_path)
    with quorumlock.connect(f"memory://{tmp_path.name}") as locks, locks.lock("a", ttl=20) as lease:
        with judge.inside(lease):
            pass
        with judge.inside(lease):
            assert len(judge.violations) == 1
    assert failover.KILLS >= 2
