"""A simulated town of processes that wait for one lock, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from quorumlock.core import fleet, redlock
from quorumlock.core.effects import Sleep, Steps
from quorumlock.core.redlock import Grant
from quorumlock.core.requests import Release
from quorumlock.core.waiting import Wish, obtain
from quorumlock.errors import NotAcquired
from quorumlock.retry import DEFAULT_RETRY, Jitter, Retry
from quorumlock.runners.virtual import Procedure, VirtualNode, VirtualRunner, World

HOUR = Jitter(3600)
QUEUE = "ql:queue:{x}"
MAX_TTL = 10.0


def give_back(client: VirtualRunner, grant: Grant, *, fair: bool = False) -> Steps[None]:
    """As a lease does it."""
    grant.over = True
    request = Release(grant.name, grant.token, True, grant.ticket, "" if fair else client.room.id)
    try:
        tally = yield from redlock.release(
            client.fleet, grant.name, grant.token, grant.ttl, grant.route, request=request
        )
    except BaseException:  # it was said all the same: who waits here is told by nobody else
        client.room.ended(grant)
        raise
    client.room.freed(grant, any(answer is not None and answer.place for answer in tally.answers))


started: list[tuple[World, Procedure[bool]]] = []


@pytest.fixture(autouse=True)
def nobody_is_left_waiting() -> Iterator[None]:
    """A procedure that was started is never closed: it cleans up after itself."""
    yield
    for world, procedure in started:
        procedure.throw(KeyboardInterrupt())
        world.run_until(lambda procedure=procedure: procedure.done)  # type: ignore[misc]
    started.clear()


@dataclass
class Town:
    """Nodes, clients, and who had the lock when."""

    world: World
    nodes: list[VirtualNode]
    clients: list[VirtualRunner]
    granted: list[tuple[float, str, float]] = field(default_factory=list)
    """When, to whom, and since when he had waited."""
    freed_at: float = 0.0
    inside: int = 0
    overlaps: int = 0

    @classmethod
    def build(cls, seed: int, nodes: int, clients: int, *, latency: tuple[float, float] = (0.0002, 0.002)) -> Town:
        world = World(seed)
        servers = [VirtualNode(world, index) for index in range(nodes)]
        runners = [
            VirtualRunner(world, servers, name=f"c{index}", max_ttl=MAX_TTL, latency=latency)
            for index in range(clients)
        ]
        runners[0].run(fleet.initialise(runners[0].fleet, False))
        for runner in runners:
            runner.run(fleet.muster(runner.fleet))
        return cls(world, servers, runners)

    def spawn(self, client: VirtualRunner, who: str, **how: Any) -> Procedure[bool]:
        """Somebody comes; see `visit`."""
        visit = client.spawn(self.visit(client, who, **how))
        started.append((self.world, visit))
        return visit

    def visit(
        self, client: VirtualRunner, who: str, *, timeout: float | None = None, retry: Retry = HOUR,
        fair: bool = False, stay: float = 0.01,
    ) -> Steps[bool]:  # fmt: skip
        """Waits for the lock, has it for a while, and gives it back; False if it was not obtained."""
        came = self.world.now
        wish = Wish("x", MAX_TTL, timeout, retry, 1000.0, fair=fair, adaptive=retry == DEFAULT_RETRY)
        try:
            grant = yield from obtain(client.fleet, client.room, wish)
        except NotAcquired:
            return False
        self.granted.append((self.world.now, who, came))
        self.inside += 1
        self.overlaps += self.inside > 1
        try:
            yield Sleep(stay)
        finally:
            self.inside -= 1
            self.freed_at = self.world.now
            yield from give_back(client, grant, fair=fair)
        return True

    def go(self, *procedures: Procedure[bool], within: float) -> list[bool]:
        """Lets the world go on until they are all done; fails if that takes too long."""
        end = self.world.now + within
        self.world.run_until(lambda: all(one.done for one in procedures) or self.world.now > end)
        late = [index for index, one in enumerate(procedures) if not one.done]
        assert not late, f"seed {self.world.seed}: {late} still wait after {within:g} s"
        return [one.result() for one in procedures]

    def tickets(self) -> list[object]:
        return [found for node in self.nodes if node.up and (found := node.server.get(QUEUE))]

    def leftovers(self) -> list[object]:
        rooms = [client.room for client in self.clients]
        kept = [(room._contenders, room._lines, room._tickets, room.held, room._aside) for room in rooms]
        return [one for one in kept if any(one)]
