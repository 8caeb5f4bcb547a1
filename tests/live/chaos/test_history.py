"""The checker of histories: good ones pass, bad ones are refused for the named reason, garbage is named by line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quorumlock.lab.history import Verdict, check, main
from quorumlock.lab.history_lines import Garbage, Recorder, read

Line = tuple[Any, ...]


def text(*lines: Line) -> list[str]:
    """(time, process, type, f, value): one line each."""
    keys = ("time", "process", "type", "f", "value", "name")
    return [json.dumps(dict(zip(keys, line, strict=False))) for line in lines]


def judged(*lines: Line) -> Verdict:
    (verdict,) = check(read(text(*lines)))
    return verdict


def reasons(*lines: Line) -> list[str]:
    return [fault.reason for fault in judged(*lines).wrong]


def leased(process: int, since: float, **terms: Any) -> list[Line]:
    return [(since - 0.1, process, "invoke", "acquire"), (since, process, "ok", "acquire", terms or None)]


def held(process: int, since: float, until: float | None = None, **terms: Any) -> list[Line]:
    """Acquired at once; released at `until`, at once."""
    lines: list[Line] = [
        (since - 0.1, process, "invoke", "acquire"),
        (since, process, "ok", "acquire", terms or None),
    ]
    if until is not None:
        lines += [(until, process, "invoke", "release"), (until + 0.1, process, "ok", "release")]
    return lines


def finally_read(*elements: object) -> list[Line]:
    return [(9, 0, "invoke", "read"), (9.1, 0, "ok", "read", list(elements))]


def added(process: int, at: float, element: object, how: str = "ok") -> list[Line]:
    return [(at, process, "invoke", "add", element), (at + 0.1, process, how, "add", element)]


A_STEP: Line = (1.5, "nemesis", "info", "broken", {"until": 2.5})

GOOD: dict[str, list[Line]] = {
    "one after another": [*held(1, 1, 2, fence=1), *held(2, 3, 4, fence=2)],
    "acquired while the release is under way": [
        *held(1, 1), (2, 1, "invoke", "release"), (2.1, 2, "invoke", "acquire"), (2.2, 2, "ok", "acquire"),
        (2.9, 1, "ok", "release"),
    ],
    "acquired while a release of unknown outcome is": [
        *held(1, 1), (2, 1, "invoke", "release"), *held(2, 3), (3.5, 1, "unknown", "release"),
    ],
    "acquired when the lease is over": [*held(1, 1, fence=1), (1.1, 1, "ok", "extend", {"until": 2.0}),
                                        *held(2, 2.0, fence=2)],
    "acquired when the lease was told lost": [
        *leased(1, 1, until=9.0), (2, 1, "ok", "lost"), *held(2, 2.5),
    ],
    "refused, and of unknown outcome": [
        *held(1, 1, 3), (1.5, 2, "invoke", "acquire"), (1.6, 2, "fail", "acquire"), (1.7, 3, "invoke", "acquire"),
        (1.8, 3, "unknown", "acquire"), (1.9, 4, "invoke", "acquire"), *held(5, 4, 5),
    ],
    "heard of the lease when it was over": [
        (1, 1, "invoke", "acquire"), (1.1, 2, "invoke", "acquire"), (3.0, 2, "ok", "acquire", {"until": 5.0}),
        (4, 1, "ok", "acquire", {"until": 2.0}),
    ],
    "nothing lost": [*added(1, 1, 10), *added(2, 2, 20, "unknown"), *added(3, 3, 30, "fail"),
                     *finally_read(10)],
    "in doubt, and there": [*added(1, 1, 10, "unknown"), *finally_read(10)],
    "Jepsen's words": [(1, 1, "invoke", "acquire", None), (2, 1, "info", "acquire", None),
                       (3, "nemesis", "info", "start", "partition"), *held(2, 4, 5)],
    "progress after the faults": [*held(1, 1, 2), (3, "nemesis", "info", "healed"), *held(1, 4, 5)],
}  # fmt: skip

BAD: dict[str, tuple[str, list[Line]]] = {
    "two holders": ("overlap", [*held(1, 1), *held(2, 2)]),
    "inside a lease": ("overlap", [*leased(1, 1, until=3.0), *held(2, 2.9)]),
    "inside a lease that was extended": ("overlap", [
        *leased(1, 1, until=2.0), (1.5, 1, "ok", "extend", {"until": 3.0}),
        *held(2, 2.5)]),
    "the release failed": ("overlap", [
        *held(1, 1), (2, 1, "invoke", "release"), (2.1, 1, "fail", "release"), *held(2, 3)]),
    "a lease that began and ended inside another": ("overlap", [
        *held(1, 1), (1.5, 2, "invoke", "acquire"), (4, 2, "ok", "acquire", {"until": 2.0})]),
    "inside a long hold, behind a short one": ("overlap", [
        *held(1, 1, 9), *held(2, 2, 3), *held(3, 4, 5)]),
    "after the step": ("overlap", [A_STEP, *held(1, 1), *held(2, 2.6)]),
    "twice by one process": ("overlap", [*held(1, 1), *held(1, 2)]),
    "released twice": ("release without acquire", [
        *held(1, 1, 2), (3, 1, "invoke", "release"), (3.1, 1, "ok", "release")]),
    "released by nobody": ("release without acquire", [(3, 1, "invoke", "release"), (3.1, 1, "ok", "release")]),
    "a lower fence": ("fence does not grow", [*held(1, 1, 2, fence=5), *held(2, 3, 4, fence=4)]),
    "the same fence": ("fence used twice", [*held(1, 1, 2, fence=5), *held(2, 3, 4, fence=5)]),
    "lost": ("lost update", [*added(1, 1, 10), *added(2, 2, 20), *finally_read(20)]),
    "lost, in spite of a step": ("lost update", [
        (0, "nemesis", "info", "broken", {"until": 99.0}), *added(1, 1, 10), *finally_read()]),
    "out of nothing": ("never added", [*added(1, 1, 10), *finally_read(10, 11)]),
    "refused, and there": ("added though refused", [
        *added(1, 1, 10, "fail"), *finally_read(10)]),
    "a standstill": ("no progress", [*held(1, 1, 2), (3, "nemesis", "info", "healed")]),
}  # fmt: skip


@pytest.mark.parametrize("lines", GOOD.values(), ids=GOOD)
def test_a_good_history_passes(lines: list[Line]) -> None:
    assert reasons(*lines) == []


@pytest.mark.parametrize(("reason", "lines"), BAD.values(), ids=BAD)
def test_a_bad_history_is_refused_for_the_named_reason(reason: str, lines: list[Line]) -> None:
    assert set(reasons(*lines)) == {reason}


def test_an_overlap_while_an_assumption_is_broken_is_excused_and_counted() -> None:
    verdict = judged(A_STEP, *held(1, 1, fence=1), *held(2, 2, fence=2))
    assert verdict.wrong == []
    assert verdict.count("overlap", excused=True) == 1


def test_every_hold_that_begins_inside_another_is_counted() -> None:
    assert reasons(*held(1, 1, 9), *held(2, 2, 3), *held(3, 4, 5)) == ["overlap"] * 2


def test_a_fence_is_compared_with_the_highest_of_all_before_it() -> None:
    lines = [*held(1, 1, 2, fence=9_000), *held(2, 3, 4, fence=10), *held(3, 5, 6, fence=11)]
    assert reasons(*lines) == ["fence does not grow"] * 2


def test_a_step_excuses_no_fence_that_is_used_twice() -> None:
    assert reasons(A_STEP, *held(1, 1, 1.6, fence=5), *held(2, 2, 3, fence=5)) == ["fence used twice"]


def test_names_are_judged_apart_and_one_without_a_promise_is_only_counted() -> None:
    lines = [(*line, *[None] * (5 - len(line)), name) for name in "ab" for line in [*held(1, 1, 9), *held(2, 2, 9)]]
    lines = [line if line[5] == "a" else (line[0] + 10, *line[1:]) for line in lines]
    remark = (0, "judge", "info", "no promise", None, "b")
    a, b = check(read(text(remark, *lines)))
    assert [fault.reason for fault in a.wrong] == ["overlap"]
    assert (b.wrong, b.count("overlap", excused=False)) == ([], 1)


INVOKED: Line = (1, 1, "invoke", "acquire")

GARBAGE: dict[str, tuple[int, str, list[str]]] = {
    "no JSON": (2, "no JSON", [*text(INVOKED), "{half"]),
    "a number": (1, "an object was expected, not int", ["7"]),
    "without a time": (1, "'time' is missing", ['{"type": "ok", "process": 1, "f": "acquire"}']),
    "an unknown type": (1, "type is to be one of", text((1, 1, "okay", "acquire"))),
    "a time that is none": (1, "time is to be a number", text(("soon", 1, "invoke", "acquire"))),
    "a time without end": (1, "time is to be a number", text((float("inf"), 1, "invoke", "acquire"))),
    "a process that is none": (1, "process is to be", text((1, None, "invoke", "acquire"))),
    "a name that is none": (1, "name is to be", text((1, 1, "invoke", "acquire", None, 7))),
    "completed, not invoked": (1, "has not invoked", text((1, 1, "ok", "acquire"))),
    "something else completed": (2, "but invoked acquire in line 1", text(INVOKED, (2, 1, "ok", "release"))),
    "two at a time": (2, "while its acquire of line 1 is open", text(INVOKED, (2, 1, "invoke", "release"))),
    "back in time": (2, "goes back in time", text(INVOKED, (0.5, 1, "ok", "acquire"))),
    "a fence that is none": (2, "fence is to be", text(INVOKED, (2, 1, "ok", "acquire", {"fence": "x"}))),
    "over before it began": (2, "before it was asked", text(INVOKED, (2, 1, "ok", "acquire", {"until": 0.5}))),
    "an endless extension": (1, "until when", text((1, 1, "ok", "extend"))),
    "read, and no list": (2, "a list of", text((1, 1, "invoke", "read"), (2, 1, "ok", "read", 5))),
    "an element that is none": (1, "an element is to be", text((1, 1, "invoke", "add", [1]))),
    "broken without end": (1, "until when", text((1, "nemesis", "info", "broken"))),
}


@pytest.mark.parametrize(("line", "reason", "lines"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_named_by_line_and_reason(line: int, reason: str, lines: list[str]) -> None:
    with pytest.raises(Garbage) as caught:
        read(lines)
    assert caught.value.line == line
    assert reason in caught.value.reason


def run(*files: Path) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "quorumlock.lab.history", *map(str, files)]
    return subprocess.run(call, capture_output=True, text=True, timeout=30, check=False)


def test_the_command_tells_good_from_bad_from_garbage(tmp_path: Path) -> None:
    good, bad, garbage = (tmp_path / name for name in ("good", "bad", "garbage"))
    good.write_text("\n".join(text(*held(1, 1, 2))))
    bad.write_text("\n".join(text(*held(1, 1), *held(2, 2))))
    garbage.write_text("\n".join([*text(*held(1, 1)), "", "nonsense"]))
    assert main([str(good)]) == 0
    found = run(bad)
    assert (found.returncode, found.stderr) == (1, "")
    assert "overlap: process 2 (line 4)" in found.stdout
    found = run(garbage)
    assert found.returncode == 2
    assert found.stderr.startswith(f"{garbage}: line 4: no JSON")
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"[" * 100_000, b"null"], ids=["empty", "binary", "deep", "null"]
)
def test_what_is_no_history_at_all_ends_with_exit_code_2(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    path.write_bytes(content)
    assert main([str(path), str(tmp_path / "missing")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == [str(path), str(tmp_path / "missing")]


def test_what_is_recorded_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "history"
    record = Recorder(path, 1, "a")
    record("invoke", "acquire", 1.0)
    record("ok", "acquire", 1.5, {"fence": 3, "until": 2.0})
    record.close()
    invoked, acquired = read(path.read_text().splitlines())
    assert (invoked.name, acquired.process, acquired.invoked_at, acquired.value) == (
        "a",
        1,
        1.0,
        {"fence": 3, "until": 2.0},
    )
