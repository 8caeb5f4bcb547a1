"""Where a story is played: its servers, its clients, its dice, and the book of who held the lock."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

import quorumlock
from quorumlock import LeaseLost, LossReason, NoQuorum
from quorumlock.clocks import boot_time
from quorumlock.events import Event, Extended, Lost
from quorumlock.lab.servers import Server, Servers
from tests.live.tools import get
from tests.support.waiting import eventually

from .outcome import Outcome, Span, Void

NAME = "story"
"""The lock that every story is about."""
MAX_TTL = 1.0
NODE_TIMEOUT = 0.2
GENEROUS = 15.0
"""What must happen may take as long as this: the machine may be busy."""
STALL = 0.3
"""A process that stood still for so long may lose a lease of one second by right."""

now: Callable[[], float] = boot_time
Entered = TypeVar("Entered", bound=Any)


class Held:
    """A lease in the book."""

    def __init__(self, who: str, lease: quorumlock.Lease) -> None:
        self.at = now()  # when the acquire has returned, and not before: until then it protects nobody
        self.who = who
        self.lease = lease
        self.reason: LossReason | None = None
        self._over_at = float("inf")
        self._broken_at: float | None = None
        self._promised = self._revived_at = 0.0

    @property
    def valid_until(self) -> float:
        """What the lease believes, to the microsecond; `remaining()` says 0 once it is lost, and not since when."""
        return self.lease._grant.valid_until

    @property
    def valid(self) -> bool:
        return now() < min(self.valid_until, self._over_at)

    def extend(self) -> bool:
        """As its holder would; False if it is lost."""
        try:
            self.lease.extend()
        except LeaseLost as lost:
            self.reason = lost.reason
            return False
        if self._broken_at is not None and not self._revived_at:
            self._revived_at = now()
        return True

    def release(self) -> None:
        self._over_at = min(self._over_at, now())
        self.lease.release()

    def lost(self, reason: LossReason) -> None:
        """Its keeper has said so."""
        self._over_at = min(self._over_at, now())
        self.reason = reason

    def forced(self, at: float) -> None:
        """Somebody forced it open at that time: what its holder still believes is not held against the lock. But
        an extension after that is."""
        self._broken_at = at
        self._promised = self.valid_until

    def spans(self) -> list[Span]:
        until = min(self.valid_until, self._over_at)
        if self._broken_at is None:
            return [Span(self.who, self.lease.fence, self.at, until)]
        spans = [Span(self.who, self.lease.fence, self.at, min(until, self._broken_at))]
        if self.valid_until > self._promised:
            spans.append(Span(f"{self.who} again", self.lease.fence, self._revived_at or self._broken_at, until))
        return spans


class Client:
    """A client that may see only some of the nodes; what it gets goes into the book."""

    def __init__(self, stage: Stage, who: str, urls: list[str]) -> None:
        self.who = who
        self.stage = stage
        self.held: dict[int, Held] = {}
        self.extended_at = 0.0
        self.refused = 0
        self.said: list[str] = []
        """The last reasons for which it was refused."""
        self.locks = quorumlock.connect(
            urls, max_ttl=MAX_TTL, quarantine=stage.quarantine, node_timeout=NODE_TIMEOUT, fleet=stage.name
        )
        self.locks.subscribe(self._told)
        self.locks._bus.relay = None  # where it happens: a loss is written down before what is left is freed

    def try_take(self, ttl: float, keep: bool = False) -> Held | None:
        try:
            lease = self.locks.lock(NAME, ttl=ttl, keep=keep).try_acquire()
        except NoQuorum as error:
            self.said = [*self.said[-20:], str(error)]
            lease = None
        if lease is None:
            self.refused += 1
            return None
        held = self.held[lease.fence] = Held(self.who, lease)
        self.stage.book.append(held)
        return held

    def take(self, ttl: float, keep: bool = False, within: float = GENEROUS) -> Held:
        """Tries again and again: what must be possible sooner or later."""
        end = now() + within
        while (held := self.try_take(ttl, keep)) is None:
            if now() > end:
                raise AssertionError(f"{self.who} did not get the lock in {within:g} s: {self.said[-1:]}")
            time.sleep(self.stage.draw.uniform(0.001, 0.02))
        return held

    def meet(self) -> None:
        """Connects to the nodes it sees."""
        self.locks.lock("warm", ttl=0.5).acquire(timeout=GENEROUS).release()

    def _told(self, event: Event) -> None:
        if isinstance(event, Extended):
            self.extended_at = now()
        elif isinstance(event, Lost) and (held := self.held.get(event.fence)):
            held.lost(event.reason)


class Stage:
    """One round of one story; everything on it ends with the round."""

    def __init__(self, story: str, kind: str, seed: str, quarantine: bool) -> None:
        self.name = f"{story} {seed}"
        self.kind = kind
        self.quarantine = quarantine
        self.draw = random.Random(self.name)
        self.book: list[Held] = []
        self.outcome = Outcome(story, seed)
        self.fleet: Servers
        self._clients: list[Client] = []
        self._actors: list[Actor] = []
        self._stack = ExitStack()
        self._pulse = Pulse()

    # Setting the scene.

    def make_fleet(self, count: int, *arguments: str) -> Servers:
        """Servers of the round's own, ready at once."""
        self.start_servers(count, *arguments)
        self.found()
        return self.fleet

    def start_servers(self, count: int, *arguments: str) -> Servers:
        self.fleet = self.enter(Servers(count, self.kind, arguments=arguments))
        return self.fleet

    def found(self) -> None:
        self.client("founder").locks.init_fleet()

    def enter(self, thing: Entered) -> Entered:
        self._stack.enter_context(thing)
        return thing

    def at_end(self, clear: Callable[[], object]) -> None:
        self._stack.callback(clear)

    def client(
        self, who: str, sees: Collection[int] | None = None, moved: Mapping[int, str] | None = None
    ) -> Client:
        """A client of the whole fleet, or one to whom the other nodes are unreachable; `moved`: other addresses."""
        addresses = dict(enumerate(self.fleet.urls)) | dict(moved or {})
        urls = [url if sees is None or i in sees else self._nobody() for i, url in addresses.items()]
        client = Client(self, who, urls)
        self._stack.callback(client.locks.close)
        self._clients.append(client)
        return client

    def _nobody(self) -> str:
        """An address where connections are refused: bound, so that no server comes there, and not listening."""
        bound = self.enter(socket.socket())
        bound.bind(("127.0.0.1", 0))
        return f"redis://127.0.0.1:{bound.getsockname()[1]}"

    def rivals(self, count: int) -> list[Client]:
        """Clients that try to get the lock all the time."""
        rivals = [Rival(self.client(f"rival {i}"), self.draw.getrandbits(32)) for i in range(count)]
        for rival in rivals:
            self._actors.append(rival)
            rival.start()
        return [rival.client for rival in rivals]

    def meanwhile(self, act: Callable[[], object]) -> None:
        """Done while the story goes on."""
        actor = Actor(act)
        self._actors.append(actor)
        actor.start()

    # What happens.

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.draw.uniform(least, most))

    def restart(self, server: Server, down: float = 0.0) -> float:
        """Killed, and back after a while; when it was gone."""
        server.kill()
        gone_at = now()
        time.sleep(down)
        server.start()
        return gone_at

    # What is expected.

    def premise(self, true: object, what: str) -> None:
        """Without that the round says nothing."""
        if not true:
            raise Void(what)

    def expect(self, true: object, otherwise: str) -> None:
        if not true:
            self.outcome.wrong.append(otherwise)

    def expect_closed(self, gone_at: float, held: Held) -> None:
        """Nobody got in for a max_ttl after memory was lost."""
        if self.quarantine:
            early = gone_at + MAX_TTL - held.at
            self.expect(early < 0.02, f"{held.who} got in {early:.3f} s before the quarantine was over")

    def expect_told(self, client: Client) -> None:
        """Its refusals named the quarantine, unless the nodes were too slow to speak of it."""
        slow = self.stalled or any("in time" in text for text in client.said)
        if self.quarantine and not slow:
            told = any("is in quarantine for" in text for text in client.said)
            self.expect(told, f"no refusal named the quarantine: {client.said[-1:]}")

    def expect_kept(self, held: Held) -> None:
        """The lease was never lost."""
        if not held.valid:
            self.premise(not self.stalled, f"the machine stood still for {self._pulse.longest:.2f} s")
            self.expect(False, f"{held.who} has lost its lease: {held.reason}")

    @property
    def stalled(self) -> bool:
        return self._pulse.longest > STALL

    def __enter__(self) -> Stage:
        self._stack.__enter__()
        self._started_at = now()
        self.enter(self._pulse)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for actor in self._actors:
            actor.stop()
        self.outcome.refusals = sum(client.refused for client in self._clients)
        self.outcome.spans = [span for held in self.book for span in held.spans()]
        for held in self.book:
            held.lease._hold.drop()  # what a story left open is not renewed while the stage is cleared
        self._stack.__exit__(kind, error, traceback)
        self.outcome.seconds = now() - self._started_at


