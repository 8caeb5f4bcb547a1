"""Mutual exclusion, judged by what leases promise, and not by how much time has passed. The one judge of it.

A *claim* says from when to when a lease was seen valid. Two claims on one resource that overlap are a violation,
unless both share it; so is a fence that is not above those before it. A lease that was lost before anybody saw it
valid claims nothing: that is no verdict, and a test demands a number of claims instead of a stretch of time.

`violations` compares claims: those of leases in this process (`Claims`), or those in the logs of several (`make
soak`). All of them must come from one machine, whose processes read the same boot clock.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from quorumlock import AsyncLease, Lease
from quorumlock.clocks import boot_time

AnyLease = Lease | AsyncLease


class Claim(NamedTuple):
    """A lease of one resource, and from when to when it was seen valid."""

    resource: str
    fence: int
    began_at: float
    ended_at: float
    shared: bool = False

    def __str__(self) -> str:
        kind = "the reader" if self.shared else "the holder"
        return f"{kind} of {self.resource!r} with fence {self.fence}, {self.began_at:.6f} to {self.ended_at:.6f}"


class Violations(NamedTuple):
    """A sentence for each."""

    overlaps: list[str]
    disorders: list[str]


def violations(claims: Iterable[Claim]) -> Violations:
    """Claims that overlap although they exclude each other, and fences that do not grow."""
    found = Violations([], [])
    by_resource: dict[str, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda one: one.began_at):
        if claim.began_at < claim.ended_at:  # else it was never seen valid
            by_resource[claim.resource].append(claim)
    for some in by_resource.values():
        _compare(some, found)
    return found


def _compare(claims: list[Claim], found: Violations) -> None:
    """Claims on one resource, in the order in which they began."""
    last: dict[bool, Claim] = {}
    """The claim that ends last, of those that share and of those that do not."""
    highest: dict[bool, int] = {False: -1, True: -1}
    for claim in claims:
        excluded = [False] if claim.shared else [False, True]
        for before in (last[shared] for shared in excluded if shared in last):
            if claim.began_at < before.ended_at:
                found.overlaps.append(f"{claim} began while {before} was valid")
        least = highest[False] if claim.shared else max(highest.values()) + 1
        if claim.fence < least:
            found.disorders.append(f"{claim} comes after a fence of {max(highest.values())}")
        highest[claim.shared] = max(highest[claim.shared], claim.fence)
        before = last.get(claim.shared, claim)
        last[claim.shared] = max(before, claim, key=lambda one: one.ended_at)


class Claims:
    """The claims of leases in this process. Usable by any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._claims: dict[tuple[str, int, float], Claim] = {}
        self._inside: dict[AnyLease, tuple[float, bool]] = {}
        self.late = 0
        """Leases that were lost before they were seen valid."""

    def enter(self, lease: AnyLease, began_at: float, *, shared: bool = False) -> None:
        """Call it as often as you like while the lease is held. `began_at`: an instant after it was acquired."""
        with self._mutex:
            self._see(lease, began_at, shared)

    @contextmanager
    def inside(self, lease: AnyLease, *, shared: bool = False) -> Iterator[None]:
        """Left before the lease is given back. Who is inside is looked at again whenever another one enters."""
        began_at = boot_time()
        with self._mutex:
            for other, (entered_at, shares) in self._inside.items():
                self._see(other, entered_at, shares)
            self.late += not self._see(lease, began_at, shared)
            self._inside[lease] = began_at, shared
        try:
            yield
        finally:
            with self._mutex:
                del self._inside[lease]
                self._see(lease, began_at, shared)

    def _see(self, lease: AnyLease, began_at: float, shared: bool) -> bool:
        seen_at = boot_time()  # before the look: a lease that is valid at the look was valid at this instant
        if lease.remaining() <= 0:
            return False
        for resource, fence in lease.fences.items():
            key = (resource, fence, began_at)
            before = self._claims.get(key)
            ended_at = seen_at if before is None else max(seen_at, before.ended_at)
            self._claims[key] = Claim(resource, fence, began_at, ended_at, shared)
        return True

    def __len__(self) -> int:
        """How many there are: a verdict on each."""
        return len(self._claims)

    def readers(self) -> int:
        with self._mutex:
            return sum(claim.shared for claim in self._claims.values())

    def violations(self) -> list[str]:
        with self._mutex:
            found = violations(self._claims.values())
        return found.overlaps + found.disorders
