"""The pictures: readable, the same every time, and those in the docs are what the runs draw."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from quorumlock.lab.drawing import WIDTH, Drawing
from quorumlock.lab.drawing_paper import Paper

from .played import NAMES, verdict
from .redraw import DOCS, PAGE, embedded, picture, table

REDRAW = "draw it again: python -m tests.lab_stories.redraw"
BOTH = pytest.mark.parametrize("naive", [False, True], ids=["ours", "naive"])
ALL = pytest.mark.parametrize("name", NAMES)


@ALL
@BOTH
def test_no_text_stands_on_another_or_leaves_the_paper(name: str, naive: bool) -> None:
    drawing = Drawing(verdict(name, naive))
    drawing.svg()
    clashes = [(a.text, b.text) for a, b in itertools.combinations(drawing.paper.texts, 2) if a.meets(b)]
    assert clashes == []
    assert [box.text for box in drawing.paper.texts if box.left < 0 or box.right > WIDTH] == []


@ALL
@BOTH
def test_title_lanes_and_conclusion_are_in_it(name: str, naive: bool) -> None:
    told = verdict(name, naive)
    root = ElementTree.fromstring(Drawing(told).svg())
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    words = " ".join(texts)
    assert told.run.story.title in words
    assert told.conclusion in words
    assert {f"client {one}" for one in told.run.story.cast.clients} <= set(texts)
    assert {f"node {number + 1}" for number in range(told.run.nodes)} <= set(texts)
    if "overlap" in told.harms:
        assert texts.count("two holders") == 2, "in the picture, and in its legend"
    if "lost updates" in told.harms:
        assert "an update is lost" in words


@BOTH
def test_the_refusal_is_marked(naive: bool) -> None:
    svg = Drawing(verdict("pause-while-holding", naive)).svg()
    assert ("A refused: fence 33 after 34" in svg) is not naive
    assert ("A writes 1 over 1: an update is lost" in svg) is naive


def test_texts_find_room_elsewhere() -> None:
    paper = Paper(200)
    assert paper.near("one", 10, [20, 40], 12, "ink", "start")
    assert paper.near("two", 12, [20, 40], 12, "ink", "start")
    assert not paper.near("three", 14, [20, 40], 12, "ink", "start")
    assert [box.text for box in paper.texts] == ["one", "two"]
    assert paper.texts[0].bottom < paper.texts[1].top


def test_the_docs_show_ours_beside_naive() -> None:
    shown = embedded()
    assert len(shown) >= 12
    assert {name for name, kind in shown if kind == "ours"} == {name for name, kind in shown if kind == "naive"}
    assert {picture(*one) for one in shown} == set(DOCS.glob("pictures/story-*.svg"))


@pytest.mark.parametrize(("name", "kind"), embedded())
def test_pictures_in_the_docs_are_what_the_run_draws(name: str, kind: str) -> None:
    drawn = Drawing(verdict(name, kind == "naive")).svg()
    assert picture(name, kind).read_text(encoding="utf-8") == drawn, REDRAW


def test_the_table_in_the_docs_is_what_was_seen() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), REDRAW


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    subprocess.run(
        [sys.executable, "-m", "quorumlock", "lab", "run", "split-vote", "--svg", str(file)],
        env=os.environ | {"PYTHONHASHSEED": "7"}, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert file.read_text(encoding="utf-8") == Drawing(verdict("split-vote", False)).svg()
