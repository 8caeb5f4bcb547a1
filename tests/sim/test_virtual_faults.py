"""What may happen to clients, connections and nodes of a simulation does happen, and nothing else."""

from __future__ import annotations

import pytest

from quorumlock.core import fleet, redlock, waiting
from quorumlock.core.effects import Sleep, Steps
from quorumlock.core.redlock import Grant
from quorumlock.core.votes import Cause
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

TTL = 2.0
MAX_TTL = 3.0


class Stage:
    """Three nodes and two clients, with a latency of one millisecond."""

    def __init__(self, count: int = 3) -> None:
        self.world = World(1)
        self.nodes = [VirtualNode(self.world, index) for index in range(count)]
        self.a, self.b = (
            VirtualRunner(self.world, self.nodes, name=name, max_ttl=MAX_TTL, latency=(0.001, 0.001))
            for name in "ab"
        )
        self.a.run(fleet.initialise(self.a.fleet, False))
        for client in (self.a, self.b):
            client.run(fleet.muster(client.fleet))
        self.world.advance(0.1)

    def take(self, client: VirtualRunner, name: str = "x") -> Grant:
        outcome = client.run(redlock.acquire(client.fleet, name, TTL))
        assert isinstance(outcome, Grant), outcome
        self.world.advance(0.01)
        return outcome

    def held(self, name: str = "x") -> list[bool]:
        return [node.server.get(name) is not None for node in self.nodes]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_time_does_not_go_back_where_an_event_was_cancelled() -> None:
    world = World(1)
    seen: list[float] = []
    world.call_at(1.0, lambda: None).cancel()
    world.call_at(5.0, lambda: seen.append(world.now))
    world.advance(2.0)
    assert (world.now, seen) == (2.0, [])
    world.advance(4.0)
    assert (world.now, seen) == (6.0, [5.0])


def test_a_stopped_client_handles_nothing_and_then_everything(stage: Stage) -> None:
    done: list[float] = []

    def count() -> Steps[None]:
        for _ in range(3):
            yield Sleep(0.1)
            done.append(round(stage.world.now - began, 3))

    began = stage.world.now
    stage.a.spawn(count())
    stage.a.pause(0.55)
    stage.world.advance(1.0)
    assert done == [0.55, 0.65, 0.75]


def test_answers_that_wait_for_a_stopped_client_come_too_late(stage: Stage) -> None:
    """The story of pause-before-answer: by its own clock the lease is over when it reads the votes."""
    attempt = stage.a.spawn(redlock.acquire(stage.a.fleet, "x", TTL))
    stage.a.pause_after(1, TTL + 0.1)
    assert not attempt.result().won
    assert stage.a.fleet.clock() - stage.world.now == pytest.approx(0.0)


def test_a_client_may_stop_between_any_two_callbacks(stage: Stage) -> None:
    """After so many callbacks the clock, read by what was to come next, has gone on."""
    ends = []
    for callbacks in range(1, 8):
        began = stage.world.now
        attempt = stage.a.spawn(redlock.acquire(stage.a.fleet, f"x{callbacks}", TTL))
        stage.a.pause_after(callbacks, 0.5)
        attempt.result()
        stage.world.advance(0.6)
        ends.append(stage.world.now - began > 1.0)
    assert any(ends)
    assert not all(ends)


def test_a_client_whose_clock_runs_slowly_sleeps_long_and_believes_long(stage: Stage) -> None:
    stage.a.clock.run(0.5)
    began, by_its_clock = stage.world.now, stage.a.fleet.clock()
    stage.a.run(_nap(1.0))
    assert stage.world.now - began == pytest.approx(2.0)
    assert stage.a.fleet.clock() - by_its_clock == pytest.approx(1.0)


def _nap(seconds: float) -> Steps[None]:
    yield Sleep(seconds)


def test_a_wall_clock_that_is_set_changes_no_validity(stage: Stage) -> None:
    grant = stage.take(stage.a)
    stage.a.wall_offset = 10 * TTL
    assert grant.valid_until - stage.a.fleet.clock() == pytest.approx(TTL, abs=0.1)
    assert stage.a.wall() - stage.b.wall() == 10 * TTL


@pytest.mark.parametrize(("way", "executed"), [("to", False), ("back", True)])
def test_a_partition_of_one_way_lets_the_other_pass(stage: Stage, way: str, executed: bool) -> None:
    stage.a.stall(0, 1.0, way)  # type: ignore[arg-type]
    attempt = stage.a.spawn(redlock.acquire(stage.a.fleet, "x", TTL))
    stage.world.advance(0.01)
    assert stage.held() == [executed, True, True]
    outcome = attempt.result()
    assert outcome.won
    assert outcome.tally.answers[0] is None
    stage.world.advance(1.0)
    assert stage.held() == [True, True, True]


def test_what_a_partition_kept_back_passes_in_order_when_it_is_healed(stage: Stage) -> None:
    stage.a.stall(0, 60.0)
    grant = stage.take(stage.a)
    stage.a.run(redlock.release(stage.a.fleet, "x", grant.token, TTL, grant.route))
    stage.a.heal()
    stage.world.advance(0.1)
    assert stage.held() == [False, False, False], "the release arrived before what it undoes"


