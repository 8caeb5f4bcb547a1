"""Every story shows what it says: ours holds, and the design it warns about fails."""

from __future__ import annotations

import dataclasses

import pytest

from quorumlock.lab import story
from quorumlock.lab.naive import DESIGNS
from quorumlock.lab.page_text import WIDTH, tell
from quorumlock.lab.stage import Run, play
from quorumlock.lab.story_facts import judge, measure

from .played import NAMES, verdict

SCENARIOS = {
    "split-setnx-expire", "foreign-delete", "get-then-del", "failover", "minority-down", "holder-nodes-die",
    "majority-down", "majority-restart", "slow-round", "lost-answer", "late-set", "split-vote", "amnesia",
    "rolling-restart", "fsync-loss", "clock-jump", "client-clock-jump", "clock-drift", "pause-before-answer",
    "pause-while-holding", "delayed-write", "work-outlives-ttl", "keeper-outlives-owner", "endless-partitions",
    "mixed-fleet", "eviction", "old-disk", "read-before-write", "session-pause",
}  # fmt: skip
"""What the design names."""
OPENLY = {"clock-jump", "clock-drift-beyond"}
"""Stories in which two leases overlap, because a declared assumption is broken."""


def test_no_scenario_is_missing() -> None:
    assert set(NAMES) >= SCENARIOS


@pytest.mark.parametrize("name", NAMES)
def test_ours_holds(name: str) -> None:
    seen = verdict(name, False)
    assert seen.unmet == []
    assert set(seen.harms) == ({"overlap"} if name in OPENLY else set())


@pytest.mark.parametrize("name", NAMES)
def test_the_naive_design_fails_as_told(name: str) -> None:
    assert verdict(name, True).unmet == []


@pytest.mark.parametrize("name", NAMES)
def test_what_ours_promises_is_not_met_by_the_naive_design(name: str) -> None:
    """The test of the test: expectations that any run would meet show nothing."""
    naive = verdict(name, True).run
    as_if_ours = Run(naive.story, naive.story.ours, naive.design, naive.record, naive=False)
    assert judge(as_if_ours).unmet


@pytest.mark.parametrize("name", NAMES)
def test_what_the_story_warns_about_is_not_seen_with_ours(name: str) -> None:
    ours = verdict(name, False).run
    as_if_naive = Run(ours.story, ours.story.naive, ours.design, ours.record, naive=True)
    assert judge(as_if_naive).unmet


@pytest.mark.parametrize("naive", [False, True], ids=["ours", "naive"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_told_in_few_lines(name: str, naive: bool) -> None:
    told = tell(verdict(name, naive)).splitlines()
    assert max(map(len, told)) <= WIDTH, max(told, key=len)
    assert 8 <= len(told) <= 45
    assert not any("#" in line or "{" in line for line in told)
    times = [line.at for line in verdict(name, naive).run.record.lines]
    assert times == sorted(times)
    assert times[-1] <= story.load(name).until


def test_the_same_story_gives_the_same_run() -> None:
    again = judge(play(story.load("split-vote")))
    assert tell(again) == tell(verdict("split-vote", False))


def test_only_a_broken_assumption_excuses_an_overlap() -> None:
    told = verdict("clock-jump", False).run
    silent = dataclasses.replace(told.telling, breaks="")
    unexcused = judge(dataclasses.replace(told, telling=silent))
    assert unexcused.unmet == ["no overlap"]


def test_a_lost_update_is_never_excused() -> None:
    """The guard is what holds where assumptions are broken: without it, the story is not as told."""
    plain = story.load("clock-jump")
    without = dataclasses.replace(plain, ours=dataclasses.replace(plain.ours, design="no-guard"))
    assert "no lost updates" in judge(play(without)).unmet


def test_every_design_is_warned_about() -> None:
    used = {story.load(name).naive.design for name in NAMES} | {story.load(name).ours.design for name in NAMES}
    assert used == set(DESIGNS)


def test_every_fact_is_measured_somewhere() -> None:
    """A fact that is always 0 would meet any expectation of 0."""
    runs = [verdict(name, naive).run for name in NAMES for naive in (False, True)]
    never = {fact for fact in story.FACTS if not any(measure(run, fact) for run in runs)}
    assert never == {"disordered fences"}