class Actor(threading.Thread):
    """Somebody who acts while the story goes on."""

    def __init__(self, act: Callable[[], object], name: str = "meanwhile") -> None:
        super().__init__(name=name, daemon=True)
        self._act = act
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._act()
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        self.join(GENEROUS)
        if self._error is not None:
            raise self._error


class Rival(Actor):
    """Tries to get the lock until it is told to stop. When it does, it keeps it for a moment."""

    def __init__(self, client: Client, seed: int) -> None:
        super().__init__(self._try, client.who)
        self.client = client
        self._draw = random.Random(seed)
        self._enough = threading.Event()

    def stop(self) -> None:
        self._enough.set()
        super().stop()

    def _try(self) -> None:
        while not self._enough.wait(self._draw.uniform(0.005, 0.04)):
            if held := self.client.try_take(ttl=self._draw.uniform(0.3, MAX_TTL)):
                self._enough.wait(0.05)
                held.release()


class Pulse:
    """Notices when this process did not run."""

    longest = 0.0

    def __enter__(self) -> Pulse:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        last = now()
        while not self._ended.wait(0.02):
            self.longest, last = max(self.longest, now() - last), now()


def has_vote(server: Server, token: str) -> bool:
    """Is the node out of quarantine, and does it name that token?"""
    ready_at = (get_or_none(server, "ql:node") or "9" * 20).split()[0]
    return int(ready_at) < time.time() * 1_000_000 and get_or_none(server, NAME) == token


def get_or_none(server: Server, key: str) -> str | None:
    """The same for a server that may be loading, or down."""
    try:
        return get(server, key)
    except AssertionError:
        return None


def wait_for(condition: Callable[[], object], what: str) -> None:
    if not eventually(condition, GENEROUS):
        raise AssertionError(f"in {GENEROUS:g} s not seen: {what}")


def quiet() -> None:
    """Quarantine is daily bread here."""
    logging.getLogger("quorumlock").setLevel(logging.ERROR)
