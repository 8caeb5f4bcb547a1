"""Nothing is left when everything was given back: at once, or where a node could not be told, when it is over.

In a town without faults that is at once, also on the nodes. In others a lock may be left there for its ttl, and a
ticket for as long as tickets last.
"""

from __future__ import annotations

from .base import Checker

KEPT = ("ql:fence:", "ql:node", "ql:broken:")
QUEUES = "ql:queue:"


class Leaks(Checker):
    name = "leaks"

    def left(self) -> None:
        for locker, runner in zip(self.town.lockers, self.town.runners, strict=False):
            room, board = runner.room, runner.board
            kept: dict[str, list[object]] = {
                "contenders": list(room._contenders), "lines": list(room._lines), "tickets": list(room._tickets),
                "leases": list(room.held), "waiters aside": list(room._aside),
                "rounds": [len(board.pendings)] if board.pendings else [],
                "charges": [hold.grant.name for hold in locker._keeper.charges()],
            }  # fmt: skip
            for what, found in kept.items():
                if found:
                    self.complain(f"{runner.name} still has {what}: {', '.join(map(str, found))}")
        if not self.town.faulty and not self.town.forgets:
            self._look("locks and tickets", lambda key: not key.startswith(KEPT))
        for node in self.town.nodes:
            speaking = [
                one for one in node.connections.values() if not any(pipe.silent for pipe in one.pipes.values())
            ]
            if len(speaking) > 2 * len(self.town.runners):
                self.complain(f"node-{node.index} has {len(speaking)} connections")

    def expired(self) -> None:
        self._look("locks", lambda key: not key.startswith((*KEPT, QUEUES)))

    def forgotten(self) -> None:
        self._look("tickets", lambda key: not key.startswith(KEPT))

    def _look(self, what: str, wrong: object) -> None:
        for node in self.town.nodes:
            found = [key for key in node.server.keys() if wrong(key)]  # type: ignore[operator]  # noqa: SIM118
            if found:
                self.complain(f"node-{node.index} still has {what}: {', '.join(found)}")
