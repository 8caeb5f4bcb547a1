"""The stories of `make soak`: what is found, what is played again, and when it is a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import quorumlock
from quorumlock import LossReason
from scripts.stories import table, verdict
from tests.live.stories import STORIES, play, running
from tests.live.stories.outcome import Outcome, Span, Void
from tests.live.stories.running import VOID_MOST, Summary, run
from tests.live.stories.stage import MAX_TTL, Held, Stage, now

GOOD = Outcome("tale", "7", [Span("A", 1, 1.0, 2.0), Span("B", 2, 2.5, 3.0)], refusals=4)
OVERLAP = replace(GOOD, spans=[Span("A", 1, 1.0, 2.0), Span("B", 2, 1.5, 3.0)])
DISORDER = replace(GOOD, spans=[Span("A", 2, 1.0, 2.0), Span("B", 2, 2.5, 3.0)])
VOID = replace(GOOD, void="too slow")


def test_what_must_not_be_is_found() -> None:
    assert not GOOD.faults
    assert (len(OVERLAP.overlaps), len(OVERLAP.disorders)) == (1, 0)
    assert (len(DISORDER.overlaps), len(DISORDER.disorders)) == (0, 1)
    (fault,) = replace(GOOD, wrong=["lost"]).faults
    assert fault == "tale (seed 7): lost"
    assert len(OVERLAP.overlaps) == 1, "judging twice changes nothing"


def played(monkeypatch: pytest.MonkeyPatch, outcome: Callable[[int], Outcome], rounds: int = 3) -> Summary:
    seeds: list[str] = []

    def fake(story: str, kind: str, seed: str, quarantine: bool) -> Outcome:
        seeds.append(seed)
        return outcome(len(seeds))

    monkeypatch.setattr(running, "play", fake)
    with ThreadPoolExecutor(1) as threads:
        summary = run("tale", rounds, threads, ["valkey"], "s", at_a_time=1)
    assert len(set(seeds)) == len(seeds), "every round has other timing"
    return summary


def test_rounds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = played(monkeypatch, lambda _: GOOD)
    assert (summary.rounds, summary.leases, summary.refusals, summary.overlaps) == (3, 6, 12, 0)
    assert verdict([summary], quarantine=True) == 0
    assert table([summary], {"tale": 1.0}).splitlines()[1].split() == ["tale", "3", "0", "6", "12", "0", "0", "1"]


def test_a_void_round_is_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = played(monkeypatch, lambda number: VOID if number % 2 else GOOD)
    assert (summary.rounds, len(summary.voids)) == (3, 3)
    assert not summary.faults


def test_too_many_void_rounds_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = played(monkeypatch, lambda _: VOID)
    assert len(summary.voids) == VOID_MOST * 3 + 1
    assert verdict([summary], quarantine=True) == 1


@pytest.mark.parametrize("bad", [OVERLAP, DISORDER, replace(GOOD, wrong=["lost"]), replace(OVERLAP, void="slow")])
def test_one_bad_round_is_a_failure(monkeypatch: pytest.MonkeyPatch, bad: Outcome) -> None:
    summary = played(monkeypatch, lambda number: bad if number == 2 else GOOD)
    assert len(summary.faults) == 1
    assert verdict([summary], quarantine=True) == 1


def test_no_round_at_all_is_a_failure() -> None:
    assert verdict([], quarantine=True) == 1


@pytest.mark.parametrize(("bad", "told"), [(OVERLAP, "in every story"), (GOOD, "no overlap in tale")])
def test_without_quarantine_a_story_that_shows_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bad: Outcome, told: str
) -> None:
    verdict([played(monkeypatch, lambda _: bad)], quarantine=False)
    assert told in capsys.readouterr().out


def test_what_a_story_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_: Stage) -> None:
        raise AssertionError("not seen")

    def slow(_: Stage) -> None:
        raise Void("too slow")

    monkeypatch.setitem(STORIES, "wrong", wrong)
    monkeypatch.setitem(STORIES, "slow", slow)
    assert play("wrong", "valkey", "0").wrong == ["not seen"]
    assert play("slow", "valkey", "0").void == "too slow"


@pytest.fixture
def lease() -> Iterator[quorumlock.Lease]:
    with (
        quorumlock.connect("memory://stories") as locks,
        locks.lock("a", ttl=5, keep=False).acquire() as lease,
    ):
        yield lease


def test_a_lease_is_valid_until_it_is_over_or_given_back(lease: quorumlock.Lease) -> None:
    held = Held("A", lease)
    (span,) = held.spans()
    assert span.until == held.valid_until > span.at + 4
    held.release()
    (span,) = held.spans()
    assert span.until <= now()


def test_a_lease_that_was_forced_open_is_not_valid_unless_it_is_extended(lease: quorumlock.Lease) -> None:
    held = Held("A", lease)
    forced_at = now()
    held.forced(forced_at)
    (span,) = held.spans()
    assert span.until == forced_at
    assert held.extend(), "here nobody has really forced it"
    before, after = held.spans()
    assert before.until == forced_at < after.at
    assert after.until == held.valid_until


def test_a_lease_lost_by_a_machine_that_stood_still_says_nothing(
    lease: quorumlock.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage("tale", "valkey", "0", quarantine=True)
    held = Held("A", lease)
    stage.expect_kept(held)
    assert not stage.outcome.wrong
    held.lost(LossReason.EXPIRED)
    stage.expect_kept(held)
    assert len(stage.outcome.wrong) == 1
    monkeypatch.setattr(Stage, "stalled", True)
    with pytest.raises(Void):
        stage.expect_kept(held)


def test_whoever_got_in_before_the_quarantine_was_over_is_found(lease: quorumlock.Lease) -> None:
    stage = Stage("tale", "valkey", "0", quarantine=True)
    held = Held("B", lease)
    stage.expect_closed(held.at - MAX_TTL, held)
    assert not stage.outcome.wrong
    stage.expect_closed(held.at - MAX_TTL + 0.1, held)
    assert stage.outcome.wrong == ["B got in 0.100 s before the quarantine was over"]
