"""A link that breaks while answers are owed: the old connection is killed first, and releases are said again."""

from __future__ import annotations

from quorumlock.core.votes import Cause, Vote
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.engines.redis.node import Client
from quorumlock.engines.redis.resp import ReplyError

from .peer import LOADED, Peer, hello, new_node, spoken, vote

KILL = "CLIENT KILL ID 7 ADDR 10.0.0.9:7"


def after_a_break() -> Peer:
    """A connection of the id 7 breaks while an acquire is under way; gives a new link to the same node."""
    old = Peer().joined()
    assert old.link.client == Client(7, "10.0.0.9:7")
    old.acquire("t")
    old.link.fail(Cause.DISCONNECTED, "reset")
    return Peer(old.node)


def test_the_old_connection_is_killed_before_anything_is_released_on_the_new_one() -> None:
    peer = after_a_break().begin(client_id=8)
    sent = peer.opening + peer.release("t")[1]
    assert sent.index(KILL) < sent.index("release t")
    assert not peer.node.orphans
    assert peer.release("t")[1] == ["release t"], "once is enough"


def test_the_old_connection_is_killed_before_a_new_link_joins() -> None:
    peer = after_a_break().begin(client_id=8)
    sent = peer.opening + peer.acquire("u")[1]
    assert sent.index(KILL) < sent.index("join")


def test_the_old_connection_is_killed_on_whichever_link_is_used_next() -> None:
    node = new_node()
    other = Peer(node).joined()
    old = Peer(node).begin(client_id=5)
    old.acquire("t")
    old.link.fail(Cause.DISCONNECTED, "reset")
    assert other.acquire("u")[1] == ["CLIENT KILL ID 5 ADDR 10.0.0.9:5", "acquire u"]


def test_a_release_that_waited_for_the_marker_goes_behind_a_kill_too() -> None:
    """Rule 4. Two links to one node: while one joins, the other breaks with its acquire under way.

    The release of that acquire is given to the joining link, and waits. If it is then sent without the kill,
    the server may execute the acquire of the old connection after its own undoing.
    """
    node = new_node()
    joining = Peer(node).begin(client_id=8)
    assert joining.acquire("other")[1] == ["join"]
    old = Peer(node).begin(client_id=7)
    old.acquire("t")
    old.link.fail(Cause.DISCONNECTED, "reset")
    at_once = joining.release("t")[1]
    later = joining.answer(hello())
    everything = at_once + later
    assert "release t" in later
    assert KILL in everything
    assert everything.index(KILL) < everything.index("release t")


def test_a_kill_that_was_not_answered_is_left_to_the_next_link() -> None:
    node = new_node()
    node.orphans.append(Client(7, "10.0.0.9:7"))
    peer = Peer(node)
    assert KILL in spoken(peer.link.begin(0.0)) + peer.release("t")[1]
    peer.link.fail(Cause.DISCONNECTED, "reset")
    again = Peer(node)
    assert KILL in spoken(again.link.begin(0.0)) + again.release("t")[1]


def test_where_kill_is_forbidden_the_release_goes_out_all_the_same() -> None:
    peer = Peer().joined()
    peer.node.orphans.append(Client(5, "10.0.0.9:5"))
    tally, sent = peer.release("t")
    assert sent == ["CLIENT KILL ID 5 ADDR 10.0.0.9:5", "release t"]
    peer.answer(ReplyError("NOPERM"), 1)
    assert vote(tally).vote is Vote.GRANTED


def test_a_server_that_counts_its_clients_anew_kills_nobody_else() -> None:
    """It restarted, and the id of the orphan is somebody else's by now: the address is not."""
    killed: list[int] = []
    server = ServerDouble(lambda: 0.0, "before")
    server.on_kill = killed.append
    orphan = Client.parse(server.execute([b"CLIENT", b"INFO"], 7))
    assert orphan is not None
    kill = [b"CLIENT", b"KILL", b"ID", b"7", b"ADDR", orphan.address.encode()]
    assert server.execute(kill) == 1
    server.restart("after")
    assert server.execute(kill) == 0
    assert killed == [7]


def test_a_link_that_owes_nothing_leaves_nobody_to_kill() -> None:
    peer = Peer().joined()
    peer.link.fail(Cause.DISCONNECTED, "closed by this client")
    assert not peer.node.orphans
    assert not peer.node.farewells


def test_a_release_that_was_lost_with_its_connection_is_said_again_behind_the_kill() -> None:
    old = Peer().joined()
    old.acquire("t")
    old.release("t")
    old.link.fail(Cause.DISCONNECTED, "reset")
    new = Peer(old.node).begin(client_id=8)
    assert new.opening.index(KILL) < new.opening.index("release t")
    assert Peer(old.node).begin(client_id=9).opening == ["CLIENT INFO", *LOADED], "and then no more"


def test_a_release_that_waited_for_the_marker_is_said_again_too() -> None:
    old = Peer().begin()
    old.acquire("t")
    assert old.release("t")[1] == []
    old.link.fail(Cause.DISCONNECTED, "reset")
    assert "release t" in Peer(old.node).begin(client_id=8).opening


def test_a_release_that_is_lost_a_second_time_is_said_a_third_time() -> None:
    old = Peer().joined()
    old.release("t")
    old.link.fail(Cause.DISCONNECTED, "reset")
    second = Peer(old.node)
    assert "release t" in spoken(second.link.begin(0.0))
    second.link.fail(Cause.DISCONNECTED, "reset again")
    assert "release t" in spoken(Peer(old.node).link.begin(0.0))


def test_only_releases_are_said_again() -> None:
    old = Peer().joined()
    old.acquire("t")
    old.link.fail(Cause.DISCONNECTED, "reset")
    assert not [one for one in Peer(old.node).begin(client_id=8).opening if one.startswith("acquire")]


def test_releases_to_be_said_again_are_capped() -> None:
    node = new_node()
    for _ in range(20):
        peer = Peer(node)
        for token in range(200):
            peer.release(str(token))
        peer.link.fail(Cause.DISCONNECTED, "reset")
    assert 10 <= len(node.farewells) <= 200


def test_a_connection_that_was_answered_on_is_stale_soon() -> None:
    peer = Peer().joined()
    peer.acquire("t")
    assert not peer.link.stale(0.14, 0.05)
    assert peer.link.stale(0.16, 0.05)


def test_one_that_never_was_answered_is_stale_later_and_each_time_twice_as_late() -> None:
    """A server that hangs is not connected to again and again."""
    node = new_node()
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        peer = Peer(node)
        peer.link.begin(0.0)
        assert not peer.link.stale(seconds - 0.1, 0.05)
        assert peer.link.stale(seconds + 0.1, 0.05)
        peer.link.fail(Cause.SILENT, "silent for too long")
    Peer(node).joined()
    again = Peer(node)
    again.link.begin(0.0)
    assert again.link.stale(1.1, 0.05), "it has answered meanwhile"
