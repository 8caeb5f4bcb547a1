"""A link that joins its node: what waits for the marker, what is asked again, and who is killed first."""

from __future__ import annotations

import pytest

from quorumlock.core.requests import Acquire, Extend, Initialise, Join, Kept, Survey
from quorumlock.core.votes import Cause, Vote
from quorumlock.engines.redis.resp import ReplyError

from .peer import MARKER, NOSCRIPT, STRANGER, Peer, hello, silent, vote

OTHER = b"1000 60000 1 f00d 3 60000 0 1 other"


def test_a_new_link_joins_before_its_first_request_and_then_sends_it() -> None:
    peer = Peer().begin()
    tally, sent = peer.acquire("t")
    assert sent == ["join"]
    assert peer.answer(hello()) == ["acquire t"]
    peer.answer([1, 4])
    assert vote(tally).fence == 4
    assert peer.node.met
    assert peer.node.run_id == "r1"


def test_what_comes_while_a_link_joins_waits_in_order_and_the_release_behind_it() -> None:
    peer = Peer().begin()
    assert peer.acquire("a")[1] == ["join"]
    assert peer.acquire("b")[1] == []
    assert peer.release("a")[1] == []
    assert peer.ask(Survey(), peer.tally()) == []
    assert peer.answer(hello()) == ["acquire a", "acquire b", "release a", "survey"]


def test_a_release_needs_no_marker_where_nothing_waits() -> None:
    peer = Peer().begin()
    assert peer.release("t")[1] == ["release t"]
    assert peer.ask(Survey(), peer.tally()) == ["survey"]
    assert peer.ask(Initialise(True), peer.tally()) == ["force"]


def test_a_request_whose_round_was_closed_while_the_link_joined_is_not_sent() -> None:
    peer = Peer().begin()
    tally, _ = peer.acquire("t")
    tally.close()
    peer.release("t")
    assert peer.answer(hello()) == ["release t"]


def test_a_join_that_was_waited_for_is_granted_by_the_marker() -> None:
    peer = Peer().begin()
    tally = peer.tally()
    assert peer.ask(Join(), tally) == ["join"]
    assert peer.answer(hello()) == []
    assert vote(tally).vote is Vote.GRANTED


def test_a_server_without_the_join_script_gets_it_whole() -> None:
    peer = Peer().begin()
    peer.acquire("t")
    assert peer.answer(NOSCRIPT) == ["join!"]
    assert peer.answer(hello()) == ["acquire t"]


def test_a_server_that_forgets_the_join_script_at_once_has_failed() -> None:
    peer = Peer().begin()
    tally, _ = peer.acquire("t")
    peer.answer(NOSCRIPT)
    assert peer.answer(NOSCRIPT) == []
    assert vote(tally).cause is Cause.FAILED


def test_a_marker_that_has_changed_is_fetched_and_the_request_asked_again() -> None:
    peer = Peer().joined()
    tally, sent = peer.acquire("t")
    assert sent == ["acquire t"]
    assert peer.answer(STRANGER) == ["join"]
    assert silent([tally])
    assert peer.answer(hello("restarted", OTHER)) == ["acquire t"]
    peer.answer([1, 4])
    assert vote(tally).fence == 4


def test_requests_after_a_change_carry_the_new_marker() -> None:
    peer = Peer().joined()
    peer.acquire("t")
    peer.answer(STRANGER)
    data = peer.link.receive(b"")
    assert data == b""
    peer.answer(hello("restarted", OTHER))
    tail = peer.link.wire.tail
    packed = peer.link.wire.encode(Acquire("job", "u", 1, 1))
    assert peer.link.submit(Acquire("job", "u", 1, 1), packed, peer.tally(), 0.0).endswith(tail(OTHER))
    assert tail(OTHER) != tail(MARKER)


def test_a_server_that_has_become_a_replica_is_joined_again_before_the_next_request() -> None:
    peer = Peer().joined()
    tally, _ = peer.acquire("t")
    assert peer.answer(ReplyError("READONLY You can't write against a read only replica.")) == []
    assert vote(tally).cause is Cause.FAILED
    following, sent = peer.acquire("u")
    assert sent == ["join"]
    peer.answer(hello("misfit", role=b"slave"))
    assert vote(following).cause is Cause.MISFIT


def test_several_strangers_lead_to_one_join() -> None:
    peer = Peer().joined()
    tallies = [peer.acquire(token)[0] for token in "abc"]
    assert peer.answer(STRANGER, STRANGER) == ["join"]
    assert peer.answer(STRANGER) == []
    assert peer.answer(hello("restarted", OTHER)) == ["acquire a", "acquire b", "acquire c"]
    peer.answer([1, 1], [1, 2], [1, 3])
    assert [vote(tally).fence for tally in tallies] == [1, 2, 3]


def test_a_request_that_is_a_stranger_twice_is_refused_for_that() -> None:
    peer = Peer().joined()
    tally, _ = peer.acquire("t")
    peer.answer(STRANGER)
    peer.answer(hello())
    assert peer.answer(STRANGER) == []
    assert vote(tally).cause is Cause.STRANGER


