"""Broken cores: for every checker some that it, and nobody else in its stead, has to find out.

Each breaks one rule of the protocol, in the way somebody might who has not understood it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from quorumlock.core import family, fleet, redlock, renewal, room, votes, waiting
from quorumlock.core.effects import Round, Route, Sleep, Steps
from quorumlock.core.renewal import Extension
from quorumlock.core.votes import Tally
from quorumlock.engines.memory.locks import QUARANTINE
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.lab.ledger import Ledger
from quorumlock.lab.run import Options
from quorumlock.leasing import LeaseBase
from quorumlock.runners import board

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Canary:
    checker: str
    """Who is to find it out."""
    words: str
    break_it: Callable[[Patch], None]
    options: Options
    """Where it shows soonest; by default anywhere."""
    known_at: int
    """A seed in which it showed, which is tried first: only a matter of speed."""

    def __str__(self) -> str:
        return f"{self.checker}: {self.words}"


CANARIES: list[Canary] = []


ANYWHERE = Options()


def canary(
    checker: str, words: str, options: Options = ANYWHERE, *, known_at: int = 0
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def kept(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
        CANARIES.append(Canary(checker, words, break_it, options, known_at))
        return break_it

    return kept


@canary("exclusion", "half of the nodes are enough", known_at=1)
def _(patch: Patch) -> None:
    plain = fleet.Fleet.__post_init__

    def fewer(self: fleet.Fleet) -> None:
        plain(self)
        self.majority = max(1, self.majority - 1)

    patch.setattr(fleet.Fleet, "__post_init__", fewer)


@canary("exclusion", "a node that restarted is trusted at once", known_at=25)
def _(patch: Patch) -> None:
    plain = ServerDouble._not_standing

    def trusting(self: ServerDouble, marker: bytes | None, expected: bytes) -> list[int] | None:
        refusal = plain(self, marker, expected)
        return None if refusal and refusal[0] == QUARANTINE else refusal

    patch.setattr(ServerDouble, "_not_standing", trusting)


@canary("exclusion", "one vote less is enough to extend", known_at=54)
def _(patch: Patch) -> None:
    plain = renewal.judged

    def lenient(
        fleet_: fleet.Fleet, tally: Tally, before: float, until: float, now: float, on_probation: frozenset[int]
    ) -> Extension:
        if tally.heard >= tally.needed - 1 and now < before:
            return Extension(tally, valid_until=until)
        return plain(fleet_, tally, before, until, now, on_probation)

    patch.setattr(renewal, "judged", lenient)


@canary(
    "exclusion",
    "validity is counted from the last answer, however late it is",
    Options("mutex", "client-pause"),
    known_at=189,
)
def _(patch: Patch) -> None:
    plain = redlock.acquire

    def late(fleet_: fleet.Fleet, name: str, ttl: float, **how: Any) -> Steps[redlock.Grant | redlock.Refusal]:
        steps = plain(fleet_, name, ttl, **how)
        while True:
            with pytest.MonkeyPatch.context() as now:
                now.setattr(redlock, "valid_until", lambda started_at, ttl, drift: fleet_.clock() + ttl)
                try:
                    effect = next(steps)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
            yield effect

    patch.setattr(waiting, "acquire", late)


@canary("exclusion", "a reader that does not look for a writer", Options("read-write"))
def _(patch: Patch) -> None:
    plain = ServerDouble._read

    def careless(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> Any:
        reply = plain(self, keys, argv)
        return [1, reply[2]] if reply[0] == 0 else reply

    patch.setattr(ServerDouble, "_read", careless)


@canary("exclusion", "slots that are counted together, as a counter on each node would", Options("semaphore"))
def _(patch: Patch) -> None:
    patch.setattr(family.Alike, "_can_be_decided", Tally._can_be_decided)
    patch.setattr(family.Alike, "only", lambda self, _: self)


@canary("exclusion", "several locks of which one is looked at", Options("many-names"))
def _(patch: Patch) -> None:
    plain = ServerDouble._all

    def greedy(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> Any:
        reply = plain(self, keys, argv)
        return [1, reply[2] + 1, reply[2] + 1] if reply[0] == 0 else reply

    patch.setattr(ServerDouble, "_all", greedy)


@canary("fences", "the highest fence is taken without asking the others to agree on it", known_at=5)
def _(patch: Patch) -> None:
    def unconfirmed(
        fleet_: fleet.Fleet, name: str, token: str, tally: Tally, ttl: float, route: Route
    ) -> Steps[tuple[int, int]]:
        return tally.top, 0
        yield Sleep(0)  # makes it a generator

    patch.setattr(redlock, "confirm", unconfirmed)


@canary("fences", "the client's clock is taken for the fence, though it be behind", known_at=5)
def _(patch: Patch) -> None:
    def forgetful(self: ServerDouble, key: bytes, stored: int, to: int, ttl_ms: bytes, card: bytes = b"") -> int:
        self._set(key, b"%d" % to + card, int(ttl_ms))
        return to

    patch.setattr(ServerDouble, "_raise_fence", forgetful)


@canary("updates", "a fence in steps of ten seconds, which is not raised by a grant", known_at=18)
def _(patch: Patch) -> None:
    second = 10_000_000

    def coarse(self: ServerDouble, key: bytes, stored: int, to: int, ttl_ms: bytes, card: bytes = b"") -> int:
        fence = max(stored // second, to // second) * second
        self._set(key, b"%d" % fence + card, int(ttl_ms))
        return fence

    patch.setattr(ServerDouble, "_raise_fence", coarse)


@canary(
    "updates", "a guard that is told of new holders, and does not remember", Options("fenced-counter"), known_at=5
)
def _(patch: Patch) -> None:
    patch.setattr(Ledger, "enter", lambda self, fence: None)


@canary("lifetimes", "a renewal that adds to what is left")
def _(patch: Patch) -> None:
    plain = ServerDouble._set

    def adding(self: ServerDouble, key: bytes, value: Any, ttl_ms: int | None) -> None:
        known = self._data.get(key)
        if known and known[0] == value and ttl_ms is not None and not key.startswith(b"ql:"):
            ttl_ms += max(0, self._pttl(key))
        plain(self, key, value, ttl_ms)

    patch.setattr(ServerDouble, "_set", adding)


@canary("lifetimes", "a lock is set first, and given its ttl with the first renewal")
def _(patch: Patch) -> None:
    plain = ServerDouble._acquire

    def lasting(self: ServerDouble, keys: list[bytes], argv: list[bytes]) -> Any:
        before = self._get(keys[0])
        reply = plain(self, keys, argv)
        if before is None and reply[0] == 1:
            plain_set(self, keys[0], argv[0], None)
        return reply

    plain_set = ServerDouble._set
    patch.setattr(ServerDouble, "_acquire", lasting)


@canary("leaks", "a release goes to a majority of the nodes", known_at=3)
def _(patch: Patch) -> None:
    plain = redlock.release

    def lazy(fleet_: fleet.Fleet, *arguments: Any, **options: Any) -> Steps[Tally]:
        steps = plain(fleet_, *arguments, **options)
        try:
            effect = next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        assert isinstance(effect, Round)
        effect.requests = [one if node < fleet_.majority else None for node, one in enumerate(effect.requests)]
        effect.tally.missing = sum(one is not None for one in effect.requests)
        yield effect
        return (yield from steps)

    patch.setattr(redlock, "release", lazy)


@canary("leaks", "who leaves without the lock leaves its ticket")
def _(patch: Patch) -> None:
    def stay(self: room.Room, watch: room.Watch) -> None:
        watch.ticket = ""
        plain(self, watch)

    plain = room.Room.leave
    patch.setattr(room.Room, "leave", stay)


@canary("deadline", "check() believes in its keeper, and does not look at the clock", known_at=9)
def _(patch: Patch) -> None:
    patch.setattr(LeaseBase, "_notice", lambda self, *, raised=False: None)


@canary("deadline", "validity is counted from the answer, not from the request", known_at=46)
def _(patch: Patch) -> None:
    plain = renewal.renew

    def later(fleet_: fleet.Fleet, grants: Any) -> Steps[list[Extension]]:
        extensions = yield from plain(fleet_, grants)
        for grant, extension in zip(grants, extensions, strict=True):
            if extension.reason is not None:
                grant.valid_until = extension.valid_until = fleet_.clock() + grant.ttl
                extension.reason = None
        return extensions

    patch.setattr("quorumlock.core.keeper.renew", later)


@canary("waiting", "announcements are not listened to, and asked is seldom")
def _(patch: Patch) -> None:
    patch.setattr(room.Watch, "ring", lambda self, node: None)
    patch.setattr(waiting, "_poll", lambda polls, place, fleet_: 60.0)
    patch.setattr(waiting, "STAND_BACK", 30.0)


@canary("waiting", "a free lock is whoever's asks first, also in a line", Options("fair-queue"), known_at=23)
def _(patch: Patch) -> None:
    plain = ServerDouble._turn

    def unfair(
        self: ServerDouble, lock: bytes, fence: bytes, queue: bytes, argv: list[bytes], *more: Any, **how: Any
    ) -> Any:
        words = list(argv)
        words[9] = b"0"
        return plain(self, lock, fence, queue, words, *more, **how)

    patch.setattr(ServerDouble, "_turn", unfair)


@canary("progress", "a node that has restarted stays in quarantine", known_at=12)
def _(patch: Patch) -> None:
    plain = ServerDouble._not_standing

    def endless(self: ServerDouble, marker: bytes | None, expected: bytes) -> list[int] | None:
        refusal = plain(self, marker, expected)
        return [QUARANTINE, 3000] if refusal is None and not self.run_id.endswith("-0") else refusal

    patch.setattr(ServerDouble, "_not_standing", endless)


@canary("progress", "a node that failed is never connected to again", known_at=12)
def _(patch: Patch) -> None:
    plain = board.Board._hope

    def hopeless(self: board.Board, node: int, pending: board.Pending, now: float) -> None:
        if self.watch.healths[node].failures or self.engine.nodes[node].met:
            pending.round.tally.cast(node, votes.unknown(votes.Cause.UNREACHABLE, "given up"))
        else:
            plain(self, node, pending, now)

    patch.setattr(board.Board, "_hope", hopeless)
