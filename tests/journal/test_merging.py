"""Journals of several nodes put together: every event once, whatever the clocks and the sizes of pages."""

from __future__ import annotations

import random
import time

import pytest

from quorumlock.core.votes import History, Noted
from quorumlock.errors import ConfigurationError
from quorumlock.journal import OWED_MOST, SETTLE_US, Cursor, merged

START_US = 1_700_000_000_000_000


class Node:
    """A node that writes down what it is told, by a clock of its own, some time after it was told."""

    def __init__(self, ahead_us: int) -> None:
        self.ahead_us = ahead_us
        self.rows: list[Noted] = []

    def write(self, at_us: int, name: str) -> None:
        at_ms = (at_us + self.ahead_us) // 1000
        last_ms, last = (int(part) for part in self.rows[-1].id.split("-")) if self.rows else (0, 0)
        number = f"{at_ms}-0" if at_ms > last_ms else f"{last_ms}-{last + 1}"
        at_us = int(number.partition("-")[0]) * 1000
        self.rows.append(Noted(number, at_us, "acquired", name, 5, f"{name}@h:1", ""))

    def read(self, after: str, limit: int, now_us: int) -> History:
        def order(number: str) -> tuple[int, ...]:
            return tuple(int(part) for part in number.split("-"))

        rows = [row for row in self.rows if order(row.id) > order(after)][:limit] if after else self.rows[-limit:]
        return History(now_us + self.ahead_us, self.rows[0].at_us if self.rows else 0, tuple(rows))


