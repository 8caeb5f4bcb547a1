"""Fifty processes write one file: in order, nothing lost, nothing torn; and guards with a fault are found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from .writers import SEEDS, Outcome, run, violations, was_a_contest

pytestmark = pytest.mark.real_time(1)


def judged(form: str, folder: Path, seed: int = 1) -> tuple[Outcome, list[str]]:
    path = folder / f"guarded {seed}" / "chain"
    path.parent.mkdir()
    outcome = run(form, str(path), folder, seed=seed)["file"]
    return outcome, violations(outcome, path.read_bytes())


def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(tmp_path: Path) -> None:
    outcome, found = judged("file", tmp_path)
    assert found == []
    assert was_a_contest(outcome)
    left = {one.name for one in (tmp_path / "guarded 1").iterdir()}
    assert {"chain", "chain.fence", "chain.fence.lock"} <= left
    assert len(left) <= 3 + len(outcome.unknown), "killed writers leave one draft each, until the next holder comes"


@pytest.mark.parametrize(
    ("form", "fault"), [("file-unlocked", "lost"), ("file-checked-once", "lost"), ("file-in-place", "torn")]
)
def test_a_guard_with_a_fault_is_found_out(tmp_path: Path, form: str, fault: str) -> None:
    assert any(fault in one for seed in SEEDS for one in judged(form, tmp_path, seed)[1])
