"""What the simulator has found, and was mended."""

from __future__ import annotations

import pytest

from quorumlock.core import fleet, redlock, waiting
from quorumlock.core.family import Read, Write
from quorumlock.core.redlock import Grant, Kind
from quorumlock.lab.fuzz import quiet
from quorumlock.lab.run import Options, simulate
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World
from quorumlock.runners.virtual_world import Disk

MAX_TTL = 3.0


def take(client: VirtualRunner, kind: Kind) -> Grant:
    outcome = client.run(redlock.acquire(client.fleet, "doc", 1.0, kind=kind))
    assert isinstance(outcome, Grant), outcome
    return outcome


class Stage:
    """A fleet with a writer's past."""

    def __init__(self, count: int) -> None:
        self.world = World(1)
        self.nodes = [VirtualNode(self.world, index) for index in range(count)]
        self.client = VirtualRunner(self.world, self.nodes, max_ttl=MAX_TTL, quarantine=True)
        self.client.run(fleet.initialise(self.client.fleet, False))
        for _ in range(2):
            self.disks = [node.disk() for node in self.nodes]
            writer = take(self.client, Write())
            self.client.run(redlock.release(self.client.fleet, "doc", writer.token, 1.0, writer.route))
            self.world.advance(0.5)
        self.fence = writer.fence

    def restart(self, disks: list[Disk]) -> None:
        """A majority comes back with that, and the others do not; its quarantine begins."""
        for node in self.nodes:
            node.crash()
        for node, disk in zip(self.nodes[: len(self.nodes) // 2 + 1], disks, strict=False):
            node.restart(disk)
        for _ in range(3):
            self.world.advance(0.1)
            assert not self.client.run(redlock.acquire(self.client.fleet, "doc", 1.0)).won

    def read(self) -> None:
        """When it is over, somebody reads."""
        self.world.advance(MAX_TTL)
        reader = take(self.client, Read())
        assert reader.fence > self.fence
        assert take(self.client, Read()).fence == reader.fence


@pytest.mark.parametrize("count", [1, 3])
def test_a_reader_is_not_given_the_fence_of_an_old_disk(count: int) -> None:
    with quiet():
        stage = Stage(count)
        stage.restart(stage.disks)
        stage.read()


@pytest.mark.parametrize("count", [1, 3])
def test_a_reader_is_not_given_the_fence_of_a_break_on_empty_nodes(count: int) -> None:
    with quiet():
        stage = Stage(count)
        stage.restart([{}] * count)
        stage.client.run(redlock.break_(stage.client.fleet, "doc"))
        stage.read()


@pytest.mark.parametrize("count", [1, 3])
def test_where_nothing_is_known_a_reader_is_given_a_higher_one(count: int) -> None:
    with quiet():
        stage = Stage(count)
        stage.restart([{}] * count)
        stage.read()


def test_two_who_came_in_the_same_microsecond_do_not_wait_for_one_another() -> None:
    """A reader and a writer were each told that it is the other's turn, for ever."""
    with quiet():
        verdict = simulate(3980, Options(keep=(0, 5, 6, 7, 8, 10, 11)))
    assert not verdict.failed, verdict.violations


def test_who_waits_for_days_polls_as_seldom_as_before() -> None:
    """It was told that a number is too large, after some hours. (Mended.)"""
    client = Stage(1).client
    assert all(
        0 < waiting._poll(polls, 0, client.fleet) <= waiting.POLL_MOST for polls in (0, 10, 3_000, 1_000_000)
    )


@pytest.mark.parametrize("seed", [15836, 20212, 47604])
def test_a_downgrade_leaves_nothing_on_a_node_that_did_not_do_it(seed: int) -> None:
    """It had to learn the script first, and kept the lock of the writer until its end; and its ticket beyond."""
    with quiet():
        verdict = simulate(seed, Options(keep=()))
    assert not verdict.failed, verdict.violations


def test_an_extension_that_is_executed_again_takes_no_time_away() -> None:
    """One that shortened a lease was, behind a longer one: two were valid at once for 88 ms."""
    with quiet():
        verdict = simulate(16806, Options(keep=(0, 2)))
    assert not verdict.failed, verdict.violations


def test_who_had_waited_for_several_locks_and_was_killed_keeps_nobody_waiting() -> None:
    """Its ticket stood first in the queue for a minute, and was told of every release; others had to poll."""
    with quiet():
        verdict = simulate(73159, Options(keep=()))
    assert not verdict.failed, verdict.violations


def test_a_connection_that_never_was_answered_is_given_up_at_last() -> None:
    """A node had hung while it was connected to, and then that connection died unnoticed: it was asked for ever."""
    with quiet():
        verdict = simulate(41722, Options(keep=(3, 4, 5, 6, 7, 8, 10, 11, 12)))
    assert not verdict.failed, verdict.violations
