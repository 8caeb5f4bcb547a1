"""Every folder of tests is run by `make test`, and once; and what runs beside them counts."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from scripts import lanes


def test_every_folder_is_in_one_lane() -> None:
    counted = Counter(folder for lane in lanes.LANES for folder in lanes.arguments_of(lane))
    there = {f"tests/{path.name}" for path in lanes.TESTS.iterdir() if any(path.glob("**/test_*.py"))}
    assert counted == Counter(there)


def test_no_lane_names_a_folder_that_is_not_there() -> None:
    for lane in lanes.LANES:
        assert all((lanes.TESTS / name).is_dir() for name in lane.folders)


@pytest.mark.parametrize(("beside", "code"), [("0", 0), ("3", 3)])
def test_what_runs_beside_the_tests_counts(beside: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    program = f"import sys; print('from beside'); sys.exit({beside})"
    assert lanes.main(["--beside", f'{sys.executable} -c "{program}"', "--version"]) == code
    assert "from beside" in capfd.readouterr().out
