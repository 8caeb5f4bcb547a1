"""The kinds of faults, one function each: when it strikes, in which words, and what it does to the town."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core import redlock
from ..core.effects import Steps
from ..errors import NotAcquired
from ..runners.virtual import Connection, VirtualRunner
from ..runners.virtual_world import Disk
from .client import SimLocker

if TYPE_CHECKING:
    from .faults import Draw, Planned
    from .town import Town


def delay(draw: Draw) -> Planned:
    for at in draw.times(4):
        client, most, lasts = draw.client(), 0.005 + draw.seconds(0.3), 0.5 + draw.seconds(4.0)

        def act(town: Town, client: int = client, most: float = most, lasts: float = lasts) -> None:
            runner = town.runners[client]
            runner.latency = (0.0002, most)
            town.world.call_later(lasts, lambda: setattr(runner, "latency", (0.0002, 0.002)))

        yield at, f"messages of c{client} take up to {most:.3f} s, for {lasts:.1f} s", act


def lost_request(draw: Draw) -> Planned:
    yield from _losses(draw, "to", "request")


def lost_answer(draw: Draw) -> Planned:
    yield from _losses(draw, "back", "answer")


def _losses(draw: Draw, way: str, what: str) -> Planned:
    for at in draw.times(10):
        client, pick, size = draw.client(), draw.chance.random(), int(draw.seconds(300))

        def act(town: Town, client: int = client, pick: float = pick, size: int = size) -> None:
            if connection := _one_of(town.runners[client], pick):
                connection.break_after(way, size)  # type: ignore[arg-type]

        yield at, f"a connection of c{client} breaks: the {what} after {size} bytes is lost", act


def half_open(draw: Draw) -> Planned:
    for at in draw.times(4):
        client, pick = draw.client(), draw.chance.random()

        def act(town: Town, client: int = client, pick: float = pick) -> None:
            if connection := _one_of(town.runners[client], pick):
                connection.silence()

        yield at, f"a connection of c{client} is dead, and nobody is told", act


def reordering(draw: Draw) -> Planned:
    for at in draw.times(8):
        client, pick, lasts = draw.client(), draw.chance.random(), 0.1 + draw.seconds(2 * draw.shape.ttl)

        def act(town: Town, client: int = client, pick: float = pick, lasts: float = lasts) -> None:
            if connection := _one_of(town.runners[client], pick):
                connection.hold("to", lasts)

        yield (
            at,
            f"what c{client} sends on one connection is {lasts:.1f} s late: others overtake it",
            act,
        )


def duplication(draw: Draw) -> Planned:
    share, late = 0.02 + 0.3 * draw.strength, draw.chance.choice((0.0, 0.05, 2 * draw.shape.ttl * draw.strength))
    seed = draw.chance.random()

    def act(town: Town) -> None:
        chance = random.Random(seed)
        town.echoes = max(town.echoes, late)
        for node in town.nodes:
            node.again = lambda _: late * chance.random() if chance.random() < share else None

    yield 0.0, f"{share:.0%} of requests are executed twice, up to {late:.2f} s later", act


def partition(draw: Draw) -> Planned:
    for at in draw.times(5):
        client, nodes, lasts = draw.client(), draw.nodes(), 0.1 + draw.seconds(2 * draw.shape.ttl)

        def act(town: Town, client: int = client, nodes: list[int] = nodes, lasts: float = lasts) -> None:
            for node in nodes:
                town.runners[client].stall(node, lasts)

        yield at, f"c{client} and {_named(nodes)} do not reach each other, for {lasts:.1f} s", act


def one_way_partition(draw: Draw) -> Planned:
    for at in draw.times(5):
        client, nodes, lasts = draw.client(), draw.nodes(), 0.1 + draw.seconds(2 * draw.shape.ttl)
        way = draw.chance.choice(("to", "back"))

        def act(
            town: Town, client: int = client, nodes: list[int] = nodes, lasts: float = lasts, way: str = way
        ) -> None:
            for node in nodes:
                town.runners[client].stall(node, lasts, way)  # type: ignore[arg-type]

        pair = (f"c{client}", _named(nodes)) if way == "to" else (_named(nodes), f"c{client}")
        yield at, f"nothing passes from {pair[0]} to {pair[1]}, for {lasts:.1f} s", act


def client_pause(draw: Draw) -> Planned:
    for at in draw.times(4):
        client, lasts, after = draw.client(), draw.seconds(5 * draw.shape.ttl), draw.chance.choice((0, 1, 2, 5, 9))
        when = draw.chance.choice(("", "has", "asks for"))

        def act(
            town: Town, client: int = client, lasts: float = lasts, after: int = after, when: str = when
        ) -> None:
            if when:
                town.ambushes[f"c{client} {when}"] = (after + 1, lasts)
            elif after:
                town.runners[client].pause_after(after, lasts)
            else:
                town.runners[client].pause(lasts)

        told = (f", when it {when} a lock" if when else "") + (f", {after} callbacks later" if after else "")
        yield at, f"c{client} stops for {lasts:.2f} s{told}", act


def node_pause(draw: Draw) -> Planned:
    for at in draw.times(4):
        nodes, lasts = draw.nodes(), draw.seconds(2 * draw.shape.ttl)

        def act(town: Town, nodes: list[int] = nodes, lasts: float = lasts) -> None:
            for index in nodes:
                node = town.nodes[index]
                node.pause()
                town.world.call_later(lasts, lambda node=node: node.resume() if node.paused else None)  # type: ignore[misc]

        yield at, f"{_named(nodes)} hang for {lasts:.1f} s", act


def client_clock(draw: Draw) -> Planned:
    for at in draw.times(3):
        client, step = draw.client(), draw.sign() * draw.seconds(10 * draw.shape.ttl)

        def act(town: Town, client: int = client, step: float = step) -> None:
            town.runners[client].wall_offset += step

        yield at, f"the wall clock of c{client} is set by {step:+.1f} s", act


def node_clock(draw: Draw) -> Planned:
    for at in draw.times(2):
        node, step = draw.node(), draw.sign() * draw.seconds(10 * draw.shape.ttl)

        def act(town: Town, node: int = node, step: float = step) -> None:
            town.nodes[node].time.step(step)
            town.stepped_back -= min(0.0, step)
            town.restarted = True  # a node whose clock was set back may have to wait out a quarantine
            town.assume_no_more("clock-step")
            town.look_at_clocks()

        yield at, f"the clock of node-{node} is set by {step:+.1f} s", act


def drift_within(draw: Draw) -> Planned:
    yield from _drift(draw, 0.004, "within the allowance", lambda town: None)


def drift_beyond(draw: Draw) -> Planned:
    yield from _drift(draw, 0.1, "beyond the allowance", lambda town: town.assume_no_more("drift"))


def _drift(draw: Draw, most: float, words: str, more: Callable[[Town], None]) -> Planned:
    rates = [1.0 + draw.sign() * draw.seconds(most) for _ in range(draw.shape.nodes + draw.shape.clients)]

    def act(town: Town) -> None:
        clocks = [*(node.time for node in town.nodes), *(runner.clock for runner in town.runners)]
        for clock, rate in zip(clocks, rates, strict=False):
            clock.run(rate)
        more(town)

    yield 0.0, f"clocks run at {min(rates):.4f} to {max(rates):.4f}: {words}", act


def crash_with_memory(draw: Draw) -> Planned:
    for at in draw.times(3):
        node, down = draw.node(), draw.seconds(draw.shape.ttl)

        def act(town: Town, node: int = node, down: float = down) -> None:
            _crash(town, node, down, town.nodes[node].disk(), forgets=False)

        yield at, f"node-{node} crashes, and comes back {down:.1f} s later with its memory", act


def crash_without(draw: Draw) -> Planned:
    for at in draw.times(3):
        nodes, down = draw.nodes(), draw.seconds(draw.shape.ttl)

        def act(town: Town, nodes: list[int] = nodes, down: float = down) -> None:
            for node in nodes:
                _crash(town, node, down, None)

        yield at, f"{_named(nodes)} crash, and come back {down:.1f} s later without any memory", act


def last_second_lost(draw: Draw) -> Planned:
    yield from _old(draw, 1.0, 1.0, "without the last second")


def old_disk(draw: Draw) -> Planned:
    yield from _old(draw, 0.5, 3 * draw.shape.ttl, "with an old disk")


def _old(draw: Draw, least: float, most: float, words: str) -> Planned:
    for at in draw.times(2):
        node, down = draw.node(), draw.seconds(draw.shape.ttl)
        age = max(least, most * draw.chance.random())

        def act(town: Town, node: int = node, down: float = down, age: float = age) -> None:
            disk = town.nodes[node].disk()

            def crash() -> None:
                if town.calm_at is None:
                    town.log.add(f"node-{node}", "crashes now")
                    _crash(town, node, down, disk)

            town.world.call_later(age, crash)

        yield at, f"node-{node} crashes {age:.1f} s later, and comes back {words} (that of now)", act


def rolling_restart(draw: Draw) -> Planned:
    at, gap = draw.chance.random() * draw.shape.storm / 2, 0.05 + draw.seconds(2 * draw.shape.ttl)
    for node in range(draw.shape.nodes):

        def act(town: Town, node: int = node) -> None:
            _crash(town, node, 0.01, None)

        yield at + node * gap, f"node-{node} is restarted, and is empty: one after another, {gap:.1f} s apart", act


def operator_del(draw: Draw) -> Planned:
    for at in draw.times(2):
        nodes = draw.nodes()

        def act(town: Town, nodes: list[int] = nodes) -> None:
            for index in nodes:
                server = town.nodes[index].server
                for key in server.keys():  # noqa: SIM118
                    if not key.startswith("ql:"):
                        server.delete(key)
            town.assume_no_more("deleted")

        yield at, f"an operator deletes all locks on {_named(nodes)}", act


def operator_break(draw: Draw) -> Planned:
    for at in draw.times(2):
        client = draw.client()

        def act(town: Town, client: int = client) -> None:
            locker = town.lockers[client]
            for line in town.lines:
                town.runners[client].spawn(_force(town, locker, line))
            town.assume_no_more("forced")

        yield at, f"an operator forces the locks open, at c{client}", act


def _force(town: Town, locker: SimLocker, line: str) -> Steps[None]:
    try:
        tally = yield from redlock.break_(locker._fleet, line)
        locker._broken(line, tally, "an operator")
    except NotAcquired:
        town.log.add("operator", f"cannot force {line} open")


def mixed_fleet(draw: Draw) -> Planned:
    # So many that its majority needs one of the fleet's: else it would have a fleet of its own.
    more = min(2, draw.shape.nodes)

    def act(town: Town) -> None:
        town.strays += 1
        if town.memory_lost and town.restarted:
            town.assume_no_more("mixed")
        town.employ(town.client("stray", [*town.nodes, *town.more_nodes(more)]), "stray")

    yield 0.2, f"a client comes that counts {more} more nodes", act


def late_write(draw: Draw) -> Planned:
    late = draw.seconds(3 * draw.shape.ttl)

    def act(town: Town) -> None:
        town.late_writes = late

    yield 0.0, f"writes arrive up to {late:.1f} s late at their resource", act


def _crash(town: Town, index: int, down: float, disk: Disk | None, *, forgets: bool = True) -> None:
    node = town.nodes[index]
    if node.up:
        town.restarted = True
        if forgets:
            town.forget()
        node.crash()
        town.disks[index] = disk
        town.world.call_later(down, lambda: town.restore(index))


def _one_of(runner: VirtualRunner, pick: float) -> Connection | None:
    known = [connection for connection in runner.connections if connection.open]
    return known[int(pick * len(known))] if known else None


def _named(nodes: list[int]) -> str:
    return ", ".join(f"node-{index}" for index in nodes)
