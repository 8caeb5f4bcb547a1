"""Mutual exclusion, judged by what the leases themselves say, and not by how much time has passed.

A lease that could not be renewed in time is lost, and another client may then acquire its lock. On a busy machine
that happens to any lease of a short ttl, and it is not a bug. It is one if the lease is still valid:

    valid before the attempt, granted to another, valid after it      a violation
    valid before the attempt, granted to another, lost after it       no verdict: the lease may have ended first
    valid before the attempt, refused,            valid after it      a comparison: the refusal was required

`nobody_else_gets` runs such attempts against leases that are kept. Under load leases are compared with each other
instead, by when each was seen valid: `tests/support/exclusion.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from quorumlock import AsyncLease, AsyncLock, AsyncLocker, Lease, LeaseLost, NoQuorum
from quorumlock.clocks import boot_time
from quorumlock.core.requests import READER
from quorumlock.events import Event, Extended
from tests.live.attribution import only_slow

COMPARISONS = 20
RENEWALS = 4
LOSSES_MOST = 5
"""So often a lease may be lost to a busy machine. One that is never renewed is lost every time."""
PATIENCE = 60.0
"""Seconds for all of it. An attempt that no node answers in time is no comparison."""
SHOWN = 12

Take = Callable[[], Awaitable[Sequence[AsyncLease]]]


class ExclusionViolated(AssertionError):
    """Another client was granted a lock that a valid lease excludes it from; with the attempts before that."""


class Attempt(NamedTuple):
    """One attempt by another client. `before` and `after`: seconds left of each lease of ours."""

    started_at: float
    ended_at: float
    wanted: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    result: str

    @property
    def valid(self) -> bool:
        """Whether all of our leases were valid before and after it."""
        return min(self.before + self.after) > 0


class History:
    """What was taken, attempted and lost, in order, for the message of a failure."""

    def __init__(self) -> None:
        self._started_at = boot_time()
        self._lines: list[str] = []
        self._taken = 0
        self.comparisons = 0

    def taken(self, leases: Sequence[AsyncLease]) -> None:
        self._taken = len(self._lines)
        self._note(boot_time(), "taken: " + ", ".join(map(described, leases)))

    def lost(self, leases: Sequence[AsyncLease]) -> None:
        reasons = [lease._reason.value if lease._reason is not None else "not lost" for lease in leases]
        self._note(boot_time(), f"no verdict on: {', '.join(reasons)}")

    def attempted(self, attempt: Attempt) -> None:
        self.comparisons += attempt.valid and attempt.result == "refused"
        took_ms = 1000 * (attempt.ended_at - attempt.started_at)
        left = ", ".join(f"{b:.3f} -> {a:.3f}" for b, a in zip(attempt.before, attempt.after, strict=True))
        told = f"{attempt.wanted}: {attempt.result} after {took_ms:.1f} ms; seconds left of ours: {left}"
        self._note(attempt.started_at, told)

    def _note(self, at: float, told: str) -> None:
        self._lines.append(f"{at - self._started_at:8.3f} s  {told}")

    def __str__(self) -> str:
        last = self._lines[max(self._taken + 1, len(self._lines) - SHOWN) :]
        return "\n".join([f"{self.comparisons} comparisons", *self._lines[: self._taken + 1][-SHOWN:], *last])


def described(lease: AsyncLease | Lease) -> str:
    return f"{lease.name!r} token={lease.token.removeprefix(READER)[:6]} fences={lease.fences}"


async def nobody_else_gets(
    lockers: Sequence[AsyncLocker],
    take: Take,
    rivals: Sequence[AsyncLock],
    *,
    comparisons: int = COMPARISONS,
    renewals: int = RENEWALS,
    lifetimes: int = 1,
) -> Sequence[AsyncLease]:
    """Takes leases and has each rival try to acquire its lock, until there were enough comparisons and every lease
    was renewed often enough and has outlived its ttl so many times. Returns the leases, which the caller releases.

    `lockers`: those of these leases. `rivals`: locks of other lockers that all of these leases together
    exclude. Leases that are lost are taken anew; raises ExclusionViolated for what must not happen at all.
    """
    history, counts = History(), Renewed(lockers)
    give_up_at = time.monotonic() + PATIENCE
    for _ in range(LOSSES_MOST):
        try:
            leases = await take()
        except LeaseLost:
            continue  # between two steps of taking it
        taken_at = boot_time()
        history.taken(leases)
        while time.monotonic() < give_up_at:
            # Before the look at the leases: what is held at the look was held at this instant.
            outlived = boot_time() > taken_at + lifetimes * max(lease.ttl for lease in leases)
            if not all(lease.held for lease in leases):
                break
            if outlived and history.comparisons >= comparisons and counts.least(leases) >= renewals:
                return leases
            for rival in rivals:
                await attempt(rival, leases, history)
            await asyncio.sleep(min(lease.ttl for lease in leases) / 20)
        history.lost(leases)
        for lease in leases:
            await lease.release()
    raise AssertionError(f"no lease was kept for long enough to compare: {history}")


class Renewed:
    """Counts how often each lease of some lockers was renewed."""

    def __init__(self, lockers: Sequence[AsyncLocker]) -> None:
        self._story: list[Event] = []
        for locker in dict.fromkeys(lockers):
            locker.subscribe(self._story.append)

    def least(self, leases: Sequence[AsyncLease]) -> int:
        """The count of the lease that was renewed least often."""
        known = [event.serial for event in list(self._story) if isinstance(event, Extended)]
        return min(known.count(lease._grant.serial) for lease in leases)


async def attempt(rival: AsyncLock, leases: Sequence[AsyncLease], history: History) -> None:
    """One attempt, judged. What the rival was granted it gives back."""
    before = tuple(lease.remaining() for lease in leases)
    started_at = boot_time()
    got: AsyncLease | None = None
    try:
        got = await rival.try_acquire()
        result = "refused" if got is None else f"granted {described(got)}"
    except NoQuorum as broken:
        if not only_slow(broken):
            raise
        result = "not answered in time"
    ended_at = boot_time()
    after = tuple(lease.remaining() for lease in leases)
    one = Attempt(started_at, ended_at, repr(rival.name), before, after, result)
    history.attempted(one)
    if got is not None:
        await got.release()
        judge(one, leases, got, history)


def judge(one: Attempt, leases: Sequence[AsyncLease], got: AsyncLease, history: History) -> None:
    """Raises unless `got` may have been granted."""
    for lease, before, after in zip(leases, one.before, one.after, strict=True):
        same = lease.fences.keys() & got.fences.keys()
        if one.valid or (same and before > 0 and after > 0):
            raise ExclusionViolated(f"{described(got)} was granted while {described(lease)} was valid: {history}")
        if any(got.fences[name] <= lease.fences[name] for name in same):
            raise ExclusionViolated(f"the fence is not above that of {described(lease)}: {history}")
