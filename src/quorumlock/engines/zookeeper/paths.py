"""Names on the server. Everything lies flat, below a fixed number of *gates*, which are never deleted.

    <root>/locks/<gate>/<name>:h<n>:<digest>              a holder                       ephemeral
    <root>/locks/<gate>/<name>:r<n>:<fence>:<digest>      one who shares                 ephemeral
    <root>/locks/<gate>/<name>:q<n>:<locker>:<ticket>:0…  one who waits                  ephemeral, sequential
    <root>/locks/<gate>/<name>:c<n>:<end>:<digest>        nobody's, but closed until then (the server's clock, ms)
    <root>/cells/<gate>/<name>                            a cell

Names are percent-escaped, so that a colon is always ours; `n` says how many characters of the name are a locker's
prefix. The digest is a token's: who may list nodes, but not read them, learns no tokens.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote

from ...core.requests import Ticket

GATES = 1024
"""All clients must agree on it: it is part of the format."""

_SLOT = re.compile(r"#[0-9]+\Z")


def escaped(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def unescaped(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def gate_number(name: str) -> str:
    """The slots of a semaphore, and its queue, share a gate."""
    return f"{zlib.crc32(_SLOT.sub('', name).encode('utf-8', 'surrogatepass')) % GATES:03x}"


class Waiter(NamedTuple):
    node: str
    member: str
    order: int

    @property
    def shares(self) -> bool:
        return self.member.endswith("~r")


class Reader(NamedTuple):
    node: str
    fence: int
    digest: str


class Closed(NamedTuple):
    node: str
    until_ms: int


class Line(NamedTuple):
    """A queue, as somebody sees it."""

    ahead: tuple[Waiter, ...]
    """Those before us who matter to us."""
    mine: Waiter | None


class Seen(NamedTuple):
    """What there is of one name."""

    holders: tuple[str, ...]
    readers: tuple[Reader, ...]
    closed: tuple[Closed, ...]
    waiters: tuple[Waiter, ...]

    @property
    def nodes(self) -> list[str]:
        """Of all who keep others out."""
        return [*self.holders, *(reader.node for reader in self.readers), *(one.node for one in self.closed)]

    def line(self, ticket: Ticket | None, shared: bool = False) -> Line:
        """Before whoever would share it stand only those who would not."""
        mine = None if ticket is None else next((one for one in self.waiters if one.member == ticket.member), None)
        before = [one for one in self.waiters if mine is None or one.order < mine.order]
        return Line(tuple(one for one in before if not shared or not one.shares), mine)


class Gate(NamedTuple):
    """What lies below one gate, at one version of it."""

    path: str
    version: int
    fence: int
    """Of the last grant through it, whatever the name."""
    children: Sequence[str]

    def of(self, name: str) -> Seen:
        start = f"{escaped(name)}:"
        return seen([child[len(start) :] for child in self.children if child.startswith(start)], start)

    def child(self, node: str) -> str:
        return f"{self.path}/{node}"

    def closed(self) -> list[Closed]:
        """Of all names."""
        nodes = [child.split(":") for child in self.children if ":c" in child]
        return [Closed(":".join(parts), int(parts[2])) for parts in nodes if len(parts) == 4 and parts[1][0] == "c"]


def seen(ends: Iterable[str], start: str) -> Seen:
    holders, readers, closed, waiters = [], [], [], []
    for end in ends:
        kind, *rest = end.split(":")
        if kind[:1] == "h":
            holders.append(start + end)
        elif kind[:1] == "r" and len(rest) == 2:
            readers.append(Reader(start + end, int(rest[0]), rest[1]))
        elif kind[:1] == "c" and len(rest) == 2:
            closed.append(Closed(start + end, int(rest[0])))
        elif kind[:1] == "q" and len(rest) == 3:
            waiters.append(Waiter(start + end, f"{rest[0]}:{unescaped(rest[1])}", int(rest[2])))
    waiters.sort(key=lambda one: one.order)
    return Seen(tuple(holders), tuple(readers), tuple(closed), tuple(waiters))


class Paths:
    """The names of one locker, with its prefix."""

    def __init__(self, root: str, prefix: str) -> None:
        self.root = root
        self.locks = f"{root}/locks"
        self.cells = f"{root}/cells"
        self.prefix = prefix

    def gate(self, name: str) -> str:
        return f"{self.locks}/{gate_number(name)}"

    def holder(self, name: str, token: str) -> str:
        return f"{escaped(name)}:h{len(self.prefix)}:{digest(token)}"

    def reader(self, name: str, token: str, fence: int) -> str:
        return f"{escaped(name)}:r{len(self.prefix)}:{fence}:{digest(token)}"

    def closed(self, name: str, token: str, until_ms: int) -> str:
        return f"{escaped(name)}:c{len(self.prefix)}:{until_ms}:{digest(token)}"

    def waiter(self, name: str, ticket: Ticket) -> str:
        """The server puts a number behind it."""
        return f"{escaped(name)}:q{len(self.prefix)}:{ticket.locker}:{escaped(ticket.id)}:"

    def cell(self, name: str) -> tuple[str, str]:
        """Its gate, and itself."""
        gate = f"{self.cells}/{gate_number(name)}"
        return gate, f"{gate}/{escaped(name)}"

    def held(self, child: str) -> str | None:
        """The name, without the prefix, of a lock of this prefix that a node keeps; None: it is no such node."""
        name, colon, rest = child.partition(":")
        if not colon or rest[:1] not in ("h", "r", "c") or rest[1:].partition(":")[0] != str(len(self.prefix)):
            return None
        name = unescaped(name)
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None