def test_a_stranger_is_not_asked_again_after_its_round_was_closed() -> None:
    peer = Peer().joined()
    tally, _ = peer.acquire("t")
    tally.close()
    assert peer.release("t")[1] == ["release t"]
    assert peer.answer(STRANGER) == []
    assert vote(tally).cause is Cause.STRANGER
    assert peer.answer(-3) == []


def test_a_script_that_is_missing_while_the_link_joins_again_is_still_sent_whole() -> None:
    """FLUSHALL took the marker, and the second script was never loaded here: both answers lie in the buffer."""
    peer = Peer().joined()
    peer.acquire("a")
    extending = peer.tally()
    assert peer.ask(Extend((Kept("job", "b", 1000, 1),)), extending) == ["extend b"]
    assert peer.answer(STRANGER, NOSCRIPT) == ["join"]
    sent = peer.answer(hello("new", OTHER))
    assert sent[0] == "acquire a"
    peer.answer([1, 1])
    if sent[1] == "extend b":
        assert peer.answer(NOSCRIPT) == ["extend! b"]
    peer.answer([1, b"y"])
    assert vote(extending).vote is Vote.GRANTED


@pytest.mark.parametrize(
    ("reply", "vote_", "cause"),
    [
        (hello(role=b"slave"), Vote.REFUSED, Cause.MISFIT),
        (hello("misfit", b"1 2 1 other 3 60000 0 1 x"), Vote.REFUSED, Cause.MISFIT),
        (hello(mode=b"cluster"), Vote.REFUSED, Cause.UNSUPPORTED),
        (ReplyError("MOVED 1 10.0.0.1:1"), Vote.REFUSED, Cause.UNSUPPORTED),
        (ReplyError("CROSSSLOT Keys"), Vote.REFUSED, Cause.UNSUPPORTED),
        (ReplyError("CLUSTERDOWN"), Vote.REFUSED, Cause.UNSUPPORTED),
        (ReplyError("LOADING data"), Vote.UNKNOWN, Cause.FAILED),
        (ReplyError("NOPERM no"), Vote.UNKNOWN, Cause.FAILED),
        ([b"known"], Vote.UNKNOWN, Cause.FAILED),
        (5, Vote.UNKNOWN, Cause.FAILED),
        (hello(now_us=b"soon"), Vote.UNKNOWN, Cause.FAILED),
    ],
)
def test_a_join_that_fails_is_the_answer_of_all_who_waited_but_releases_still_leave(
    reply: object, vote_: Vote, cause: Cause
) -> None:
    peer = Peer().begin()
    tally, _ = peer.acquire("t")
    waiting = peer.tally()
    peer.ask(Join(), waiting)
    peer.release("t")
    assert peer.answer(reply) == ["release t"]
    assert (vote(tally).vote, vote(tally).cause) == (vote_, cause)
    assert vote(waiting) == vote(tally)
    peer.answer(-3)
    assert peer.acquire("u")[1] == ["join"], "the next request tries again"


def test_a_link_that_fails_while_it_joins_drops_those_who_waited() -> None:
    peer = Peer().begin()
    tallies = [peer.acquire("a")[0], peer.release("a")[0]]
    peer.link.fail(Cause.SILENT, "gone")
    assert [vote(tally).cause for tally in tallies] == [Cause.SILENT] * 2


@pytest.mark.parametrize(
    ("marker", "detail"), [(b"0 60000 1 x 3 60000 0 1 i", "ready"), (b"1502000 60000 1 x 3 1 0 1 i", "1.5 s more")]
)
def test_a_survey_tells_a_marked_node_and_its_quarantine(marker: bytes, detail: str) -> None:
    peer = Peer().begin()
    tally = peer.tally()
    peer.ask(Survey(), tally)
    peer.answer(hello("marked", marker))
    assert (vote(tally).vote, vote(tally).cause) == (Vote.REFUSED, Cause.HELD)
    assert detail in vote(tally).detail


@pytest.mark.parametrize("marker", [b"hello", b" "])
def test_a_survey_of_a_marker_that_cannot_be_read_is_an_answer_all_the_same(marker: bytes) -> None:
    """Else init_fleet(force=True), the remedy, can never write over it."""
    peer = Peer().begin()
    tally = peer.tally()
    peer.ask(Survey(), tally)
    peer.answer(hello("marked", marker))
    assert (vote(tally).vote, vote(tally).cause) == (Vote.REFUSED, Cause.HELD)


@pytest.mark.parametrize("request_", [Survey(), Initialise(False), Initialise(True)])
def test_a_survey_or_an_initialisation_without_the_script_gets_it_whole(request_: Survey | Initialise) -> None:
    peer = Peer().begin()
    tally = peer.tally()
    [sent] = peer.ask(request_, tally)
    assert peer.answer(NOSCRIPT) == [f"{sent}!"]
    peer.answer(hello("free" if isinstance(request_, Survey) else "new"))
    assert vote(tally).vote is Vote.GRANTED
