"""A seed is a story: the same one whenever and wherever it is told, and another one for another seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from quorumlock.lab.checkers import CHECKERS
from quorumlock.lab.faults import FAULTS, drawn, plan
from quorumlock.lab.run import Options, simulate, workload_of
from quorumlock.lab.town import Shape
from quorumlock.lab.workloads import WORKLOADS

SEEDS = range(400, 400 + len(WORKLOADS))
"""Every workload, with whatever goes wrong there."""

TELL = """
import json
from quorumlock.lab.fuzz import quiet
from quorumlock.lab.run import simulate
with quiet():
    print(json.dumps([simulate(seed).digest for seed in range({start}, {stop})]))
"""


def digests_elsewhere(hash_seed: str) -> list[str]:
    """Of another process, in which sets and dictionaries of strings have another order."""
    told = subprocess.run(
        [sys.executable, "-c", TELL.format(start=SEEDS.start, stop=SEEDS.stop)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: list[str] = json.loads(told.stdout)
    return found


def test_the_same_seed_tells_the_same_story_in_every_process() -> None:
    here = [simulate(seed).digest for seed in SEEDS]
    assert here == digests_elsewhere("1") == digests_elsewhere("20202")
    assert len(set(here)) == len(SEEDS)


def test_the_digest_is_that_of_all_that_nodes_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that differs in a byte makes another one, although everybody does as before."""
    from quorumlock.lab.client import SimLock

    before = simulate(400)
    monkeypatch.setattr(SimLock, "_running_name", staticmethod(lambda: "somebody"))
    after = simulate(400)
    assert before.lines == after.lines
    assert before.digest != after.digest


def test_every_workload_and_every_fault_is_drawn() -> None:
    assert {workload_of(seed) for seed in range(len(WORKLOADS))} == set(WORKLOADS)
    found = [drawn(seed) for seed in range(400)]
    assert {name for faults in found for name in faults} == set(FAULTS)
    assert sum(not faults for faults in found) > 10, "some seeds have no faults"
    assert all(0 < strength <= 1 for faults in found for strength in faults.values())


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_strikes_and_nothing_but_what_rests_on_it_is_broken(fault: str) -> None:
    struck = 0
    for seed in range(8):
        verdict = simulate(seed, Options(fault=fault))
        assert set(verdict.faults) == {fault}
        struck += sum(stroke.words in line for stroke in verdict.strokes for line in verdict.lines)
        assert not verdict.failed, (seed, verdict.wrong, verdict.crash)
    assert struck >= 8


def test_a_stroke_that_is_left_out_leaves_the_others_as_they_are() -> None:
    seed = next(seed for seed in range(100) if len(plan(seed, Shape.draw(seed), drawn(seed))) > 4)
    whole = simulate(seed)
    kept = tuple(stroke.number for stroke in whole.strokes[1:])
    fewer = simulate(seed, Options(keep=kept))
    assert [str(stroke) for stroke in fewer.strokes] == [str(stroke) for stroke in whole.strokes[1:]]
    assert not simulate(seed, Options(keep=())).strokes


def test_a_crash_of_the_simulated_code_is_a_failure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from quorumlock.core import renewal

    def broken(*_: object) -> object:
        raise ZeroDivisionError("in the core")

    monkeypatch.setattr(renewal, "judged", broken)
    verdicts = [simulate(seed) for seed in range(8)]
    assert any("ZeroDivisionError: in the core" in verdict.crash for verdict in verdicts)
    assert all(verdict.failed for verdict in verdicts if verdict.crash)


def test_checkers_are_named_as_they_name_themselves() -> None:
    assert all(kind.name == name for name, kind in CHECKERS.items())
