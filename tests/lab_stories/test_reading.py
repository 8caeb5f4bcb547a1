"""A scenario file that is malformed is refused with its line and a reason."""

from __future__ import annotations

import pytest

from quorumlock.lab import story
from quorumlock.lab.story import BadStory, Cast, UnknownStory, load
from quorumlock.lab.story_reader import CLIENT_FAULTS, NODE_FAULTS, OPERATOR, parse

from .redraw import PAGE

GOOD = """\
title = "Two come"
story = "A and B come."
until = 5
cast = { nodes = 3, clients = ["A", "B"], ttl = 2 }
steps = [
  { at = 0.5, who = "A", does = "acquires" },
  { at = 1.0, who = "node 2", does = "hang", for = 1 },
  { at = 1.5, who = "B", does = "acquires", patience = 1 },
]

[ours]
expect = ["overlap = 0", "wait of B < 3"]
conclusion = "One after the other, {wait of B}."

[naive]
design = "no-guard"
expect = ["lost updates = 1"]
conclusion = "Never."
"""


def test_a_good_one_is_read() -> None:
    read = parse(GOOD, "two")
    assert (read.title, read.cast.nodes, read.cast.clients, read.ours.design) == ("Two come", 3, ("A", "B"), "ours")
    assert [step.line for step in read.steps] == [6, 7, 8]
    assert read.steps[1].nodes == (2,)
    assert [one.met(2.9) for one in read.ours.expect] == [False, True]


@pytest.mark.parametrize(
    ("was", "becomes", "line", "why"),
    [
        ("until = 5", "until = ", 3, "Invalid value"),
        ("until = 5", "", 1, "'until' is missing"),
        ("until = 5", 'until = "soon"', 3, "a number of seconds"),
        ("until = 5", "until = true", 3, "a number of seconds"),
        ("until = 5", "until = nan", 3, "a number of seconds"),
        ("until = 5", "until = -5", 3, "above 0"),
        ("until = 5", "until = 5\ntitel = 1", 4, "did you mean 'title'?"),
        ("nodes = 3", "nodes = 0", 4, "1 to 9"),
        ('["A", "B"]', '["Alice"]', 4, "single letters"),
        ('["A", "B"]', '["A", "A"]', 4, "single letters"),
        ("ttl = 2", "ttl = 0", 4, "0.05 to 3600 s"),
        ("ttl = 2", "ttl = 2, max_ttl = 1", 4, "below the ttl"),
        ("ttl = 2", 'ttl = 2, quarantine = "no"', 4, "true or false"),
        ("ttl = 2", "ttl = 2, lists = { A = [1, 1] }", 4, "once each"),
        ('"hang", for = 1', '"step"', 7, "needs 'by'"),
        ("for = 1", "for = 0", 7, "above 0"),
        ('"hang", for = 1', '"restart", disk = "new"', 7, "'old' or 'empty'"),
        ('"hang", for = 1', '"drift", by = -1', 7, "too much"),
        ("ttl = 2", "tll = 2", 4, "did you mean 'ttl'?"),
        ('who = "A"', 'who = "Z"', 6, "nobody is called 'Z'"),
        ('"acquires" },', '"acquire" },', 6, "did you mean 'acquires'?"),
        ("at = 0.5", "at = -0.5", 6, "0 or more"),
        ("at = 0.5, ", "", 6, "'at' is missing"),
        ("at = 0.5, ", 'at = 0.5, colour = "red", ', 6, "has no 'colour'"),
        ("node 2", "node 4", 7, "from 1 to 3"),
        ("patience = 1", 'patience = "long"', 8, "a number of seconds"),
        ("patience = 1", "patient = 1", 8, "did you mean 'patience'?"),
        ("overlap = 0", "overlaps = 0", 12, "near is 'overlap'"),
        ("overlap = 0", "there is no overlap", 12, "no expectation"),
        ("wait of B < 3", "wait of D < 3", 12, "nobody is called 'D'"),
        ('["overlap = 0", "wait of B < 3"]', "[]", 12, "expects nothing"),
        ("{wait of B}", "{wait of B", 13, "expected '}'"),
        ("{wait of B}", "{weight}", 13, "no fact is called 'weight'"),
        ("no-guard", "no-gard", 16, "near is 'no-guard'"),
        ("[naive]", "[other]", 15, "has no 'other'"),
    ],
)
def test_a_bad_one_is_refused_with_its_line(was: str, becomes: str, line: int, why: str) -> None:
    assert was in GOOD
    with pytest.raises(BadStory) as refused:
        parse(GOOD.replace(was, becomes, 1), "two")
    assert str(refused.value).startswith(f"two.toml, line {line}: "), str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("amnesa", "amnesia"),
        ("pause-while-holdin", "pause-while-holding"),
        ("drift", "clock-drift"),
        ("xyz", "lab list"),
    ],
)
def test_an_unknown_name_is_told_what_is_near(asked: str, near: str) -> None:
    with pytest.raises(UnknownStory, match=near):
        load(asked)


def test_the_files_are_read_from_the_package() -> None:
    assert all(load(name).name == name for name in story.names())


def test_everything_that_can_be_written_is_in_the_docs() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    verbs = [*story.ACTS, *CLIENT_FAULTS, *NODE_FAULTS, *OPERATOR]
    assert [word for word in [*verbs, *story.FACTS, *Cast.__slots__] if f"`{word}`" not in text] == []
