"""Readers, writers, slots and several locks at once under simulated faults: what they promise, and canaries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from quorumlock.core import family, fleet, redlock, waiting
from quorumlock.core.effects import Sleep, Steps
from quorumlock.core.family import AllOf, AnyOf, Read, Write
from quorumlock.core.redlock import Grant, Kind
from quorumlock.core.votes import Tally
from quorumlock.core.waiting import Wish
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.errors import LeaseLost, NotAcquired
from quorumlock.retry import Jitter
from quorumlock.runners.virtual import VirtualNode, VirtualRunner, World

from .test_virtual import MAX_TTL, TTL, trouble

RUN = 12.0
PERMITS = 2
KINDS: dict[str, Callable[[World], Kind]] = {
    "read": lambda _: Read(),
    "write": lambda _: Write(),
    "slot": lambda world: AnyOf("pool", PERMITS, world.random.randrange(PERMITS)),
    "multi": lambda world: AllOf(tuple(world.random.sample(["a", "b", "c"], 2))),
}
NAMES = {"read": "doc", "write": "doc", "slot": "pool", "multi": "{several}"}


@dataclass
class Held:
    """Somebody had something, from when to when."""

    kind: str
    fences: dict[str, int]
    since: float
    until: float


@dataclass
class Story:
    leases: list[Held] = field(default_factory=list)
    lost: int = 0

    def of(self, resource: str) -> list[Held]:
        mine = [held for held in self.leases if resource in held.fences]
        return sorted(mine, key=lambda held: held.since)

    def wrong(self) -> list[str]:
        """A sentence for every promise that was broken."""
        found = []
        for resource in sorted({name for held in self.leases for name in held.fences}):
            for one, other in itertools.combinations(self.of(resource), 2):
                sharing = one.kind == other.kind == "read"
                if other.since < one.until and not sharing:
                    found.append(f"{resource}: {one} overlaps {other}")
                if one.kind != "read" and other.fences[resource] < one.fences[resource] + (other.kind != "read"):
                    found.append(f"{resource}: {other} does not come after {one}")
        return found


def live(client: VirtualRunner, kind: str, story: Story) -> Steps[None]:
    """A client's life: take it, work, extend now and then, release."""
    world = client.world
    while world.now < RUN:
        chosen = KINDS[kind](world)
        name = f"{{{', '.join(chosen.names)}}}" if kind == "multi" else NAMES[kind]
        strict = kind in ("read", "write")
        wish = Wish(name, TTL, 5.0, Jitter(0.1), 5.0, fair=strict, kind=chosen)
        try:
            grant = yield from waiting.obtain(client.fleet, client.room, wish)
        except NotAcquired:
            continue
        parts = grant.parts or (grant,)
        held = Held(kind, {part.name: part.fence for part in parts}, world.now, grant.valid_until)
        story.leases.append(held)
        try:
            for _ in range(world.random.randrange(3)):
                yield Sleep(world.random.random() * TTL)  # may well be a pause beyond the ttl
                for part in parts:
                    yield from waiting.extend_or_lose(client.fleet, part, TTL)
                held.until = min(part.valid_until for part in parts)
        except LeaseLost:
            story.lost += 1
            held.until = min(held.until, *(part.valid_until for part in parts))
        held.until = min(held.until, world.now)
        yield from give_back(client, chosen, name, grant)
        yield Sleep(world.random.random() * 0.1)


def give_back(client: VirtualRunner, kind: Kind, name: str, grant: Grant) -> Steps[None]:
    grant.over = True
    request = kind.undoing(name, grant.token)._replace(wake=True, ticket=grant.ticket)
    tally = yield from redlock.release(client.fleet, name, grant.token, TTL, grant.route, request=request)
    client.room.freed(grant, any(answer is not None and answer.place for answer in tally.answers))


def simulate(seed: int) -> Story:
    world = World(seed)
    nodes = [VirtualNode(world, index) for index in range(world.random.choice([1, 3, 5]))]
    kinds = [*KINDS, *KINDS, "read"]
    clients = [
        VirtualRunner(world, nodes, name=f"c{i}", max_ttl=MAX_TTL, quarantine=True) for i in range(len(kinds))
    ]
    clients[0].run(fleet.initialise(clients[0].fleet, False))
    story = Story()
    lives = [client.spawn(live(client, kind, story)) for client, kind in zip(clients, kinds, strict=True)]
    faults = trouble(world, nodes, clients)

    def next_fault() -> None:
        if world.now < RUN * 0.8:
            next(faults)()
            world.call_later(world.random.random() * 1.0, next_fault)

    world.call_later(0.5, next_fault)
    world.run_until(lambda: all(one.done for one in lives))
    for one in lives:
        one.result()
    return story


@pytest.mark.parametrize("block", range(3))
def test_every_kind_keeps_its_promise_under_faults(block: int) -> None:
    told: set[str] = set()
    lost = shared = 0
    for seed in range(block * 4, block * 4 + 4):
        story = simulate(seed)
        assert not story.wrong(), f"seed {seed}: {story.wrong()[0]}"
        told |= {name for held in story.leases for name in held.fences}
        lost += story.lost
        readers = [held for held in story.of("doc") if held.kind == "read"]
        shared += sum(b.since < a.until for a, b in itertools.pairwise(readers))
    assert told == {"doc", "pool#0", "pool#1", "a", "b", "c"}
    assert lost, "no lease was ever lost: there was hardly any trouble"
    assert shared, "nobody ever shared anything"


def found_out(seeds: int = 30) -> bool:
    return any(simulate(seed).wrong() for seed in range(seeds))


def test_a_reader_that_does_not_look_for_a_writer_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ServerDouble._read

    def careless(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> object:
        reply = read(self, keys, argv)
        return [1, reply[2]] if reply[0] == 0 else reply

    monkeypatch.setattr(ServerDouble, "_read", careless)
    assert found_out()


def test_slots_that_are_counted_together_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a counter on each node would: a majority of grants, of whatever slot."""
    monkeypatch.setattr(family.Alike, "_can_be_decided", Tally._can_be_decided)
    monkeypatch.setattr(family.Alike, "only", lambda self, _: self)
    assert found_out()


def test_several_locks_of_which_only_one_is_looked_at_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = ServerDouble._all

    def greedy(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> object:
        reply = everything(self, keys, argv)
        return [1, reply[2] + 1, reply[2] + 1] if reply[0] == 0 else reply

    monkeypatch.setattr(ServerDouble, "_all", greedy)
    assert found_out()
