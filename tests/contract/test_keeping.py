"""The contract of keeping: who is renewed and until when, and how a holder learns that it is over.

What is to happen "in time" is waited for as long as it may take. That it came in time is seen from the reason: a
lease whose keeper is too late is lost because it has expired.
"""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import AsyncLease, LeaseLost, LossReason, events
from quorumlock.events import Event
from tests.support.waiting import PATIENCE, forever

from .exclusion import nobody_else_gets
from .stage import LONG, Stage, case, held, held_briefly, listen

pytestmark = pytest.mark.takes_time

TTL = 1.0


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

    (lease,) = await nobody_else_gets([ours], take, [theirs.lock("a", ttl=TTL)], lifetimes=2)
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
    leases = [await held(locks.lock(f"a{index}", ttl=stage.ttl_to_renew)) for index in range(10)]
    await stage.skip(stage.ttl_to_renew / 2)
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
    started_at, ttl = stage.now(), stage.ttl_to_expire
    lease = await held_briefly(ours.lock("a", ttl=ttl, keep=False, on_lost=told.append))
    assert not lease.lost.is_set() or stage.now() - started_at >= 0.9 * ttl
    await stage.lost(lease)
    assert stage.now() - started_at >= 0.9 * ttl
    assert lease.remaining() == 0
    assert not lease.held
    assert reason(lease) is LossReason.EXPIRED
    assert reason(lease) is LossReason.EXPIRED
    assert await stage.until(lambda: told)
    assert [event for event in story if isinstance(event, events.Lost)] == [
        events.Lost("a", lease.fence, LossReason.EXPIRED)
    ]
    assert renewals(story) == 0
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    assert new.fence > lease.fence
    await lease.release()
    await new.extend()
    await new.release()
    assert [one.token for one in told] == [lease.token], "on_lost is called once"


@case
async def test_an_expired_lease_knows_it_without_waiting_to_be_told(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held_briefly(locks.lock("a", ttl=stage.ttl_to_expire, keep=False))
    await stage.pass_time(stage.ttl_to_expire)
    assert lease.remaining() == 0
    assert reason(lease) is LossReason.EXPIRED
    assert lease.lost.is_set()
    await lease.release()


@case
async def test_a_holder_learns_within_a_ttl_that_its_lock_was_broken(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    told: list[AsyncLease] = []
    lease = await held(ours.lock("a", ttl=stage.ttl_to_renew, on_lost=told.append))
    await stage.skip(stage.ttl_to_renew / 2)
    assert await stage.until(lambda: renewals(story) >= 1)
    await theirs.break_("a")
    await stage.lost(lease)
    assert reason(lease) is LossReason.BROKEN
    assert await stage.until(lambda: len(told) == 1)
    new = await held(theirs.lock("a", ttl=LONG))
    await stage.spread(new)
    await lease.release()
    assert set(stage.ground.holders("a")) == {new.token}
    await new.release()


@case
async def test_a_holder_learns_within_a_ttl_that_somebody_else_has_its_lock(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=stage.ttl_to_renew))
    await stage.agrees("a", lease.token)
    stage.ground.take("a", 30_000)
    await stage.lost(lease)
    assert reason(lease) is LossReason.TAKEN
    await lease.release()


@case
async def test_a_lock_that_was_deleted_is_not_set_again(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=stage.ttl_to_renew))
    await stage.agrees("a", lease.token)
    stage.ground.delete("a")
    await stage.lost(lease)
    assert reason(lease) is LossReason.BROKEN
    assert set(stage.ground.holders("a")) == {None}
    await lease.release()


@case
async def test_a_block_whose_lease_was_lost_raises_at_its_end(stage: Stage) -> None:
    """On asyncio its body is cancelled, too; the error is the same."""
    ours, theirs = await stage.connect(), await stage.connect()

    async def body() -> None:
        async with ours.lock("a", ttl=stage.ttl_to_renew) as lease:
            await theirs.break_("a")
            await stage.lost(lease)

    with pytest.raises(LeaseLost) as lost:
        await body()
    assert lost.value.reason is LossReason.BROKEN
    again = await held(ours.lock("a", ttl=LONG))
    await again.release()


