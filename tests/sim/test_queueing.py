"""Queues under simulated faults: nobody waits for ever, nothing is polled, and no ticket is left, by seed.

Every run draws its world from its seed: how many nodes and clients, who waits fairly, who gives up and when, slow
and stalled links, connections and subscriptions that are cut, nodes that are paused or crash and come back. The
poll is an hour, so whoever gets the lock late was not told.
"""

from __future__ import annotations

import pytest

from quorumlock.core.effects import Sleep, Steps
from quorumlock.core.waiting import POLL_MOST, Wish, obtain
from quorumlock.retry import DEFAULT_RETRY
from quorumlock.runners.virtual import Procedure, World

from .town import HOUR, MAX_TTL, QUEUE, Town, nobody_is_left_waiting, started

__all__ = ["nobody_is_left_waiting"]


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_lock_goes_from_hand_to_hand_without_a_poll(count: int, fair: bool) -> None:
    """Twelve waiters in four processes; it takes as long as they have it, and a few round trips each."""
    for seed in range(5):
        town = Town.build(seed, count, 4)
        visits = [
            town.spawn(client, f"{client.name}.{turn}", fair=fair)
            for turn in range(3) for client in town.clients
        ]  # fmt: skip
        began = town.world.now
        assert all(town.go(*visits, within=MAX_TTL / 2))
        assert town.overlaps == 0
        assert town.world.now - began < 12 * (0.01 + 0.03), f"seed {seed}"
        town.world.advance(1.0)
        assert town.tickets() == []
        assert town.leftovers() == []


@pytest.mark.parametrize("count", [1, 3, 5])
def test_fair_grants_are_in_the_order_of_tickets(count: int) -> None:
    for seed in range(8):
        town = Town.build(seed, count, 5)
        visits: list[Procedure[bool]] = []
        keeper = town.spawn(town.clients[0], "first", fair=True, stay=0.5)
        town.world.advance(0.1)
        expected = []
        for turn in range(10):
            client = town.world.random.choice(town.clients)
            expected.append(f"w{turn}")
            visits.append(town.spawn(client, f"w{turn}", fair=True))
            town.world.advance(0.02)
        town.go(keeper, *visits, within=MAX_TTL / 2)
        assert [who for _, who, _ in town.granted] == ["first", *expected], f"seed {seed}"


def overtaken(seed: int, *, fair: bool) -> bool:
    """Does somebody who asks again and again have the lock before somebody who waits for it?"""
    town = Town.build(seed, 3, 3)
    keeper = town.spawn(town.clients[0], "first", stay=0.2)
    town.world.advance(0.05)
    waiter = town.spawn(town.clients[1], "waiter")
    town.world.advance(0.05)

    def barge() -> Steps[bool]:
        while not (yield from town.visit(town.clients[2], "barger", timeout=0, fair=fair)):
            yield Sleep(0.0001)
        return True

    barger = town.clients[2].spawn(barge())
    started.append((town.world, barger))
    town.go(keeper, waiter, barger, within=MAX_TTL / 2)
    return [who for _, who, _ in town.granted] == ["first", "barger", "waiter"]


def test_who_is_fair_does_not_overtake_anybody_and_others_may() -> None:
    assert not any(overtaken(seed, fair=True) for seed in range(12))
    assert any(overtaken(seed, fair=False) for seed in range(12)), "the test of the test"


def test_a_process_that_hands_on_to_itself_does_not_starve_one_that_is_far_away() -> None:
    """Within the process it takes a fraction of what an announcement takes to get there."""
    town = Town.build(2, 3, 2)
    near, far = town.clients
    near.latency, far.latency = (0.0001, 0.0002), (0.008, 0.01)

    def crowd() -> Steps[bool]:
        while True:
            yield from town.visit(near, "near", stay=0.001)

    started.extend((town.world, near.spawn(crowd())) for _ in range(8))
    town.world.advance(0.5)
    waits = []
    for _ in range(6):
        visit = town.spawn(far, "far")
        town.world.run_until(lambda visit=visit: visit.done or "c1:" in str(town.tickets()))  # type: ignore[misc]
        before = len(town.granted)
        town.go(visit, within=2.0)
        waits.append([who for _, who, _ in town.granted[before:]].index("far"))
    assert max(waits) < 30, waits


