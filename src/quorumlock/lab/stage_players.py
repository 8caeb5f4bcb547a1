"""The clients of a story: each does what its steps say, one after another, with the production core.

A step is done at its time, or when the one before it is over. Who did not get the lock leaves out what needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.effects import Sleep, Steps
from ..core.keeper import DUE_FIRST, Roster, tend
from ..core.redlock import Grant, release
from ..core.renewal import Extension
from ..core.requests import Release
from ..core.waiting import Wish, obtain
from ..errors import ConfigurationError, LossReason, NoQuorum, NotAcquired
from ..retry import DEFAULT_RETRY
from ..runners.virtual import VirtualRunner
from .stage_record import Asking, Holding
from .story import Step

if TYPE_CHECKING:
    from .stage import Stage

NAME = "counter"
PATIENCE = 5.0


class Neighbour(VirtualRunner):
    """A client that may be nearer to some nodes than to others."""

    near: Mapping[int, float] = {}

    def delay(self, node: int) -> float:
        return self.near.get(node) or super().delay(node)


class Player:
    """A client, and what it does; how it gets the lock is said by those who derive from it."""

    def __init__(self, stage: Stage, client: Neighbour, name: str) -> None:
        self.stage = stage
        self.client = client
        self.name = name
        self.dead = False
        self.worker_gone = False
        self.cut_until = 0.0
        self.why = ""
        """Why it is stopped."""
        self.holding: Holding | None = None
        self.seen: int | None = None
        """What it has read."""

    @property
    def now(self) -> float:
        return self.stage.now

    def tell(self, text: str, tone: str = "") -> None:
        self.stage.record.tell(self.now, self.name, text, tone)

    def flag(self, label: str, kind: str = "told") -> None:
        """Something that it is told, or that happens to it, for the picture."""
        self.stage.record.mark(self.name, kind, self.now, label, self.name)

    def play(self, steps: Sequence[Step]) -> Steps[None]:
        for step in steps:
            if (wait := step.at - self.now) > 0:
                yield Sleep(wait)
            if self.worker_gone:
                return
            if step.does == "acquires":
                if self.holding is not None and self.holding.ended_at is None and self.holding.valid():
                    continue  # it has it
                yield from self.acquires(step.options.get("patience", 0.0))
            elif self.holding is not None and step.does == "works":
                yield Sleep(step.options["for"])
            elif self.holding is not None and step.does == "releases":
                yield from self.releases(self.holding)
            elif self.holding is not None:
                getattr(self, step.does)(self.holding, **step.options)

    # Of its own will.

    def acquires(self, patience: float) -> Steps[None]:
        asking = Asking(self.name, self.now)
        self.stage.record.askings.append(asking)
        if patience:
            self.tell(f"asks for the lock, ready to wait {patience:g} s")
        try:
            yield from self.obtain(asking, patience)
        except NotAcquired as error:
            broken = isinstance(error, NoQuorum)
            self.stage.record.count("no quorum" if broken else "turned away", self.name)
            self.flag("NoQuorum" if broken else "turned away")
            took = f" after {self.now - asking.since:.2f} s" if patience else ""
            self.tell(f"{'NoQuorum' if broken else 'is turned away'}{took}: {plain(error)}", "good")
            asking.how = "refused"
        except ConfigurationError as error:
            self.stage.record.count("misconfigured", self.name)
            self.flag("ConfigurationError")
            self.tell(f"ConfigurationError: {str(error)[:100]}", "good")
            asking.how = "refused"
        finally:
            asking.ended_at = min(self.now, self.stage.story.until)

    def got(self, asking: Asking, holding: Holding, how: str) -> None:
        self.holding, self.seen = holding, None
        asking.ended_at, asking.how = self.now, "granted"
        self.stage.record.holdings.append(holding)
        self.stage.record.count("leases", self.name)
        waited = self.now - asking.since
        lines = self.stage.record.lines
        if lines and lines[-1].who == self.name and lines[-1].at == asking.since:
            lines.pop()  # that it asked goes without saying
        self.tell(f"gets the lock{f' after {waited:.2f} s' if waited >= 0.1 else ''}: {how}")

    def reads(self, holding: Holding) -> None:
        self.seen = self.stage.storage.read(self.name, holding.fence)

    def writes(self, holding: Holding, delay: float = 0.0) -> None:
        if self.seen is not None:
            late = f"; the network holds it up for {delay:g} s" if delay else ""
            self.tell(f"writes {self.seen + 1}{late}", "fault" if delay else "")
            self.stage.storage.send(self.name, holding.fence, self.seen + 1, delay or self.stage.cast.latency)

    def checks(self, holding: Holding) -> None:
        if holding.valid() and holding.ended_at is None:
            self.tell("checks its lease: it is valid")
        elif not holding.told:
            self.lose(holding, "expired", "checks its lease: ")

    def lose(self, holding: Holding, reason: str, how: str = "") -> None:
        """It is told that the lease is gone."""
        if holding.told or holding.ended_at is not None:
            return
        holding.told, holding.ended_at = True, self.now
        self.stage.record.count("losses told", self.name)
        self.flag("LeaseLost")
        self.tell(f"{how}LeaseLost ({reason})", "good")

    def obtain(self, asking: Asking, patience: float) -> Steps[None]:
        raise NotImplementedError

    def releases(self, holding: Holding) -> Steps[None]:
        raise NotImplementedError

    # What happens to it.

    def suffer(self, step: Step) -> str:
        """Something happens to it; what is to be told."""
        lasts, does = float(step.options.get("for", 0.0)), step.does
        client, left = self.client, self.stage.story.until - self.now
        if does == "pauses":
            client.pause(lasts)
            self.why = f": {step.because}" if step.because else ""
            self.stage.world.call_later(lasts, lambda: self.tell("wakes, and does not know that it slept"))
            return f"stops for {lasts:g} s"
        if does == "dies":
            self.dead = True
            client.pause(left + 1.0)
            return "dies"
        if does in ("hangs", "loses its worker"):
            self.worker_gone = True
            self.flag("worker hangs" if does == "hangs" else "worker dies", "fault")
            self.hung(does == "hangs")
            return "its worker thread hangs" if does == "hangs" else "its worker thread dies; the process goes on"
        if does == "sets its clock":
            self.flag(f"wall clock {step.options['by']:+g} s", "fault")
            client.wall_offset += step.options["by"]
            return f"its wall clock is set by {step.options['by']:+g} s"
        if does == "is slow":
            self.flag(f"slow network: {step.options['by']:g} s one way", "fault")
            client.latency = (step.options["by"], step.options["by"])
            return f"its network is slow: {step.options['by']:g} s one way"
        places = step.options.get("from", step.options.get("to", tuple(range(1, self.stage.cast.nodes + 1))))
        if does == "is near":
            client.near = {number - 1: self.stage.cast.latency / 20 for number in places}
            return f"is nearer to {nodes(places)} than to the others"
        lasts = lasts or left
        if does == "is cut off":
            if len(places) == self.stage.cast.nodes:
                self.cut_until = self.now + lasts
            else:
                self.flag(f"cut off from {nodes(places)}", "fault")
            for number in places:
                client.stall(number - 1, lasts)
            ending = f" for {lasts:g} s" if lasts < left else ""
            return f"is cut off from {nodes(places, self.stage.cast.nodes)}{ending}"
        if does == "is late":
            self.late(places, lasts)
            self.flag(f"requests to {nodes(places)} are late", "fault")
            return f"what it sends to {nodes(places)} is held up for {lasts:g} s"
        for number in places:
            client.stall(number - 1, lasts, "back")
        self.flag(f"answers of {nodes(places)} are lost", "fault")
        return f"answers of {nodes(places)} to it are lost"

    def late(self, places: Sequence[int], lasts: float) -> None:
        for number in places:
            self.client.stall(number - 1, lasts, "to")

    def hung(self, hangs: bool) -> None:
        """Its worker hangs, or is gone."""


def nodes(places: Sequence[int], of: int = 0) -> str:
    if len(places) == of:
        return "all nodes"
    return f"node{'s' if len(places) > 1 else ''} {', '.join(map(str, places))}"


def plain(error: NotAcquired) -> str:
    """Why, for a story: what the nodes said, without remedies."""
    tally = error.tally
    if tally is None:
        return "it is held"
    causes: dict[str, list[str]] = {}
    for label, answer in zip(tally.nodes, tally.answers, strict=True):
        if answer is not None and answer.cause.value != "agreed":
            left = (
                f", {answer.wait_ms / 1000:.1f} s left"
                if answer.wait_ms and "quarantine" in answer.cause.value
                else ""
            )
            causes.setdefault(answer.cause.value + left, []).append(str(int(label.rpartition("-")[2]) + 1))
    return "; ".join(f"{nodes([int(one) for one in who])} {cause}" for cause, who in causes.items())


class Kept:
    """A lease of a player in the care of the production keeper."""

    def __init__(self, player: CorePlayer, holding: Holding, grant: Grant, max_hold: float) -> None:
        self.player = player
        self.holding = holding
        self.grant = grant
        self.due_at = grant.valid_until - grant.ttl * DUE_FIRST
        self.keep_until = grant.valid_until - grant.ttl + max_hold
        self.owner_gone = False
        self.fate = LossReason.EXPIRED
        self.renewals = 0

    def renewable(self, now: float) -> bool:
        if self.owner_gone:
            self.fate = LossReason.OWNER_GONE
        elif now >= self.keep_until:
            self.fate = LossReason.MAX_HOLD
        return not self.owner_gone and now < self.keep_until

    def renewed(self, extension: Extension) -> None:
        record, name = self.player.stage.record, self.player.name
        self.renewals += 1
        record.count("renewals", name)
        if self.renewals == 1:
            self.player.tell(f"its keeper renews the lease, as it does every {self.grant.ttl / 3:.1f} s")
        if extension.healed:
            record.count("healed", name, len(extension.healed))
            healed = [int(label.rpartition("-")[2]) + 1 for label in extension.healed]
            self.player.tell(f"its keeper gives the lock again to {nodes(healed)}", "good")

    def doubt(self) -> None:
        self.fate = LossReason.UNREACHABLE

    def expire(self) -> None:
        self.lost(self.fate)

    def lost(self, reason: LossReason) -> None:
        self.grant.over = True
        if self.grant.room is not None:
            self.grant.room.ended(self.grant)
        self.player.lose(self.holding, reason.value)


class CorePlayer(Player):
    """A client that runs the production core."""

    grant: Grant | None = None
    kept: Kept | None = None

    def __init__(self, stage: Stage, client: Neighbour, name: str) -> None:
        super().__init__(stage, client, name)
        if stage.design.wall:
            client.fleet.clock = client.wall

    def obtain(self, asking: Asking, patience: float) -> Steps[None]:
        cast, fleet = self.stage.cast, self.client.fleet
        wish = Wish(NAME, cast.ttl, patience, DEFAULT_RETRY, PATIENCE, adaptive=True)
        grant = yield from obtain(fleet, self.client.room, wish)
        holding = Holding(
            self.name, grant.fence, self.now, lambda: not grant.over and fleet.clock() < grant.valid_until
        )
        yes = sum(1 for _ in grant.tally.granted())
        left = grant.valid_until - fleet.clock()
        of = f"{yes} of {len(fleet.nodes)} nodes say yes, " if len(fleet.nodes) > 1 else ""
        self.grant = grant
        self.got(asking, holding, f"{of}fence #{grant.fence}, for {left:.1f} s")
        keep = cast.keep if self.stage.design.keep is None else self.stage.design.keep
        self.kept = Kept(self, holding, grant, self.stage.design.max_hold or cast.max_hold)
        if not keep:
            self.kept.keep_until = float("-inf")
        self.stage.spawn(self.client, self._keep(self.kept))

    def _keep(self, kept: Kept) -> Steps[None]:
        """What the fronts' keepers do, for one lease."""
        if kept.keep_until == float("-inf"):
            return  # nobody looks after it; check() finds out
        fleet = self.client.fleet
        roster = Roster(fleet.clock, fleet.random)
        roster.add(kept)
        while not kept.grant.over:
            roster.rise()
            yield from tend(fleet, roster)
            roster.settle()
            yield Sleep(max(0.001, roster.wake_at - fleet.clock()))

    def releases(self, holding: Holding) -> Steps[None]:
        grant = self.grant
        assert grant is not None
        was_valid = holding.valid()
        grant.over = True
        request = Release(NAME, grant.token, True, grant.ticket, self.client.room.id)
        began = self.now
        if holding.ended_at is None and was_valid:
            holding.ended_at = began
        tally = yield from release(self.client.fleet, NAME, grant.token, grant.ttl, grant.route, request=request)
        self.client.room.freed(grant, any(answer is not None and answer.place for answer in tally.answers))
        if was_valid:
            self.tell("gives the lock back")
        elif not holding.told:
            self.lose(holding, "expired", "gives back what is not its own any more; nothing is deleted: ")

    def hung(self, hangs: bool) -> None:
        if self.kept is not None and not hangs and self.stage.design.owner_bound:
            self.kept.owner_gone = True
