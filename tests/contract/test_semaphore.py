"""The contract of semaphores: so many at a time, never more; each with a slot, and a fence of that slot."""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import AcquireTimeout, AsyncLease, LeaseLost, LockHeld, LossReason, Unsupported
from quorumlock.clocks import boot_time
from tests.support.exclusion import Claims
from tests.support.waiting import PATIENCE

from .exclusion import nobody_else_gets
from .grounds import SOMEBODY
from .stage import LONG, Stage, case, held, held_briefly

TTL = 1.0
"""Long enough for most machines to renew in time; see `exclusion.py` for those that are too busy."""


@case
async def test_so_many_have_it_at_a_time(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    leases = [await held(locks.semaphore("a", 3, ttl=LONG)) for locks in (ours, theirs, ours)]
    assert {lease.slot for lease in leases} == {0, 1, 2}
    assert {lease.resource for lease in leases} == {"a#0", "a#1", "a#2"}
    assert {lease.name for lease in leases} == {"a"}
    assert len({lease.token for lease in leases}) == 3
    for locks in (ours, theirs):
        assert await locks.semaphore("a", 3, ttl=LONG).try_acquire() is None
    with pytest.raises(LockHeld):
        await theirs.semaphore("a", 3, ttl=LONG).acquire(timeout=0)
    with pytest.raises(AcquireTimeout):
        await theirs.semaphore("a", 3, ttl=LONG).acquire(timeout=0.05)
    freed = leases.pop(1)
    await freed.release()
    again = await held(theirs.semaphore("a", 3, ttl=LONG))
    assert again.slot == freed.slot
    assert again.fence > freed.fence
    for lease in (again, *leases):
        lease.check()
        await lease.extend()
        await lease.release()


@case
async def test_one_permit_is_a_mutex(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    async with ours.semaphore("a", 1, ttl=LONG) as lease:
        assert (lease.slot, lease.resource) == (0, "a#0")
        assert await theirs.semaphore("a", 1, ttl=LONG).try_acquire() is None
    await (await held(theirs.semaphore("a", 1, ttl=LONG))).release()


@case
async def test_never_more_than_that_under_contention(stage: Stage) -> None:
    lockers = [await stage.connect(), await stage.connect(), await stage.connect()]
    claims, slots = Claims(), set[int | None]()

    async def work(index: int) -> None:
        for _ in range(2):
            lease = await lockers[index % 3].semaphore("a", 2, ttl=LONG).acquire(timeout=60)
            began_at = boot_time()
            slots.add(lease.slot)
            await asyncio.sleep(0.002)
            claims.enter(lease, began_at)
            await lease.release()

    await asyncio.gather(*(work(index) for index in range(6)))
    assert slots <= {0, 1}
    assert not claims.violations(), claims.violations()
    assert len(claims) >= 6, "most of twelve leases were lost within 2 ms"


@case
async def test_whoever_waits_is_told_of_a_free_slot(stage: Stage) -> None:
    """Also the second, while the first who waited holds the slot that it was told of."""
    ours = await stage.connect()
    leases = [await held(ours.semaphore("a", 2, ttl=LONG)) for _ in range(2)]
    lockers = [await stage.connect_patient(), await stage.connect_patient()]
    waiters = [await stage.queue(locks.semaphore("a", 2, ttl=LONG), n) for n, locks in enumerate(lockers, 1)]
    await leases[0].release()
    done, _ = await asyncio.wait(waiters, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await leases[1].release()
    got = await asyncio.wait_for(asyncio.gather(*waiters), PATIENCE)
    assert {lease.slot for lease in got} == {0, 1}
    for lease in got:
        await lease.release()


@case
async def test_a_fair_one_serves_in_order(stage: Stage) -> None:
    ours = await stage.connect()
    leases = [await held(ours.semaphore("a", 2, ttl=LONG)) for _ in range(2)]
    served: list[int] = []

    async def wait(index: int) -> None:
        locks = await stage.connect()
        lease = await locks.semaphore("a", 2, ttl=LONG, fair=True).acquire(timeout=60)
        served.append(index)
        await lease.release()

    waiters = []
    for index in range(3):
        waiters.append(asyncio.create_task(wait(index)))
        await stage.wait_for_waiters("a", index + 1)
    await leases[0].release()
    await asyncio.gather(*waiters)
    assert served == [0, 1, 2]
    await leases[1].release()


@case
async def test_it_may_be_resized(stage: Stage) -> None:
    """More permits are there at once; of fewer, who has one too many keeps it until it is given back."""
    ours, theirs = await stage.connect(), await stage.connect()
    first = await held(ours.semaphore("a", 1, ttl=LONG))
    more = [await held(theirs.semaphore("a", 3, ttl=LONG)) for _ in range(2)]
    assert {lease.slot for lease in more} == {1, 2}
    assert await theirs.semaphore("a", 1, ttl=LONG).try_acquire() is None
    await first.release()
    only = await held(theirs.semaphore("a", 1, ttl=LONG))
    assert only.slot == 0
    for lease in more:
        await lease.extend()
        await lease.release()
    assert await theirs.semaphore("a", 1, ttl=LONG).try_acquire() is None
    await only.release()


@pytest.mark.takes_time
@case
async def test_slots_are_kept(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    async def take() -> list[AsyncLease]:
        return [await ours.semaphore("a", 2, ttl=TTL).acquire(timeout=10) for _ in range(2)]

    leases = await nobody_else_gets([ours], take, [theirs.semaphore("a", 2, ttl=1)])
    assert {lease.slot for lease in leases} == {0, 1}
    for lease in leases:
        await lease.release()


@pytest.mark.takes_time
@case
async def test_a_slot_that_is_not_kept_expires_alone(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    brief = await held_briefly(ours.semaphore("a", 2, ttl=stage.ttl_to_expire, keep=False))
    kept = await held(ours.semaphore("a", 2, ttl=1.5 * LONG))
    await stage.skip(stage.ttl_to_expire)
    new = await theirs.semaphore("a", 2, ttl=LONG).acquire(timeout=PATIENCE)
    assert (new.slot, new.fence > brief.fence) == (brief.slot, True)
    with pytest.raises(LeaseLost) as lost:
        await brief.extend()
    assert lost.value.reason is LossReason.EXPIRED
    await brief.release()
    kept.check()
    await new.extend()
    await new.release()
    await kept.release()


@case
async def test_a_slot_may_be_broken_by_its_name(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    leases = [await held(ours.semaphore("a", 2, ttl=LONG)) for _ in range(2)]
    await theirs.break_(leases[0].resource)
    with pytest.raises(LeaseLost) as lost:
        await leases[0].extend()
    assert lost.value.reason is LossReason.BROKEN
    await leases[1].extend()
    new = await held(theirs.semaphore("a", 2, ttl=LONG))
    assert new.slot == leases[0].slot
    assert new.fence > leases[0].fence + 1
    await leases[0].release()
    await new.extend()
    await new.release()
    await leases[1].release()


@case
async def test_locked_refers_to_inspect(stage: Stage) -> None:
    locks = await stage.connect()
    for lock in (locks.semaphore("a", 2, ttl=LONG), locks.multi(["a", "b"], ttl=LONG)):
        with pytest.raises(Unsupported, match="inspect"):
            await lock.locked()


@pytest.mark.disagreement
@case
async def test_what_nodes_gave_of_other_slots_does_not_stay(stage: Stage) -> None:
    """Nodes on which the favourite is held give another slot, which then is nobody's.

    What the last of them gave, whose answer came when it was decided, goes with the lease.
    """
    locks = await stage.connect()
    stage.ground.take("a#0", 30_000, slice(1))
    stage.ground.take("a#1", 30_000, slice(1, 2))
    mine = await held(locks.semaphore("a", 2, ttl=LONG))
    other = f"a#{1 - (mine.slot or 0)}"
    strays = stage.count - len(list(mine.tally.granted()))
    assert await stage.until(lambda: stage.ground.holders(other).count(mine.token) <= strays)
    await mine.extend()
    await mine.release()
    assert await stage.until(lambda: mine.token not in stage.ground.holders(other)), stage.ground.holders(other)


@pytest.mark.disagreement
@case
async def test_slots_that_differ_from_node_to_node_are_none(stage: Stage) -> None:
    """Each of three nodes has one free, but not the same: a majority gives something, and nobody has anything."""
    locks = await stage.connect()
    for node in range(stage.count):
        for slot in {0, 1, 2} - {node}:
            stage.ground.take(f"a#{slot}", 30_000, slice(node, node + 1))
    assert await locks.semaphore("a", 3, ttl=LONG).try_acquire() is None

    def seen() -> list[list[str | None]]:
        return [stage.ground.holders(f"a#{slot}") for slot in range(3)]

    left = [[SOMEBODY if node != slot else None for node in range(stage.count)] for slot in range(3)]
    assert await stage.until(lambda: seen() == left), seen()
