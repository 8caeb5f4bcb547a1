"""Requests as commands, replies as answers.

Every script that needs the node's marker takes it as its last argument. The rest of a command is the same for
all nodes of a round, so it is packed once, and each link appends its own marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.requests import (
    Acquire,
    Break,
    Close,
    Confirm,
    Extend,
    Heal,
    Initialise,
    Join,
    Kept,
    Leave,
    Look,
    Release,
    Request,
    Survey,
)
from ...core.votes import GRANTED, Answer, Cause, Vote, of_each, unknown
from . import scripts
from .resp import ReplyError, pack
from .scripts import Script

FORMAT = 1
FREE = (Release, Leave, Survey, Close, Initialise)
"""Requests that are understood by a node of any standing, joined or not."""

_UNMARKED = (*FREE, Join)
_EMPTY_ARGUMENT = len(b"$0\r\n\r\n")

_AGREED = Cause.AGREED
_SAID = {
    ord("y"): Cause.AGREED,
    ord("n"): Cause.HELD,
    ord("a"): Cause.ABSENT,
    ord("k"): Cause.OTHER_KIND,
    ord("q"): Cause.QUARANTINE,
    ord("m"): Cause.FORGOTTEN,
}
"""What a letter says of one of many leases."""

_REFUSALS = {
    -1: Cause.STRANGER,
    -2: Cause.QUARANTINE,
    -3: Cause.ABSENT,
    -4: Cause.OTHER_KIND,
    -5: Cause.CHANGED,
}

Arguments = tuple[str | bytes | int, ...]
Parts = tuple[bytes, bytes]

_NAMES_MOST = 1000
_GAP = "a token that no client would ever make up"


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
        node_timeout: float = 0.05,
    ) -> None:
        self.prefix = prefix
        self.marker_key = f"{prefix}ql:node"
        self.channel = f"{prefix}ql:wake:"
        self._queue_key = f"{prefix}ql:queue:{{{prefix}"
        self._grace_ms = max(1, round(node_timeout * 1000))
        self._fence_key = f"{prefix}ql:fence:{{{prefix}"
        self._broken_key = f"{prefix}ql:broken:{{{prefix}"
        # One node has nobody to agree with, and its own clock is the best there is; so without quarantine, too, a
        # fence of before a restart is not ahead of one after it.
        alone = nodes == 1 and not quarantine
        self._clamp_us = 0 if alone else int(max_ttl * 1_000_000 / 4)
        self._fence_ttl_ms = int(fence_ttl * 1000)
        self._broken_ttl_ms = int(2 * max_ttl * 1000)  # the lease that was broken is over by then
        self._acquires: dict[str, Parts] = {}
        self._releases: dict[str, Parts] = {}
        self._terms: Arguments = (FORMAT, fleet, nodes, round(max_ttl * 1000), int(durable), int(quarantine))
        self._sayings: dict[type[Any], Callable[[Any], Arguments]] = {
            Acquire: self._acquire,
            Confirm: self._confirm,
            Extend: self._extend,
            Heal: self._heal,
            Release: self._release,
            Leave: self._leave,
            Break: self._break,
            Look: self._look,
            Join: lambda request: self._marker("enter" if request.enter else "join"),
            Survey: lambda _: self._marker("survey"),
            Close: lambda _: self._marker("close"),
            Initialise: lambda request: (*self._marker("force" if request.force else "init"), request.wait_ms),
        }

    def encode(self, request: Request, *, source: bool = False) -> bytes:
        """The packed command, still without the marker; with `source` the script itself instead of its hash."""
        if not source:
            if type(request) is Acquire and request.ticket is None and not request.strict:
                return self._packed_acquire(*request[:4])
            if type(request) is Release:
                return self._packed_release(request)
        command = self._sayings[type(request)](request)
        if source:
            command = ("EVAL", scripts.SOURCES[command[1]], *command[2:])
        data = pack(command)
        return data if isinstance(request, _UNMARKED) else data[:-_EMPTY_ARGUMENT]

    def load(self, request: Request) -> bytes:
        """The packed command that teaches a server the script of a request."""
        return pack(("SCRIPT", "LOAD", scripts.SOURCES[self._sayings[type(request)](request)[1]]))

    def _packed_acquire(self, name: str, token: str, ttl_ms: int, candidate_us: int) -> bytes:
        """As encode, with all that an earlier acquire of this name had in common. (A test compares the two.)"""
        parts = self._acquires.get(name)
        if parts is None:
            parts = self._split(self._acquires, name, Acquire(name, _GAP, 0, 0))
        ttl, candidate = str(ttl_ms), str(candidate_us)
        told = f"${len(token)}\r\n{token}\r\n${len(ttl)}\r\n{ttl}\r\n${len(candidate)}\r\n{candidate}\r\n"
        return parts[0] + told.encode() + parts[1]

    def _packed_release(self, request: Release) -> bytes:
        name, token, wake, ticket, locker, stay_ms = request
        parts = self._releases.get(name)
        if parts is None:
            parts = self._split(self._releases, name, Release(name, _GAP))
        stay = str(stay_ms)
        told = (
            f"${len(token)}\r\n{token}\r\n$1\r\n{wake:d}\r\n${len(ticket)}\r\n{ticket}\r\n"
            f"${len(locker)}\r\n{locker}\r\n${len(stay)}\r\n{stay}\r\n"
        )
        return parts[0] + told.encode() + parts[1]

    def _split(self, known: dict[str, Parts], name: str, request: Acquire | Release) -> Parts:
        """What is the same in every such request of this name: before and behind what differs."""
        if len(known) >= _NAMES_MOST:
            known.clear()
        command = self._sayings[type(request)](request)
        gap = command.index(_GAP)
        before = pack(command).partition(pack((_GAP,))[4:])[0]
        behind = (
            pack(command[gap + 5 :])[4:]
            if isinstance(request, Release)
            else pack(command[gap + 3 :])[4:-_EMPTY_ARGUMENT]
        )
        parts = known[name] = (before, behind)
        return parts

    @staticmethod
    def tail(marker: bytes) -> bytes:
        """The marker as the last argument of a command."""
        return b"$%d\r\n%b\r\n" % (len(marker), marker)

    def _call(self, script: Script, name: str, *arguments: str | int) -> Arguments:
        """A script over the three keys of a lock, with an empty argument where the marker will be."""
        fence = f"{self._fence_key}{name}}}"
        return ("EVALSHA", script.sha, 3, self.prefix + name, fence, self.marker_key, *arguments, b"")

    def _acquire(self, ask: Acquire) -> Arguments:
        name, token, ttl_ms, candidate_us, ticket, strict = ask
        keys = (self.prefix + name, f"{self._fence_key}{name}}}", self.marker_key)
        told = (token, ttl_ms, candidate_us, self._clamp_us, self._fence_ttl_ms)
        if ticket is None and not strict:
            return ("EVALSHA", scripts.ACQUIRE.sha, 3, *keys, *told, b"")
        place = ("", 0, 0) if ticket is None else (ticket.member, ticket.order_us, ticket.patience_ms)
        return (
            "EVALSHA", scripts.QUEUE.sha, 4, *keys, f"{self._queue_key}{name}}}",
            *told, *place, int(strict), self._grace_ms, self.channel, b"",
        )  # fmt: skip

    def _confirm(self, ask: Confirm) -> Arguments:
        return self._call(scripts.CONFIRM, *ask, self._fence_ttl_ms)

    def _extend(self, ask: Extend) -> Arguments:
        return self._many(scripts.EXTEND, ask.leases, (), int(ask.shorten))

    def _heal(self, ask: Heal) -> Arguments:
        return self._many(scripts.HEAL, ask.leases, [f"{self._broken_key}{lease.name}}}" for lease in ask.leases])

    def _many(self, script: Script, leases: tuple[Kept, ...], further: Sequence[str], *arguments: int) -> Arguments:
        """A script over the keys of many leases; those of the first stand in front of the marker's."""
        keys: list[str] = []
        told: list[str | int] = []
        for name, token, ttl_ms, fence in leases:
            keys += (self.prefix + name, f"{self._fence_key}{name}}}")
            told += (token, ttl_ms, fence)
        keys.insert(2, self.marker_key)
        keys += further
        return ("EVALSHA", script.sha, len(keys), *keys, self._fence_ttl_ms, *told, *arguments, b"")

    def _release(self, ask: Release) -> Arguments:
        name, token, wake, ticket, locker, stay_ms = ask
        keys = (self.prefix + name, f"{self._queue_key}{name}}}")
        return ("EVALSHA", scripts.RELEASE.sha, 2, *keys, token, int(wake), ticket, locker, stay_ms, self.channel)

    def _leave(self, ask: Leave) -> Arguments:
        return self._release(Release(ask.name, "", True, ask.ticket))

    def _break(self, ask: Break) -> Arguments:
        name = ask.name
        keys = (self.prefix + name, f"{self._fence_key}{name}}}", self.marker_key, f"{self._broken_key}{name}}}")
        return (
            "EVALSHA",
            scripts.BREAK.sha,
            len(keys),
            *keys,
            self._fence_ttl_ms,
            self._broken_ttl_ms,
            ask.fence,
            b"",
        )

    def _look(self, ask: Look) -> Arguments:
        return self._call(scripts.LOOK, ask.name)

    def _marker(self, verb: str) -> Arguments:
        return ("EVALSHA", scripts.JOIN.sha, 1, self.marker_key, verb, *self._terms)


