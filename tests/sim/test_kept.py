"""The keeper in simulated time: leases held for many ttl, by clients that stop, over nodes that fail."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest

from quorumlock.core import fleet, redlock, renewal, waiting
from quorumlock.core.effects import Sleep, Steps
from quorumlock.core.keeper import NEVER, Roster, tend
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import Extension
from quorumlock.core.votes import Tally
from quorumlock.errors import LossReason, NotAcquired
from quorumlock.retry import Jitter
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

from .test_virtual import MAX_TTL, RUN, TTL, trouble

NAMES = ("a", "b", "c")


@dataclass(eq=False)
class Kept:
    """A lease in the care of a simulated keeper, and what became of it."""

    holder: str
    grant: Grant
    granted_at: float
    due_at: float
    renewals: int = 0
    over_at: float | None = None
    """Until when its holder may have relied on it."""
    told_at: float | None = None

    def renewable(self, now: float) -> bool:
        return True

    def renewed(self, extension: Extension) -> None:
        self.renewals += 1

    def doubt(self) -> None: ...

    def expire(self) -> None:
        self.lost(LossReason.EXPIRED)

    def lost(self, reason: LossReason) -> None:
        self.grant.over = True
        self.over_at = min(self.grant.valid_until, self.world_now())
        self.told_at = self.world_now()

    def world_now(self) -> float:
        raise NotImplementedError


class Keeper:
    """What the fronts do with `tend`, in the world; a client that is stopped keeps nothing."""

    def __init__(self, client: VirtualRunner) -> None:
        self.client = client
        self.roster = Roster(client.fleet.clock, client.fleet.random)
        self.stopped_until = 0.0
        self._busy = False

    def watch(self, kept: Kept) -> None:
        if self.roster.add(kept):
            self._wake_later()

    def _wake_later(self) -> None:
        if self.roster.wake_at != NEVER:
            self.client.world.call_at(max(self.roster.wake_at, self.stopped_until), self._look)

    def _look(self) -> None:
        world = self.client.world
        if world.now < self.stopped_until:
            world.call_at(self.stopped_until, self._look)
        elif not self._busy and world.now >= self.roster.wake_at:
            self._busy = True
            self.roster.rise()
            self.client.spawn(self._tend())

    def _tend(self) -> Steps[None]:
        try:
            yield from tend(self.client.fleet, self.roster)
        finally:
            self._busy = False
            self.roster.settle()
            self._wake_later()


@dataclass
class Story:
    kept: list[Kept] = field(default_factory=list)

    def overlaps(self) -> list[tuple[Kept, Kept]]:
        found = []
        for name in NAMES:
            mine = sorted((one for one in self.kept if one.grant.name == name), key=lambda one: one.granted_at)
            for one, other in itertools.pairwise(mine):
                assert one.over_at is not None
                if other.granted_at < one.over_at:
                    found.append((one, other))
        return found


def live(keeper: Keeper, story: Story, held_for: float) -> Steps[None]:
    """Takes a name, holds it for several ttl with the keeper's help, gives it back."""
    client = keeper.client
    world = client.world
    while world.now < RUN:
        name = world.random.choice(NAMES)
        try:
            grant = yield from waiting.acquire_within(client.fleet, name, TTL, 5.0, Jitter(0.1), 5.0)
        except NotAcquired:
            continue
        kept = Kept(client.name, grant, world.now, grant.valid_until - TTL * 0.7)
        kept.world_now = lambda: world.now  # type: ignore[method-assign]
        story.kept.append(kept)
        keeper.watch(kept)
        until = world.now + world.random.random() * held_for
        while world.now < until and not grant.over:
            yield Sleep(0.05)
        if kept.over_at is None:
            kept.over_at = min(world.now, grant.valid_until)
            grant.over = True
        yield from redlock.release(client.fleet, name, grant.token, TTL, grant.route)


def simulate(seed: int, *, faults: bool = True, held_for: float = 8 * TTL) -> tuple[Story, list[VirtualNode]]:
    world = World(seed)
    nodes = [VirtualNode(world, index) for index in range(world.random.choice([1, 3, 5]))]
    clients = [VirtualRunner(world, nodes, name=f"c{i}", max_ttl=MAX_TTL, quarantine=True) for i in range(3)]
    clients[0].run(fleet.initialise(clients[0].fleet, False))
    keepers = [Keeper(client) for client in clients]
    story = Story()
    lives = [client.spawn(live(keeper, story, held_for)) for client in clients for keeper in keepers
             if keeper.client is client for _ in range(2)]  # fmt: skip
    strikes = trouble(world, nodes, clients)

    def next_fault() -> None:
        if world.now < RUN * 0.8:
            next(strikes)()
            if world.random.random() < 0.3:
                world.random.choice(keepers).stopped_until = world.now + world.random.random() * 2 * TTL
            world.call_later(world.random.random(), next_fault)

    if faults:
        world.call_later(0.5, next_fault)
    world.run_until(lambda: all(one.done for one in lives))
    for one in lives:
        one.result()
    for node in nodes:
        if node.paused:
            node.resume()
    world.advance(1.0)
    return story, nodes


def test_kept_leases_exclude_one_another_under_faults() -> None:
    renewals = lost = 0
    for seed in range(20):
        story, _ = simulate(seed)
        assert not story.overlaps(), f"seed {seed}: two holders: {story.overlaps()[0]}"
        assert len(story.kept) > 5, f"seed {seed}: hardly anything was locked"
        renewals += sum(one.renewals for one in story.kept)
        lost += sum(one.told_at is not None for one in story.kept)
    assert renewals > 200
    assert lost > 10, "the faults did not bite"


def test_without_faults_nothing_is_lost_and_nothing_is_left() -> None:
    for seed in range(6):
        story, nodes = simulate(seed, faults=False)
        assert sum(one.renewals for one in story.kept) > 20
        assert all(one.told_at is None for one in story.kept), f"seed {seed}"
        left = {key for node in nodes for key in node.server.keys() if key in NAMES}  # noqa: SIM118
        assert not left, f"seed {seed}: released, and there again: {left}"


def test_a_renewal_by_fewer_than_a_majority_makes_two_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: one vote less is enough."""
    judged = renewal.judged

    def lenient(
        fleet_: fleet.Fleet, tally: Tally, before: float, until: float, now: float, on_probation: frozenset[int]
    ) -> Extension:
        if tally.heard >= tally.needed - 1 and now < before:
            return Extension(tally, valid_until=until)
        return judged(fleet_, tally, before, until, now, on_probation)

    monkeypatch.setattr(renewal, "judged", lenient)
    assert any(simulate(seed)[0].overlaps() for seed in range(40))
