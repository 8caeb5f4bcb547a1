"""Requests as commands, replies as answers.

Every script that needs the node's marker takes it as its last argument. The rest of a command is the same for
all nodes of a round, so it is packed once, and each link appends its own marker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.requests import (
    Acquire,
    Break,
    Confirm,
    Extend,
    Heal,
    Initialise,
    Join,
    Look,
    Release,
    Request,
    Survey,
)
from ...core.votes import Answer, Cause, Vote, unknown
from . import scripts
from .resp import ReplyError, pack
from .scripts import Script

FORMAT = 1
FREE = (Release, Survey, Initialise)
"""Requests that are understood by a node of any standing, joined or not."""

_EMPTY_ARGUMENT = len(b"$0\r\n\r\n")

_REFUSALS = {
    -1: Cause.STRANGER,
    -2: Cause.QUARANTINE,
    -3: Cause.ABSENT,
    -4: Cause.OTHER_KIND,
    -5: Cause.CHANGED,
}

Arguments = tuple[str | bytes | int, ...]


class Wire:
    """How one client says things: its prefix, its fleet, its limits."""

    def __init__(
        self,
        *,
        prefix: str,
        fleet: str,
        nodes: int,
        max_ttl: float,
        fence_ttl: float,
        durable: bool,
        quarantine: bool,
    ) -> None:
        self.prefix = prefix
        self.marker_key = f"{prefix}ql:node"
        self._clamp_us = int(max_ttl * 1_000_000 / 4)
        self._fence_ttl_ms = int(fence_ttl * 1000)
        self._terms: Arguments = (FORMAT, fleet, nodes, round(max_ttl * 1000), int(durable), int(quarantine))
        self._sayings: dict[type[Any], Callable[[Any], tuple[Script, Arguments]]] = {
            Acquire: self._acquire,
            Confirm: self._confirm,
            Extend: self._extend,
            Heal: self._heal,
            Release: self._release,
            Break: self._break,
            Look: self._look,
            Join: lambda _: self._marker("join"),
            Survey: lambda _: self._marker("survey"),
            Initialise: lambda request: self._marker("force" if request.force else "init"),
        }

    def encode(self, request: Request, *, source: bool = False) -> bytes:
        """The packed command, still without the marker; with `source` the script itself instead of its hash."""
        script, arguments = self._sayings[type(request)](request)
        head = ("EVAL", script.source) if source else ("EVALSHA", script.sha)
        if isinstance(request, (*FREE, Join)):
            return pack((*head, *arguments))
        return pack((*head, *arguments, b""))[:-_EMPTY_ARGUMENT]

    @staticmethod
    def tail(marker: bytes) -> bytes:
        """The marker as the last argument of a command."""
        return b"$%d\r\n%b\r\n" % (len(marker), marker)

    def _keys(self, name: str) -> Arguments:
        key = self.prefix + name
        return 3, key, f"{self.prefix}ql:fence:{{{key}}}", self.marker_key

    def _acquire(self, ask: Acquire) -> tuple[Script, Arguments]:
        return scripts.ACQUIRE, (
            *self._keys(ask.name),
            ask.token,
            ask.ttl_ms,
            ask.candidate_us,
            self._clamp_us,
            self._fence_ttl_ms,
        )

    def _confirm(self, ask: Confirm) -> tuple[Script, Arguments]:
        return scripts.CONFIRM, (
            *self._keys(ask.name),
            ask.token,
            ask.granted,
            ask.fence,
            self._fence_ttl_ms,
        )

    def _extend(self, ask: Extend) -> tuple[Script, Arguments]:
        return scripts.EXTEND, self._renewal(ask)

    def _heal(self, ask: Heal) -> tuple[Script, Arguments]:
        return scripts.HEAL, self._renewal(ask)

    def _renewal(self, ask: Extend | Heal) -> Arguments:
        return (*self._keys(ask.name), ask.token, ask.ttl_ms, ask.fence, self._fence_ttl_ms)

    def _release(self, ask: Release) -> tuple[Script, Arguments]:
        return scripts.RELEASE, (1, self.prefix + ask.name, ask.token)

    def _break(self, ask: Break) -> tuple[Script, Arguments]:
        return scripts.BREAK, (*self._keys(ask.name), self._fence_ttl_ms)

    def _look(self, ask: Look) -> tuple[Script, Arguments]:
        return scripts.LOOK, self._keys(ask.name)

    def _marker(self, verb: str) -> tuple[Script, Arguments]:
        return scripts.JOIN, (1, self.marker_key, verb, *self._terms)


def decode(reply: Any) -> Answer:
    """What a script's reply means as a vote."""
    if type(reply) is list and reply and type(reply[0]) is int:
        code = reply[0]
        if code == 1:
            return Answer(Vote.GRANTED, Cause.AGREED, reply[1] if len(reply) > 1 else 0)
        if code == 0 and len(reply) == 3:
            return Answer(Vote.REFUSED, Cause.HELD, reply[2], max(0, reply[1]))
        if cause := _REFUSALS.get(code):
            return Answer(Vote.REFUSED, cause, wait_ms=reply[1] if len(reply) > 1 else 0)
    if isinstance(reply, ReplyError):
        return unknown(Cause.FAILED, str(reply)[:160])
    return unknown(Cause.FAILED, f"unexpected answer of type {type(reply).__name__}")