def trouble(town: Town, until: float, kinds: tuple[str, ...]) -> None:
    """Faults from now on, and none after `until`. A minority of nodes is down at a time."""
    world = town.world

    def strike() -> None:
        if world.now >= until:
            for node in town.nodes:
                if node.paused:
                    node.resume()
            return
        node, client = world.random.choice(town.nodes), world.random.choice(town.clients)
        kind = world.random.choice(kinds)
        down = sum(1 for one in town.nodes if one.paused or not one.up)
        if kind == "cut":
            for connection in list(node.connections.values()):
                if world.random.random() < 0.5:
                    connection.cut()
        elif kind == "subscriptions":
            for channel in list(node.subscribers.values()):
                for client_id in list(channel):
                    node.kill_client(client_id)
        elif kind == "stall":
            client.stalls[node.index] = world.now + world.random.random() * 0.3
        elif kind == "slow":
            client.latency = (0.0001, world.random.choice([0.002, 0.01, 0.04]))
            world.call_later(0.5, lambda: setattr(client, "latency", (0.0002, 0.002)))
        elif kind == "pause" and down < len(town.nodes) // 2:
            node.pause()
            world.call_later(world.random.random() * 0.3, lambda: node.resume() if node.paused else None)
        elif kind == "crash" and down < len(town.nodes) // 2:
            disk = node.server.snapshot()
            node.crash()
            world.call_later(world.random.random() * 0.5, lambda: node.restart(disk))
        world.call_later(world.random.random() * 0.05, strike)

    world.call_later(0.01, strike)


FAULTS = ("cut", "subscriptions", "stall", "slow", "pause", "crash")


def troubled(seed: int) -> Town:
    """Many waiters, some fair, some impatient, some cancelled, while things go wrong; then calm."""
    chance = World(seed).random
    town = Town.build(seed, chance.choice([1, 3, 5]), chance.randrange(2, 6))
    world = town.world
    faults_end = world.now + 1.5
    trouble(town, faults_end, FAULTS)
    visits: list[Procedure[bool]] = []
    cancelled: list[Procedure[bool]] = []

    def come(turn: int) -> None:
        client = world.random.choice(town.clients)
        fate = world.random.choice(["patient", "patient", "impatient", "cancelled"])
        timeout = world.random.random() if fate == "impatient" else None
        fair, stay = world.random.random() < 0.3, world.random.random() * 0.05
        visit = town.spawn(client, f"w{turn}", timeout=timeout, fair=fair, stay=stay, retry=DEFAULT_RETRY)
        if fate == "cancelled":
            cancelled.append(visit)
            world.call_later(world.random.random() * 0.5, lambda: visit.throw(KeyboardInterrupt()))
        else:
            visits.append(visit)

    for turn in range(25):
        world.call_later(world.random.random() * 1.5, lambda turn=turn: come(turn))  # type: ignore[misc]
    world.advance(1.6)
    # A lease whose release was lost ends by its ttl; so may a lock that a cancelled attempt has left somewhere.
    town.go(*visits, within=3 * MAX_TTL)
    for visit in cancelled:
        if not visit.done:
            visit.throw(KeyboardInterrupt())
        world.run_until(lambda visit=visit: visit.done)  # type: ignore[misc]
    return town


