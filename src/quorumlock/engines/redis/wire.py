"""Requests as commands.

Every script that needs the node's marker takes it as its last argument. The rest of a command is the same for
all nodes of a round, so it is packed once, and each link appends its own marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.requests import (
    READER,
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    CellEnter,
    CellGet,
    CellPut,
    CellSwap,
    Close,
    Confirm,
    ConfirmAll,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Inspect,
    InspectMany,
    Join,
    Kept,
    Leave,
    Look,
    Past,
    Refused,
    Release,
    Request,
    Scan,
    Survey,
    Ticket,
)
from . import scripts
from .resp import pack
from .scripts import Script

FORMAT = 1
FREE = (Release, Leave, Scan, Past, Refused, Survey, Close, Initialise)
"""Requests that are understood by a node of any standing, joined or not."""

_UNMARKED = (*FREE, Join)
_EMPTY_ARGUMENT = len(b"$0\r\n\r\n")

Arguments = tuple[str | bytes | int, ...]
Parts = tuple[bytes, bytes]

_NAMES_MOST = 1000
JOURNAL_TTL_MS = 7 * 86_400_000
"""Since the last entry."""
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
        journal: int | None = None,
    ) -> None:
        self.prefix = prefix
        self.marker_key = f"{prefix}ql:node"
        self.channel = f"{prefix}ql:wake:"
        self._journal_key = f"{prefix}ql:journal"
        self._journal = "" if journal is None else f"{journal} {JOURNAL_TTL_MS} {self._journal_key}"
        """As the scripts take it; without it they write nothing down."""
        self.pair = tuple(self._noted(script) for script in (scripts.RELEASE, scripts.ACQUIRE))
        """The scripts of every lease."""
        self._queue_key = f"{prefix}ql:queue:{{{prefix}"
        self._readers_key = f"{prefix}ql:readers:{{{prefix}"
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
            AcquireAny: self._acquire_any,
            AcquireAll: self._acquire_all,
            Confirm: self._confirm,
            ConfirmAll: self._confirm_all,
            Downgrade: self._downgrade,
            Extend: self._extend,
            Heal: self._heal,
            Release: self._release,
            Leave: self._leave,
            Break: self._break,
            Look: self._look,
            Inspect: self._inspect,
            InspectMany: self._inspect_many,
            CellGet: lambda ask: self._cell(ask.name, "get"),
            CellEnter: lambda ask: self._cell(ask.name, "enter", ask.fence, b"", ask.ttl_ms),
            CellSwap: lambda ask: self._cell(ask.name, "swap", ask.version, ask.value, ask.ttl_ms),
            CellPut: lambda ask: self._cell(ask.name, "put", ask.version, ask.value, ask.ttl_ms),
            Scan: self._scan,
            Past: lambda ask: ("EVALSHA", scripts.PAST.sha, 1, self._journal_key, *ask),
            Refused: self._refused,
            Join: lambda request: self._marker("enter" if request.enter else "join"),
            Survey: lambda _: self._marker("survey"),
            Close: lambda _: self._marker("close"),
            Initialise: lambda request: (*self._marker("force" if request.force else "init"), request.wait_ms),
        }

    def encode(self, request: Request, *, source: bool = False) -> bytes:
        """The packed command, still without the marker; with `source` the script itself instead of its hash."""
        if not source:
            if type(request) is Acquire and request.ticket is None and not request.strict and not request.shared:
                return self._packed_acquire(request)
            if type(request) is Release and not request.names and not request.token.startswith(READER):
                return self._packed_release(request)
        command = self._command(request)
        if source:
            command = ("EVAL", scripts.SOURCES[command[1]], *command[2:])
        data = pack(command)
        return data if isinstance(request, _UNMARKED) else data[:-_EMPTY_ARGUMENT]

    def load(self, request: Request) -> bytes:
        """The packed command that teaches a server the script of a request."""
        return pack(("SCRIPT", "LOAD", scripts.SOURCES[self._command(request)[1]]))

    def _noted(self, script: Script) -> Script:
        return scripts.NOTED.get(script.sha, script) if self._journal else script

    def _command(self, request: Request) -> Arguments:
        """With a journal the script that writes down what it does, and where to; else the plain one."""
        command = self._sayings[type(request)](request)
        if not self._journal or command[1] not in scripts.NOTED:
            return command
        noted = (*command[:1], scripts.NOTED[str(command[1])].sha, *command[2:])
        return (*noted, self._journal, b"") if isinstance(request, _UNMARKED) else (*noted[:-1], self._journal, b"")

    def _packed_acquire(self, request: Acquire) -> bytes:
        """As encode, with all that an earlier acquire of this name had in common. (A test compares the two.)"""
        name, token, ttl_ms, candidate_us, _, _, card, _ = request
        parts = self._acquires.get(name)
        if parts is None:
            parts = self._split(self._acquires, name, Acquire(name, _GAP, 0, 0))
        ttl, candidate = str(ttl_ms), str(candidate_us)
        told = (
            f"${len(token)}\r\n{token}\r\n${len(ttl)}\r\n{ttl}\r\n${len(candidate)}\r\n{candidate}\r\n"
            f"${len(card) if card.isascii() else len(card.encode())}\r\n{card}\r\n"
        )
        return parts[0] + told.encode() + parts[1]

    def _packed_release(self, request: Release) -> bytes:
        name, token, wake, ticket, locker, stay_ms, _, _ = request
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
        command = self._command(request)
        gap = command.index(_GAP)
        before = pack(command).partition(pack((_GAP,))[4:])[0]
        behind = pack(command[gap + (5 if isinstance(request, Release) else 4) :])[4:]
        if isinstance(request, Acquire):
            behind = behind[:-_EMPTY_ARGUMENT]
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
        name, token, ttl_ms, candidate_us, ticket, strict, card, shared = ask
        keys = (self.prefix + name, f"{self._fence_key}{name}}}", self.marker_key)
        told = (token, ttl_ms, candidate_us, card, self._clamp_us, self._fence_ttl_ms)
        if ticket is None and not strict and not shared:
            return ("EVALSHA", scripts.ACQUIRE.sha, 3, *keys, *told, b"")
        queue = f"{self._queue_key}{name}}}"
        turn = self._turn(ticket, strict, shared)
        if shared:
            return ("EVALSHA", scripts.READ.sha, 5, *keys, queue, f"{self._readers_key}{name}}}", *told, *turn, b"")
        return ("EVALSHA", scripts.QUEUE.sha, 4, *keys, queue, *told, *turn, b"")

    def _turn(self, ticket: Ticket | None, strict: bool, shared: bool = False) -> Arguments:
        again = ticket is not None and ticket.again
        return (*_place(ticket), int(strict), self._grace_ms, self.channel, int(shared), int(again))

    def _acquire_any(self, ask: AcquireAny) -> Arguments:
        keys = self._pairs(ask.names)
        keys[3:3] = [f"{self._queue_key}{ask.line}}}"]
        told = (ask.token, ask.ttl_ms, ask.candidate_us, ask.card, self._clamp_us, self._fence_ttl_ms)
        return ("EVALSHA", scripts.ANY.sha, len(keys), *keys, *told, *self._turn(ask.ticket, ask.strict), b"")

    def _acquire_all(self, ask: AcquireAll) -> Arguments:
        keys = self._pairs(ask.names) + [f"{self._queue_key}{name}}}" for name in ask.names]
        told = (ask.token, ask.ttl_ms, ask.candidate_us, ask.card, self._clamp_us, self._fence_ttl_ms)
        return (
            "EVALSHA",
            scripts.ALL.sha,
            len(keys),
            *keys,
            *told,
            *_place(ask.ticket),
            len(ask.names),
            self.channel,
            b"",
        )

    def _confirm_all(self, ask: ConfirmAll) -> Arguments:
        keys = self._pairs(ask.names)
        told = [number for pair in zip(ask.granted, ask.fences, strict=True) for number in pair]
        return ("EVALSHA", scripts.CONFIRM_MANY.sha, len(keys), *keys, ask.token, self._fence_ttl_ms, *told, b"")

    def _pairs(self, names: Sequence[str]) -> list[str]:
        """Lock and fence of each; the marker's key stands behind the first two."""
        keys = [key for name in names for key in (self.prefix + name, f"{self._fence_key}{name}}}")]
        keys.insert(2, self.marker_key)
        return keys

    def _downgrade(self, ask: Downgrade) -> Arguments:
        name = ask.name
        keys = (*self._pairs([name]), f"{self._queue_key}{name}}}", f"{self._readers_key}{name}}}")
        told = (ask.token, ask.ttl_ms, ask.reader, ask.ticket, self.channel)
        return ("EVALSHA", scripts.DOWNGRADE.sha, len(keys), *keys, *told, b"")

    def _confirm(self, ask: Confirm) -> Arguments:
        return self._call(scripts.CONFIRM, *ask, self._fence_ttl_ms)

    def _extend(self, ask: Extend) -> Arguments:
        return self._many(scripts.EXTEND, ask.leases)

    def _heal(self, ask: Heal) -> Arguments:
        return self._many(scripts.HEAL, ask.leases, *(f"{self._broken_key}{lease.name}}}" for lease in ask.leases))

    def _many(self, script: Script, leases: tuple[Kept, ...], *further: str) -> Arguments:
        """A script over the keys of many leases; those of the first stand in front of the marker's."""
        keys: list[str] = []
        told: list[str | int] = []
        for name, token, ttl_ms, fence in leases:
            shares = token.startswith(READER)
            keys += (self.prefix + name, f"{self._readers_key if shares else self._fence_key}{name}}}")
            told += (token, ttl_ms, fence)
        keys.insert(2, self.marker_key)
        keys += further
        return ("EVALSHA", script.sha, len(keys), *keys, self._fence_ttl_ms, *told, b"")

    def _release(self, ask: Release) -> Arguments:
        name, token, wake, ticket, locker, stay_ms, names, line = ask
        told = (token, int(wake), ticket, locker, stay_ms, self.channel)
        keys = [self.prefix + name, f"{self._queue_key}{name}}}"]
        if names:
            keys = [key for one in names for key in (self.prefix + one, f"{self._queue_key}{line or one}}}")]
            return ("EVALSHA", scripts.RELEASE_MANY.sha, len(keys), *keys, *told)
        if token.startswith(READER):
            return ("EVALSHA", scripts.UNREAD.sha, 3, *keys, f"{self._readers_key}{name}}}", *told)
        return ("EVALSHA", scripts.RELEASE.sha, 2, *keys, *told)

    def _leave(self, ask: Leave) -> Arguments:
        return self._release(Release(ask.name, "", True, ask.ticket, names=ask.names, line=ask.line))

    def _break(self, ask: Break) -> Arguments:
        name = ask.name
        keys = (
            *self._pairs([name]), f"{self._broken_key}{name}}}", f"{self._readers_key}{name}}}",
            f"{self._queue_key}{name}}}",
        )  # fmt: skip
        return (
            "EVALSHA",
            scripts.BREAK.sha,
            len(keys),
            *keys,
            self._fence_ttl_ms,
            self._broken_ttl_ms,
            ask.fence,
            ask.only,
            self.channel,
            *((ask.by,) if self._journal else ()),
            b"",
        )

    def _look(self, ask: Look) -> Arguments:
        return self._call(scripts.LOOK, ask.name, int(ask.shared))

    def _inspect(self, ask: Inspect) -> Arguments:
        name = ask.name
        keys = (*self._pairs([name]), f"{self._queue_key}{name}}}", f"{self._readers_key}{name}}}")
        return ("EVALSHA", scripts.INSPECT.sha, len(keys), *keys, b"")

    def _inspect_many(self, ask: InspectMany) -> Arguments:
        keys = self._pairs(ask.names)
        for name in ask.names:
            keys += (f"{self._queue_key}{name}}}", f"{self._readers_key}{name}}}")
        return ("EVALSHA", scripts.INSPECT_MANY.sha, len(keys), *keys, b"")

    def _cell(self, name: str, verb: str, version: int = 0, value: bytes = b"", ttl_ms: int = 0) -> Arguments:
        keys = (f"{self.prefix}ql:cell:{{{self.prefix}{name}}}", f"{self._fence_key}{name}}}", self.marker_key)
        return ("EVALSHA", scripts.CELL.sha, 3, *keys, verb, version, value, ttl_ms, b"")

    def _scan(self, ask: Scan) -> Arguments:
        match = f"{self._fence_key}{ask.pattern}}}"
        return ("EVALSHA", scripts.SCAN.sha, 0, ask.cursor, match, ask.size, self._fence_key, self.prefix)

    def _refused(self, ask: Refused) -> Arguments:
        told = (self.prefix + ask.name, ask.fence, ask.by, ask.detail)
        return ("EVALSHA", scripts.REFUSED.sha, 1, *told, self._journal, b"")

    def _marker(self, verb: str) -> Arguments:
        return ("EVALSHA", scripts.JOIN.sha, 1, self.marker_key, verb, *self._terms)


def _place(ticket: Ticket | None) -> Arguments:
    return ("", 0, 0) if ticket is None else (ticket.member, ticket.order_us, ticket.patience_ms)
