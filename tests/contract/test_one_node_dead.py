"""Every kind of lock where one node of three, or of five, is dead.

The cases are those of the contract, played once more: what is promised is promised by a majority.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from quorumlock import AsyncLocker
from quorumlock.lab.servers import BINARIES, Server, Servers, kinds
from tests.support.proxy import Proxy

from . import (
    test_cell,
    test_election,
    test_fair,
    test_inspect,
    test_listing,
    test_multi,
    test_read_write,
    test_readers,
    test_reentrant,
    test_semaphore,
)
from .grounds import RedisGround
from .stage import Stage
from .turns import FRONTS, is_long

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

MODULES: list[ModuleType] = [
    test_reentrant, test_fair, test_read_write, test_readers, test_semaphore, test_multi, test_election, test_cell,
    test_inspect, test_listing,
]  # fmt: skip
LEFT_OUT = {"redis_keys", "disagreement", "takes_time"}
NOT_OF_A_MAJORITY = {
    "test_a_free_lock",  # looks at what all nodes say
    "test_a_lock_that_is_held",
    "test_prefixes_keep_cells_apart",  # a second fleet cannot be made ready where a node is dead
    "test_prefixes_keep_lists_apart",
}
WITH_TIME = {
    "test_all_are_kept",
    "test_each_reader_has_its_own_time",
    "test_readers_are_kept",
    "test_slots_are_kept",
    "test_a_leader_that_is_gone_is_replaced_within_its_ttl",
    "test_a_loop_that_lost_stands_again",
    "test_a_block_that_lost_says_so",
    "test_callbacks_are_told",
}


def played_again() -> Iterator[Any]:
    """Cases of the contract that need no more than a majority; of those that take time, one or two of each kind.

    Each is played on three nodes or on five, by one front or by the other; all of it is the long form.
    """
    sizes = itertools.cycle([(3, 5), (5, 3)])
    for module in MODULES:
        for name, test in vars(module).items():
            if not name.startswith("test_") or not hasattr(test, "__wrapped__") or name in NOT_OF_A_MAJORITY:
                continue
            marks = {mark.name for mark in getattr(test, "pytestmark", ())}
            if not marks & LEFT_OUT or name in WITH_TIME:
                fronts = ("asyncio",) if "only_asyncio" in marks else FRONTS
                both = list(zip(next(sizes), fronts, strict=False))
                for nodes, front in both if is_long() else [both[zlib.crc32(name.encode()) % len(both)]]:
                    yield pytest.param(test.__wrapped__, nodes, front, id=f"{name[5:]}-{nodes}-{front}")


class LameGround(RedisGround):
    """Real servers, of which the first dies as soon as the fleet is ready."""

    def __init__(self, servers: list[Server]) -> None:
        super().__init__(servers)
        self._proxy: Proxy | None = Proxy(servers[0])
        self.urls = [self._proxy.url, *(server.url for server in servers[1:])]

    async def prepare(self, locker: AsyncLocker) -> None:
        await super().prepare(locker)
        self.die()

    def die(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
            self._proxy, self.servers = None, self.servers[1:]


@pytest.fixture(scope="module")
def five() -> Iterator[Servers]:
    first = next(iter(BINARIES))
    if first not in kinds():
        pytest.skip(f"no {first} server here")
    with Servers(5, first) as servers:
        yield servers


@pytest.mark.parametrize(("told", "nodes", "front"), list(played_again()))
def test_a_dead_node_changes_nothing(five: Servers, nodes: int, told: Callable[[Stage], Any], front: str) -> None:
    ground = LameGround(five.servers[:nodes])
    try:
        Stage(ground, front).play(told)
    finally:
        ground.die()
