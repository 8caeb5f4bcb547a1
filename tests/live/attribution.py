"""Shows that a locker's connections answer with their own replies, and that nothing was left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import redis

import quorumlock
from quorumlock.lab.servers import Server

from .tools import eventually, lock_keys

COUNT = 100
_round = itertools.count()


class Probe:
    """100 names, every third one held by a stranger: an answer taken for another cannot go unnoticed.

    A lease must be had exactly for the free names, must be the token that the nodes name, and its fence the one
    that they store.
    """

    def __init__(self, nodes: Sequence[Server]) -> None:
        self.nodes = nodes
        turn = next(_round)
        self.names = [f"probe-{turn}-{index}" for index in range(COUNT)]
        self.taken = set(self.names[::3])
        self.leases: dict[str, tuple[str, int]] = {}
        for node in nodes:
            with redis.Redis(port=node.port) as client, client.pipeline(transaction=False) as pipe:
                for name in self.taken:
                    pipe.set(name, "a stranger", px=5000)
                pipe.execute()

    def judge(self) -> None:
        assert set(self.leases) == set(self.names) - self.taken
        for name, (token, fence) in self.leases.items():
            agreeing = [values for values in self._stored() if values[name] == (token, str(fence))]
            assert len(agreeing) > len(self.nodes) // 2, f"{name}: {token[:8]}… {fence} is not what the nodes say"

    def clear(self, locks: quorumlock.Locker | None = None) -> None:
        for node in self.nodes:
            with redis.Redis(port=node.port) as client:
                client.delete(*self.taken)
        nothing_is_left(self.nodes, locks=locks)

    def _stored(self) -> list[dict[str, tuple[str, str]]]:
        if not hasattr(self, "_read"):
            self._read = [self._of(node) for node in self.nodes]
        return self._read

    def _of(self, node: Server) -> dict[str, tuple[str, str]]:
        with redis.Redis(port=node.port, decode_responses=True) as client:
            tokens = client.mget(self.names)
            fences = client.mget([f"ql:fence:{{{name}}}" for name in self.names])
        return {
            name: (token or "", fence or "") for name, token, fence in zip(self.names, tokens, fences, strict=True)
        }


async def every_answer_is_its_own(locks: quorumlock.AsyncLocker, nodes: Sequence[Server]) -> None:
    """All 100 at once, pipelined on one connection per node."""
    probe = Probe(nodes)
    found = await asyncio.gather(*(locks.lock(name, ttl=1).try_acquire() for name in probe.names))
    leases = [lease for lease in found if lease is not None]
    probe.leases = {lease.name: (lease.token, lease.fence) for lease in leases}
    probe.judge()
    await asyncio.gather(*(lease.release() for lease in leases))
    await asyncio.to_thread(probe.clear)


def every_answer_is_its_own_with_threads(locks: quorumlock.Locker, nodes: Sequence[Server]) -> None:
    """The same, one after the other."""
    probe = Probe(nodes)
    leases = [lease for name in probe.names if (lease := locks.lock(name, ttl=1).try_acquire()) is not None]
    probe.leases = {lease.name: (lease.token, lease.fence) for lease in leases}
    probe.judge()
    for lease in leases:
        lease.release()
    probe.clear(locks)


def nothing_is_left(nodes: Sequence[Server], within: float = 0.4, locks: quorumlock.Locker | None = None) -> None:
    """No lock on any node; far sooner than a ttl could have ended it.

    `locks` is used meanwhile: without a thread of its own, a locker says what it owes to a slow or reconnected
    minority when it speaks the next time.
    """

    def nothing() -> bool:
        if locks is not None:
            locks.lock("something else", ttl=1).locked()
        return not lock_keys(nodes)

    assert eventually(nothing, within), f"left behind: {lock_keys(nodes)}"
