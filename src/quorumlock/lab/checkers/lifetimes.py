"""Nothing on a node outlives its ttl: every key has one but the marker, and no lock more than its lease may last.

By the node's own clock. If that was set back, what is there lives for so much longer.
"""

from __future__ import annotations

from ...runners.virtual import VirtualNode
from .base import Checker

OURS = b"ql:"
MARKER = b"ql:node"


class Lifetimes(Checker):
    name = "lifetimes"

    def executed(self, node: VirtualNode, command: list[bytes]) -> None:
        memory = node.server._data
        for key in command[3 : 3 + int(command[2])]:
            entry = memory.get(key)
            if entry is None or key == MARKER:
                continue
            end_ms = entry[1]
            if end_ms is None:
                self.complain(f"{key.decode()} on node-{node.index} has no end")
            elif not key.startswith(OURS):
                left = end_ms / 1000 - node.time()
                if left > self.town.ttl + self.town.stepped_back + 0.002:
                    self.complain(f"{key.decode()} on node-{node.index} lives for {left:.3f} s")
