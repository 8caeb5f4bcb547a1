"""Fifty processes write one file: in order, nothing lost, nothing torn; and guards with a fault are found out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from .writers import SEEDS, Outcome, run, violations, was_a_contest

pytestmark = pytest.mark.real_time(1)


def contest(form: str, folder: Path, seed: int = 1) -> tuple[Path, dict[str, Outcome]]:
    """Where the files are, and what became of the writers of each."""
    path = folder / f"guarded {seed}" / "chain"
    path.parent.mkdir()
    return path, run(form, str(path), folder, seed=seed)


def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(tmp_path: Path) -> None:
    path, outcomes = contest("file", tmp_path)
    outcome = outcomes["file"]
    assert violations(outcome, path.read_bytes()) == []
    assert was_a_contest(outcome)
    left = {one.name for one in path.parent.iterdir()}
    assert {"chain", "chain.fence", "chain.fence.lock"} <= left
    assert len(left) <= 3 + len(outcome.unknown), "killed writers leave one draft each, until the next holder comes"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Path, dict[str, Outcome]]]:
    """A contest of all guards with a fault."""
    return functools.cache(lambda seed: contest("file-faults", tmp_path_factory.mktemp("faults"), seed))


@pytest.mark.parametrize(("guard", "fault"), [("unlocked", "lost"), ("checked-once", "lost"), ("in-place", "torn")])
def test_a_guard_with_a_fault_is_found_out(
    faulty: Callable[[int], tuple[Path, dict[str, Outcome]]], guard: str, fault: str
) -> None:
    def found(seed: int) -> list[str]:
        path, outcomes = faulty(seed)
        return violations(outcomes[guard], Path(f"{path}-{guard}").read_bytes())

    assert any(fault in one for seed in SEEDS for one in found(seed))
