"""The subject itself, through its public API; for `worker.py`."""

from __future__ import annotations

import quorumlock

from .worker import AsyncPair, Pair

NAME = "quorumlock"
PREFIX = "bench:"
# max_ttl=ttl everywhere: nothing longer is taken here, and a quarantine is as short as it can be.


def initialise(urls: list[str], ttl: float, prefix: str = PREFIX) -> None:
    """Makes new servers a fleet that grants at once."""
    with quorumlock.connect(urls, prefix=prefix, max_ttl=ttl) as locker:
        locker.init_fleet()


def pair(urls: list[str], ttl: float) -> Pair:
    lock = quorumlock.connect(urls, prefix=PREFIX, max_ttl=ttl).lock("sync", ttl=ttl)

    def run() -> None:
        lock.acquire().release()

    return run


async def async_pair(urls: list[str], ttl: float) -> AsyncPair:
    locker = quorumlock.connect_async(urls, prefix=PREFIX, max_ttl=ttl)
    lock = locker.lock("async", ttl=ttl)

    async def run() -> None:
        await (await lock.acquire()).release()

    return run


SYNC = {NAME: pair}
ASYNC = {NAME: async_pair}