@pytest.mark.parametrize(("way", "executed"), [("to", False), ("back", True)])
def test_a_request_or_its_answer_is_lost_with_the_connection(stage: Stage, way: str, executed: bool) -> None:
    for connection in list(stage.a.connections):
        connection.break_after(way, 5)  # type: ignore[arg-type]
    attempt = stage.a.spawn(redlock.acquire(stage.a.fleet, "x", TTL))
    stage.world.advance(0.0015)
    assert stage.held() == [executed] * 3
    outcome = attempt.result()
    assert not outcome.won
    assert len(outcome.tally.caused(Cause.DISCONNECTED)) >= 2
    stage.world.advance(0.5)
    assert stage.held() == [False] * 3


def test_a_half_open_connection_tells_nobody(stage: Stage) -> None:
    for connection in list(stage.a.connections):
        if connection.to is stage.nodes[0]:
            connection.silence()
    grant = stage.take(stage.a)
    assert grant.tally.answers[0] is None
    stage.world.advance(0.5)
    stage.a.run(waiting.extend_or_lose(stage.a.fleet, grant, TTL))
    stage.world.advance(0.5)
    stage.a.run(waiting.extend_or_lose(stage.a.fleet, grant, TTL))
    stage.world.advance(0.5)
    assert stage.held() == [True] * 3, "it has found out by the silence, and connected anew"


def test_a_request_on_an_old_connection_may_arrive_behind_those_of_its_successor(stage: Stage) -> None:
    """Unless the server is told to end the old one: which the client does, so that it is not executed at all."""
    old = next(one for one in stage.a.connections if one.to is stage.nodes[0])
    old.hold("to", 1.0)
    grant = stage.take(stage.a)
    stage.world.advance(0.3)  # silent for too long: a new connection is made, which is not held up
    stage.a.run(redlock.release(stage.a.fleet, "x", grant.token, TTL, grant.route))
    stage.world.advance(0.1)
    assert not old.open
    assert any(one.to is stage.nodes[0] for one in stage.a.connections)
    stage.world.advance(2.0)
    assert stage.held() == [False] * 3


def test_where_nobody_ends_the_old_connection_an_orphan_is_left(stage: Stage) -> None:
    """The same story with a server that does not let itself be told: what the test above would have seen."""
    stage.nodes[0].server.on_kill = None
    old = next(one for one in stage.a.connections if one.to is stage.nodes[0])
    old.hold("to", 1.0)
    grant = stage.take(stage.a)
    stage.world.advance(0.3)
    stage.a.run(redlock.release(stage.a.fleet, "x", grant.token, TTL, grant.route))
    stage.world.advance(1.0)
    assert stage.held() == [True, False, False]
    stage.world.advance(TTL + 0.1)
    assert stage.held() == [False] * 3, "for one ttl"


def test_a_request_is_executed_twice(stage: Stage) -> None:
    told: list[tuple[bytes, object]] = []
    stage.nodes[0].again = lambda command: 0.5
    stage.nodes[0].on_executed = lambda command, reply: told.append((command[1], reply))
    stage.take(stage.a)
    once = len(told)
    stage.nodes[0].again = None
    stage.world.advance(1.0)
    assert once
    assert told[:once] == told[once:], "it said the same again"


@pytest.mark.parametrize(
    ("kept", "expected"), [("none", None), ("all", b"later"), ("old", b"earlier")], ids=["empty", "kept", "old"]
)
def test_a_node_comes_back_with_what_its_disk_holds(stage: Stage, kept: str, expected: bytes | None) -> None:
    node = stage.nodes[0]
    node.server.set("k", b"earlier")
    old = node.disk()
    node.server.set("k", b"later")
    node.crash()
    assert not node.connections
    node.restart({"none": None, "all": node.disk(), "old": old}[kept])
    assert node.server.get("k") == expected


def test_a_disk_does_not_change_with_the_memory_it_was_made_of(stage: Stage) -> None:
    node = stage.nodes[0]
    node.server.set("q", {b"one": 1.0})
    disk = node.disk()
    queue = node.server.get("q")
    assert isinstance(queue, dict)
    queue[b"two"] = 2.0  # type: ignore[assignment]
    assert disk[b"q"][0] == {b"one": 1.0}


def test_node_clocks_step_and_drift(stage: Stage) -> None:
    first, second, _ = stage.nodes
    first.time.step(10 * TTL)
    second.time.run(1.5)
    stage.world.advance(2.0)
    assert first.time() - stage.world.wall() == pytest.approx(10 * TTL)
    assert second.time() - stage.world.wall() == pytest.approx(1.0)
    second.time.run(1.0)
    assert second.time() - stage.world.wall() == pytest.approx(1.0), "it does not jump when its rate changes"
    second.time.correct(stage.world.started_at)
    assert second.time() == pytest.approx(stage.world.wall())


def test_a_connection_is_not_waited_for_longer_than_its_timeout(stage: Stage) -> None:
    for connection in list(stage.a.connections):
        connection.cut()
    stage.world.advance(0.01)
    for node in stage.nodes:
        stage.a.stall(node.index, 60.0)
    outcome = stage.a.run(redlock.acquire(stage.a.fleet, "x", TTL))
    stage.world.advance(0.6)
    assert not outcome.won
    assert {stage.a.board.watch.healths[node].why for node in range(3)} == {"timed out"}