_RELEASES = {
    1: Answer(Vote.GRANTED, Cause.AGREED),
    2: Answer(Vote.GRANTED, Cause.AGREED, place=1),
    0: Answer(Vote.REFUSED, Cause.HELD),
    -3: Answer(Vote.REFUSED, Cause.ABSENT),
}


def decode_release(reply: Any) -> Answer:
    """What the reply to a release means: it is a bare number."""
    answer = _RELEASES.get(reply) if type(reply) is int else None
    return answer or decode(reply)


def decode_many(reply: Any, count: int) -> Answer:
    """What the reply to a request about `count` leases means."""
    match reply if type(reply) is list else None:
        case [1, bytes(said), *left_ms] if len(said) == count and not said.strip(b"ynakqm"):
            answer = of_each([_SAID[letter] for letter in said])
            return answer._replace(wait_ms=left_ms[0]) if left_ms and type(left_ms[0]) is int else answer
        case [1, _]:
            return _unexpected(reply)
    return decode(reply)


def decode(reply: Any) -> Answer:
    """What any other script's reply means as a vote."""
    if type(reply) is list and len(reply) == 2 and reply[0] == 1:
        fence = reply[1]
        if type(fence) is int and fence >= 0:
            return Answer(GRANTED, _AGREED, fence)
    match reply if type(reply) is list else None:
        case [0, int(pttl), int(fence), *place] if all(type(one) is int for one in place[:1]):
            return Answer(Vote.REFUSED, Cause.HELD, fence, max(0, pttl), place=sum(place[:1]))
        case [int(code)] if code in _REFUSALS:
            return Answer(Vote.REFUSED, _REFUSALS[code])
        case [-2, int(left_ms)]:
            return Answer(Vote.REFUSED, Cause.QUARANTINE, wait_ms=left_ms)
    if isinstance(reply, ReplyError):
        return unknown(Cause.FAILED, str(reply)[:160])
    return _unexpected(reply)


def _unexpected(reply: Any) -> Answer:
    return unknown(Cause.FAILED, f"unexpected answer of type {type(reply).__name__}")