@pytest.mark.parametrize("block", range(4))
def test_nobody_waits_for_ever_whatever_goes_wrong(block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        town = troubled(seed)
        assert town.overlaps == 0, f"seed {seed}"
        assert town.leftovers() == [], f"seed {seed}"


@pytest.mark.parametrize("block", range(2))
def test_hand_over_needs_no_poll_when_connections_are_cut_at_any_moment(block: int) -> None:
    """What is cut is told again: each is served long before any ttl or poll could help."""
    for seed in range(block * 20, block * 20 + 20):
        town = Town.build(seed, (1, 3, 5)[seed % 3], 4)
        world = town.world
        keeper = town.spawn(town.clients[0], "first", stay=0.3)
        world.advance(0.05)
        trouble(town, world.now + 0.4, ("subscriptions",))
        visits = [town.spawn(client, client.name) for client in town.clients]
        assert all(town.go(keeper, *visits, within=MAX_TTL / 3)), f"seed {seed}"


def test_the_same_seed_tells_the_same_story() -> None:
    stories = [troubled(seed).granted for seed in (3, 3, 4)]
    assert stories[0] == stories[1] != stories[2]


@pytest.mark.parametrize("fair", [False, True])
def test_waiters_cancelled_at_any_step_leave_no_ticket_and_lose_nobodys_turn(fair: bool) -> None:
    """One waiter of two is cancelled after so many steps of the world, while the lock is given back."""
    for steps in range(1, 60):
        town = Town.build(7, 3, 3)
        keeper = town.spawn(town.clients[0], "first", stay=0.1)
        town.world.advance(0.03)
        first = town.spawn(town.clients[1], "one", fair=fair)
        town.world.advance(0.03)
        second = town.spawn(town.clients[2], "two", fair=fair)
        town.world.run_until(lambda town=town: town.freed_at > 0)  # type: ignore[misc]
        for _ in range(steps):
            town.world.step()
        if not first.done:
            first.throw(KeyboardInterrupt())
        town.go(keeper, second, within=1.0)
        town.world.advance(1.0)
        assert town.tickets() == [], f"cancelled after {steps} steps"


def test_a_holder_that_is_gone_is_succeeded_by_the_head_when_its_time_is_over() -> None:
    for seed in range(10):
        town = Town.build(seed, 3, 9)
        wish = Wish("x", 2.0, None, HOUR, 5.0)
        grant = town.clients[0].run(obtain(town.clients[0].fleet, town.clients[0].room, wish))
        assert grant.won
        visits = []
        for client in town.clients[1:]:
            visits.append(town.spawn(client, client.name, fair=True))
            town.world.advance(0.02)
        over_at = grant.valid_until + 2.0 * 0.01 + 0.002
        town.go(*visits, within=5.0)
        first_at, first, _ = town.granted[0]
        assert first == "c1"
        assert 0 < first_at - over_at < 0.1, f"seed {seed}: {first_at - over_at:.3f} s late"


@pytest.mark.parametrize("fair", [False, True])
def test_a_free_lock_is_not_deadlocked_by_waiters_who_reach_some_nodes_only(fair: bool) -> None:
    """N = 3 with one node down and a waiter that reaches one node; N = 5 with three, each cut to one node."""
    delays: list[float] = []
    for seed in range(6):
        for count, down, cut in ((3, [0], [[2]]), (5, [], [[0], [1], [2]])):
            town = Town.build(seed, count, 2 + len(cut))
            holder, healthy, *lame = town.clients
            keeper = town.spawn(holder, "first", fair=fair, stay=0.5)
            town.world.advance(0.1)
            stuck = [town.spawn(client, client.name, fair=fair, retry=DEFAULT_RETRY) for client in lame]
            town.world.advance(0.1)  # their tickets are on all nodes
            waiter = town.spawn(healthy, "healthy", fair=fair, retry=DEFAULT_RETRY)
            town.world.advance(0.1)
            for index in down:
                town.nodes[index].crash()
            for client, reaches in zip(lame, cut, strict=True):
                for node in range(count):
                    if node not in reaches:
                        client.stalls[node] = town.world.now + 1000
            # Nobody tells it: the heads are told, and look alive. It is as late as its poll, and passes them over.
            town.go(keeper, waiter, within=POLL_MOST)
            delays.append(next(at for at, who, _ in town.granted if who == "healthy") - town.granted[0][0] - 0.5)
            for one in stuck:
                one.throw(KeyboardInterrupt())
    print(f"delayed by at most {max(delays):.2f} s, {sum(delays) / len(delays):.2f} on average")
    assert max(delays) < 5.0


@pytest.mark.parametrize("count", [3, 5])
def test_nodes_that_do_not_agree_on_the_head_keep_nobody_waiting_for_long(count: int) -> None:
    """A ticket that was lost and shown again long after it was made stands elsewhere in that queue."""
    for seed in range(6):
        town = Town.build(seed, count, count + 1)
        keeper = town.spawn(town.clients[0], "first", fair=True, stay=0.5)
        town.world.advance(0.1)
        visits = [town.spawn(client, client.name, fair=True) for client in town.clients[1:]]
        town.world.advance(0.2)
        for node in town.nodes:
            queue = node.server.get(QUEUE)
            assert isinstance(queue, dict)
            members = sorted(one for one in queue if not one.startswith(b"u:") and not one.startswith(b"c0:"))
            assert len(members) == count
            for place, member in enumerate(members[node.index :] + members[: node.index]):
                queue[member] = (1_800_000_000 + place) * 1e6  # type: ignore[assignment]
        freed_by = town.world.now + 0.2
        town.go(keeper, *visits, within=3.0)
        assert town.granted[1][0] < freed_by + 1.0, f"seed {seed}: the lock was free, and nobody had it"


def test_a_fair_head_that_is_cut_off_delays_the_others_by_a_bounded_time() -> None:
    """It looks alive to the nodes, and takes what it is offered never: it is passed over after a node timeout."""
    delays: list[float] = []
    for seed in range(20):
        town = Town.build(seed, 3, 3)
        holder, head, other = town.clients
        keeper = town.spawn(holder, "first", fair=True, stay=0.4)
        town.world.advance(0.1)
        lost = town.spawn(head, "head", fair=True)
        town.world.advance(0.1)
        waiter = town.spawn(other, "other", fair=True, retry=DEFAULT_RETRY)
        town.world.advance(0.1)
        for node in range(3):
            head.stalls[node] = town.world.now + 1000
        town.go(keeper, waiter, within=5.0)
        delays.append(town.granted[-1][0] - (town.granted[0][0] + 0.4))
        lost.throw(KeyboardInterrupt())
    print(f"delayed by at most {max(delays):.2f} s, {sum(delays) / len(delays):.2f} on average")
    assert max(delays) < 5.0, delays
    assert max(delays) > 0.02, "the head was never waited for: nobody was fair"
