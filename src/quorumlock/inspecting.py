"""Who holds a lock: what nodes say of it, put together for people. No token is ever shown whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .core.requests import READER
from .core.states import NodeState as NodeState
from .core.votes import Cause, Sight, Tally
from .errors import NoQuorum


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds a lock, as far as nodes know."""

    host: str | None
    pid: int | None
    where: str | None
    """The thread or task."""
    since: float | None
    """Seconds since 1970, by the clock of a node."""
    remaining: float
    """Seconds, unless it is renewed."""
    fence: int | None
    note: str | None
    token: str
    """The start of it."""
    foreign: bool = False
    """Is it no lock of ours? Then nothing more is known."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody who waits for a lock."""

    host: str | None
    pid: int | None
    shares: bool
    """Does it wait to share it?"""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What one node thinks."""

    node: str
    says: str
    """free, held, shared, closed, or why it does not tell."""
    remaining: float = 0.0
    fence: int | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known of a lock. By the time you read it, it may have changed."""

    name: str
    state: str
    """free, held, shared, closed (`at_least`), or contested (no majority says the same)."""
    kind: str | None
    """mutex, write, read, slot, multi, leader; foreign; None: nobody holds it."""
    holders: tuple[Holder, ...]
    """Several, if it is shared."""
    waiters: tuple[Waiter, ...]
    """In the order of the queue; those of whom a majority knows."""
    nodes: tuple[NodeView, ...]

    @property
    def holder(self) -> Holder | None:
        """Who has it alone; or the first of those who share it."""
        return self.holders[0] if self.holders else None

    @property
    def fence(self) -> int | None:
        """Of that hold, for `break_(name, fence=…)`; None: nobody has it, or no majority agrees who."""
        token = self.holder.token if self.holder and self.state == "held" else None
        alike = [node.fence for node in self.nodes if (node.says, node.token) == (self.state, token)]
        return max((fence for fence in alike if fence), default=None) if self.state != "free" else None


CLOSED, READERS = "ql:closed", "ql:readers"
OURS = re.compile(r"(?:r:)?[0-9a-f]{40}(?:@(?P<host>[^:\x00-\x1f]*):(?P<pid>[0-9]{1,10}))?")


def inspection(name: str, tally: Tally) -> Inspection:
    """What the answers of nodes come to; raises NoQuorum where there are too few of them."""
    sights = [answer.sight for answer in tally.answers if answer is not None and answer.sight is not None]
    if len(sights) < tally.needed:
        raise NoQuorum(f"no majority could tell who holds {name!r}: {tally.describe()}", tally)
    (value, count), *_ = Counter(sight.value for sight in sights).most_common(1)
    told = [sight for sight in sights if sight.value == value]
    state = said(value) if count >= tally.needed else "contested"
    holders: tuple[Holder, ...] = ()
    if state == "held":
        holders = (max((_holder(value, sight) for sight in told), key=lambda one: one.since or 0.0),)
    elif state == "shared":
        holders = tuple(_readers(told, tally.needed))
    kind = None
    if state == "held":
        kind = (
            "foreign" if holders[0].foreign else next((s.card.split(" ")[0] for s in told if _matches(s)), "mutex")
        )
    elif state == "shared":
        kind = "read"
    standing = Counter(member for sight in sights for member in set(sight.waiters))
    longest = max(sights, key=lambda sight: len(sight.waiters))
    having = {value[:8], *(token.removeprefix(READER)[:8] for sight in told for token, _ in sight.readers)}
    waiters = [
        member
        for member in longest.waiters
        if standing[member] >= tally.needed and member.partition(":")[2][:8] not in having  # kept until the release
    ]
    views = tuple(_view(node, answer) for node, answer in zip(tally.nodes, tally.answers, strict=True))
    return Inspection(name, state, kind, holders, tuple(_waiter(one) for one in waiters), views)


def inspections(seen: Iterable[tuple[str, Tally]]) -> list[Inspection]:
    """Of many locks: those that are not free, and not something else that nodes have under such a name."""
    found = []
    for name, tally in seen:
        if sum(answer is not None and answer.sight is not None for answer in tally.answers) >= tally.needed:
            found.append(inspection(name, tally))
    return [one for one in found if one.state != "free"]


def said(value: str) -> str:
    return {"": "free", CLOSED: "closed", READERS: "shared"}.get(value, "held")


def _matches(sight: Sight) -> bool:
    """Is what stands behind the fence about who holds it now?"""
    return bool(sight.value) and sight.value[:8] == sight.start


def _holder(token: str, sight: Sight) -> Holder:
    found = OURS.fullmatch(token)
    host, pid = (found["host"], found["pid"]) if found else (None, None)
    known = _matches(sight)
    _, where, note = [*sight.card.split(" ", 2), "", "", ""][:3] if known else ("", "", "")
    return Holder(
        host=host,
        pid=int(pid) if pid else None,
        where=where if where not in ("", "-") else None,
        since=sight.since_us / 1e6 if known and sight.since_us else None,
        remaining=sight.left_ms / 1000,
        fence=sight.fence if known or found else None,
        note=note or None,
        token=shown(token),
        foreign=found is None,
    )


def _readers(sights: list[Sight], needed: int) -> list[Holder]:
    ends: dict[str, list[int]] = {}
    for sight in sights:
        for token, left_ms in sight.readers:
            ends.setdefault(token, []).append(left_ms)
    fence = max(sight.fence for sight in sights)
    readers = []
    for token, left in sorted(ends.items()):
        found = OURS.fullmatch(token)
        host, pid = (found["host"], found["pid"]) if found else (None, None)
        if len(left) >= needed:
            number = int(pid) if pid else None
            readers.append(
                Holder(host, number, None, None, max(left) / 1000, fence, None, shown(token), found is None)
            )
    return readers


def _waiter(member: str) -> Waiter:
    shares = member.endswith("~r")
    found = re.search(r"@([^:\x00-\x1f]*):([0-9]{1,10})$", member.removesuffix("~r"))
    return Waiter(found[1] if found else None, int(found[2]) if found else None, shares)


def _view(node: str, answer: object) -> NodeView:
    from .core.votes import Answer

    if not isinstance(answer, Answer):
        return NodeView(node, Cause.SILENT.value)
    sight = answer.sight
    if sight is None:
        return NodeView(node, f"{answer.cause.value} ({answer.detail})" if answer.detail else answer.cause.value)
    token = shown(sight.value) if said(sight.value) == "held" else None
    return NodeView(node, said(sight.value), max(0, sight.left_ms) / 1000, sight.fence or None, token)


def shown(token: str) -> str:
    """The start of a token: enough to tell two apart, too little to use it."""
    return f"{token.removeprefix(READER)[:6]}…"
