"""Chaos in which each kind of fault happens, and the canaries: broken clients that its judge must catch for the
right reason. `make chaos`, and QUORUMLOCK_LONG=1 here, go on for longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorumlock.lab.history_lines import Entry, read

from .canaries import CAUGHT_AS
from .crew import OURS, ROOT
from .marks import needs_clocks, needs_network
from .run import lacking

pytestmark = pytest.mark.real_time(0.5)

LONG = bool(os.environ.get("QUORUMLOCK_LONG"))
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
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """Of a run that ends when each kind of fault has happened; no promise was broken."""
    path: Path = tmp_path_factory.mktemp("chaos") / "history.jsonl"
    done = chaos("--history", path, *(("--seconds", 40) if LONG else ("--seconds", 120, "--briefly")))
    assert done.returncode == 0, done.stdout + done.stderr
    return list(read(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def faults(history: list[Entry]) -> set[str]:
    return {entry.f for entry in history if entry.remark}


def test_chaos_breaks_no_promise(faults: set[str]) -> None:
    assert faults >= FAULTS


def test_every_promise_was_put_to_the_test(history: list[Entry]) -> None:
    assert not lacking(history, OURS)


def test_what_a_run_lacks_is_seen(history: list[Entry]) -> None:
    one = next(entry.process for entry in history if entry.f == "acquire" and entry.name == "mutex")
    assert lacking([entry for entry in history if entry.f != "lost"], OURS) == ["no lost"]
    alone = [entry for entry in history if entry.name != "mutex" or entry.process == one]
    assert "mutex: hand-overs" in lacking(alone, OURS)
    assert "guarded set: elements" in lacking([entry for entry in history if entry.f != "add"], OURS)


@needs_clocks
def test_clocks_stepped(faults: set[str]) -> None:
    assert faults >= STEPS


@needs_network
def test_the_network_was_partitioned(faults: set[str]) -> None:
    assert faults >= PARTITIONS


@pytest.mark.parametrize(("canary", "lane"), [("two-of-five", "mutex"), ("unguarded", "guarded set")])
def test_a_broken_client_is_caught(canary: str, lane: str) -> None:
    """The other canaries take longer: by hand."""
    done = chaos("--seconds", 120, "--canary", canary, "--lane", lane)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\n{CAUGHT_AS[canary]} ({lane}):" in done.stdout, done.stdout
