"""Releases that are owed to nodes, in simulated time: the production code down to the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from quorumlock.core import fleet, redlock
from quorumlock.core.effects import Sleep, Steps
from quorumlock.core.owed import NEVER, Owed, remember, repeat
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import extend
from quorumlock.core.requests import Release
from quorumlock.core.waiting import Wish, obtain
from quorumlock.retry import Jitter
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

TTL = 8.0


class Stage:
    """Three nodes, a client that sends releases again, and another one."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.nodes = [VirtualNode(self.world, index) for index in range(3)]
        self.a, self.b = (VirtualRunner(self.world, self.nodes, name=name) for name in "ab")
        self.a.run(fleet.initialise(self.a.fleet, False))
        for client in (self.a, self.b):
            client.run(fleet.muster(client.fleet))
        known = self.a.fleet
        self.owed = Owed(known.clock, known.random, known.node_timeout, nullcontext())
        known.owe = self.owed.add
        self.told: list[tuple[bool, Any]] = []
        self.passes = 0
        self.keeper = self.a.spawn(self._keep())

    def _keep(self) -> Steps[None]:
        """As the keepers of the fronts do it."""
        while True:
            yield Sleep(0.05)
            if self.owed.wake_at <= self.a.clock():
                for tell in self.owed.sweep():
                    tell()
                if self.owed.wake_at <= self.a.clock():
                    self.passes += 1
                    yield from repeat(self.a.fleet, self.owed)
                    for tell in self.owed.sweep():
                        tell()

    def take(self, client: VirtualRunner) -> Grant:
        outcome = client.run(redlock.acquire(client.fleet, "x", TTL))
        assert isinstance(outcome, Grant), outcome
        self.world.advance(0.1)
        return outcome

    def release(self, grant: Grant) -> bool:
        steps = redlock.release(
            self.a.fleet, grant.name, grant.token, grant.ttl, grant.route,
            on_outcome=lambda confirmed, after: self.told.append((confirmed, after)), expires_at=grant.expires_at,
        )  # fmt: skip
        return self.a.run(steps).won

    def holders(self) -> list[object]:
        return [node.server.get("x") for node in self.nodes]

    @property
    def free(self) -> bool:
        return self.holders() == [None] * 3

    def free_within(self, seconds: float) -> float:
        began = self.world.now
        while not self.free and self.world.now < began + seconds:
            self.world.advance(0.05)
        assert self.free, self.holders()
        return self.world.now - began


@pytest.fixture(params=range(5))
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(request.param)
    yield made
    made.keeper.abandon()


def test_where_all_is_well_nothing_is_sent_again(stage: Stage) -> None:
    for _ in range(10):
        assert stage.release(stage.take(stage.a))
    stage.world.advance(3)
    assert stage.free
    assert (stage.passes, stage.told) == (0, [])
    assert stage.owed.wake_at == NEVER


def test_a_node_that_was_cut_off_is_told_soon_after_it_is_back(stage: Stage) -> None:
    grant = stage.take(stage.a)
    stage.a.stall(2, 3.0)
    assert stage.release(grant)
    stage.world.advance(2.9)
    assert stage.holders()[2] is not None
    assert stage.free_within(2) < 1.7


def test_all_of_them_and_the_outcome_is_told_once(stage: Stage) -> None:
    grant = stage.take(stage.a)
    for node in range(3):
        stage.a.stall(node, 3.0)
    assert not stage.release(grant)
    stage.free_within(5)
    stage.world.advance(2)
    assert [confirmed for confirmed, _ in stage.told] == [True]
    assert 2.5 < stage.told[0][1] < 5


def test_until_the_ttl_is_over(stage: Stage) -> None:
    grant = stage.take(stage.a)
    for node in range(3):
        stage.a.stall(node, 60.0)
    assert not stage.release(grant)
    stage.world.advance(TTL + 1)
    assert stage.free
    assert stage.told == [(False, pytest.approx(TTL, abs=0.2))]
    passes = stage.passes
    assert 5 < passes < 20
    stage.world.advance(10)
    assert stage.passes == passes


def test_an_extension_to_a_shorter_ttl_does_not_end_it_earlier(stage: Stage) -> None:
    """The nodes keep the lock for as long as they were told before."""
    grant = stage.take(stage.a)
    assert stage.a.run(extend(stage.a.fleet, grant, 0.5)).valid_until is not None
    for node in range(3):
        stage.a.stall(node, 3.0)
    assert not stage.release(grant)
    stage.world.advance(2.9)
    assert None not in stage.holders()
    stage.free_within(1.7)
    stage.world.advance(2)
    assert [confirmed for confirmed, _ in stage.told] == [True]


def test_a_repeated_release_notifies_a_waiter_of_the_same_process(stage: Stage) -> None:
    """To the first one nodes leave that to the process itself, which has done so before the lock was free."""
    grant, known = stage.take(stage.a), stage.a.fleet
    waiter = stage.a.spawn(obtain(known, stage.a.room, Wish("x", TTL, None, Jitter(3600), 60)))
    stage.world.advance(0.5)
    first = Release("x", grant.token, True, locker=stage.a.room.id)
    remember(known, known.to_all(first), known.tally(any_answer=True), TTL, 0.0, grant.route, known.clock())
    stage.world.advance(1)
    woken = waiter.done
    waiter.abandon()
    assert woken


def test_the_next_holder_keeps_the_lock(stage: Stage) -> None:
    """The release comes late, on every node: another client has got the lock there meanwhile."""
    grant = stage.take(stage.a)
    for node in range(3):
        stage.a.stall(node, 4.0)
    assert not stage.release(grant)
    stage.b.run(redlock.break_(stage.b.fleet, "x"))
    theirs = stage.take(stage.b)
    before = stage.holders()
    stage.world.advance(5)
    assert stage.holders() == before
    assert None not in before
    assert theirs.valid_until > stage.b.clock()
    assert [confirmed for confirmed, _ in stage.told] == [True]
