"""What is made of a server's answer, and of its silence."""

from __future__ import annotations

from quorumlock.core import health, votes
from quorumlock.core.votes import Tally
from quorumlock.engines.redis import answers, link
from quorumlock.engines.redis.entries import WhoAmI
from quorumlock.engines.redis.link import Link
from quorumlock.engines.redis.node import Node
from quorumlock.runners.aio_boards import Strand
from quorumlock.runners.board import Board
from quorumlock.runners.cable import Cable

from ..canaries import canary, rescript, rewrite


@canary(
    "test_network::test_an_answer_split_at_any_byte_is_the_same_answer",
    "test_network::test_an_answer_split_at_any_byte_is_the_same_answer_with_asyncio",
    dies_of="NoQuorum LockHeld LeaseLost",
)
def an_answer_comes_in_one_piece() -> None:
    """What has come is read as if it were all of it."""
    rewrite(Link.receive, ("reader = self._reader", "reader = self._reader = new_reader()"))


@canary(
    "test_network::test_garbage_is_one_nodes_unknown_vote[1-node]",
    "test_network::test_garbage_is_one_nodes_unknown_vote_with_asyncio[1-node]",
    "test_network::test_a_lost_answer_is_undone_and_not_believed[1-node]",
    "test_network::test_a_late_answer_is_not_a_grant",
)
def unknown_counts_as_refused() -> None:
    """Who did not answer, or not in our language, has refused: there is nothing to release there."""
    rewrite(votes.unknown, ("Answer(Vote.UNKNOWN", "Answer(Vote.REFUSED"))


@canary("test_network::test_an_answer_nobody_asked_for_ends_the_connection", dies_of="NoQuorum")
def an_answer_too_many_is_ignored() -> None:
    """An answer to nothing is dropped, and the connection used on."""
    rewrite(Link.receive, ('raise ProtocolError("an answer nobody asked for")', "return out"))


@canary(
    "test_network::test_cut_connections_are_made_anew",
    "test_network::test_a_server_that_hangs_up_on_new_connections_is_asked_again_later",
    dies_of="LeaseLost NoQuorum",
)
def a_broken_connection_stays_broken() -> None:
    """A node that was met once, and whose connection broke, is not connected to again."""
    rewrite(Cable._open, ("if thread is not None and", "if self._engine.nodes[node].met or thread is not None and"))
    rewrite(
        Board._hope,
        ("connecting = node in self._hoping", "connecting = node in self._hoping or self.engine.nodes[node].met"),
    )


@canary(
    "test_network::test_a_server_that_hangs_up_on_new_connections_is_asked_again_later[asyncio]", dies_of="NoQuorum"
)
def what_came_early_is_not_seen() -> None:
    """A connection that has ended before its bytes were ours is used on."""
    rewrite(Strand.catch_up, ("if reader._eof or", "if False and"))


@canary("test_network::test_a_half_open_connection_is_ended_by_the_server_before_its_lock_is_released")
def an_old_connection_is_not_killed() -> None:
    """A request that hangs in the network is executed after its own undoing."""
    rewrite(Link._kills, ("while self.node.orphans:", "while False:"))


@canary("test_network::test_a_connection_that_went_silent_does_not_cost_the_lease", dies_of="LeaseLost")
def a_silent_connection_is_trusted() -> None:
    """A connection stands as long as nobody says that it has ended."""
    rewrite(Link.stale, ("return self.overdue(now, STALE_AFTER * timeout)", "return False"))


@canary(
    "test_server_states::test_out_of_memory",
    "test_server_states::test_turned_into_a_replica",
    "test_server_states::test_busy_with_a_script",
    "test_server_states::test_writes_stopped_because_saving_failed",
)
def an_error_counts_as_held() -> None:
    """A server that cannot work is taken for one that says no."""
    rewrite(
        answers.decode,
        ("return unknown(Cause.FAILED, str(reply)[:160])", "return Answer(Vote.REFUSED, Cause.HELD)"),
    )


@canary("test_server_states::test_paused_by_client_pause")
def silence_counts_as_held() -> None:
    """A server that does not answer is taken for one that says no."""
    rewrite(health.give_up, ("unknown(Cause.SILENT, detail)", "votes.Answer(votes.Vote.REFUSED, Cause.HELD)"))
    health.votes = votes  # type: ignore[attr-defined]


@canary(
    "test_server_states::test_a_password_set_at_run_time",
    "test_server_states::test_loading_its_data",
    "test_server_states::test_a_user_who_may_not[set]",
    "test_server_states::test_not_a_redis_at_all",
    "test_server_states::test_too_many_clients",
)
def nobody_is_named() -> None:
    """An error tells how many nodes agreed, but neither which failed nor why."""
    rewrite(Tally.describe, ('return "; ".join([counted, *parts])', "return counted"))


@canary("test_server_states::test_a_user_who_may_not_use_client_still_locks", dies_of="NoQuorum")
def client_info_is_needed() -> None:
    """A connection whose number the server does not tell is given up."""
    rewrite(
        WhoAmI.take,
        (
            "if isinstance(reply, bytes):",
            "if not isinstance(reply, bytes):\n        raise ValueError\n    if True:",
        ),
    )


@canary(
    "test_server_states::test_a_key_of_another_type_is_not_overwritten",
    "test_server_states::test_a_key_of_another_type_on_one_node_is_outvoted",
)
def a_key_of_another_type_is_free() -> None:
    """What is no string is taken for nothing, and overwritten."""
    rescript("ACQUIRE", "'NX', 'PX', ARGV[2])", "'PX', ARGV[2])")


@canary("test_server_states::test_scripts_that_were_forgotten_are_sent_in_the_same_round", dies_of="NoQuorum")
def scripts_are_not_sent_again() -> None:
    """A server that has forgotten a script stays without it until the next connection."""
    rewrite(Link.send_source, ("if late or call.sourced:", "if True:"))


@canary("test_server_states::test_a_policy_that_may_evict_locks")
def eviction_is_not_looked_at() -> None:
    """A server that may forget locks when memory is short is as good as any."""
    rewrite(Node.judge, ("evicts = hello.maxmemory > 0 and", "evicts = False and"))


@canary("test_server_states::test_a_cluster", dies_of="NoQuorum ConfigurationError")
def a_cluster_is_a_server_like_any_other() -> None:
    """Redis Cluster is not told from a single server."""
    rewrite(Node.judge, ('if hello.mode == "cluster":', "if False:"))
    rewrite(link.parse_hello, ('if text.startswith(("MOVED", "CROSSSLOT", "CLUSTERDOWN")):', "if False:"))