class World:
    """Some nodes, and a reader that asks them now and then."""

    def __init__(self, rng: random.Random, count: int, skew_us: int) -> None:
        self.rng = rng
        self.nodes = [Node(rng.randint(-skew_us, skew_us)) for _ in range(count)]
        self.now_us = START_US
        self.happened: list[str] = []
        self.late: list[tuple[int, Node, str]] = []
        self.cursor = ""
        self.shown: list[str] = []

    def happen(self, nodes: list[Node], late: float = 0.0) -> None:
        name = f"e{len(self.happened)}"
        self.happened.append(name)
        for node in nodes:
            wait = self.rng.randrange(SETTLE_US // 2) if self.rng.random() < late else 0
            self.late.append((self.now_us + wait, node, name))
        self.pass_time(0)

    def pass_time(self, us: int) -> None:
        self.now_us += us
        due = sorted((one for one in self.late if one[0] <= self.now_us), key=lambda one: one[0])
        self.late = [one for one in self.late if one[0] > self.now_us]
        for at_us, node, name in due:
            node.write(at_us, name)

    def read(self, limit: int, silent: tuple[int, ...] = (), takes_us: int = 0) -> int:
        cursor = Cursor.parse(self.cursor or None, len(self.nodes))
        told = [
            None if index in silent else node.read(start, limit, self.now_us + self.rng.randint(0, takes_us))
            for index, (node, start) in enumerate(zip(self.nodes, cursor.starts(), strict=True))
        ]
        events, later = merged(told, cursor, limit)
        self.cursor = str(later)
        self.shown += [next(iter(event.rows.values())).name for event in events]
        assert len(events) <= limit
        return len(events)


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_every_event_is_shown_once(count: int, seed: int) -> None:
    """Some on all nodes, some on one; written at different times, read in pages of any size, clocks hours apart."""
    rng = random.Random(seed)
    world = World(rng, count, rng.choice([0, 5_000_000, 7_200_000_000]))
    world.read(10)  # from the beginning
    for _ in range(150):
        world.pass_time(rng.choice([0, 1000, 20_000, 400_000]))
        some = world.nodes if rng.random() < 0.7 else rng.sample(world.nodes, rng.randint(1, count))
        world.happen(some, late=0.3)
        if rng.random() < 0.3:
            world.read(rng.choice([1, 3, 10, 1000]))
    world.pass_time(2 * SETTLE_US)
    for _ in range(2000):
        if not world.read(rng.choice([1, 3, 10, 1000])) and len(world.shown) >= len(world.happened):
            break
    assert sorted(world.shown) == sorted(world.happened), f"seed {seed}"


@pytest.mark.parametrize("seed", range(5))
def test_what_all_nodes_have_is_shown_in_its_order(seed: int) -> None:
    world = World(random.Random(seed), 3, 5_000_000)
    world.read(10)
    for _ in range(200):
        world.pass_time(5000)
        world.happen(world.nodes)
        if world.rng.random() < 0.2:
            world.read(world.rng.choice([1, 5, 100]))
    while world.read(50):
        pass
    assert world.shown == world.happened


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_what_majorities_have_is_shown_in_its_order(count: int, seed: int) -> None:
    """Whatever time passes between one node's answer and another's: of two events, some node has written both."""
    world = World(random.Random(seed), count, 5_000_000)
    world.read(10)
    for _ in range(200):
        world.pass_time(1000)
        world.happen(world.rng.sample(world.nodes, count // 2 + 1))
        if world.rng.random() < 0.1:
            world.pass_time(2 * SETTLE_US)
            world.read(1000, takes_us=20_000)
    world.pass_time(2 * SETTLE_US)
    while world.read(1000, takes_us=20_000):
        pass
    assert world.shown == world.happened


@pytest.mark.parametrize("slow", range(3))
@pytest.mark.parametrize("between", range(3))
def test_a_node_that_was_slow_is_outvoted(slow: int, between: int) -> None:
    """Wherever it stands among the others, it wrote the first event behind those that followed."""
    world = World(random.Random(1), 3, 0)
    world.happen([node for index, node in enumerate(world.nodes) if index != slow])
    for _ in range(between + 1):
        world.pass_time(1000)
        world.happen(world.nodes)
    world.nodes[slow].write(world.now_us + 1000, "e0")
    world.pass_time(2 * SETTLE_US)
    world.read(10)
    assert world.shown == world.happened


def test_a_node_that_was_away_goes_on_where_the_others_are() -> None:
    """What it wrote down meanwhile was told by the others."""
    world = World(random.Random(1), 3, 0)
    world.read(10)
    for round_ in range(6):
        for _ in range(20):
            world.pass_time(1_000_000)
            world.happen(world.nodes)
        silent = (2,) if round_ in (1, 2, 3) else ()
        while world.read(10, silent):
            pass
        assert world.shown == world.happened
    for _ in range(2 * OWED_MOST):
        world.pass_time(1_000_000)
        world.happen(world.nodes)
    while world.read(100, (2,)):
        pass
    world.read(1000)
    assert world.shown == world.happened


def test_what_is_half_written_waits_a_moment_and_nothing_overtakes_it() -> None:
    world = World(random.Random(1), 3, 0)
    world.happen(world.nodes)
    world.read(10)
    world.pass_time(1_000_000)
    world.happen(world.nodes[:1])
    world.pass_time(1000)
    world.happen(world.nodes)
    world.read(10)
    assert world.shown == ["e0"]
    world.pass_time(SETTLE_US)
    world.read(10)
    assert world.shown == ["e0", "e1", "e2"]
    world.read(10)
    assert world.shown == ["e0", "e1", "e2"]


def test_the_newest_come_first_and_then_what_follows() -> None:
    world = World(random.Random(1), 3, 0)
    for _ in range(30):
        world.pass_time(10_000)
        world.happen(world.nodes)
    world.pass_time(2 * SETTLE_US)
    world.happen(world.nodes[:1])  # all that a page of one sees of this node, and not to be shown yet
    world.read(1)
    world.pass_time(SETTLE_US)
    world.happen(world.nodes)
    while world.read(10):
        pass
    assert world.shown == ["e29", "e30", "e31"]


def test_what_a_node_has_forgotten_is_not_waited_for() -> None:
    """Nodes cut their streams at different places: a busy journal would never be shown."""
    for newest in (True, False):
        world = World(random.Random(1), 3, 0)
        if not newest:
            world.read(100)
        for _ in range(30):
            world.pass_time(1000)
            world.happen(world.nodes)
        del world.nodes[0].rows[:10]
        del world.nodes[2].rows[:5]
        while world.read(100):
            pass
        assert world.shown == world.happened


def test_a_cursor_stays_small() -> None:
    world = World(random.Random(1), 3, 0)
    world.read(10)
    for _ in range(3 * OWED_MOST):
        world.pass_time(10_000)
        world.happen(world.nodes[:1])
    world.pass_time(SETTLE_US)
    world.read(1000)
    assert sorted(world.shown) == sorted(world.happened)
    assert len(world.cursor) < OWED_MOST * 15 + 100
    assert Cursor.parse(world.cursor, 3).ids == [node.rows[-1].id if node.rows else "0-0" for node in world.nodes]


@pytest.mark.parametrize("text", ["", "x", ".", "1-1", "1-1.", "1-1_1-1_1-1", "__.", "1-1_1-1_1-1.zz", "1_1_1.", 7])
def test_what_is_no_cursor_is_refused(text: object) -> None:
    with pytest.raises(ConfigurationError, match="no cursor"):
        Cursor.parse(text, 3)


def test_a_cursor_is_what_it_says() -> None:
    cursor = Cursor(["17-3", "", "18-0"], {"ab12cd34ef": 5})
    assert Cursor.parse(str(cursor), 3) == cursor
    assert cursor.starts() == ["17-3", "17-3", "18-0"]


@pytest.mark.parametrize("text", ["0-0." + "111-" * 30_000 + "!", "9" * 5000 + "-1.", "1-" + "9" * 30 + "."])
def test_a_cursor_of_somebody_elses_making_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigurationError, match="no cursor"):
        Cursor.parse(text, 1)
    assert time.process_time() - began < 1
