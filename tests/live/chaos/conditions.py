"""Under which conditions promises hold, and keeping to them: clocks that step, and memory that is lost.

Two of the library's promises have conditions. The nemesis asks here first, so that nothing it finds can be
explained away:

1. Exclusion relies on clocks that do not step. Each step is told as "broken" for as long as a lease may have seen
   it; overlaps in that time are counted apart.
2. Fences outlive the loss of memory if the nodes' clocks agree within max_ttl/4. So large steps and lost memory
   keep apart: no step before every node has seen a fence from after the last loss, and no loss before time has
   overtaken every fence that a clock ahead may have given. So no lost update behind a guard is ever excused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tests.live.tools import fence

from .clients import clock
from .fleet import Node
from .ours import MAX_TTL

WITHIN, SMALL = 0.001, MAX_TTL / 8
"""How far a clock may be off: within what every lease allows for; and so that any two agree within max_ttl/4."""
CLAMP = MAX_TTL / 4
"""By so much a client's wrong clock may put a fence before or behind the node's time."""
SEEN_WITHIN = 0.12
"""A server may look at its clock as rarely as every 100 ms."""


class Conditions:
    def __init__(self, nodes: Sequence[Node], names: Sequence[str], tell: Callable[[str, object], None]) -> None:
        self.broken_for = 0.0
        self._nodes, self._names, self._tell = nodes, names, tell
        self._broken_until = 0.0
        self._memory_lost_at = 0.0
        self._fences_until = 0.0

    def within(self, offset: float) -> bool:
        """Are all clocks that close to the true time?"""
        return all(abs(node.offset) <= offset for node in self._nodes)

    def set_clocks(self, offsets: Mapping[Node, float]) -> None:
        """Told as broken, if the steps are more than a lease allows for: until the last lease is over that some
        node may have granted by its old clock."""
        changed = {node: to for node, to in offsets.items() if node.clock and node.offset != to}
        broken = any(abs(to - node.offset) > 2 * WITHIN for node, to in changed.items())
        ahead = max([0.0, *(node.offset for node in changed)])
        if broken:
            self._tell_broken()
        for node, to in changed.items():
            assert node.clock is not None
            node.clock.offset = to
        if broken:
            time.sleep(SEEN_WITHIN)
            for node in changed:
                for _ in range(2):  # it looks at the clock after the one, if it was late, and before the other
                    node.command("PING")
            self._tell_broken()
        if ahead > SMALL:
            self._fences_until = max(self._fences_until, time.time() + ahead + CLAMP)

    def _tell_broken(self) -> None:
        now = clock()
        until = now + MAX_TTL
        self.broken_for += until - max(now, self._broken_until)
        self._broken_until = until
        self._tell("broken", {"until": until})

    def memory_may_go(self) -> bool:
        return self.within(SMALL) and time.time() > self._fences_until

    def memory_is_lost(self) -> None:
        self._memory_lost_at = time.time()

    def clocks_may_go_far(self) -> bool:
        """Has every node seen a fence of each name from after the last loss of memory?"""
        since = (self._memory_lost_at + CLAMP + SMALL) * 1e6  # what is above that was not given before
        try:
            return all(fence(node, name) > since for node in self._nodes for name in self._names)
        except AssertionError:
            return False  # one of them is too slow to say
