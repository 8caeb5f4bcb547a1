"""Acquire, driven by hand through every combination of answers, against a model of its rules."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

import pytest

from quorumlock.core import redlock
from quorumlock.core.effects import Round
from quorumlock.core.redlock import Grant, Refusal
from quorumlock.core.requests import Acquire, Confirm, Release
from quorumlock.core.votes import UNABLE, Answer, Cause, Tally, Vote

from .driver import (
    CHANGED,
    DONE,
    HELD,
    LEFT_OUT,
    LOST_LINE,
    QUARANTINE,
    SILENT,
    UNREACHABLE,
    WALL,
    Performer,
    World,
    asked,
    everyone,
    granted,
    only,
    votes,
)

TTL = 10.0
SAID: tuple[Answer | None, ...] = (
    granted(1),
    granted(2),
    granted(3),
    HELD,
    QUARANTINE,
    LOST_LINE,
    SILENT,
    LEFT_OUT,
    UNREACHABLE,
)
CONFIRMS: tuple[Answer | None, ...] = (DONE, CHANGED, SILENT)


@dataclass
class Story:
    """What every node says, in which order, and whether answers that nobody waited for come late."""

    said: Sequence[Answer | None]
    order: Sequence[int]
    confirms: Sequence[Answer | None]
    late: bool


@dataclass
class Expected:
    """What the rules of DESIGN.md section 5 make of a story, written down without the code's help."""

    fence: int = 0
    raised: int = 0
    entered: dict[int, Answer] = field(default_factory=dict)
    confirm_rounds: list[dict[int, int]] = field(default_factory=list)


def expect(story: Story) -> Expected:
    count = len(story.said)
    majority = count // 2 + 1
    result = Expected()
    entered, missing = result.entered, count - sum(one is LEFT_OUT for one in story.said)
    grants: dict[int, int] = {}
    for node in story.order:
        answer = story.said[node]
        able = sum(one.cause not in UNABLE for one in entered.values())
        if len(grants) >= majority or (len(grants) + missing < majority <= able):
            break  # won; or lost, and a majority was able to say so
        if answer is None or answer is LEFT_OUT:
            continue
        entered[node] = answer
        missing -= 1
        if answer.vote is Vote.GRANTED:
            grants[node] = answer.fence
    if len(grants) < majority:
        return result
    fence = max(grants.values())
    sure = {node for node, one in grants.items() if one == fence}
    raised: set[int] = set()
    settled: set[int] = set()
    while len(sure | raised) < majority:
        todo = {n: one for n, one in grants.items() if one < fence and n not in settled}
        if not todo:
            return result
        result.confirm_rounds.append(todo)
        settled |= todo.keys()
        wanted, left = min(majority - len(sure | raised), len(todo)), len(todo)
        agreed: set[int] = set()
        for node in sorted(todo):
            if story.confirms[node] is not SILENT and len(agreed) < wanted <= len(agreed) + left:
                left -= 1
                agreed |= {node} if story.confirms[node] is DONE else set()
        raised |= agreed
        for node, answer in late_answers(story, entered):
            grants[node] = answer.fence
            sure |= {node} if answer.fence == fence else set()
    result.fence, result.raised = fence, len(raised)
    return result


def late_answers(story: Story, entered: dict[int, Answer]) -> Iterator[tuple[int, Answer]]:
    """Grants that come while the fence is being confirmed."""
    for node, answer in enumerate(story.said):
        if story.late and node not in entered and answer is not None and answer.vote is Vote.GRANTED:
            yield node, answer


def check(story: Story) -> Expected:
    """Runs the story, and compares all that was sent and what came of it."""
    world = World(len(story.said))
    expected = expect(story)
    tally: Tally

    def first(round_: Round) -> None:
        nonlocal tally
        tally = round_.tally
        votes(*story.said, order=story.order)(round_)

    def confirming(round_: Round) -> None:
        votes(*story.confirms)(round_)
        for node, answer in late_answers(story, expected.entered):
            tally.cast(node, answer)

    everybody = len(story.said)
    clean = sum(one.vote is Vote.REFUSED for one in expected.entered.values()) == everybody
    unsent = {n for n, one in enumerate(story.said) if one is LEFT_OUT or expected.entered.get(n) is UNREACHABLE}
    performers: list[Performer] = [first, *[confirming] * len(expected.confirm_rounds)]
    if not expected.fence and not clean and len(unsent) < everybody:
        performers.append(everyone(DONE))
    outcome = world.run(redlock.acquire(world.fleet, "job", TTL), performers)

    [token] = world.tokens
    request = Acquire("job", token, 10_000, int(WALL * 1_000_000))
    assert asked(world.effects[0]) == dict.fromkeys(range(everybody), request)
    for sent, behind in zip(world.rounds[1:], expected.confirm_rounds, strict=False):
        fence = max(one.fence for one in expected.entered.values() if one.vote is Vote.GRANTED)
        assert asked(sent) == {node: Confirm("job", token, one, fence) for node, one in behind.items()}
        assert sent.everyone
    assert len({id(sent.route) for sent in world.rounds}) == 1, "one route for all rounds of an attempt"

    if expected.fence:
        assert isinstance(outcome, Grant), f"{story}"
        assert (outcome.fence, outcome.confirmed) == (expected.fence, expected.raised)
        assert (outcome.name, outcome.token, outcome.ttl) == ("job", token, TTL)
        assert outcome.tally is tally
        assert outcome.valid_until == pytest.approx(world.now + TTL - 0.102)
        assert len(world.rounds) == 1 + len(expected.confirm_rounds)
    else:
        assert isinstance(outcome, Refusal), f"{story}"
        check_refusal(story, expected, outcome, world, set() if clean else set(range(everybody)) - unsent)
    return expected


