"""Every file of tests is run by `make test`, once; lanes take equally long; what runs beside them counts."""

from __future__ import annotations

import sys

import pytest

from scripts import lanes, timings

NAMES = [f"tests/f{number}/test_it.py" for number in range(20)]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_every_file_is_in_one_lane(count: int) -> None:
    found = lanes.lanes(count, lanes.files(), timings.measured())
    assert [name for lane in found for name in lane] == lanes.files()
    assert len(found) == count


def test_lanes_take_equally_long() -> None:
    seconds = {name: 1.0 + number for number, name in enumerate(NAMES)}
    lengths = [sum(seconds[name] for name in lane) for lane in lanes.lanes(3, NAMES, seconds)]
    assert max(lengths) - min(lengths) < max(seconds.values())


def test_our_own_lanes_take_equally_long() -> None:
    """A file that is longer than a lane, or that was never measured, would spoil it."""
    seconds = timings.measured()
    lengths = [sum(seconds.get(name, 0.0) for name in lane) for lane in lanes.lanes(3, lanes.files(), seconds)]
    assert max(lengths) < 1.25 * sum(lengths) / 3, lengths


def test_what_is_noted_is_there() -> None:
    assert set(timings.measured()) <= set(lanes.files()), "make test-profile measures again"


def test_a_file_that_was_never_measured_is_run() -> None:
    (lane,) = lanes.lanes(1, NAMES, {})
    assert lane == NAMES


@pytest.mark.parametrize(("beside", "code"), [("0", 0), ("3", 3)])
def test_what_runs_beside_the_tests_counts(beside: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    program = f"import sys; print('from beside'); sys.exit({beside})"
    assert lanes.main(["--beside", f'{sys.executable} -c "{program}"', "--version"]) == code
    assert "from beside" in capfd.readouterr().out


def test_the_closing_line_of_pytest_is_found() -> None:
    assert lanes.closing("1 passed in 0.10s\n2 failed, 3 passed, 1 skipped in 12.34s (0:00:12)\nmore") == (
        "2 failed, 3 passed, 1 skipped in 12.34s (0:00:12)"
    )
