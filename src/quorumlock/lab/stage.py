"""Plays a story in the simulator: nodes, clients, a storage, and what happens to them at which time.

The clients run the production code over the virtual runner (`stage_core.py`), or a naive design (`naive.py`).
The same story gives the same run: the seed is fixed, and nothing else is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core import fleet, redlock
from ..core.effects import Steps
from ..errors import LockError
from ..events import logger
from ..runners.virtual import Procedure, VirtualNode, VirtualRunner, World
from ..runners.virtual_world import Disk
from .naive import DESIGNS, Design, new_player
from .stage_players import CARRIED_OFF, NAME, Neighbour, Player
from .stage_record import Holding, Record
from .stage_storage import Storage
from .story import ACTS, Cast, Step, Story, Telling

TICKS = 1200
SEED = 1
MARKER = "ql:node"


class CurtainFalls(Exception):
    """The story is over: whoever still waits cleans up."""


@dataclass(frozen=True, slots=True)
class Run:
    """A story that was played."""

    story: Story
    telling: Telling
    design: Design
    record: Record
    naive: bool

    @property
    def nodes(self) -> int:
        """How many nodes the design knows."""
        return 1 if self.design.raw in ("one", "session") else self.story.cast.nodes


def play(story: Story, *, naive: bool = False) -> Run:
    """Plays it to its end; what is to be thought of it is asked elsewhere."""
    telling = story.naive if naive else story.ours
    design = DESIGNS[telling.design]
    stage = Stage(story, design)
    quiet, logger.disabled = logger.disabled, True  # what nodes in quarantine say is part of the story here
    try:
        stage.run()
    finally:
        logger.disabled = quiet
        stage.storage.close()
    return Run(story, telling, design, stage.record, naive)


class Stage:
    """The world of one story."""

    def __init__(self, story: Story, design: Design) -> None:
        self.story = story
        self.cast: Cast = story.cast
        self.design = design
        self.world = World(SEED)
        self.record = Record()
        self.nodes = [VirtualNode(self.world, index) for index in range(self.cast.nodes)]
        self.disks: list[Disk] = [{} for _ in self.nodes]
        self.storage = Storage(self, design.guard)
        self.players: dict[str, Player] = {}
        self.procedures: list[Procedure[None]] = []
        self.operator = self.new_client("operator")
        self._zero = 0.0
        self._tick = story.until / TICKS

    @property
    def now(self) -> float:
        """Seconds since the story began."""
        return self.world.now - self._zero

    def new_client(self, name: str) -> Neighbour:
        cast, design = self.cast, self.design
        known = [self.nodes[number - 1] for number in cast.lists.get(name, range(1, cast.nodes + 1))]
        if name == "operator" and cast.lists:
            known = [self.nodes[number - 1] for number in next(iter(cast.lists.values()))]
        quarantine = cast.quarantine if design.quarantine is None else design.quarantine
        return Neighbour(
            self.world, known, name=name, max_ttl=cast.max_ttl or cast.ttl, quarantine=quarantine,
            node_timeout=cast.node_timeout, drift=design.drift,
        )  # fmt: skip

    def spawn(self, client: VirtualRunner, steps: Steps[None]) -> Procedure[None]:
        procedure = client.spawn(steps)
        self.procedures.append(procedure)
        return procedure

    def run(self) -> None:
        self._set_up()
        for name, player in self.players.items():
            mine = [step for step in self.story.steps if step.who == name and step.does in ACTS]
            self.spawn(player.client, player.play(mine))
        for step in self.story.steps:
            if step.does not in ACTS:
                self.world.call_at(self._zero + step.at, lambda step=step: self._strike(step))  # type: ignore[misc]
        self._look_on()
        self.world.advance(self.story.until)
        self._look_at_the_end()
        self._fall()

    def _set_up(self) -> None:
        """Before the story begins: a fleet that is ready, and clients that are connected to it."""
        if self.design.raw == "":
            self.operator.run(fleet.initialise(self.operator.fleet, False))
        for name in self.cast.clients:
            client = self.new_client(name)
            if self.design.raw == "" and not self.cast.lists and not self._short_of_memory():
                client.run(fleet.muster(client.fleet))
            client.latency = (self.cast.latency, self.cast.latency)
            self.players[name] = new_player(self, client, name)
        self.world.advance(1.0 - self.world.now % 1.0)
        self._zero = self.world.now

    def _short_of_memory(self) -> bool:
        return any(step.does == "run short of memory" for step in self.story.steps)

    # What happens to them.

    def _strike(self, step: Step) -> None:
        who, does, more = step.who, step.does, step.options
        why = f" ({step.because})" if step.because else ""
        told = ""
        if who in self.players:
            told = self.players[who].suffer(step)
        elif who == "operator":
            told = "breaks the lock by force: it is deleted on all nodes"
            self._break()
        else:
            for number in step.nodes:
                told = self._strike_node(self.nodes[number - 1], does, more.get("by", 0.0), more.get("for"), step)
        if told:
            self.record.tell(self.now, who, told + why, "fault")

    def _strike_node(self, node: VirtualNode, does: str, by: float, lasts: float | None, step: Step) -> str:
        many = len(step.nodes) > 1
        lane, at = f"node {node.index + 1}", self.now
        if does == "die":
            node.crash()
            return "die" if many else "dies"
        if does == "hang":
            node.pause()
            if lasts is not None:
                self.world.call_later(lasts, node.resume)
            return ("hang" if many else "hangs") + (f" for {lasts:g} s" if lasts else "")
        if does in ("save", "replicate"):
            self.disks[node.index] = node.disk()
            if does == "replicate":
                return "its replica has heard of everything up to now"
            return "write their disks" if many else "writes its disk"
        if does == "fail over":
            node.restart(self.disks[node.index])
            self.record.mark(lane, "fault", at, "failover")
            return "dies, and its replica takes its place"
        if does == "restart":
            with_disk = step.options.get("disk", "empty")
            node.restart(None if with_disk == "empty" else self.disks[node.index])
            self.record.mark(lane, "fault", at, "empty" if with_disk == "empty" else "old disk")
            word = "restart" if many else "restarts"
            return f"{word} empty" if with_disk == "empty" else f"{word} with an old disk"
        if does == "step":
            node.time.step(by)
            self.record.mark(lane, "fault", at, f"clock {by:+g} s")
            return f"{'their clocks step' if many else 'its clock steps'} by {by:+g} s"
        if does == "drift":
            node.time.run(1 + by)
            self.record.mark(lane, "fault", at, f"clock {by:+.0%}")
            how = f"{abs(by):.0%} too {'fast' if by > 0 else 'slow'}"
            return f"their clocks run {how}" if many else f"its clock runs {how}"
        if does == "evict":
            node.server.delete(NAME)
            self.record.mark(lane, "fault", at, "evicted")
            return "evict the lock: memory is short" if many else "evicts the lock: memory is short"
        node.server.maxmemory, node.server.policy = 1_000_000, "volatile-lru"
        return "may evict keys that have a TTL (maxmemory, volatile-lru)"

    def _break(self) -> None:
        if self.design.raw:
            for node in self.nodes:
                node.server.delete(NAME)
            return

        def breaking() -> Steps[None]:
            yield from redlock.break_(self.operator.fleet, NAME)

        self.spawn(self.operator, breaking())

    # What is seen.

    def _look_on(self) -> None:
        """Every tick of the story: who has the lock, in its own eyes and on the nodes?"""
        now, tick, record = self.now, self._tick, self.record
        valid = [one for one in record.holdings if one.ended_at is None and one.valid()]
        for name, player in self.players.items():
            self._look_at(player, [one for one in valid if one.who == name])
        if len(valid) > 1:
            record.overlapped(now, tick)
        known = {one.who for one in record.holdings if one.ended_at is None}
        known |= {one.who for one in record.askings if one.ended_at is None}
        orphan = False
        for index, node in enumerate(self.nodes):
            owner = self._look_at_node(f"node {index + 1}", node)
            orphan = orphan or (owner != "" and owner not in known)
        record.orphan(orphan, tick)
        if now < self.story.until:
            self.world.call_later(tick, self._look_on)

    def _look_at(self, player: Player, valid: list[Holding]) -> None:
        now, record, lane = self.now, self.record, player.name
        believes = [one for one in record.holdings if one.who == player.name and one.ended_at is None]
        held = valid or believes
        label = f"#{held[-1].fence}" if held and held[-1].fence else ""
        record.state(lane, "lease", now, "lease" if valid else "belief" if believes and not player.dead else "",
                     lane, label if valid else "")  # fmt: skip
        asking = any(one.who == lane and one.ended_at is None for one in record.askings)
        record.state(lane, "ask", now, "ask" if asking and not player.dead and not valid else "", lane)
        stopped = "dead" if player.dead else "pause" if player.client.asleep else ""
        record.state(lane, "stop", now, stopped, lane, player.why if stopped == "pause" else "")
        cut = not player.dead and now < player.cut_until
        record.state(lane, "cut", now, "cut" if cut else "", lane)

    def _look_at_node(self, lane: str, node: VirtualNode) -> str:
        """Whose lock it has, if anybody's."""
        server, record, now = node.server, self.record, self.now
        state = "down" if not node.up else "hung" if node.paused else ""
        marker = server.get(MARKER)
        if not state and isinstance(marker, bytes) and self.design.quarantine is not False:
            state = "quarantine" if int(marker.split()[0]) > node.time() * 1_000_000 else ""
        value = server.get(NAME) if node.up else None
        owner = value.decode()[:1] if isinstance(value, bytes) else ""
        record.state(lane, "state", now, state)
        record.state(lane, "lock", now, "lock" if owner else "", owner)
        return owner

    def _look_at_the_end(self) -> None:
        record = self.record
        record.closed = True
        record.value, record.acknowledged = self.storage.value, self.storage.acknowledged
        for asking in record.askings:
            if asking.ended_at is None:
                asking.how = "waits still"
        record.keys_without_ttl = sum(node.server.pttl(NAME) == -1 for node in self.nodes)

    def _fall(self) -> None:
        """A procedure that was started is never closed: it cleans up after itself."""
        for node in self.nodes:
            node.resume()
        for player in self.players.values():
            player.client.heal()
            player.leave()
        self.world.advance(2 * CARRIED_OFF)
        for procedure in self.procedures:
            procedure.throw(CurtainFalls())
        ends_at = self.world.now + 60
        self.world.run_until(lambda: self.world.now > ends_at or all(one.done for one in self.procedures))
        for procedure in self.procedures:
            try:
                procedure.result()
            except (CurtainFalls, LockError):
                pass  # it was interrupted, and has said what there was to say before
