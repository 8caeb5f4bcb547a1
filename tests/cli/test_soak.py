"""The judge of `make soak`: a checker that finds nothing must be one that could."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.soak import judge


def judged(folder: Path, *logs: list[dict[str, object]]) -> tuple[int, int]:
    """Overlaps and fence violations in the logs of some workers."""
    for number, log in enumerate(logs):
        (folder / f"{number}.log").write_text("".join(json.dumps(entry) + "\n" for entry in log))
    counts, wrong = judge(folder)
    assert len(wrong) == counts["overlaps"] + counts["fence violations"]
    return counts["overlaps"], counts["fence violations"]


def held(fence: int, at: float, until: float) -> dict[str, object]:
    return {"what": "held", "number": fence, "fences": {"x": fence}, "at": at, "until": until}


RELEASED_AT_4: list[dict[str, object]] = [held(1, 1.0, 9.0), {"what": "released", "number": 1, "at": 4.0}]


def test_one_after_the_other_is_well(tmp_path: Path) -> None:
    assert judged(tmp_path, RELEASED_AT_4, [held(2, 4.5, 6.0), held(3, 6.5, 9.0)]) == (0, 0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (RELEASED_AT_4, [held(2, 3.9, 5.0)]),
        ([held(1, 1.0, 9.0)], [held(2, 8.9, 12.0)]),  # its holder was killed: the lease runs to its end
        ([held(1, 1.0, 2.0), {"what": "extended", "number": 1, "until": 6.0}], [held(2, 5.0, 7.0)]),
        ([held(1, 1.0, 9.0), {"what": "lost: taken", "number": 1, "at": 4.0}], [held(2, 3.0, 3.1)]),
    ],
)
def test_an_overlap_is_found(
    tmp_path: Path, first: list[dict[str, object]], second: list[dict[str, object]]
) -> None:
    assert judged(tmp_path, first, second) == (1, 0)


def test_a_long_lease_overlaps_all_that_begin_in_it(tmp_path: Path) -> None:
    assert judged(tmp_path, [held(1, 1.0, 9.0)], [held(2, 2.0, 3.0), held(3, 4.0, 5.0)]) == (2, 0)


@pytest.mark.parametrize("fence", [1, 0])
def test_a_fence_that_does_not_grow_is_found(tmp_path: Path, fence: int) -> None:
    assert judged(tmp_path, RELEASED_AT_4, [held(fence, 4.5, 6.0)]) == (0, 1)


def test_a_valid_holder_that_was_refused_is_found(tmp_path: Path) -> None:
    assert judged(tmp_path, [held(1, 1.0, 2.0), {"what": "refused although valid"}]) == (0, 1)
