"""TLC itself, on models of a few thousand states: they parse, hold, and are refuted when a rule is left out."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from scripts import spec
from scripts.spec import SHORT_RUN, Check, faults, load, run_tlc

CHECKS = {check.name: check for check in load(spec.SPECS / "checks.toml", "small")}


@pytest.fixture(autouse=True)
def java() -> None:
    """Java and TLC: missing, they are skipped by name, and never in CI."""
    try:
        spec.find_java(), spec.find_jar()
    except spec.Unable as unable:
        if os.environ.get("CI"):
            pytest.fail(f"CI must not skip: {unable}")
        pytest.skip(str(unable))


def tiny(name: str, **constants: str) -> Check:
    return replace(CHECKS[name], constants=CHECKS[name].constants | constants)


@pytest.mark.parametrize(
    "check",
    [
        tiny("fences", MaxFence="2", Attempts="{a}"),
        tiny("leases", TTL="2"),
        tiny("no quarantine", TTL="2"),
    ],
    ids=lambda check: check.name,
)
def test_a_tiny_model(check: Check) -> None:
    outcome = run_tlc(check, limit=60, options=SHORT_RUN)
    assert faults(check, outcome) == []
    assert outcome.distinct > 100


def test_a_run_that_takes_too_long_is_stopped_and_says_so() -> None:
    check = tiny("fences", MaxFence="4")
    outcome = run_tlc(check, limit=0.1)
    assert faults(check, outcome) == ["was not checked to the end: stopped after 0 s"]
