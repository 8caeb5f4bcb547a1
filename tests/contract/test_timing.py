"""The contract of `lock_delay` and `at_least`: a lock that stays closed for a while after its holder."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from quorumlock import AsyncLease, AsyncLock, AsyncLocker, LeaseLost, LossReason

from .stage import Stage, case, held

LONG = 0.6


async def closed(lock: AsyncLock, until: float) -> None:
    """Fails if anybody gets this lock before that time; a busy machine may ask too late."""
    lease = await lock.try_acquire()
    if lease is not None:
        assert time.monotonic() >= until, "it was open"
        await lease.release()


@pytest.mark.takes_time
@case
async def test_an_expired_lock_stays_closed_for_its_delay(stage: Stage) -> None:
    """The lease ends with its ttl; others get the lock only after the delay."""
    ours, theirs = await stage.connect(), await stage.connect()
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=0.2, lock_delay=LONG, keep=False))
    assert lease.remaining() <= 0.2
    lost = lease.lost
    assert await stage.until(lost.is_set)
    await closed(theirs.lock("a", ttl=1), started_at + 0.95 * (0.2 + LONG))
    new = await theirs.lock("a", ttl=1).acquire(timeout=10)
    assert time.monotonic() - started_at > 0.95 * (0.2 + LONG)
    assert new.fence > lease.fence
    await new.release()


@case
async def test_a_released_lock_has_no_delay(stage: Stage) -> None:
    """Nor a semaphore, nor several locks."""
    ours, theirs = await stage.connect(max_ttl=30), await stage.connect(max_ttl=30)
    makers: list[Callable[[AsyncLocker], AsyncLock]] = [
        lambda locks: locks.lock("a", ttl=1, lock_delay=20),
        lambda locks: locks.semaphore("a", 1, ttl=1, lock_delay=20),
        lambda locks: locks.multi(["a", "b"], ttl=1, lock_delay=20),
        lambda locks: locks.read_write("a").write(ttl=1, lock_delay=20),
    ]
    for make in makers:
        await (await held(make(ours))).release()
        await (await held(make(theirs))).release()


@pytest.mark.takes_time
@case
async def test_a_delayed_lock_is_extended_and_kept_like_any_other(stage: Stage) -> None:
    ours, theirs = await stage.connect(max_ttl=2), await stage.connect(max_ttl=2)
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=1, lock_delay=1))
    await lease.extend()
    assert all(left <= 2000 for left in stage.ground.left_ms("a"))
    assert sum(left > 1000 for left in stage.ground.left_ms("a")) > stage.count // 2
    assert await stage.until(lambda: time.monotonic() - started_at > 1.4)
    lease.check()
    assert await theirs.lock("a", ttl=1).try_acquire() is None
    await lease.release()
    await stage.agrees("a", None)


@pytest.mark.takes_time
@case
async def test_a_released_lock_stays_closed_until_its_time(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=1, at_least=LONG))
    await lease.release()
    assert not lease.held
    assert not lease.lost.is_set()
    await closed(theirs.lock("a", ttl=1), started_at + 0.95 * LONG)
    await closed(ours.lock("a", ttl=1), started_at + 0.95 * LONG)
    new = await theirs.lock("a", ttl=1).acquire(timeout=10)
    assert time.monotonic() - started_at > 0.95 * LONG
    assert new.fence > lease.fence
    await new.release()


@pytest.mark.takes_time
@case
async def test_whoever_waits_gets_it_when_it_opens(stage: Stage) -> None:
    """It was told of the release, and not of the opening: it knows of a later end."""
    ours, theirs = await stage.connect(max_ttl=30), await stage.connect_patient()
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=20, at_least=LONG))
    waiter = await stage.queue(theirs.lock("a", ttl=20), 1)
    await lease.release()
    new = await waiter
    assert 0.95 * LONG < time.monotonic() - started_at < 10
    await new.release()


@pytest.mark.takes_time
@case
async def test_who_holds_it_longer_than_that_frees_it_at_once(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    started_at = time.monotonic()
    lease = await held(ours.lock("a", ttl=1, at_least=0.1))
    assert await stage.until(lambda: time.monotonic() - started_at > 0.15)
    await lease.release()
    await (await held(theirs.lock("a", ttl=1))).release()


@pytest.mark.takes_time
@case
async def test_slots_and_several_locks_stay_closed_too(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    def both(locks: AsyncLocker) -> tuple[AsyncLock, AsyncLock]:
        return locks.semaphore("s", 1, ttl=1, at_least=LONG), locks.multi(["a", "b"], ttl=1, at_least=LONG)

    started_at = time.monotonic()
    leases: list[AsyncLease] = [await held(lock) for lock in both(ours)]
    for lease in leases:
        await lease.release()
    for lock in (*both(theirs), theirs.lock("a", ttl=1), theirs.lock("b", ttl=1)):
        await closed(lock, started_at + 0.95 * LONG)
    for lock in both(theirs):
        await (await lock.acquire(timeout=10)).release()
    assert time.monotonic() - started_at > 0.95 * LONG


@pytest.mark.takes_time
@case
async def test_what_is_held_too_long_is_not_renewed(stage: Stage) -> None:
    """`max_hold`, for several locks and for those who share one."""
    locks = await stage.connect()
    leases = [
        await held(locks.multi(["a", "b"], ttl=1, max_hold=1)),
        await held(locks.read_write("r").read(ttl=1, max_hold=1)),
        await held(locks.semaphore("s", 2, ttl=1, max_hold=1)),
    ]
    events = [lease.lost for lease in leases]
    assert await stage.until(lambda: all(event.is_set() for event in events))
    for lease in leases:
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.MAX_HOLD
        await lease.release()