def check_refusal(story: Story, expected: Expected, outcome: Refusal, world: World, informed: set[int]) -> None:
    """Nothing is left behind on nodes that may know the token, and busy is told from broken."""
    count = len(story.said)
    if informed:
        assert only(world.rounds[-1], Release) == dict.fromkeys(informed, Release("job", world.tokens[0]))
        assert world.rounds[-1].everyone
    wins = sum(one.vote is Vote.GRANTED for one in expected.entered.values()) >= count // 2 + 1
    unable = [a for a in outcome.tally.answers if a is not None and a.cause not in (Cause.AGREED, Cause.HELD)]
    assert outcome.busy is (not wins and count - len(unable) > count // 2)
    assert bool(outcome.why) is wins
    if outcome.busy:
        assert outcome.tally.caused(Cause.HELD), "held is what some node said, not a guess"


def stories(count: int) -> Iterator[Story]:
    """All of them; at most as many nodes are left out as a majority can spare."""
    spare = count - (count // 2 + 1)
    for said in product(SAID, repeat=count):
        if said.count(LEFT_OUT) > spare:
            continue
        for order in permutations(range(count)):
            story = Story(said, order, (DONE,) * count, False)
            yield story
            if expect(story).confirm_rounds:
                for answer, late in product(CONFIRMS, (False, True)):
                    yield Story(said, order, (answer,) * count, late)


@pytest.mark.parametrize("count", [1, 3])
def test_every_combination_of_answers_ends_as_the_rules_say(count: int) -> None:
    granted_some = refused_some = 0
    for story in stories(count):
        expected = check(story)
        granted_some += expected.fence > 0
        refused_some += expected.fence == 0
    assert granted_some
    assert refused_some


@pytest.mark.parametrize("count", [2, 4, 5, 7, 9])
def test_samples_of_larger_and_even_fleets_end_as_the_rules_say(count: int) -> None:
    dice = random.Random(count)
    mostly_granted = (*SAID, *SAID[:3] * 4)
    confirmed = 0
    for _ in range(1500):
        said = [dice.choice(mostly_granted) for _ in range(count)]
        while said.count(LEFT_OUT) > count - (count // 2 + 1):
            said[said.index(LEFT_OUT)] = SILENT
        order = dice.sample(range(count), count)
        confirms = [dice.choice((DONE, DONE, CHANGED, SILENT)) for _ in range(count)]
        confirmed += len(check(Story(said, order, confirms, dice.random() < 0.5)).confirm_rounds) > 0
    assert confirmed > 100


def test_a_late_grant_below_the_fence_is_asked_to_confirm_in_a_round_of_its_own() -> None:
    said = (granted(3), granted(1), granted(2))
    expected = check(Story(said, (0, 1, 2), (DONE, CHANGED, DONE), late=True))
    assert expected.confirm_rounds == [{1: 1}, {2: 2}]
    assert expected.fence == 3


def test_a_late_grant_of_the_very_fence_counts_as_confirmed() -> None:
    expected = check(Story((granted(3), granted(1), granted(3)), (0, 1, 2), (SILENT,) * 3, late=True))
    assert expected.confirm_rounds == [{1: 1}]
    assert (expected.fence, expected.raised) == (3, 0)


def test_a_late_grant_above_the_fence_does_not_change_it() -> None:
    expected = check(Story((granted(2), granted(1), granted(3)), (0, 1, 2), (DONE,) * 3, late=True))
    assert expected.fence == 2


class Credulous(Tally):
    """Takes every grant for one of the highest fence."""

    @property
    def at_top(self) -> int:
        return self.heard

    @at_top.setter
    def at_top(self, count: int) -> None: ...


class Modest(Tally):
    """Takes the lowest fence for the highest."""

    @property
    def top(self) -> int:
        return min((fence for _, fence in self.granted()), default=0)

    @top.setter
    def top(self, fence: int) -> None: ...


BREAKAGES: dict[str, tuple[str, object]] = {
    "a majority of grants is agreement": ("Tally", Credulous),
    "grants of any fence count as confirmed": ("confirmed", lambda tally, _: {node for node, _ in tally.granted()}),
    "nobody is asked to confirm": ("behind", lambda tally, fence: {}),
    "the lowest fence is taken": ("Tally", Modest),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_the_check_catches_a_broken_confirmation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock, *BREAKAGES[name])
    with pytest.raises(AssertionError):
        check(Story((granted(1), granted(2), SILENT), (0, 1, 2), (DONE,) * 3, False))


def test_the_check_catches_a_release_that_spares_nodes_that_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock, "UNSENT", {Cause.LEFT_OUT, Cause.UNREACHABLE, Cause.SILENT})
    with pytest.raises(AssertionError):
        check(Story((granted(1), SILENT, SILENT), (0, 1, 2), (DONE,) * 3, False))
