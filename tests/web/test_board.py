"""What is kept, what is told as a change, and who held a lock from when to when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

from quorumlock.web import board as module
from quorumlock.web.answers import dumped
from quorumlock.web.board import Board, Sample
from quorumlock.web.seen import Seen
from quorumlock.web.timeline import MOST, holds


def row(name: str, fence: int = 1, **other: Any) -> dict[str, Any]:
    return {
        "name": name, "state": "held", "kind": "mutex", "who": f"host:{fence}", "where": None,
        "since": float(fence), "fence": fence, "note": None, "holders": 1, "waiting": 0, **other,
    }  # fmt: skip


def rows(*all_: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in all_}


def told(board: Board, version: int) -> tuple[bool, list[str], list[str]]:
    since = board.since(version)
    return since["full"], [one["name"] for one in since["locks"]], since["gone"]


def happened(board: Board) -> list[tuple[str, str, int | None]]:
    return [(one["what"], one["name"], one["fence"]) for one in board.events]


def test_only_changes_are_told() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"), row("b"))))
    assert told(board, 0) == (True, ["a", "b"], [])
    board.take(Sample(2.0, rows(row("a"), row("c"))))
    assert told(board, 1) == (False, ["c"], ["b"])
    board.take(Sample(3.0, rows(row("a", 5), row("c"))))
    assert told(board, 2) == (False, ["a"], [])
    assert told(board, 1) == (False, ["a", "c"], ["b"]), "a slow page skips a version"
    assert told(board, 3) == (False, [], [])
    assert told(board, 99) == (True, ["a", "c"], []), "a page from before a restart"


def test_a_lock_that_came_back_is_not_gone() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"))))
    board.take(Sample(2.0, {}))
    board.take(Sample(3.0, rows(row("a", 2))))
    assert told(board, 1) == (False, ["a"], [])


def test_what_is_too_long_ago_is_told_anew(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "GONE_KEPT", 2)
    board = Board()
    for version in range(1, 6):
        board.take(Sample(float(version), rows(row(str(version)))))
    assert told(board, 4) == (False, ["5"], ["4"])
    assert told(board, 1)[0] is True


def test_a_failed_look_keeps_what_was_known() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"))))
    board.take(Sample(2.0, None, problem="no majority"))
    assert list(board.rows) == ["a"]
    assert board.since(1)["problem"] == "no majority"
    assert happened(board) == [("acquired", "a", 1)], "nobody knows whether it ended"


def test_without_a_journal_changes_are_events() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("old"))))
    assert happened(board) == [("acquired", "old", 1)], "when it was, nodes know"
    assert board.beats[0]["acquired"] == 0, "but it was not now"
    board.take(Sample(9.0, rows(row("old", 7), row("a", 8))))
    assert happened(board)[1:] == [("ended", "old", 1), ("acquired", "old", 7), ("acquired", "a", 8)]
    assert [one["at"] for one in board.events] == [1.0, 7.0, 7.0, 8.0], "before the next could have it"
    board.take(Sample(10.0, rows(row("a", 8, waiting=3))))
    assert happened(board)[4:] == [("ended", "old", 7)], "who waits changes nothing"


def test_with_a_journal_it_alone_is_believed() -> None:
    board = Board()
    board.take(Sample(1.0, {}, kept=True, entries=[Seen(0.5, "released", "x", 1)]))
    board.take(Sample(2.0, rows(row("a")), kept=True, entries=[Seen(1.5, "acquired", "a", 1)]))
    assert happened(board) == [("released", "x", 1), ("acquired", "a", 1)]
    assert [beat["acquired"] for beat in board.beats] == [0, 1]
    assert [beat["ended"] for beat in board.beats] == [0, 0], "the past is no part of the rate"


def test_a_journal_that_begins_later_is_believed_from_then_on() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"))))
    told = [Seen(0.5, "acquired", "a", 1), Seen(1.5, "acquired", "b", 2)]
    board.take(Sample(2.0, rows(row("a"), row("b", 2)), kept=True, entries=told))
    board.take(Sample(3.0, rows(row("a"), row("b", 2)), kept=None, problem="silent"))
    assert happened(board) == [("acquired", "a", 1), ("acquired", "b", 2)], "each once"
    assert board.kept
    assert board.since(1)["full"], "pages forget what they were told before"
    assert not board.since(2)["full"]
    assert [beat["acquired"] for beat in board.beats] == [0, 0, 0], "the past is no part of the rate"


def test_a_broken_lock_is_told_once_and_its_next_hold_as_any() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"))))
    with board.breaking("a", 1, "me"):
        board.take(Sample(2.0, rows(row("a"))))  # a look that had begun before
    board.take(Sample(2.5, rows(row("a"))))
    assert [one["what"] for one in board.since(2)["events"]] == ["broken"]
    assert board.beats[-1]["lost"] == 1
    board.take(Sample(3.0, rows(row("a", 2))))
    board.take(Sample(4.0, {}))
    assert happened(board)[1:] == [("broken", "a", 1), ("acquired", "a", 2), ("ended", "a", 2)]


def test_a_look_during_the_break_is_not_believed() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"))))
    with board.breaking("a", 1, "me"):
        board.take(Sample(2.0, {}))
    board.take(Sample(3.0, {}))
    assert happened(board)[1:] == [("broken", "a", 1)]


def test_a_break_that_failed_is_none() -> None:
    board = Board()
    board.take(Sample(1.0, rows(row("a"))))
    with contextlib.suppress(OSError), board.breaking("a", 1, "me"):
        raise OSError
    board.take(Sample(2.0, {}))
    assert happened(board)[1:] == [("ended", "a", 1)]


def test_rates_are_of_the_last_minute() -> None:
    board = Board()
    assert board.rates() == {"acquired": None, "ended": None, "lost": None}
    for second in range(100):
        entries = [Seen(0.0, "acquired", "a"), Seen(0.0, "expired", "b")] if second > 80 else []
        board.take(Sample(float(second), {}, kept=True, entries=entries))
    rates = board.rates()
    assert rates["acquired"] == rates["lost"] == 19 / 59
    assert rates["ended"] == 0


def test_history_is_bounded(monkeypatch: Any) -> None:
    board = Board()
    node = SimpleNamespace(
        node="n", state="ready", detail="", role=None, server=None, version=None, latency=0.1, clock_offset=None,
        quarantine=0.0,
    )  # fmt: skip
    for version in range(400):
        many = [Seen(0.0, "acquired", str(one)) for one in range(100)]
        board.take(Sample(float(version), {}, nodes=[node], kept=True, entries=many))
    assert len(board.events) == module.EVENTS_KEPT
    assert len(board.beats) == module.BEATS_KEPT
    assert len(board.nodes[0]["latencies"]) == module.LATENCIES_KEPT
    assert len(board.since(0)["events"]) == module.EVENTS_SENT
    assert board.events[-1]["id"] == 40_000


def test_what_was_written_once_is_not_written_again() -> None:
    """All pages are told the same; only what time it is differs."""
    now = 5.0
    board = Board(lambda: now)
    board.take(Sample(1.0, rows(row("a"))))
    with mock.patch("quorumlock.web.board.dumped", wraps=dumped) as written:
        first = json.loads(board.written(0))
        now = 6.0
        assert json.loads(board.written(0)) == first | {"now": 6.0} == board.since(0) | {"now": 6.0}
        assert written.call_count == 1
        board.take(Sample(2.0, rows(row("b"))))
        assert [one["name"] for one in json.loads(board.written(0))["locks"]] == ["b"]


def test_whoever_waits_for_news_is_woken() -> None:
    async def wait() -> list[bool]:
        board = Board()
        waiting = asyncio.create_task(board.newer(0, 30))
        await asyncio.sleep(0)
        board.take(Sample(1.0, {}))
        return [await waiting, await board.newer(0, 30), await board.newer(1, 0.01)]

    assert asyncio.run(wait()) == [True, True, False]


def event(what: str, fence: int | None, at: float, who: str = "h:1", detail: str = "") -> dict[str, Any]:
    return {"what": what, "fence": fence, "at": at, "who": who, "name": "a", "detail": detail}


def line(*events: dict[str, Any], now: tuple[dict[str, Any], ...] = ()) -> list[tuple[Any, ...]]:
    return [(one["fence"], one["since"], one["until"], one["end"]) for one in holds(events, now)]


def holder(fence: int, who: str = "h:1", since: float = 0.0) -> dict[str, Any]:
    return {"fence": fence, "who": who, "since": since}


def test_readers_whose_end_was_not_told_are_not_shown_for_ever() -> None:
    shared = [event("acquired", 1, 10, who, "read -") for who in ("h:1", "h:2", "h:3")]
    assert [one["end"] for one in holds(shared, ())] == ["ended"] * 3


def test_readers_that_pile_up_hold_nobody_up() -> None:
    many = [event("acquired", 1, at, f"h:{at}", "read -") for at in range(module.EVENTS_KEPT)]
    began = time.monotonic()
    assert len(holds(many, ())) == MOST
    assert time.monotonic() - began < 2, "all pairs of them take ten seconds"


def test_holds_follow_one_another() -> None:
    assert line(event("acquired", 1, 10), event("released", 1, 20), event("acquired", 2, 30), now=(holder(2),)) == [
        (1, 10, 20, "released"),
        (2, 30, None, None),
    ]


def test_a_hold_whose_end_was_not_told_ended_before_the_next() -> None:
    assert line(event("acquired", 1, 10), event("acquired", 2, 30)) == [
        (1, 10, 30, "ended"),
        (2, 30, None, "ended"),
    ]


def test_a_hold_from_before_and_one_that_was_never_told() -> None:
    assert line(event("expired", 1, 10), now=(holder(5, since=7),)) == [
        (1, None, 10, "expired"),
        (5, 7, None, None),
    ]


def test_a_break_ends_whoever_had_it() -> None:
    assert line(event("acquired", 1, 10), event("broken", None, 20, "op")) == [(1, 10, 20, "broken")]
    assert line(event("broken", 2, 20, "op")) == [], "what was broken before it was seen has no line"


def test_those_who_share_are_told_apart() -> None:
    shared = (event("acquired", 1, 10, "h:1"), event("acquired", 1, 11, "h:2"), event("released", 1, 15, "h:1"))
    assert line(*shared, now=(holder(1, "h:2"),)) == [(1, 10, 15, "released"), (1, 11, None, None)]


def test_an_attempt_that_failed_is_no_hold() -> None:
    few = (
        event("acquired", 1, 10, detail="a note, on 1 of 3 nodes"),
        event("released", 1, 11, detail="after 1 s, given up"),
    )
    assert line(*few) == []
    noted = event("acquired", 1, 10, detail="runs on 1 of 3 nodes")
    assert line(noted, now=(holder(1),)) == [(1, 10, None, None)], "a note is no verdict"


def test_only_the_last_holds_are_told() -> None:
    many = [event(what, fence, fence) for fence in range(1000) for what in ("acquired", "released")]
    assert len(line(*many)) == MOST
    assert line(*many)[-1][0] == 999
