"""The clients of a story: each does what its steps say, one after another.

A step is done at its time, or when the one before it is over. Who did not get the lock leaves out what needs it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.effects import Sleep, Steps
from ..core.votes import Cause
from ..errors import ConfigurationError, NoQuorum, NotAcquired
from ..runners.virtual import VirtualRunner
from .stage_record import Asking, Holding
from .story import Step

if TYPE_CHECKING:
    from .stage import Stage

NAME = "counter"
CARRIED_OFF = 1.0
"""Seconds after the end at which a client that has died is woken, to clean up behind the curtain."""


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
        """Does its worker do nothing more?"""
        self.worker_died = False
        self.cut_until = 0.0
        self.why = ""
        """Why it is stopped."""
        self.holding: Holding | None = None
        self.seen: int | None = None
        """What it has read."""

    @property
    def now(self) -> float:
        return self.stage.now

    def leave(self) -> None:
        """The story is over."""

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
            self.tell(
                f"ConfigurationError: {textwrap.shorten(numbered(str(error)), 170, placeholder=' …')}", "good"
            )
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
        if waited < 0.1 and lines and lines[-1].who == self.name and lines[-1].at == asking.since:
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
            client.pause(left + CARRIED_OFF)
            return "dies"
        if does in ("hangs", "loses its worker"):
            self.worker_gone, self.worker_died = True, does != "hangs"
            self.flag("worker hangs" if does == "hangs" else "worker dies", "fault")
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


def nodes(places: Sequence[int], of: int = 0) -> str:
    if len(places) == of:
        return "all nodes"
    return f"node{'s' if len(places) > 1 else ''} {', '.join(map(str, places))}"


def numbered(text: str) -> str:
    """Nodes are counted from 1 in stories."""
    return re.sub(r"\bnode-(\d+)", lambda found: f"node {int(found[1]) + 1}", text)


MANY = {"is": "are", "says": "say", "does": "do", "has": "have", "was": "were"}
SLOW = "collecting votes took longer than the ttl"


def plain(error: NotAcquired) -> str:
    """Why, for a story: what the nodes said, without remedies."""
    if SLOW in str(error):
        return SLOW
    if error.tally is None:
        return str(error)
    causes: dict[str, list[int]] = {}
    for number, answer in enumerate(error.tally.answers, 1):
        if answer is not None and answer.cause is not Cause.AGREED:
            shut = answer.wait_ms and answer.cause in (Cause.QUARANTINE, Cause.FORGOTTEN)
            left = f", {answer.wait_ms / 1000:.1f} s left" if shut else ""
            causes.setdefault(answer.cause.value + left, []).append(number)
    return "; ".join(_said(who, cause) for cause, who in causes.items())


def _said(who: list[int], cause: str) -> str:
    verb, _, rest = cause.partition(" ")
    return f"{nodes(who)} {MANY.get(verb, verb) if len(who) > 1 else verb} {rest}"
