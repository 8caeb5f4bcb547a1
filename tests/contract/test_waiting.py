"""The contract of waiting: busy is not broken, and every way to ask has its own answer to it."""

from __future__ import annotations

import asyncio
import time

import pytest

from quorumlock import AcquireTimeout, Jitter, Limit, LockHeld, NotAcquired
from tests.support.waiting import PATIENCE

from .grounds import SOMEBODY
from .stage import LONG, Stage, case, held, held_briefly


@case
async def test_try_acquire_gives_none_while_it_is_held(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    assert await theirs.lock("a", ttl=LONG).try_acquire() is None
    assert lease.held, "it did not wait for the end of the lease"
    await lease.release()


@case
async def test_a_timeout_of_zero_raises_lock_held(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    with pytest.raises(LockHeld) as busy:
        await theirs.lock("a", ttl=LONG).acquire(timeout=0)
    assert busy.value.tally is not None
    assert "held" in str(busy.value)
    assert not busy.value.may_linger
    await lease.release()
    again = await theirs.lock("a", ttl=LONG).acquire(timeout=0)
    await again.release()


@pytest.mark.takes_time
@case
async def test_a_timeout_that_passes_raises_acquire_timeout(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    started_at = time.monotonic()
    with pytest.raises(AcquireTimeout) as busy:
        await theirs.lock("a", ttl=LONG).acquire(timeout=0.1)
    assert time.monotonic() - started_at >= 0.1
    assert lease.held, "it did not wait for the end of the lease"
    assert isinstance(busy.value, TimeoutError)
    assert isinstance(busy.value, NotAcquired)
    await lease.release()


@case
async def test_the_timeout_of_the_lock_is_the_default(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    with pytest.raises(LockHeld):
        await theirs.lock("a", ttl=LONG, timeout=0).acquire()
    with pytest.raises(AcquireTimeout):
        async with theirs.lock("a", ttl=LONG, timeout=0.05):
            pass
    await lease.release()


@case
async def test_a_waiter_gets_it_after_the_release(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    waiter = await stage.queue(theirs.lock("a", ttl=LONG), 1)
    await lease.release()
    new = await asyncio.wait_for(waiter, PATIENCE)
    assert new.fence > lease.fence
    await new.release()


@pytest.mark.takes_time
@case
async def test_without_a_timeout_it_waits_until_the_holder_expires(stage: Stage) -> None:
    """`patience` is for a broken fleet only: a held lock is waited for as long as it takes."""
    ours, theirs = await stage.connect(), await stage.connect(patience=0.05)
    started_at, ttl = stage.now(), stage.ttl_to_expire
    lease = await held_briefly(ours.lock("a", ttl=ttl, keep=False))
    waiter = asyncio.create_task(theirs.lock("a", ttl=LONG).acquire(timeout=None))
    if stage.clock is not None:
        await stage.wait_for_waiters("a", 1)
        await stage.skip(ttl)
    new = await asyncio.wait_for(waiter, PATIENCE)
    assert stage.now() - started_at > 0.95 * ttl
    assert new.fence > lease.fence
    await new.release()


@case
async def test_a_limited_retry_gives_up_before_the_timeout(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect(retry=Limit(Jitter(0.01), 2))
    lease = await held(ours.lock("a", ttl=LONG))
    with pytest.raises(AcquireTimeout, match="3 attempts"):
        await theirs.lock("a", ttl=LONG).acquire(timeout=30)
    await lease.release()


@pytest.mark.disagreement
@case
async def test_a_failed_attempt_leaves_nothing_behind(stage: Stage) -> None:
    """A majority names another holder, the others grant; all that was granted is given back."""
    locks = await stage.connect()
    majority = stage.count // 2 + 1
    stage.ground.take("a", 30_000, slice(majority))
    assert await locks.lock("a", ttl=LONG).try_acquire() is None
    left = [SOMEBODY] * majority + [None] * (stage.count - majority)
    assert await stage.until(lambda: stage.ground.holders("a") == left), stage.ground.holders("a")


@case
async def test_locked_tells_whether_somebody_holds_it(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lock = theirs.lock("a", ttl=LONG)
    assert not await lock.locked()
    lease = await held(ours.lock("a", ttl=LONG))
    assert await lock.locked()
    assert await ours.lock("a", ttl=LONG).locked()
    await lease.release()
    assert not await lock.locked()


@case
async def test_contenders_never_overlap(stage: Stage) -> None:
    """Many at once through two lockers: a counter that is read, slept on and written loses nothing."""
    lockers = [await stage.connect(), await stage.connect()]
    seen: list[int] = []
    counter = inside = 0

    async def work(index: int) -> None:
        nonlocal counter, inside
        lease = await lockers[index % 2].lock("a", ttl=LONG).acquire(timeout=20)
        inside += 1
        assert inside == 1
        before = counter
        assert await lockers[index % 2 - 1].lock("a", ttl=LONG).locked()
        counter = before + 1
        seen.append(lease.fence)
        inside -= 1
        await lease.release()

    await asyncio.gather(*(work(index) for index in range(6)))
    assert counter == 6
    assert seen == sorted(set(seen))


@case
async def test_one_lock_object_serves_many_at_once(stage: Stage) -> None:
    locks = await stage.connect()
    lock = locks.lock("a", ttl=LONG)
    fences: list[int] = []

    async def work() -> None:
        lease = await lock.acquire(timeout=20)
        fences.append(lease.fence)
        await lease.release()

    await asyncio.gather(*(work() for _ in range(5)))
    assert len(set(fences)) == 5
    assert fences == sorted(fences)
