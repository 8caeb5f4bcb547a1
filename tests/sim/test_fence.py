"""Fences are unique and ordered whatever happens while memory is kept, and after a loss while node clocks agree."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorumlock.core import fleet, redlock, waiting
from quorumlock.core.effects import Route, Sleep, Steps
from quorumlock.core.fleet import Fleet
from quorumlock.core.votes import Tally
from quorumlock.engines.memory.locks import CHANGED
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.errors import NotAcquired
from quorumlock.retry import Jitter
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

from .scatter import Lease, Scatter, disorders, twins

STORY = 250
"""Bytes of a story."""

LONG = bool(os.environ.get("QUORUMLOCK_LONG"))
SEEDS = 1200 if LONG else 600
LOSSES = 30 if LONG else 20

MAX_TTL = 3.0
RUN = 90.0


def played(seed: int, count: int = 3) -> Scatter:
    return Scatter(random.Random(seed).randbytes(STORY), count).run()


def wrong(scatter: Scatter) -> bool:
    return bool(twins(scatter.leases) or disorders(scatter.leases))


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=STORY, max_size=STORY), st.sampled_from([1, 3, 4, 5]))
def test_fences_are_unique_and_ordered_whatever_happens(story: bytes, count: int) -> None:
    scatter = Scatter(story, count).run()
    assert not twins(scatter.leases)
    assert not disorders(scatter.leases)


def test_the_same_for_many_seeds_in_which_a_lot_happens() -> None:
    leases = confirmed = 0
    for seed in range(SEEDS):
        scatter = played(seed, (3, 5)[seed % 2])
        assert not twins(scatter.leases), f"seed {seed}"
        assert not disorders(scatter.leases), f"seed {seed}"
        leases += len(scatter.leases)
        confirmed += scatter.confirmed
    assert leases > SEEDS / 3
    assert confirmed > SEEDS / 12, "the second round is what is tested here"


def unconfirmed(
    fleet_: Fleet, name: str, token: str, tally: Tally, ttl: float, route: Route
) -> Steps[tuple[int, int]]:
    return tally.top, 0
    yield Sleep(0)  # makes it a generator


def loosely(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> object:
    """Confirms where the token is still there, whatever became of the fence meanwhile."""
    lock, fence_key, _ = keys
    token, _, fence, fence_ttl_ms, _ = argv
    if self._text(lock) != token:
        return [CHANGED]
    return [1, self._raise_fence(fence_key, self._fence(fence_key), int(fence), fence_ttl_ms)]


def forgetful(self: ServerDouble, key: bytes, stored: int, to: int, ttl_ms: bytes, card: bytes = b"") -> int:
    """Takes the candidate for the fence, though it be lower."""
    self._set(key, b"%d" % to, int(ttl_ms))
    return to


CANARIES: dict[str, tuple[object, str, Callable[..., object], int]] = {
    "no confirm": (redlock, "confirm", unconfirmed, 8),
    "a confirm that does not check what was granted": (ServerDouble, "_confirm", loosely, 1467),
    "a fence that may fall": (ServerDouble, "_raise_fence", forgetful, 1),
}
"""What is broken, and a seed in which it showed: it is tried first, which is only a matter of speed."""


@pytest.mark.parametrize("canary", CANARIES)
def test_a_broken_fence_is_found_out(canary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home, name, broken, known_at = CANARIES[canary]
    monkeypatch.setattr(home, name, broken)
    assert any(wrong(played(seed)) for seed in (known_at, *range(3000)))


# After a loss of memory.


def taking(client: VirtualRunner, leases: list[Lease]) -> Steps[None]:
    """Takes the lock, now and then after a pause in which fence keys expire."""
    world = client.world
    while world.now < RUN:
        yield Sleep(world.random.choice([0.1, 1.0, 5.0 * MAX_TTL]) * world.random.random())
        client.wall_offset = world.random.choice([0.0, 7200.0, -7200.0, 1e8, -1e9])
        began = world.now
        try:
            grant = yield from waiting.acquire_within(client.fleet, "x", 1.0, 8.0, Jitter(0.1), 8.0)
        except NotAcquired:
            continue
        leases.append(Lease(int(began * 1e6), int(world.now * 1e6), grant.fence))
        grant.over = True
        yield from redlock.release(client.fleet, "x", grant.token, 1.0, grant.route)


def forgetting(seed: int) -> list[Lease]:
    """Clients with wild clocks; nodes whose clocks agree, and which restart empty, alone or together."""
    world = World(seed)
    nodes = [VirtualNode(world, index) for index in range(world.random.choice([3, 5]))]
    for node in nodes:
        node.time.step((world.random.random() - 0.5) * MAX_TTL / 4)
    clients = [
        VirtualRunner(world, nodes, name=f"c{index}", max_ttl=MAX_TTL, fence_ttl=4 * MAX_TTL) for index in range(2)
    ]
    clients[0].run(fleet.initialise(clients[0].fleet, False))
    leases: list[Lease] = []
    lives = [client.spawn(taking(client, leases)) for client in clients]

    def restart() -> None:
        for node in world.random.sample(nodes, world.random.randint(1, len(nodes))):
            node.restart()
        world.call_later(world.random.random() * 6 * MAX_TTL, restart)

    world.call_later(world.random.random() * 3 * MAX_TTL, restart)
    world.run_until(lambda: all(life.done for life in lives))
    for life in lives:
        life.result()
    return leases


def test_fences_are_ordered_across_losses_and_expiry_while_node_clocks_agree() -> None:
    taken = 0
    for seed in range(LOSSES):
        leases = forgetting(seed)
        assert not twins(leases), f"seed {seed}"
        assert not disorders(leases), f"seed {seed}: {disorders(leases)[0]}"
        taken += len(leases)
    assert taken > 10 * LOSSES


def unclamped(below: bool, above: bool) -> Callable[..., object]:
    """An acquire that believes the client's clock, where it is slow or where it is fast."""
    plain = ServerDouble._acquire

    def acquire(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> object:
        now, candidate, clamp = self._now_us(), int(argv[2]), int(argv[4])
        if not below:
            candidate = max(candidate, now - clamp)
        if not above:
            candidate = min(candidate, now + clamp)
        return plain(self, keys, [*argv[:2], b"%d" % candidate, argv[3], b"1000000000000000000", *argv[5:]])

    return acquire


@pytest.mark.parametrize("side", ["below", "above"])
def test_a_clock_that_is_not_clamped_is_found_out(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerDouble, "_acquire", unclamped(side == "below", side == "above"))
    assert any(disorders(forgetting(seed)) for seed in range(20))
