"""Shows that a locker's connections answer with their own replies, and that nothing was left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import redis

import quorumlock
from quorumlock import AsyncLease, Lease, LockHeld, NoQuorum, Tally, Vote
from quorumlock.core.votes import Cause
from quorumlock.lab.servers import Server
from tests.support.waiting import eventually

from .tools import lock_keys

COUNT = 100
_round = itertools.count()


class Probe:
    """100 names, every third one held by a stranger: an answer taken for another cannot go unnoticed.

    The vote that every single node is said to have cast is compared with what that node stores.
    """

    def __init__(self, nodes: Sequence[Server]) -> None:
        self.nodes = nodes
        turn = next(_round)
        self.names = [f"probe-{turn}-{index}" for index in range(COUNT)]
        self.taken = set(self.names[::3])
        for node in nodes:
            with redis.Redis(port=node.port) as client, client.pipeline(transaction=False) as pipe:
                for name in self.taken:
                    pipe.set(name, "a stranger", px=5000)
                pipe.execute()

    def judge(self, leases: Sequence[Lease | AsyncLease], refusals: dict[str, Tally | None]) -> None:
        assert {lease.name for lease in leases} == set(self.names) - self.taken
        assert set(refusals) == self.taken
        stored = [self._stored(node) for node in self.nodes]
        for lease in leases:
            granted = list(lease.tally.granted())
            assert len(granted) > len(self.nodes) // 2
            for index, _ in granted:
                assert stored[index][lease.name] == lease.token, f"{lease.name}: not so on node {index}"
            # A minority may come with a higher one while this one is being confirmed.
            assert sum(fence <= lease.fence for _, fence in granted) > len(self.nodes) // 2
        for name, tally in refusals.items():
            assert tally is not None
            votes = {answer.vote for answer in tally.answers if answer is not None}
            assert votes <= {Vote.REFUSED, Vote.UNKNOWN}, f"{name}: a stranger holds it, and {tally!r}"

    def clear(self, locks: quorumlock.Locker | None = None) -> None:
        for node in self.nodes:
            with redis.Redis(port=node.port) as client:
                client.delete(*self.taken)
        nothing_is_left(self.nodes, locks=locks)

    def _stored(self, node: Server) -> dict[str, str | None]:
        with redis.Redis(port=node.port, decode_responses=True) as client:
            return dict(zip(self.names, client.mget(self.names), strict=True))


async def every_answer_is_its_own(locks: quorumlock.AsyncLocker, nodes: Sequence[Server]) -> None:
    """All 100 at once, pipelined on one connection per node."""
    probe = Probe(nodes)
    leases: list[AsyncLease] = []
    refusals: dict[str, Tally | None] = {}

    async def ask(name: str, tries: int = 3) -> None:
        try:
            leases.append(await locks.lock(name, ttl=1).acquire(timeout=0))
        except LockHeld as held:
            refusals[name] = held.tally
        except NoQuorum as broken:
            if tries == 0 or not only_slow(broken):
                raise
            await ask(name, tries - 1)

    await asyncio.gather(*(ask(name) for name in probe.names))
    probe.judge(leases, refusals)
    await asyncio.gather(*(lease.release() for lease in leases))
    await asyncio.to_thread(probe.clear)


def every_answer_is_its_own_with_threads(locks: quorumlock.Locker, nodes: Sequence[Server]) -> None:
    """The same, one after the other."""
    probe = Probe(nodes)
    leases: list[Lease] = []
    refusals: dict[str, Tally | None] = {}

    def ask(name: str, tries: int = 3) -> None:
        try:
            leases.append(locks.lock(name, ttl=1).acquire(timeout=0))
        except LockHeld as held:
            refusals[name] = held.tally
        except NoQuorum as broken:
            if tries == 0 or not only_slow(broken):
                raise
            ask(name, tries - 1)

    for name in probe.names:
        ask(name)
    probe.judge(leases, refusals)
    for lease in leases:
        lease.release()
    probe.clear(locks)


def only_slow(broken: NoQuorum) -> bool:
    """Was the machine too busy to answer in time? Then nothing is said about whose answers came."""
    if "took longer than the ttl" in str(broken):  # in time for the nodes' timeout, but not for a short ttl
        return True
    causes = {answer.cause for answer in broken.tally.answers if answer is not None} if broken.tally else set()
    return Cause.SILENT in causes and Cause.FAILED not in causes


def nothing_is_left(nodes: Sequence[Server], within: float = 0.6, locks: quorumlock.Locker | None = None) -> None:
    """No lock on any node; far sooner than a ttl could have ended it.

    `locks` is used meanwhile: without a thread of its own, a locker says what it owes to a slow or reconnected
    minority when it speaks the next time.
    """

    def nothing() -> bool:
        if locks is not None:
            try:
                locks.lock("something else", ttl=1).locked()
            except NoQuorum as broken:
                if not only_slow(broken):
                    raise
        return not lock_keys(nodes)

    assert eventually(nothing, within), f"left behind: {lock_keys(nodes)}"
