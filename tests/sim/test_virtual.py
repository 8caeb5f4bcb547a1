"""The virtual runner itself: procedures that are cancelled, what they may yield, nodes that hang.

What the core promises under simulated faults is in `tests/lab`.
"""

from __future__ import annotations

import pytest

from quorumlock.core import fleet, redlock, waiting
from quorumlock.core.effects import Effect, Steps
from quorumlock.errors import NotAcquired
from quorumlock.retry import Jitter
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

TTL = 2.0
MAX_TTL = 3.0


def test_a_cancelled_acquire_leaves_nothing_behind() -> None:
    """Thrown into at every step of its way, the acquire cleans up after itself."""
    for steps in range(1, 60):
        world = World(3)
        nodes = [VirtualNode(world, index) for index in range(3)]
        client = VirtualRunner(world, nodes, max_ttl=MAX_TTL)
        client.run(fleet.initialise(client.fleet, False))
        attempt = client.spawn(redlock.acquire(client.fleet, "x", TTL))
        for _ in range(steps):
            world.step()
        if attempt.done:
            return
        attempt.throw(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            attempt.result()
        world.advance(1.0)
        assert all("x" not in node.server.keys() for node in nodes), f"cancelled after {steps} steps"  # noqa: SIM118
    pytest.fail("the acquire never ended")


def test_an_effect_is_all_a_procedure_yields() -> None:
    kinds: set[type[Effect]] = set()
    world = World(0)
    nodes = [VirtualNode(world, 0)]
    client = VirtualRunner(world, nodes, max_ttl=MAX_TTL)

    def watched() -> Steps[None]:
        steps = waiting.acquire_within(client.fleet, "x", TTL, 1.0, Jitter(0.1), 5.0)
        while True:
            try:
                effect = next(steps)
            except StopIteration:
                return
            kinds.add(type(effect))
            yield effect

    client.run(waiting.acquire_within(client.fleet, "x", TTL, 1.0, Jitter(0.1), 5.0))
    with pytest.raises(NotAcquired):
        client.run(watched())
    assert {kind.__name__ for kind in kinds} == {"Round", "Wait"}


@pytest.mark.parametrize("joined", [True, False])
def test_a_node_that_hangs_for_long_is_not_connected_to_again_and_again(joined: bool) -> None:
    """Every release to it is owed an answer; when too many are owed, the connection is given up, and once only."""
    world = World(5)
    nodes = [VirtualNode(world, index) for index in range(3)]
    client = VirtualRunner(world, nodes, max_ttl=MAX_TTL)
    client.run(fleet.initialise(client.fleet, False))
    if joined:
        client.run(fleet.muster(client.fleet))
    nodes[0].pause()
    before, began = nodes[0].new_client_id(), world.now
    for _ in range(2000):
        grant = client.run(redlock.acquire(client.fleet, "x", TTL))
        assert isinstance(grant, redlock.Grant)
        client.run(redlock.release(client.fleet, "x", grant.token, TTL, grant.route))
    connections = nodes[0].new_client_id() - before - 1
    assert 1 <= connections <= 2 + 2 * (world.now - began), "more than one for every probe"
