"""Majorities, and who counts."""

from __future__ import annotations

from quorumlock.core import redlock
from quorumlock.core.fleet import Fleet
from quorumlock.core.votes import Answer, Tally, Vote
from quorumlock.engines.redis import engine
from quorumlock.engines.redis.engine import RedisEngine
from quorumlock.engines.redis.node import Node

from ..canaries import canary, rewrite


@canary(
    "test_quorum::test_the_largest_minority_may_be_gone_and_no_more[5]",
    "test_quorum::test_of_two_sides_of_a_partition_at_most_one_can_lock[5]",
    "test_quorum::test_dead_nodes_count_like_hung_ones[3]",
    "test_quorum::test_dead_nodes_count_with_asyncio_too",
)
def a_majority_of_the_reachable_is_enough() -> None:
    """Nodes that do not answer are left out of the count."""
    cast = Tally.cast

    def generous(self: Tally, node: int, answer: Answer) -> None:
        if answer.vote is Vote.UNKNOWN and self.needed == len(self.nodes) // 2 + 1:
            silent = sum(one is not None and one.vote is Vote.UNKNOWN for one in self.answers) + 1
            self.needed = max(1, (len(self.nodes) - silent) // 2 + 1)
        cast(self, node, answer)

    Tally.cast = generous  # type: ignore[method-assign]
    rewrite(redlock.acquire, ("tally.at_top < fleet.majority:", "tally.at_top < tally.needed:"))


@canary("test_quorum::test_of_two_sides_of_a_partition_at_most_one_can_lock[4]")
def half_is_a_majority() -> None:
    """Of an even number of nodes, half are enough."""
    rewrite(Fleet.__post_init__, ("len(self.nodes) // 2 + 1", "(len(self.nodes) + 1) // 2"))


@canary("test_quorum::test_one_server_under_several_names_has_one_vote", dies_of="NoQuorum")
def one_server_votes_twice() -> None:
    """Addresses are counted, not servers."""
    rewrite(engine._refuse_repeated, ("if server in seen:", "if False:"))
    rewrite(Node.judge, ("for mate in self.mates:", "for mate in []:"))


@canary("test_quorum::test_an_even_number_is_warned_of")
def an_even_number_is_fine() -> None:
    """Nobody says that four nodes are no better than three."""
    rewrite(RedisEngine.__init__, ("if count % 2 == 0:", "if False:"))
