"""The judge of the family in `make soak`: a checker that finds nothing must be one that could."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.soak_family import judge

ROOT = Path(__file__).parents[2]
SECONDS = "8" if os.environ.get("QUORUMLOCK_LONG") else "4"


def entry(at: float, until: float, fence: int = 1, *, shared: bool = False, name: str = "x") -> dict[str, Any]:
    return {"what": "held", "fences": {name: fence}, "shared": shared, "at": at, "until": until}


def judged(folder: Path, *leases: dict[str, Any], more: tuple[dict[str, Any], ...] = ()) -> list[str]:
    """Each lease in a log of its own."""
    for number, lease in enumerate(leases):
        lines = [{**lease, "number": number}, *({**one, "number": number} for one in more)]
        (folder / f"{number}.log").write_text("\n".join(json.dumps(line) for line in lines))
    return judge(folder)[1]


def test_leases_one_after_another_are_right(tmp_path: Path) -> None:
    assert (
        judged(tmp_path, entry(1, 2, 1), entry(2, 3, 2), entry(3, 4, 2, shared=True), entry(3.5, 5, 2, shared=True))
        == []
    )


@pytest.mark.parametrize(
    ("leases", "told"),
    [
        ((entry(1, 3, 1), entry(2, 4, 2)), "was valid"),
        ((entry(1, 3, 1), entry(2, 4, 1, shared=True)), "was valid"),
        ((entry(1, 3, 1, shared=True), entry(2, 4, 2)), "while the reader of"),
        ((entry(1, 2, 7), entry(3, 4, 7)), "comes after a fence"),
        ((entry(1, 2, 7), entry(3, 4, 6, shared=True)), "comes after a fence"),
        ((entry(1, 2, 1, name="pool#0"), entry(1, 2, 1, name="pool#2")), "there is no slot pool#2"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, leases: tuple[dict[str, Any], ...], told: str) -> None:
    wrong = judged(tmp_path, *leases)
    assert len(wrong) == 1
    assert told in wrong[0]


def test_slots_and_names_do_not_exclude_one_another(tmp_path: Path) -> None:
    assert judged(tmp_path, entry(1, 9, 1, name="pool#0"), entry(2, 8, 1, name="pool#1"), entry(3, 7, 1)) == []


def test_a_renewal_counts_and_a_release_ends_it(tmp_path: Path) -> None:
    renewed = {"what": "extended", "until": 5.0}
    assert judged(tmp_path, entry(1, 2, 1), entry(4, 6, 2), more=(renewed,)) != []
    released = {"what": "released", "at": 1.5}
    assert judged(tmp_path, entry(1, 9, 1), entry(2, 9, 2), more=(released,)) == []


def test_a_valid_holder_that_is_refused_is_found(tmp_path: Path) -> None:
    assert judged(tmp_path, entry(1, 2), more=({"what": "refused although valid"},)) == [
        "a valid holder's write was refused"
    ]


@pytest.mark.live
@pytest.mark.real_time
def test_every_kind_among_faults_for_a_moment() -> None:
    call = [sys.executable, "-m", "scripts.soak_family", "--seconds", SECONDS, "--workers", "13"]
    told = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    seen = [resource for resource in ("plain", "doc", "pool#", "boss") if f"of {resource}" in told.stdout]
    assert len(seen) >= 2, told.stdout
