"""Forty seconds of chaos, and the canaries: broken clients that its judge must catch for the right reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quorumlock.lab.history_lines import read

from .canaries import CAUGHT_AS
from .crew import ROOT
from .marks import needs_clocks, needs_network

FAULTS = {
    "client killed", "client stopped", "connections cut", "answer dropped", "node killed, back empty",
    "node killed, back with its AOF", "node killed, back with an old disk", "majority restarted empty",
    "node stopped", "connections refused", "answers delayed", "connections half open", "connections silent",
}  # fmt: skip
STEPS = {"client's clock step", "clock step within the allowance", "clock step, small", "clock step, large"}
PARTITIONS = {"partition, both ways", "partition, requests lost", "partition, answers lost"}


def chaos(*options: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it moves into a network of its own."""
    call = [sys.executable, "-m", "scripts.chaos", *map(str, options)]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What happened in forty seconds; no promise was broken."""
    path = tmp_path_factory.mktemp("chaos") / "history.jsonl"
    done = chaos("--seconds", 40, "--history", path)
    assert done.returncode == 0, done.stdout + done.stderr
    return {entry.f for entry in read(path.read_text().splitlines()) if entry.remark}


def test_forty_seconds_of_chaos_break_no_promise(faults: set[str]) -> None:
    assert faults >= FAULTS


@needs_clocks
def test_clocks_stepped(faults: set[str]) -> None:
    assert faults >= STEPS


@needs_network
def test_the_network_was_partitioned(faults: set[str]) -> None:
    assert faults >= PARTITIONS


@pytest.mark.parametrize("canary", ["two-of-five", "unguarded"])  # the others take longer: by hand
def test_a_broken_client_is_caught(canary: str) -> None:
    done = chaos("--seconds", 60, "--canary", canary)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\n{CAUGHT_AS[canary]} (" in done.stdout, done.stdout
