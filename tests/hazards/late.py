"""Nodes whose answers come late, through proxies, and lockers that have met them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import quorumlock
from quorumlock import AsyncLease, AsyncLocker, Jitter
from quorumlock.lab.servers import Server
from tests.live import attribution
from tests.live.attribution import every_answer_is_its_own
from tests.live.tools import lock_keys
from tests.support.proxy import Proxy
from tests.support.waiting import eventually_async

DELAY = 0.008
TTL = 20
"""No lock ends by itself while a test looks for what was left behind."""
LEFT_WITHIN = 10.0
"""Long before that, nothing may be left."""

Put = Callable[[Server], Proxy]


def nothing_is_left(nodes: Sequence[Server], locks: quorumlock.Locker | None = None) -> None:
    """No lock on any node, far sooner than its ttl could have ended it."""
    attribution.nothing_is_left(nodes, within=LEFT_WITHIN, locks=locks)


class Bench:
    """Nodes behind proxies that answer late, the last ones later; a locker that has met them."""

    def __init__(self, nodes: Sequence[Server], put_proxy: Put) -> None:
        self.nodes = nodes
        self.proxies = [put_proxy(node) for node in nodes]
        self.names = (f"name-{index}" for index in itertools.count())

    def new_locker(self, node_timeout: float = 0.25) -> AsyncLocker:
        urls = [proxy.url for proxy in self.proxies]
        return quorumlock.connect_async(
            urls, max_ttl=TTL, node_timeout=node_timeout, fleet="bench", retry=Jitter(0.01), identify=False
        )

    @asynccontextmanager
    async def locker(self, node_timeout: float = 0.25) -> AsyncIterator[AsyncLocker]:
        async with self.new_locker(node_timeout) as locks:
            yield locks

    def late(self, late: bool) -> None:
        for turn, proxy in enumerate(self.proxies):
            proxy.delay = DELAY * (1 + 0.5 * turn) if late else 0.0

    def hold(self) -> None:
        """What is asked from now on is done, and nobody hears of it."""
        for proxy in self.proxies:
            proxy.hold_answers()

    def let_go(self) -> None:
        for proxy in self.proxies:
            proxy.let_go()

    def let_go_soon(self) -> None:
        asyncio.get_running_loop().call_later(DELAY, self.let_go)

    async def reached(self, count: int = 1) -> None:
        """Comes back when so many locks are on every node."""

        async def there() -> bool:
            return all([len(await asyncio.to_thread(lock_keys, [node])) >= count for node in self.nodes])

        assert await eventually_async(there)

    def unequal_fences(self, name: str) -> None:
        """Makes the nodes grant different fences, so that a confirm round is needed."""
        self.nodes[0].command("SET", f"ql:fence:{{{name}}}", "4000000000000000", "PX", "60000")

    async def verdict(self, locks: AsyncLocker) -> None:
        self.late(False)
        await asyncio.to_thread(nothing_is_left, self.nodes)  # the loop goes on: it may owe a node a word
        await every_answer_is_its_own(locks, self.nodes)


async def acquire(locks: AsyncLocker, name: str, ttl: float = TTL) -> AsyncLease:
    return await locks.lock(name, ttl=ttl).acquire(timeout=20)


def owes(locks: AsyncLocker) -> bool:
    """Whether a node has not answered a release yet."""
    desks = locks._keeper._desks.values()
    return any(debt.nodes() for desk in desks for debt in desk.owed.all())
