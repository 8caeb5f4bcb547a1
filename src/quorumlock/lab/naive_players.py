"""Clients that do it the old way: with plain commands, on one node or on several.

They share nothing with the core. A request is a command that travels, is executed by the node, and is answered; its
client waits for that, if it is not stopped meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.effects import Sleep, Steps
from ..engines.memory.server import ServerDouble
from ..errors import LockHeld
from .stage_players import NAME, Neighbour, Player
from .stage_record import Asking, Holding

if TYPE_CHECKING:
    from .stage import Stage

Command = Callable[[ServerDouble], bool]
STEP = 0.005
"""How often a client looks whether an answer has come."""


@dataclass(slots=True)
class Box:
    """Where an answer arrives: yes or no; or nothing, as long as it is on its way."""

    answers: list[bool] = field(default_factory=list)
    refused: bool = False
    """Is the node down? That is noticed at once."""


class RawPlayer(Player):
    """What the old designs share."""

    def __init__(self, stage: Stage, client: Neighbour, name: str) -> None:
        super().__init__(stage, client, name)
        self.design = stage.design
        self.late_until: dict[int, float] = {}
        self._tokens = 0

    def new_token(self) -> bytes:
        self._tokens += 1
        return f"{self.name}-{self._tokens}".encode()

    @property
    def ttl_ms(self) -> int:
        return round(self.stage.cast.ttl * 1000)

    @property
    def list(self) -> Sequence[int]:
        """The nodes it knows, counted from 0."""
        return range(len(self.client.nodes))

    def late(self, places: Sequence[int], lasts: float) -> None:
        self.late_until |= {number - 1: self.stage.world.now + lasts for number in places}

    def send(self, index: int, command: Command, *, overtakes: bool = False) -> Box:
        """A command travels to a node; `overtakes`: on another connection than those before it."""
        box, client, world = Box(), self.client, self.stage.world
        node = client.nodes[index]

        def arrive() -> None:
            opens_at = client.opens_at(index, "to")
            if not overtakes:
                opens_at = max(opens_at, self.late_until.get(index, 0.0))
            if opens_at > world.now:
                world.call_at(opens_at, arrive)
            elif node.paused:
                world.call_later(STEP, arrive)
            elif not node.up:
                box.refused = True
            else:
                answer = command(node.server)
                world.call_later(client.delay(index), lambda: come_back(answer))

        def come_back(answer: bool) -> None:
            opens_at = client.opens_at(index, "back")
            if opens_at > world.now:
                world.call_at(opens_at, lambda: come_back(answer))
            else:
                box.answers.append(answer)

        world.call_later(client.delay(index), arrive)
        return box

    def hear(self, boxes: Sequence[Box], timeout: float) -> Steps[None]:
        """Waits until all have answered, or time is up."""
        ends_at = self.now + timeout
        while self.now < ends_at and not all(box.answers or box.refused for box in boxes):
            yield Sleep(STEP)

    def ask(self, index: int, command: Command, timeout: float = 1e6) -> Steps[bool]:
        box = self.send(index, command)
        yield from self.hear([box], timeout)
        return bool(box.answers and box.answers[0])

    def obtain(self, asking: Asking, patience: float) -> Steps[None]:
        """Tries until patience is over, with a fixed delay between."""
        while True:
            if (yield from self.attempt(asking)):
                return
            if self.now - asking.since + self.design.retry >= patience:
                raise LockHeld("it is held")
            yield Sleep(self.design.retry)

    def attempt(self, asking: Asking) -> Steps[bool]:
        raise NotImplementedError

    def held(self, asking: Asking, until: float | None, how: str, fence: int = 0) -> Holding:
        """It believes that it has the lock: until then, or until it gives it back."""
        holding = Holding(self.name, fence, self.now, lambda: until is None or self.now < until)
        self.got(asking, holding, how)
        return holding


class OneNode(RawPlayer):
    """A lock on one node. Its holder believes in it until it gives it back."""

    token = b""

    def attempt(self, asking: Asking) -> Steps[bool]:
        self.token = token = self.new_token()
        forever = self.design.expire_later or self.design.immortal

        def set_if_free(server: ServerDouble) -> bool:
            free = server.get(NAME) is None
            if free:
                server.set(NAME, token, None if forever else self.ttl_ms)
            return free

        if not (yield from self.ask(0, set_if_free)):
            return False
        if self.design.expire_later:
            self.tell("SETNX says yes; now EXPIRE")
            yield from self.ask(0, self._expire)
        until = None if self.design.immortal or self.design.blind_delete else self.now + self.stage.cast.ttl
        self.held(asking, until, f"the node says {'yes' if forever else 'OK'}")
        return True

    def _expire(self, server: ServerDouble) -> bool:
        server.set(NAME, self.token, self.ttl_ms)
        return True

    def releases(self, holding: Holding) -> Steps[None]:
        if self.design.get_then_del:
            mine = yield from self.ask(0, lambda server: server.get(NAME) == self.token)
            holding.ended_at = self.now
            self.tell("GET names it: so DEL" if mine else "GET does not name it: no DEL")
            if not mine:
                return
        else:
            holding.ended_at = self.now
            self.tell("deletes the lock, whoever has it: DEL")
        yield from self.ask(0, _delete)


def _delete(server: ServerDouble) -> bool:
    server.delete(NAME)
    return True


class Many(RawPlayer):
    """Redlock, as it is often written: a majority of nodes, each with a plain SET NX PX."""

    token = b""
    granted: tuple[int, ...] = ()
    given_back = False

    def attempt(self, asking: Asking) -> Steps[bool]:
        self.given_back = False
        self.token = token = self.new_token()
        design, started_at = self.design, self.now

        def set_if_free(server: ServerDouble) -> bool:
            free = server.get(NAME) is None
            if free:
                server.set(NAME, token, self.ttl_ms)
            return free

        boxes: list[Box] = []
        for index in self.list:
            boxes.append(self.send(index, set_if_free))
            if design.one_by_one:
                yield from self.hear(boxes[-1:], design.node_timeout)
                if sum(box.answers == [True] for box in boxes) > len(self.list) // 2:
                    break
        yield from self.hear(boxes, 0.0 if design.one_by_one else design.node_timeout)
        self.granted = tuple(index for index, box in enumerate(boxes) if box.answers == [True])
        heard = sum(bool(box.answers) for box in boxes)
        of = heard if design.of_reachable else len(self.list)
        if len(self.granted) > of // 2:
            until = (self.now if design.from_the_end else started_at) + self.stage.cast.ttl
            if self.now >= until:
                until = self.now
            self._keep_it(self.held(asking, None, ""), until, of)
            return True
        yield from self._undo()
        return False

    def _keep_it(self, holding: Holding, until: float, of: int) -> None:
        left = until - self.now
        holding.valid = lambda: self.now < self._until
        self._until = until
        self.stage.record.lines[-1].text += f"{len(self.granted)} of {of} nodes say OK, for {left:.1f} s"
        if self.stage.cast.keep and self.design.keep:
            self.stage.spawn(self.client, self._renew(holding))

    _until = 0.0

    def _renew(self, holding: Holding) -> Steps[None]:
        """Extends where the token stands; nobody gives the lock again to a node that has forgotten it."""
        design, refused = self.design, False
        while True:
            yield Sleep(self.stage.cast.ttl / 3)
            if self.given_back or self.holding is not holding:
                return
            started_at = self.now
            boxes = [self.send(index, self._extend) for index in self.list]
            yield from self.hear(boxes, min(design.node_timeout, self.stage.cast.ttl))
            yes, no = (sum(box.answers == [said] for box in boxes) for said in (True, False))
            if yes > len(self.list) // 2:
                self._until = started_at + self.stage.cast.ttl
                self.flag("", "renewed")
                if refused:
                    refused = False
                    holding = self.holding = Holding(self.name, 0, self.now, holding.valid)
                    self.stage.record.holdings.append(holding)
                    self.tell("extends again: a majority says yes", "bad")
            elif no > len(self.list) // 2 and not refused:
                if not design.stubborn:
                    self.lose(holding, "taken", "extends on too few nodes: ")
                    return
                refused, holding.ended_at = True, self.now
                self.tell("cannot extend: a majority says no. It goes on trying")

    def _extend(self, server: ServerDouble) -> bool:
        mine = server.get(NAME) == self.token
        if mine:
            server.set(NAME, self.token, self.ttl_ms)
        return mine

    def _undo(self) -> Steps[None]:
        token = self.token

        def delete_mine(server: ServerDouble) -> bool:
            if server.get(NAME) == token:
                server.delete(NAME)
            return True

        where = self.granted if self.design.undo_granted_only else self.list
        boxes = [self.send(index, delete_mine, overtakes=self.design.own_connection) for index in where]
        yield from self.hear(boxes, 0.05)

    def releases(self, holding: Holding) -> Steps[None]:
        self.given_back = True
        holding.ended_at = holding.ended_at or self.now
        self.tell("gives the lock back")
        yield from self._undo()


class Session(RawPlayer):
    """A lock that lives as long as its holder's session, which heartbeats keep alive; numbered, as zxids are."""

    token = b""

    def attempt(self, asking: Asking) -> Steps[bool]:
        self.token = token = self.new_token()
        started_at = self.now
        numbers: list[int] = []

        def create(server: ServerDouble) -> bool:
            free = server.get(NAME) is None
            if free:
                last = server.get("zxid")
                numbers.append(1 + (int(last) if isinstance(last, bytes) else 0))
                server.set("zxid", b"%d" % numbers[0])
                server.set(NAME, token, self.ttl_ms)
            return free

        if not (yield from self.ask(0, create)):
            return False
        self._until = started_at + self.stage.cast.ttl
        holding = self.held(asking, None, f"its node in the tree is #{numbers[0]}", numbers[0])
        if self.design.local_deadline:
            holding.valid = lambda: self.now < self._until
        self.stage.spawn(self.client, self._beat(holding))
        return True

    _until = 0.0

    def _beat(self, holding: Holding) -> Steps[None]:
        """Heartbeats; the first one after a pause tells that the session has expired."""
        while True:
            yield Sleep(self.stage.cast.ttl / 3)
            if holding.ended_at is not None:
                return
            started_at = self.now
            alive = yield from self.ask(0, self._touch)
            if not alive:
                self.lose(holding, "session ended", "is told by the ensemble: ")
                return
            self._until = started_at + self.stage.cast.ttl
            self.flag("", "renewed")

    def _touch(self, server: ServerDouble) -> bool:
        mine = server.get(NAME) == self.token
        if mine:
            server.set(NAME, self.token, self.ttl_ms)
        return mine

    def releases(self, holding: Holding) -> Steps[None]:
        if holding.ended_at is None:
            holding.ended_at = self.now
            self.tell("gives the lock back")

        def delete_mine(server: ServerDouble) -> bool:
            if server.get(NAME) == self.token:
                server.delete(NAME)
            return True

        yield from self.ask(0, delete_mine, 1.0)
