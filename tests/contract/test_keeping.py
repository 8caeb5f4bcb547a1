"""The contract of keeping: who is renewed and until when, and how a holder learns that it is over.

TTL is long enough for a busy machine to renew in time, and short enough to wait for. What is to happen "in time" is
awaited for as long as it may take, and its time is measured only where it is part of the promise.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from quorumlock import AsyncLease, LeaseLost, LossReason, events
from quorumlock.events import Event

from .exclusion import nobody_else_gets
from .stage import WITHIN, Stage, case, held, listen

pytestmark = pytest.mark.takes_time

TTL = 1.0
SHORT = 0.1


def renewals(story: list[Event], name: str = "a") -> int:
    return sum(isinstance(event, events.Extended) and event.name == name for event in list(story))


def reason(lease: AsyncLease) -> LossReason:
    """Why it was lost."""
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    return lost.value.reason


@case
async def test_a_kept_lease_outlives_its_ttl_several_times(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    fences: list[int] = []

    async def take() -> list[AsyncLease]:
        lease = await ours.lock("a", ttl=TTL).acquire(timeout=10)
        fences.append(lease.fence)
        return [lease]

    (lease,) = await nobody_else_gets([ours], take, [theirs.lock("a", ttl=TTL)], renewals=6)
    assert lease.fence == fences[-1]
    assert await stage.until(lambda: set(stage.ground.holders("a")) == {lease.token} or not lease.held)
    left = stage.ground.left_ms("a")
    assert min(left) > 0 or not lease.held, left
    await lease.release()
    await stage.agrees("a", None)


@case
async def test_many_leases_are_kept_at_once(stage: Stage) -> None:
    locks = await stage.connect()
    story = listen(locks)
    leases = [await held(locks.lock(f"a{index}", ttl=TTL)) for index in range(10)]
    assert await stage.until(lambda: all(renewals(story, lease.name) >= 1 for lease in leases))
    for lease in leases:
        lease.check()
        await lease.release()


@case
async def test_a_lease_that_is_not_kept_expires_and_tells_so(stage: Stage) -> None:
    """By itself: nobody asks it."""
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    told: list[AsyncLease] = []
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=SHORT, keep=False, on_lost=told.append))
    lost = lease.lost
    assert not lost.is_set()
    assert await stage.until(lost.is_set)
    took = time.monotonic() - started_at
    assert 0.9 * SHORT <= took < SHORT + WITHIN
    assert lease.remaining() == 0
    assert not lease.held
    assert reason(lease) is LossReason.EXPIRED
    assert reason(lease) is LossReason.EXPIRED
    assert await stage.until(lambda: told)
    assert [event for event in story if isinstance(event, events.Lost)] == [
        events.Lost("a", lease.fence, LossReason.EXPIRED)
    ]
    assert renewals(story) == 0
    new = await theirs.lock("a", ttl=1).acquire(timeout=2)
    assert new.fence > lease.fence
    await lease.release()
    await new.extend()
    await new.release()
    assert [one.token for one in told] == [lease.token], "on_lost is called once"


@case
async def test_an_expired_lease_knows_it_without_waiting_to_be_told(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=SHORT, keep=False))
    assert await stage.until(lambda: lease.remaining() == 0)
    assert reason(lease) is LossReason.EXPIRED
    assert lease.lost.is_set()
    await lease.release()


@case
async def test_a_holder_learns_within_a_ttl_that_its_lock_was_broken(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    told: list[AsyncLease] = []
    lease = await held(ours.lock("a", ttl=TTL, on_lost=told.append))
    lost = lease.lost
    assert await stage.until(lambda: renewals(story) == 1)
    await theirs.break_("a")
    started_at = time.monotonic()
    assert await stage.until(lost.is_set)
    assert time.monotonic() - started_at < TTL
    assert reason(lease) is LossReason.BROKEN
    assert await stage.until(lambda: len(told) == 1)
    new = await held(theirs.lock("a", ttl=1))
    await stage.spread(new)
    await lease.release()
    assert set(stage.ground.holders("a")) == {new.token}
    await new.release()


@case
async def test_a_holder_learns_within_a_ttl_that_somebody_else_has_its_lock(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=TTL))
    lost = lease.lost
    await stage.agrees("a", lease.token)
    stage.ground.take("a", 900)
    started_at = time.monotonic()
    assert await stage.until(lost.is_set)
    assert time.monotonic() - started_at < TTL
    assert reason(lease) is LossReason.TAKEN
    await lease.release()


@case
async def test_a_lock_that_was_deleted_is_not_set_again(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=TTL))
    lost = lease.lost
    await stage.agrees("a", lease.token)
    stage.ground.delete("a")
    assert await stage.until(lost.is_set)
    assert reason(lease) is LossReason.BROKEN
    assert set(stage.ground.holders("a")) == {None}
    await lease.release()


@case
async def test_a_block_whose_lease_was_lost_raises_at_its_end(stage: Stage) -> None:
    """On asyncio its body is cancelled, too; the error is the same."""
    ours, theirs = await stage.connect(), await stage.connect()

    async def body() -> None:
        async with ours.lock("a", ttl=TTL) as lease:
            await theirs.break_("a")
            assert await stage.until(lease.lost.is_set)

    with pytest.raises(LeaseLost) as lost:
        await body()
    assert lost.value.reason is LossReason.BROKEN
    again = await held(ours.lock("a", ttl=1))
    await again.release()


@pytest.mark.only_asyncio
@case
async def test_the_body_of_a_block_is_cancelled_when_its_lease_is_lost(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    seen: list[str] = []

    async def body() -> None:
        async with ours.lock("a", ttl=TTL):
            try:
                await theirs.break_("a")
                await asyncio.sleep(60)
            except asyncio.CancelledError as cancelled:
                seen.append(str(cancelled))
                raise
        seen.append("went on behind the block")

    started_at = time.monotonic()
    with pytest.raises(LeaseLost) as lost:
        await body()
    assert time.monotonic() - started_at < TTL + WITHIN
    assert lost.value.reason is LossReason.BROKEN
    assert len(seen) == 1
    assert "is lost" in seen[0]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "the cancellation was ours, and went no further"
    await asyncio.sleep(0)


@pytest.mark.only_asyncio
@case
async def test_a_block_that_another_cancels_is_cancelled_and_released(stage: Stage) -> None:
    locks = await stage.connect()
    inside = asyncio.Event()

    async def body() -> None:
        async with locks.lock("a", ttl=TTL):
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(body())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.agrees("a", None)


@case
async def test_nobody_holds_a_lock_for_longer_than_max_hold_and_a_ttl(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=TTL, max_hold=TTL))
    lost = lease.lost
    assert await stage.until(lost.is_set)
    took = time.monotonic() - started_at
    assert TTL < took < TTL + TTL + WITHIN
    assert renewals(story) >= 1
    assert reason(lease) is LossReason.MAX_HOLD
    new = await theirs.lock("a", ttl=1).acquire(timeout=2)
    await new.release()
    await lease.release()


@case
async def test_what_was_released_is_not_renewed(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    lease = await held(ours.lock("a", ttl=9 * SHORT))
    other = await held(ours.lock("b", ttl=9 * SHORT))
    assert await stage.until(lambda: renewals(story) >= 1)
    await lease.release()
    before = renewals(story)
    new = await held(theirs.lock("a", ttl=1, keep=False))
    await stage.spread(new)
    start = renewals(story, "b")
    goes_on = await stage.until(lambda: renewals(story, "b") >= start + 2)
    assert goes_on, f"the keeper does not go on with what is left (lost: {other.lost.is_set()})"
    assert renewals(story) == before
    assert set(stage.ground.holders("a")) == {new.token}
    assert not lease.lost.is_set()
    new.check()
    await other.release()
    await new.release()


@case
async def test_a_lease_extended_by_hand_is_kept_as_well(stage: Stage) -> None:
    """A holder that shortens its lease is renewed at the new pace."""
    locks = await stage.connect(max_ttl=3)
    story = listen(locks)
    lease = await held(locks.lock("a", ttl=3))
    await lease.extend(TTL)
    start = renewals(story)
    assert await stage.until(lambda: renewals(story) >= start + 2)
    lease.check()
    assert lease.remaining() <= TTL
    await lease.release()


@pytest.mark.disagreement
@case
async def test_a_node_that_forgot_the_lock_is_given_it_again(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=TTL))
    await stage.agrees("a", lease.token)
    stage.ground.delete("a", slice(stage.count // 2))
    await stage.agrees("a", lease.token)
    lease.check()
    await lease.release()
    await stage.agrees("a", None)


@case
async def test_a_lease_may_be_handed_to_another(stage: Stage) -> None:
    """Acquired by a thread or task that is over: it is kept, and another extends and releases it."""
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    lease = await stage.acquire_in_passing(ours.lock("a", ttl=TTL))
    assert await stage.until(lambda: renewals(story) >= 2)
    assert await theirs.lock("a", ttl=1).try_acquire() is None

    async def successor() -> None:
        lease.check()
        await lease.extend()
        async with lease:
            lease.check()

    await asyncio.create_task(successor())
    await stage.agrees("a", None)


@case
async def test_a_block_is_not_kept_for_an_owner_that_is_gone(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await stage.enter_and_vanish(ours.lock("a", ttl=0.3))
    lost = lease.lost
    new = await theirs.lock("a", ttl=1).acquire(timeout=3)
    assert await stage.until(lost.is_set)
    assert reason(lease) is LossReason.OWNER_GONE
    await lease.release()
    await new.extend()
    await new.release()


@case
async def test_what_on_lost_raises_is_dropped_and_the_keeper_goes_on(stage: Stage) -> None:
    def fails(_: AsyncLease) -> None:
        raise RuntimeError("in the user's callback")

    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    lease = await held(ours.lock("a", ttl=TTL, on_lost=fails))
    other = await held(ours.lock("b", ttl=TTL))
    lost = lease.lost
    await theirs.break_("a")
    assert await stage.until(lost.is_set)
    start = renewals(story, "b")
    assert await stage.until(lambda: renewals(story, "b") > start)
    other.check()
    await lease.release()
    await other.release()


@pytest.mark.only_asyncio
@case
async def test_on_lost_may_be_a_coroutine_function(stage: Stage) -> None:
    locks = await stage.connect()
    told = asyncio.Event()

    async def on_lost(_: AsyncLease) -> None:
        await asyncio.sleep(0)
        told.set()

    lease = await held(locks.lock("a", ttl=SHORT, keep=False, on_lost=on_lost))
    await asyncio.wait_for(told.wait(), 3)
    assert reason(lease) is LossReason.EXPIRED
    await lease.release()


@case
async def test_leases_of_a_closed_locker_end_by_their_ttl(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=SHORT))
    await ours.aclose()
    new = await theirs.lock("a", ttl=1).acquire(timeout=3)
    assert not lease.held
    assert reason(lease) is LossReason.EXPIRED
    await new.release()
