"""The contract of `lock_delay` and `at_least`: a lock that stays closed for a while after its holder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from quorumlock import AsyncLease, AsyncLock, AsyncLocker, LeaseLost, LossReason
from tests.support.waiting import PATIENCE

from .stage import LONG, Stage, case, held, held_briefly


def while_it_stays_closed(stage: Stage) -> float:
    """Seconds for which a lock stays closed: time enough to ask whether it does."""
    return LONG if stage.clock else 0.4


async def closed(stage: Stage, lock: AsyncLock, until: float) -> None:
    """Fails if anybody gets this lock before that time; a busy machine may ask too late."""
    lease = await lock.try_acquire()
    if lease is not None:
        assert stage.now() >= until, "it was open"
        await lease.release()


@pytest.mark.takes_time
@case
async def test_an_expired_lock_stays_closed_for_its_delay(stage: Stage) -> None:
    """The lease ends with its ttl; others get the lock only after the delay."""
    ours, theirs = await stage.connect(), await stage.connect()
    started_at, ttl, delay = stage.now(), stage.ttl_to_expire, while_it_stays_closed(stage) / 2
    lease = await held_briefly(ours.lock("a", ttl=ttl, lock_delay=delay, keep=False))
    assert lease.remaining() <= ttl
    await stage.lost(lease)
    await closed(stage, theirs.lock("a", ttl=LONG), started_at + 0.95 * (ttl + delay))
    await stage.skip(delay)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    assert stage.now() - started_at > 0.95 * (ttl + delay)
    assert new.fence > lease.fence
    await new.release()


@case
async def test_a_released_lock_has_no_delay(stage: Stage) -> None:
    """Nor a semaphore, nor several locks."""
    ours, theirs = await stage.connect(), await stage.connect()
    makers: list[Callable[[AsyncLocker], AsyncLock]] = [
        lambda locks: locks.lock("a", ttl=LONG, lock_delay=10),
        lambda locks: locks.semaphore("a", 1, ttl=LONG, lock_delay=10),
        lambda locks: locks.multi(["a", "b"], ttl=LONG, lock_delay=10),
        lambda locks: locks.read_write("a").write(ttl=LONG, lock_delay=10),
    ]
    for make in makers:
        await (await held(make(ours))).release()
        await (await held(make(theirs))).release()


@pytest.mark.takes_time
@case
async def test_a_delayed_lock_is_extended_and_kept_like_any_other(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    ttl, delay = stage.ttl_to_renew, stage.ttl_to_renew / 2
    lease = await held(ours.lock("a", ttl=ttl, lock_delay=delay))
    await lease.extend()
    left_ms = stage.ground.left_ms("a")
    assert all(left <= 1000 * (ttl + delay) for left in left_ms)
    assert sum(left > 1000 * ttl for left in left_ms) > stage.count // 2
    await stage.pass_time(1.1 * ttl)
    lease.check()
    assert await theirs.lock("a", ttl=LONG).try_acquire() is None
    await lease.release()
    await stage.agrees("a", None)


@pytest.mark.takes_time
@case
async def test_a_released_lock_stays_closed_until_its_time(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    started_at, stays = stage.now(), while_it_stays_closed(stage)
    lease = await held(ours.lock("a", ttl=LONG, at_least=stays))
    await lease.release()
    assert not lease.held
    assert not lease.lost.is_set()
    await closed(stage, theirs.lock("a", ttl=LONG), started_at + 0.95 * stays)
    await closed(stage, ours.lock("a", ttl=LONG), started_at + 0.95 * stays)
    await stage.skip(stays)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    assert stage.now() - started_at > 0.95 * stays
    assert new.fence > lease.fence
    await new.release()


@pytest.mark.takes_time
@case
async def test_whoever_waits_gets_it_when_it_opens(stage: Stage) -> None:
    """It was told of the release, and not of the opening: it knows of a later end."""
    ours, theirs = await stage.connect(), await stage.connect_patient()
    started_at, stays = stage.now(), while_it_stays_closed(stage)
    lease = await held(ours.lock("a", ttl=LONG, at_least=stays))
    waiter = await stage.queue(theirs.lock("a", ttl=LONG), 1)
    await lease.release()
    await stage.skip(stays)
    new = await asyncio.wait_for(waiter, PATIENCE)
    assert stage.now() - started_at > 0.95 * stays
    await new.release()


@pytest.mark.takes_time
@case
async def test_who_holds_it_longer_than_that_frees_it_at_once(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG, at_least=0.05))
    await stage.pass_time(0.06)
    await lease.release()
    await (await held(theirs.lock("a", ttl=LONG))).release()


@pytest.mark.takes_time
@case
async def test_slots_and_several_locks_stay_closed_too(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    started_at, stays = stage.now(), while_it_stays_closed(stage)

    def both(locks: AsyncLocker) -> tuple[AsyncLock, AsyncLock]:
        return (
            locks.semaphore("s", 1, ttl=LONG, at_least=stays),
            locks.multi(["a", "b"], ttl=LONG, at_least=stays),
        )

    leases: list[AsyncLease] = [await held(lock) for lock in both(ours)]
    for lease in leases:
        await lease.release()
    for lock in (*both(theirs), theirs.lock("a", ttl=LONG), theirs.lock("b", ttl=LONG)):
        await closed(stage, lock, started_at + 0.95 * stays)
    await stage.skip(stays)
    for lock in (theirs.semaphore("s", 1, ttl=LONG), theirs.multi(["a", "b"], ttl=LONG)):
        await (await lock.acquire(timeout=PATIENCE)).release()
    assert stage.now() - started_at > 0.95 * stays


@pytest.mark.takes_time
@case
async def test_what_is_held_too_long_is_not_renewed(stage: Stage) -> None:
    """`max_hold`, for several locks and for those who share one."""
    locks, ttl = await stage.connect(), max(0.3, stage.ttl_to_expire)
    leases = [
        await held_briefly(locks.multi(["a", "b"], ttl=ttl, max_hold=ttl / 5)),
        await held_briefly(locks.read_write("r").read(ttl=ttl, max_hold=ttl / 5)),
        await held_briefly(locks.semaphore("s", 2, ttl=ttl, max_hold=ttl / 5)),
    ]
    await stage.lost(*leases)
    for lease in leases:
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.MAX_HOLD
        await lease.release()
