"""A link without a socket: whose answer the next reply is, and what is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock.core.requests import Acquire, Confirm, Extend, Join, Kept, Look
from quorumlock.core.votes import Cause, Vote, unknown
from quorumlock.engines.redis.link import OWED_MOST
from quorumlock.engines.redis.node import Client
from quorumlock.engines.redis.resp import ProtocolError, ReplyError

from .examples import examples
from .peer import NOSCRIPT, Peer, encode, silent, spoken, vote


def test_answers_go_to_requests_in_the_order_of_asking() -> None:
    peer = Peer().joined()
    tallies = [peer.acquire(f"t{i}")[0] for i in range(5)]
    peer.answer([1, 10], [1, 11], [0, 500, 3])
    assert [vote(tally).fence for tally in tallies[:3]] == [10, 11, 3]
    assert silent(tallies[3:])
    peer.answer(ReplyError("OOM"), [1, 14])
    assert vote(tallies[3]).detail == "OOM"
    assert vote(tallies[4]).fence == 14


def test_an_answer_that_is_too_late_is_entered_late_and_never_taken_for_another() -> None:
    peer = Peer().joined()
    given_up, _ = peer.acquire("old")
    given_up.cast(0, unknown(Cause.SILENT))
    given_up.close()
    fresh, _ = peer.acquire("new")
    peer.answer([1, 10])
    assert vote(given_up).fence == 10
    assert silent([fresh])
    peer.answer([1, 99])
    assert vote(fresh).fence == 99


@examples
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.data())
def test_however_the_bytes_are_cut_every_request_gets_its_own_answer(
    fences: list[int], data: st.DataObject
) -> None:
    peer = Peer().joined()
    tallies = [peer.acquire(f"t{i}")[0] for i in range(len(fences))]
    stream = b"".join(encode([1, fence]) for fence in fences)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        assert peer.link.receive(stream[:size]) == b""
        stream = stream[size:]
    assert [vote(tally).fence for tally in tallies] == fences
    assert not peer.link.owes


@pytest.mark.parametrize("reply", [[1, 1], b"hello", 5, ReplyError("ERR max clients")])
def test_an_answer_nobody_asked_for_is_a_protocol_error(reply: object) -> None:
    peer = Peer().joined()
    with pytest.raises(ProtocolError):
        peer.answer(reply)


def test_one_answer_too_many_is_a_protocol_error_after_the_others_were_taken() -> None:
    peer = Peer().joined()
    tally, _ = peer.acquire("t")
    with pytest.raises(ProtocolError):
        peer.answer([1, 1], [1, 2])
    assert vote(tally).fence == 1


def test_bytes_that_are_no_resp_are_a_protocol_error() -> None:
    peer = Peer().joined()
    peer.acquire("t")
    with pytest.raises(ProtocolError):
        peer.link.receive(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_script_the_server_does_not_know_is_sent_whole_in_the_same_round() -> None:
    peer = Peer().joined()
    tally, sent = peer.acquire("t")
    assert sent == ["acquire t"]
    assert peer.answer(NOSCRIPT) == ["acquire! t"]
    assert silent([tally])
    peer.answer([1, 5])
    assert vote(tally).fence == 5


def test_a_script_is_sent_whole_behind_what_was_sent_meanwhile() -> None:
    peer = Peer().joined()
    first, _ = peer.acquire("a")
    second, _ = peer.acquire("b")
    assert peer.answer(NOSCRIPT, [0, 9, 9]) == ["acquire! a"]
    assert vote(second).cause is Cause.HELD
    peer.answer([1, 5])
    assert vote(first).fence == 5


@pytest.mark.parametrize(
    "request_", [Acquire("job", "t", 10, 1), Confirm("job", "t", 1, 2), Extend((Kept("job", "t", 9, 1),))]
)
def test_a_request_is_not_sent_again_after_its_round_was_closed(request_: Acquire | Confirm | Extend) -> None:
    """Behind a release it would leave an orphan."""
    peer = Peer().joined()
    tally = peer.tally()
    peer.ask(request_, tally)
    tally.close()
    assert peer.release("t")[1] == ["release t"]
    script = type(request_).__name__.lower()
    assert peer.answer(NOSCRIPT) == [f"SCRIPT LOAD {script}"], "for the next time: it may always be the last"
    assert (vote(tally).vote, vote(tally).detail) == (Vote.UNKNOWN, "NOSCRIPT")


def test_a_release_is_sent_again_even_after_its_round_was_closed() -> None:
    """A release returns when a majority has answered; the others still have the lock.

    N = 3, the first release since the servers started. Nodes 0 and 1 answer NOSCRIPT, get the script, and
    answer: decided, closed. Node 2 answers NOSCRIPT a moment later: if that is the end of it, the lock stays
    there for one ttl. A release that is sent twice does no harm: its token is never used again.
    """
    peer = Peer().joined()
    tally, _ = peer.release("t")
    tally.close()
    assert peer.answer(NOSCRIPT) == ["release! t"]
    assert peer.answer(1) == []
    assert vote(tally).vote is Vote.GRANTED
    assert not peer.link.owes


def test_a_server_that_forgets_scripts_at_once_is_asked_twice_and_no_more() -> None:
    peer = Peer().joined()
    tally, _ = peer.acquire("t")
    assert peer.answer(NOSCRIPT) == ["acquire! t"]
    assert peer.answer(NOSCRIPT) == []
    assert vote(tally).cause is Cause.FAILED
    assert not peer.link.owes


def test_what_was_under_way_when_a_link_fails_is_unknown() -> None:
    peer = Peer().joined()
    tallies = [peer.acquire("a")[0], peer.release("a")[0], peer.acquire("b")[0]]
    peer.link.fail(Cause.DISCONNECTED, "reset")
    for tally in tallies:
        assert (vote(tally).vote, vote(tally).cause, vote(tally).detail) == (
            Vote.UNKNOWN,
            Cause.DISCONNECTED,
            "reset",
        )
    assert peer.link.dead
    assert not peer.link.owes


def test_a_link_fails_once() -> None:
    peer = Peer().joined()
    tally, _ = peer.acquire("a")
    peer.link.fail(Cause.DISCONNECTED, "reset")
    peer.link.fail(Cause.SILENT, "again")
    assert vote(tally).detail == "reset"
    assert list(peer.node.orphans) == [Client(7, "10.0.0.9:7")]


def test_the_clients_id_is_asked_for_first() -> None:
    peer = Peer().begin(client_id=42)
    assert peer.link.client == Client(42, "10.0.0.9:42")


def test_where_client_info_is_forbidden_the_link_works_without_it() -> None:
    peer = Peer().begin(client_id=ReplyError("NOPERM"))
    assert peer.link.client is None
    tally, _ = peer.acquire("t")
    peer.link.fail(Cause.DISCONNECTED, "reset")
    assert not peer.node.orphans
    assert vote(tally).vote is Vote.UNKNOWN


def test_a_server_that_demands_authentication_has_said_why_it_closes() -> None:
    peer = Peer().begin(client_id=ReplyError("NOAUTH Authentication required."))
    tally, _ = peer.acquire("t")
    peer.link.fail(Cause.DISCONNECTED, "closed by the server")
    assert (vote(tally).vote, vote(tally).cause) == (Vote.UNKNOWN, Cause.DENIED)
    assert "password" in vote(tally).detail


def test_a_server_that_does_not_demand_it_any_more_may_have_executed_what_was_lost() -> None:
    """The password was taken away meanwhile: from then on it looks at what it is sent."""
    peer = Peer().joined(client_id=ReplyError("NOAUTH Authentication required."))
    tally, _ = peer.acquire("t")
    peer.link.fail(Cause.DISCONNECTED, "reset")
    assert (vote(tally).vote, vote(tally).cause) == (Vote.UNKNOWN, Cause.DISCONNECTED)


def test_a_link_owes_what_was_not_answered() -> None:
    peer = Peer().joined()
    assert not peer.link.owes
    peer.ask(Look("job"), peer.tally(), now=10.0)
    peer.ask(Look("job"), peer.tally(), now=20.0)
    assert peer.link.owes
    assert not peer.link.overdue(10.04, 0.05)
    assert peer.link.overdue(10.06, 0.05)
    peer.answer([1, 1])
    assert not peer.link.overdue(20.04, 0.05)
    assert peer.link.overdue(20.06, 0.05)
    peer.answer([1, 1])
    assert not peer.link.owes
    assert not peer.link.overdue(1e9, 0.05)


def test_owed_answers_are_capped() -> None:
    peer = Peer().joined()
    for _ in range(OWED_MOST):
        peer.ask(Look("job"), peer.tally(), now=10.0)
    assert not peer.link.overfull(20.0, 0.05)
    peer.ask(Look("job"), peer.tally(), now=10.0)
    assert peer.link.overfull(10.06, 0.05)


def test_a_burst_that_is_being_answered_is_not_too_much() -> None:
    """A thousand tasks that lock at once: to drop their connection would leave their locks where they are."""
    peer = Peer().joined()
    for _ in range(3 * OWED_MOST):
        peer.ask(Look("job"), peer.tally(), now=10.0)
    assert not peer.link.overfull(10.04, 0.05)


def test_a_node_that_was_met_need_not_be_asked_to_join_again() -> None:
    peer = Peer().joined()
    tally = peer.tally()
    assert peer.ask(Join(), tally) == []
    assert vote(tally).vote is Vote.GRANTED
    assert not peer.link.owes


def test_the_bytes_of_a_request_are_its_packed_part_and_the_markers() -> None:
    one, two = Peer().joined(), Peer().joined()
    packed = one.link.wire.encode(Look("job"))
    assert one.link.submit(Look("job"), packed, one.tally(), 0.0) == two.link.submit(
        Look("job"), packed, two.tally(), 0.0
    )
    assert spoken(one.link.submit(Look("job"), packed, one.tally(), 0.0)) == ["look 0"]
