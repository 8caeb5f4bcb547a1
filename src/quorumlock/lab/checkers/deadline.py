"""`check()` never says yes past the deadline: a ttl after a majority was last asked, by the client's clock.

What nodes were asked is seen at the nodes, not believed of the lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.requests import READER
from ...engines.redis import scripts
from ...runners.virtual import VirtualNode
from ..client import SimLease
from .base import Checker

if TYPE_CHECKING:
    from ..town import Town

_FIRST = {one.sha.encode() for one in (scripts.ACQUIRE, scripts.QUEUE, scripts.READ, scripts.ANY, scripts.ALL)}
_EXTEND = scripts.EXTEND.sha.encode()
_DOWNGRADE = scripts.DOWNGRADE.sha.encode()


class Deadline(Checker):
    name = "deadline"

    def __init__(self, town: Town) -> None:
        super().__init__(town)
        self._asked: dict[bytes, dict[int, float]] = {}
        """For each token, when each node was last asked to keep its lock."""

    def executed(self, node: VirtualNode, command: list[bytes]) -> None:
        argv = command[3 + int(command[2]) :]
        if command[1] in _FIRST:
            tokens = argv[:1]
        elif command[1] == _EXTEND:
            tokens = argv[1:-2:3]
        elif command[1] == _DOWNGRADE:
            tokens = [word for word in argv if word.startswith(READER.encode())]
        else:
            return
        for token in tokens:
            self._asked.setdefault(token, {})[node.index] = self.town.world.now

    def trusted(self, lease: SimLease) -> None:
        runner = lease._locker._runner
        asked = sorted(self._asked.get(lease.token.encode(), {}).values(), reverse=True)
        majority = runner.fleet.majority
        if len(asked) < majority:
            self.complain(f"{lease.held_by} trusts its lease of {lease.resource}; {len(asked)} nodes know of it")
            return
        age = (self.town.world.now - asked[majority - 1]) * runner.clock.rate
        if age > self.town.ttl:
            self.complain(
                f"{lease.held_by} trusts its lease of {lease.resource} {age:.3f} s after it was last asked for"
            )
