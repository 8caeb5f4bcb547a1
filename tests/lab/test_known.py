"""Bugs that the simulator has found and that are not mended yet; whoever mends one removes it here, too."""

from __future__ import annotations

import pytest

from quorumlock.core import fleet, redlock
from quorumlock.core.family import Read, Write
from quorumlock.core.redlock import Grant, Kind
from quorumlock.lab.fuzz import quiet
from quorumlock.lab.town import KNOWN
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

MAX_TTL = 3.0


def take(client: VirtualRunner, kind: Kind) -> Grant:
    outcome = client.run(redlock.acquire(client.fleet, "doc", 1.0, kind=kind))
    assert isinstance(outcome, Grant), outcome
    return outcome


class TooLow(Exception):
    """The bug, and nothing else."""


@pytest.mark.xfail(strict=True, raises=TooLow, reason=KNOWN["reader-old-disk"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_reader_is_not_given_the_fence_of_an_old_disk(count: int) -> None:
    """A second writer has been here; a majority comes back with the disk of before, and is quarantined."""
    world = World(1)
    nodes = [VirtualNode(world, index) for index in range(count)]
    client = VirtualRunner(world, nodes, max_ttl=MAX_TTL, quarantine=True)
    client.run(fleet.initialise(client.fleet, False))
    for _ in range(2):
        disks = [node.disk() for node in nodes]
        writer = take(client, Write())
        client.run(redlock.release(client.fleet, "doc", writer.token, 1.0, writer.route))
        world.advance(0.5)
    forgetful = count // 2 + 1
    for node in nodes[forgetful:]:
        node.crash()
    with quiet():
        for node, disk in zip(nodes[:forgetful], disks, strict=False):
            node.restart(disk)
        for _ in range(3):  # until its quarantine has begun
            world.advance(0.1)
            assert not client.run(redlock.acquire(client.fleet, "doc", 1.0)).won
        world.advance(MAX_TTL)
    reader = take(client, Read())
    if reader.fence < writer.fence:
        raise TooLow(f"{reader.fence} after {writer.fence}")
