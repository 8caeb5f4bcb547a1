"""No fault is left out by bad luck, and none is preferred but for those that have not happened yet."""

from __future__ import annotations

import random

import pytest

from .deck import Deck, Fault

SEEDS = range(20)


def drawn(deck: Deck, faults: list[Fault], turns: int) -> list[str]:
    done = [deck.turn(faults) for _ in range(turns)]
    return [one[0] for one in done if one]


def always() -> bool:
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_as_many_turns_as_there_are_faults_show_all_of_them(seed: int) -> None:
    often: list[Fault] = [("often", always)]
    faults: list[Fault] = [("rare", always), *often * 9, ("also rare", always)]
    assert sorted(drawn(Deck(random.Random(seed), float), faults, 3)) == ["also rare", "often", "rare"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_could_not_be_done_comes_as_soon_as_it_can(seed: int) -> None:
    may = False
    faults: list[Fault] = [("never before", lambda: may), *[(f"other {number}", always) for number in range(5)]]
    deck = Deck(random.Random(seed), float)
    assert "never before" not in drawn(deck, faults, 12)
    may = True
    assert drawn(deck, faults, 1) == ["never before"]


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_are_kept(seed: int) -> None:
    one, four, never = ("one", always), ("four", always), ("never", lambda: False)
    deck = Deck(random.Random(seed), float)
    done = drawn(deck, [one, *[four] * 4, never], 1000)
    assert done.count("one") == pytest.approx(200, abs=5)
    assert done.count("four") == pytest.approx(800, abs=5)
    assert deck.counts.total() == 1000


def test_another_set_of_faults_takes_over_at_once() -> None:
    deck = Deck(random.Random(1), float)
    calm: list[Fault] = [(f"calm {number}", always) for number in range(9)]
    stepping: list[Fault] = [("step", always)]
    assert all(what.startswith("calm") for what in drawn(deck, calm, 3))
    assert drawn(deck, stepping, 2) == ["step", "step"]
