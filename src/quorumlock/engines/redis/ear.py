"""One subscription to one node, without the socket: what the node announces to a room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.requests import Request
from ...core.room import Room
from ...core.votes import Cause, Tally
from .resp import ProtocolError, ReplyError, new_reader, pack


class Ear:
    """A link that only listens. It shares the face of `link.Link`, as far as a strand shows it."""

    owes = False

    def overfull(self, now: float, timeout: float) -> bool:
        return False

    def __init__(self, index: int, room: Room, channel: str) -> None:
        self.room = room
        self.dead = False
        self.up = False
        self.on_up: Callable[[], None] | None = None
        self.refused = ""
        """Why the server does not let us listen."""
        self.asked_at: float | None = None
        """When it was asked whether it stands, if it has not said anything since."""
        self._index = index
        self._channel = channel + room.id
        self._reader = new_reader()

    def begin(self, now: float) -> bytes:
        self.asked_at = now
        return pack(("SUBSCRIBE", self._channel))

    def ping(self, now: float) -> bytes:
        self.asked_at = now
        return pack(("PING",))

    def receive(self, data: bytes) -> bytes:
        """Takes in what the socket gave. Raises ProtocolError."""
        self.asked_at = None
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._take(reply)
        return b""

    def _take(self, reply: Any) -> None:
        match reply:
            case [b"message", _, bytes(ticket)]:
                self.room.announced(self._index, ticket.decode("utf-8", "replace"))
            case [b"subscribe", _, _]:
                self.up = True
                self.room.hears(self._index)
                if self.on_up is not None:
                    self.on_up()
            case ReplyError():
                self.refused = str(reply)[:160]
                raise ProtocolError(f"cannot subscribe: {self.refused}")

    def fail(self, cause: Cause, detail: str) -> None:
        if not self.dead:
            self.dead = True
            self.room.deafened(self._index)

    def submit(self, request: Request, packed: bytes, tally: Tally, now: float) -> bytes:
        raise NotImplementedError("an ear asks for nothing")

    def overdue(self, now: float, timeout: float) -> bool:
        return self.asked_at is not None and now - self.asked_at > timeout

    stale = overdue
