"""A simulated town: nodes, clients who want the same locks, checkers who watch them, and what was assumed.

Everything is drawn from the seed. The shape of a town, its faults and each worker have a source of chance of their
own, so that a fault can be left out without changing who lives there.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import fleet
from ..engines.memory.keys import Reply
from ..errors import LossReason
from ..runners.virtual import Procedure, VirtualNode, VirtualRunner, World
from ..runners.virtual_world import Disk
from .checkers import CHECKERS
from .checkers.base import HOOKS, Checker, Violation
from .client import SimLease, SimLocker, settings
from .ledger import Entry, Ledger
from .log import Log

if TYPE_CHECKING:
    from .workloads.base import Wait, Worker

TTL = 2.0
MAX_TTL = 3.0
PATIENCE = 2.0
LATENCY = (0.0002, 0.002)
FORGETFUL = 4 * MAX_TTL
"""The shortest time for which a fence may be kept."""

EVENTS_MOST = 300_000

ASSUMPTIONS = {
    "clock-step": "the clock of a node was set",
    "drift": "clock rates differed by more than the allowance",
    "deleted": "an operator deleted locks",
    "forced": "an operator forced a lock open",
    "unguarded": "a node without quarantine lost its memory",
    "mixed": "a client had another list of nodes, and a node lost its memory",
    "fences": "memory was lost, and node clocks did not agree within max_ttl/4",
}
"""What the promises (docs/concepts/promises.md) rest on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a town is built."""

    nodes: int
    clients: int
    quarantine: bool
    fence_ttl: float
    ttl: float
    storm: float
    """Seconds for which there are faults."""

    @classmethod
    def draw(cls, seed: int) -> Shape:
        chance = random.Random(f"{seed}/shape")
        nodes = chance.choice((1, 3, 3, 3, 3, 5, 5))
        return cls(
            nodes=nodes,
            clients=chance.choice((2, 3, 3)),
            quarantine=nodes > 1 or chance.random() < 0.5,
            fence_ttl=chance.choice((86400.0, 86400.0, FORGETFUL)),
            ttl=chance.choice((TTL, TTL, TTL, TTL / 2, MAX_TTL)),
            storm=chance.uniform(3.0, 6.0),
        )


class Endless(RuntimeError):
    """So much happens in so short a time that something must be going round in circles."""


class Town:
    """Who lives there, and what becomes of them."""

    def __init__(self, seed: int, shape: Shape, workload: type[Worker]) -> None:
        self.seed = seed
        self.workload = workload
        self.shape = shape
        self.ttl = shape.ttl
        self.lines = workload.lines
        """What is waited for."""
        self.crowd = shape.clients * workload.each
        """How many workers there are."""
        self.world = World(seed)
        self.log = Log(self.world.clock)
        self._crc = 0
        self._hooks: dict[str, list[Callable[..., None]]] = {hook: [] for hook in HOOKS}
        self.nodes = [self._node(index) for index in range(shape.nodes)]
        self.runners: list[VirtualRunner] = []
        self.lockers: list[SimLocker] = []
        self.procedures: list[Procedure[None]] = []
        self.errors: list[BaseException] = []
        """Of keepers, who go on after them."""
        self.ledgers: dict[str, Ledger] = {}
        self.ambushes: dict[str, tuple[int, float]] = {}
        """Clients that stop when they have a lock, or ask for it: how many callbacks later, and for how long."""
        self.disks: dict[int, Disk | None] = {}
        """What nodes that are down will come back with."""
        self.violations: list[Violation] = []
        self.broken: dict[str, float] = {}
        """Assumptions that did not hold, and since when."""
        self.memory_lost = shape.fence_ttl == FORGETFUL
        self.restarted = False
        self.stepped_back = 0.0
        """By how much the clock of a node was set back: what it keeps lives for so much longer."""
        self.strays = 0
        self.faulty = False
        """Did anything go wrong at all?"""
        self.forgets = False
        """Has a worker gone without giving its lock back?"""
        self.echoes = 0.0
        """Seconds after which a request may be executed a second time."""
        self.late_writes = 0.0
        """Seconds by which a write may be late at its resource."""
        self.calm_at: float | None = None
        self.closing = False
        self.counts = dict.fromkeys(("granted", "renewed", "lost", "refused", "writes", "overwritten"), 0)
        for kind in CHECKERS.values():
            checker = kind(self)
            for hook in HOOKS:
                if getattr(kind, hook) is not getattr(Checker, hook):
                    self._hooks[hook].append(getattr(checker, hook))
        for index in range(shape.clients):
            self.lockers.append(self.client(f"c{index}", self.nodes))

    def start(self) -> None:
        """Makes the fleet ready, and lets every client meet it."""
        self.runners[0].run(fleet.initialise(self.runners[0].fleet, False))
        for runner in self.runners:
            runner.run(fleet.muster(runner.fleet))

    def client(self, name: str, nodes: list[VirtualNode]) -> SimLocker:
        shape = self.shape
        runner = VirtualRunner(
            self.world, nodes, name=name, max_ttl=MAX_TTL, quarantine=shape.quarantine, fence_ttl=shape.fence_ttl,
            latency=LATENCY,
        )  # fmt: skip
        self.runners.append(runner)
        terms = settings(max_ttl=MAX_TTL, quarantine=shape.quarantine, fence_ttl=shape.fence_ttl, patience=PATIENCE)
        return SimLocker(runner, terms, self)

    def ledger(self, resource: str) -> Ledger:
        if resource not in self.ledgers:
            self.ledgers[resource] = Ledger(self, resource)
        return self.ledgers[resource]

    def _node(self, index: int) -> VirtualNode:
        node, hooks = VirtualNode(self.world, index), self._hooks["executed"]

        def executed(command: list[bytes], reply: Reply) -> None:
            self._crc = zlib.crc32(b"%d %b %b" % (index, b" ".join(command[1:]), repr(reply).encode()), self._crc)
            for hook in hooks:
                hook(node, command)

        node.on_executed = executed
        return node

    def more_nodes(self, count: int) -> list[VirtualNode]:
        """Nodes that are not of the fleet."""
        return [self._node(len(self.nodes) + index) for index in range(count)]

    def employ(self, locker: SimLocker, name: str) -> None:
        """Somebody begins to work."""
        worker = self.workload(self, locker, name)
        self.procedures.append(locker._runner.spawn(worker.live()))

    def restore(self, index: int) -> None:
        """A node that has crashed comes back, with what its disk holds."""
        if not self.nodes[index].up:
            self.nodes[index].restart(self.disks.pop(index))

    def calm(self) -> None:
        """Faults stop. (Clocks that were set stay as they are; connections that are dead are found out to be.)"""
        self.calm_at = self.world.now
        self.late_writes = 0.0
        self.ambushes.clear()
        self.look_at_clocks()
        for index, node in enumerate(self.nodes):
            self.restore(index)
            if node.paused:
                node.resume()
            node.time.run(1.0)
            node.again = None
        for runner in self.runners:
            runner.latency = LATENCY
            runner.heal()
            runner.wake()
        self.tell("calmed")

    def go(self, seconds: float, done: Callable[[], bool] | None = None) -> None:
        """Lets the world go on for so long, or until that is so."""
        world, end = self.world, self.world.now + seconds
        world.call_at(end, lambda: None)
        step, most = world.step, world.count + EVENTS_MOST
        while world.now < end and (done is None or not done()):
            step()
            if world.count > most:
                raise Endless(f"more than {EVENTS_MOST} events until {world.now:.1f} s")

    # What is told.

    def tell(self, hook: str, *about: Any) -> None:
        for call in self._hooks[hook]:
            call(*about)

    def granted(self, lease: SimLease, since: float) -> None:
        self.counts["granted"] += 1
        self.ambush(lease._locker._runner, "has")
        self.log.add(lease.held_by, f"has {lease.resource} with fence {lease.fence}")
        self.tell("granted", lease, since)

    def ambush(self, runner: VirtualRunner, when: str) -> None:
        """A client does something, and may be stopped over it."""
        if ambush := self.ambushes.pop(f"{runner.name} {when}", None):
            runner.pause_after(*ambush)

    def renewed(self, lease: SimLease) -> None:
        self.counts["renewed"] += 1
        self.tell("renewed", lease)

    def lost(self, lease: SimLease, reason: LossReason) -> None:
        self.counts["lost"] += 1
        self.log.add(lease.held_by, f"has lost {lease.resource}: {reason.value}")
        self.tell("lost", lease, reason)

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def wrote(self, entry: Entry) -> None:
        self.counts["writes"] += 1
        self.counts["overwritten"] += entry.lost
        self.log.add(entry.resource, f"is written by {entry.who} with fence {entry.fence}")
        self.tell("wrote", entry)

    def waited(self, wait: Wait) -> None:
        self.tell("waited", wait)

    def allowed(self) -> float:
        """Seconds after which every lock is obtained again when faults have stopped."""
        quarantine = MAX_TTL if self.restarted else 0.0
        return 3 * self.ttl + quarantine + self.stepped_back + self.echoes

    # What was assumed, and what was promised.

    def assume_no_more(self, assumption: str) -> None:
        self.broken.setdefault(assumption, self.world.now)

    def forget(self) -> None:
        """A node has lost its memory, or a part of it."""
        self.memory_lost = self.restarted = True
        if not self.shape.quarantine:
            self.assume_no_more("unguarded")
        if self.strays:
            self.assume_no_more("mixed")

    def look_at_clocks(self) -> None:
        """Do those of the nodes agree, with one another and with what they said before?"""
        times = [self.world.wall(), *(node.time() for node in self.nodes)]
        if self.memory_lost and max(times) - min(times) > MAX_TTL / 4:
            self.assume_no_more("fences")

    def complain(self, checker: Checker, text: str) -> None:
        self.look_at_clocks()
        broken = [kind for kind in self.broken if kind in checker.rests_on]
        excuse = broken[0] if broken else None
        self.log.add("checker", f"{checker.name}: {text}" + (f" (excused: {excuse})" if excuse else ""))
        self.violations.append(Violation(checker.name, self.world.now, text, excuse))

    def digest(self) -> str:
        """Of all that was told, and of all that nodes were asked and answered."""
        return f"{self.log.digest()[:24]}{self._crc:08x}"