@pytest.mark.only_asyncio
@case
async def test_the_body_of_a_block_is_cancelled_when_its_lease_is_lost(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    seen: list[str] = []

    async def body() -> None:
        async with ours.lock("a", ttl=stage.ttl_to_renew):
            try:
                await theirs.break_("a")
                await stage.skip(stage.ttl_to_renew)
                await forever()
            except asyncio.CancelledError as cancelled:
                seen.append(str(cancelled))
                raise
        seen.append("went on behind the block")

    with pytest.raises(LeaseLost) as lost:
        await asyncio.wait_for(body(), PATIENCE)
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
        async with locks.lock("a", ttl=LONG):
            inside.set()
            await forever()

    task = asyncio.create_task(body())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.agrees("a", None)


@pytest.mark.real_time(1.0)  # or it is not renewed before max_hold is over
@case
async def test_nobody_holds_a_lock_for_longer_than_max_hold_and_a_ttl(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    started_at, ttl = stage.now(), max(2.0, stage.ttl_to_renew)
    lease = await held(ours.lock("a", ttl=ttl, max_hold=0.9 * ttl))
    await stage.skip(0.9 * ttl)
    await stage.lost(lease)
    assert stage.now() - started_at > ttl
    assert renewals(story) >= 1
    assert reason(lease) is LossReason.MAX_HOLD
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    await new.release()
    await lease.release()


@case
async def test_what_was_released_is_not_renewed(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    lease = await held(ours.lock("a", ttl=stage.ttl_to_renew))
    other = await held(ours.lock("b", ttl=stage.ttl_to_renew))
    await stage.skip(stage.ttl_to_renew / 2)
    assert await stage.until(lambda: renewals(story) >= 1)
    await lease.release()
    before = renewals(story)
    new = await held(theirs.lock("a", ttl=1.5 * LONG, keep=False))
    await stage.spread(new)
    start = renewals(story, "b")
    await stage.skip(stage.ttl_to_renew)
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
    locks = await stage.connect()
    story = listen(locks)
    ttl = stage.ttl_to_renew
    lease = await held(locks.lock("a", ttl=1.5 * ttl))
    await lease.extend(ttl)
    start = renewals(story)
    await stage.skip(ttl)
    assert await stage.until(lambda: renewals(story) >= start + 2)
    lease.check()
    assert lease.remaining() <= ttl
    await lease.release()


@pytest.mark.disagreement
@case
async def test_a_node_that_forgot_the_lock_is_given_it_again(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=stage.ttl_to_renew))
    await stage.agrees("a", lease.token)
    stage.ground.delete("a", slice(stage.count // 2))
    await stage.skip(stage.ttl_to_renew / 2)
    await stage.agrees("a", lease.token)
    lease.check()
    await lease.release()
    await stage.agrees("a", None)


@case
async def test_a_lease_may_be_handed_to_another(stage: Stage) -> None:
    """Acquired by a thread or task that is over: it is kept, and another extends and releases it."""
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    lease = await stage.acquire_in_passing(ours.lock("a", ttl=stage.ttl_to_renew))
    await stage.skip(stage.ttl_to_renew)
    assert await stage.until(lambda: renewals(story) >= 2)
    assert await theirs.lock("a", ttl=LONG).try_acquire() is None

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
    lease = await stage.enter_and_vanish(ours.lock("a", ttl=max(0.3, stage.ttl_to_expire)))
    await stage.lost(lease)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
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
    lease = await held(ours.lock("a", ttl=stage.ttl_to_renew, on_lost=fails))
    other = await held(ours.lock("b", ttl=stage.ttl_to_renew))
    await theirs.break_("a")
    await stage.lost(lease)
    start = renewals(story, "b")
    await stage.skip(stage.ttl_to_renew / 2)
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

    lease = await held_briefly(locks.lock("a", ttl=stage.ttl_to_expire, keep=False, on_lost=on_lost))
    await stage.lost(lease)
    await asyncio.wait_for(told.wait(), PATIENCE)
    assert reason(lease) is LossReason.EXPIRED
    await lease.release()


@case
async def test_leases_of_a_closed_locker_end_by_their_ttl(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held_briefly(ours.lock("a", ttl=stage.ttl_to_expire))
    await ours.aclose()
    await stage.pass_time(stage.ttl_to_expire)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    assert not lease.held
    assert reason(lease) is LossReason.EXPIRED
    await new.release()
