"""The judge of exclusion, judged: it fails where a lock is granted twice, and only there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from quorumlock import AsyncLease, AsyncLock, LossReason, NoQuorum

from .exclusion import ExclusionViolated, nobody_else_gets
from .grounds import MemoryGround
from .stage import Stage, held

Attempt = Callable[[], Awaitable[AsyncLease | None]]
SIDES = pytest.mark.parametrize("side", ["threads", "asyncio"])
LONG: dict[str, Any] = {"max_ttl": 30.0, "node_timeout": 2.0}


def played(side: str, case: Callable[[Stage], Awaitable[None]]) -> None:
    Stage(MemoryGround(1), side).play(case)


class Rival:
    """A lock of another client whose attempts are whatever a test needs."""

    name = "a"

    def __init__(self, attempt: Attempt) -> None:
        self.try_acquire = attempt


def rival(attempt: Attempt) -> AsyncLock:
    return cast(AsyncLock, Rival(attempt))


def lose(lease: AsyncLease) -> None:
    """As its keeper would when the ttl is over."""
    lease._lose(LossReason.EXPIRED)


@SIDES
def test_a_lock_that_is_granted_beside_a_valid_lease_is_a_violation(side: str) -> None:
    """It was deleted on the server. Its holder is not renewed, and so cannot know that."""

    async def case(stage: Stage) -> None:
        ours, theirs = await stage.connect(**LONG), await stage.connect(**LONG)

        async def take() -> list[AsyncLease]:
            lease = await held(ours.lock("a", ttl=30, keep=False))
            stage.ground.delete("a")
            return [lease]

        with pytest.raises(ExclusionViolated) as violated:
            await nobody_else_gets([ours], take, [theirs.lock("a", ttl=30)])
        told = str(violated.value)
        for part in ("0 comparisons", "taken: 'a' token=", "granted 'a' token=", "seconds left of ours: 29."):
            assert part in told

    played(side, case)


@SIDES
def test_a_slot_that_is_granted_twice_is_a_violation_although_another_is_free(side: str) -> None:
    async def case(stage: Stage) -> None:
        ours, theirs = await stage.connect(**LONG), await stage.connect(**LONG)
        leases: list[AsyncLease] = []

        async def take() -> list[AsyncLease]:
            leases[:] = [await held(ours.semaphore("a", 2, ttl=30, keep=False)) for _ in range(2)]
            leases.sort(key=lambda lease: lease.slot or 0)  # the rival asks for the first slot alone
            return leases

        async def attempt() -> AsyncLease | None:
            lose(leases[1])
            stage.ground.delete(leases[0].resource)
            return await theirs.semaphore("a", 1, ttl=30).try_acquire()

        with pytest.raises(ExclusionViolated, match="was valid"):
            await nobody_else_gets([ours], take, [rival(attempt)])

    played(side, case)


@SIDES
def test_what_is_granted_when_the_lease_is_lost_is_no_violation(side: str) -> None:
    """The lease is taken anew, and what was granted is given back."""

    async def case(stage: Stage) -> None:
        ours, theirs = await stage.connect(), await stage.connect()
        taken: list[AsyncLease] = []
        granted: list[AsyncLease] = []

        async def take() -> list[AsyncLease]:
            taken.append(await ours.lock("a", ttl=0.3).acquire(timeout=10))
            return taken[-1:]

        async def attempt() -> AsyncLease | None:
            if not granted:
                lose(taken[-1])
                granted.append(await theirs.lock("a", ttl=1).acquire(timeout=10))
                return granted[0]
            return await theirs.lock("a", ttl=1).try_acquire()

        (lease,) = await nobody_else_gets([ours], take, [rival(attempt)], comparisons=5)
        assert lease is taken[-1]
        assert len(taken) >= 2
        assert lease.fence > granted[0].fence > taken[0].fence
        assert granted[0]._closed
        await lease.release()

    played(side, case)


@SIDES
def test_a_fence_that_does_not_grow_is_a_violation(side: str) -> None:
    """Also if the lease is lost meanwhile."""

    async def case(stage: Stage) -> None:
        ours, theirs = await stage.connect(**LONG), await stage.connect(**LONG)
        taken: list[AsyncLease] = []

        async def take() -> list[AsyncLease]:
            taken.append(await held(ours.lock("a", ttl=30)))
            return taken[-1:]

        async def attempt() -> AsyncLease | None:
            lose(taken[0])
            stage.ground.delete("a")
            got = await held(theirs.lock("a", ttl=30))
            got._grant.fence = taken[0].fence
            return got

        with pytest.raises(ExclusionViolated, match="fence is not above"):
            await nobody_else_gets([ours], take, [rival(attempt)])

    played(side, case)


@SIDES
def test_a_lease_that_is_not_kept_fails(side: str) -> None:
    async def case(stage: Stage) -> None:
        ours, theirs = await stage.connect(), await stage.connect()

        async def take() -> list[AsyncLease]:
            return [await ours.lock("a", ttl=0.1, keep=False).acquire(timeout=10)]

        with pytest.raises(AssertionError, match="no lease was kept for long enough") as failed:
            await nobody_else_gets([ours], take, [theirs.lock("a", ttl=1)], comparisons=1)
        assert not isinstance(failed.value, ExclusionViolated)
        assert "no verdict on: expired" in str(failed.value)

    played(side, case)


@SIDES
def test_what_no_node_answers_in_time_is_no_comparison(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.contract.exclusion.PATIENCE", 1.0)

    async def case(stage: Stage) -> None:
        ours = await stage.connect()

        async def take() -> list[AsyncLease]:
            return [await ours.lock("a", ttl=1).acquire(timeout=10)]

        async def attempt() -> AsyncLease | None:
            raise NoQuorum("collecting votes took longer than the ttl")

        with pytest.raises(AssertionError, match=r"^no lease was kept for long enough to compare: 0 comparisons"):
            await nobody_else_gets([ours], take, [rival(attempt)])

    played(side, case)
