"""The contract of several locks at once: all or none, and what happens to one happens to all."""

from __future__ import annotations

import asyncio
import random

import pytest

from quorumlock import AcquireTimeout, AsyncLease, LeaseClosed, LeaseLost, LockHeld, LossReason, NoQuorum
from quorumlock.clocks import boot_time
from tests.live.tools import exists, keys
from tests.support.exclusion import Claims
from tests.support.waiting import PATIENCE

from .exclusion import nobody_else_gets
from .grounds import RedisGround
from .stage import LONG, Stage, case, held, held_briefly

TTL = 1.0
"""Long enough for most machines to renew in time; see `exclusion.py` for those that are too busy."""


@case
async def test_all_of_them_are_held(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    before = await held(theirs.lock("b", ttl=LONG))
    await before.release()
    lease = await held(ours.multi(["a", "b", "c"], ttl=LONG, note="moving"))
    assert lease.fences.keys() == {"a", "b", "c"}
    assert lease.fence == max(lease.fences.values())
    assert lease.fences["b"] > before.fence
    assert lease.note == "moving"
    assert lease.slot is None
    for name in "abc":
        await stage.agrees(name, lease.token)
        for locks in (ours, theirs):
            assert await locks.lock(name, ttl=LONG).try_acquire() is None
        assert await theirs.multi([name, "d"], ttl=LONG).try_acquire() is None
    await lease.extend(LONG + 1)
    assert lease.ttl == LONG + 1
    await lease.extend()
    assert lease.ttl == LONG + 1, "the next extension is for the same time"
    assert lease.remaining() > LONG
    await lease.release()
    for name in "abc":
        await stage.agrees(name, None)
        new = await held(theirs.lock(name, ttl=LONG))
        assert new.fence > lease.fences[name]
        await new.release()
    with pytest.raises(LeaseClosed):
        lease.check()


@case
async def test_all_or_none(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    for taken in "abc":
        lease = await held(theirs.lock(taken, ttl=LONG))
        assert await ours.multi(["a", "b", "c"], ttl=LONG).try_acquire() is None
        with pytest.raises(LockHeld):
            await ours.multi(["a", "b", "c"], ttl=LONG).acquire(timeout=0)
        for name in {*"abc"} - {taken}:
            await stage.agrees(name, None)
        await stage.agrees(taken, lease.token)
        await lease.release()


@case
async def test_one_name_is_allowed(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    async with ours.multi(["a"], ttl=LONG) as lease:
        assert lease.fences == {"a": lease.fence}
        assert await theirs.lock("a", ttl=LONG).try_acquire() is None
        await lease.extend()
    await (await held(theirs.lock("a", ttl=LONG))).release()


@case
async def test_a_waiter_gets_them_when_the_last_is_free(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect_patient()
    leases = {name: await held(ours.lock(name, ttl=LONG)) for name in "ab"}
    waiter = await stage.queue(theirs.multi(["a", "b"], ttl=LONG), 1, line="a")
    await leases["a"].release()
    await stage.wait_for_waiters("b", 1, fair=False)
    assert not waiter.done()
    await leases["b"].release()
    both = await asyncio.wait_for(waiter, PATIENCE)
    await both.release()


@case
async def test_who_waits_for_several_does_not_keep_one_from_others(stage: Stage) -> None:
    """It was told of one of them, and cannot use it: so whoever waits for that alone is told."""
    ours = await stage.connect()
    several, single = await stage.connect_patient(), await stage.connect_patient()
    leases = {name: await held(ours.lock(name, ttl=LONG)) for name in "ab"}
    both = await stage.queue(several.multi(["a", "b"], ttl=LONG), 1, line="a")
    waiter = await stage.queue(single.lock("a", ttl=LONG), 2)
    await leases["a"].release()
    one = await asyncio.wait_for(waiter, PATIENCE)
    await one.release()
    await leases["b"].release()
    await (await asyncio.wait_for(both, PATIENCE)).release()


@pytest.mark.real_time(0.3)
@case
async def test_who_gives_up_leaves_all_queues(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    leases = {name: await held(ours.lock(name, ttl=LONG)) for name in "ab"}
    patience = LONG if stage.clock else 1.0
    waiter = asyncio.create_task(theirs.multi(["a", "b"], ttl=LONG).acquire(timeout=patience))
    await stage.wait_for_waiters("a", 1, fair=False)
    await leases.pop("a").release()
    await stage.wait_for_waiters("b", 1, fair=False)
    await stage.skip(patience)
    with pytest.raises(AcquireTimeout):
        await waiter
    await stage.wait_for_waiters("a", 0, fair=False)
    await stage.wait_for_waiters("b", 0, fair=False)
    for lease in leases.values():
        await lease.release()


@case
async def test_sets_that_overlap_never_deadlock(stage: Stage) -> None:
    lockers = [await stage.connect(), await stage.connect()]
    sets = [["a", "b"], ["b", "c"], ["c", "a"], ["c", "b", "a"], ["b"], ["a", "c"]]
    claims = Claims()

    async def work(index: int) -> None:
        names = sets[index]
        for _ in range(2):
            random.shuffle(names)
            lease = await lockers[index % 2].multi(list(names), ttl=LONG).acquire(timeout=60)
            began_at = boot_time()
            assert lease.fences.keys() == {*names}
            await asyncio.sleep(0.002)
            claims.enter(lease, began_at)
            await lease.release()

    await asyncio.wait_for(asyncio.gather(*(work(index) for index in range(len(sets)))), 100)
    assert not claims.violations(), claims.violations()
    assert len(claims) >= 12, "most of 24 names were lost within 2 ms"


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_losing_one_is_losing_all(stage: Stage, name: str) -> None:
    async def told(stage: Stage) -> None:
        locks = await stage.connect()
        lease = await held(locks.multi(["a", "b", "c"], ttl=LONG, keep=False))
        await stage.agrees(name, lease.token)
        stage.ground.delete(name)
        with pytest.raises(LeaseLost) as lost:
            await lease.extend()
        assert lost.value.reason is LossReason.BROKEN
        assert not lease.held
        assert lease.lost.is_set()
        await lease.release()
        for one in "abc":
            await stage.agrees(one, None)

    stage.play(told)


@pytest.mark.takes_time
@case
async def test_its_holder_learns_of_the_loss_of_any(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    told: list[AsyncLease] = []
    lease = await held(ours.multi(["a", "b"], ttl=stage.ttl_to_renew, on_lost=told.append))
    await theirs.break_("b")
    await stage.lost(lease)
    assert await stage.until(lambda: told)
    with pytest.raises(LeaseLost) as why:
        lease.check()
    assert why.value.reason is LossReason.BROKEN
    await stage.skip(stage.ttl_to_renew)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    await lease.release()
    await new.extend()
    await new.release()
    assert len(told) == 1, "it is told once"


@pytest.mark.takes_time
@case
async def test_all_are_kept(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    async def take() -> list[AsyncLease]:
        return [await ours.multi(["a", "b", "c"], ttl=TTL).acquire(timeout=10)]

    (lease,) = await nobody_else_gets([ours], take, [theirs.lock(name, ttl=1) for name in "abc"])
    await lease.release()
    for name in "abc":
        await stage.agrees(name, None)


@pytest.mark.takes_time
@case
async def test_what_is_not_kept_expires_as_a_whole(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held_briefly(ours.multi(["a", "b"], ttl=stage.ttl_to_expire, keep=False))
    await stage.skip(stage.ttl_to_expire)
    new = await theirs.multi(["b", "a"], ttl=LONG).acquire(timeout=PATIENCE)
    assert all(new.fences[name] > lease.fences[name] for name in "ab")
    with pytest.raises(LeaseLost):
        lease.check()
    await lease.release()
    await new.extend()
    await new.release()


@pytest.mark.disagreement
@case
async def test_fences_of_nodes_that_differ_are_made_alike(stage: Stage) -> None:
    """Each node knows of another last holder of another name."""
    locks = await stage.connect()
    await (await held(locks.multi(["a", "b"], ttl=LONG))).release()
    for name in "ab":
        await stage.agrees(name, None)
    # Attempts that fail raise fences where they were granted: on the nodes that name nobody else.
    for name, nodes in (("a", slice(stage.count // 2 + 1)), ("b", slice(stage.count // 2, None))):
        stage.ground.take(name, 30_000, nodes)
        assert await locks.lock(name, ttl=LONG).try_acquire() is None
        stage.ground.delete(name, nodes)
        await stage.agrees(name, None)
    known = {name: stage.ground.fences(name) for name in "ab"}
    lease = await held(locks.multi(["a", "b"], ttl=LONG))
    for node, _ in lease.tally.granted():  # of a node that was too late nobody could know
        assert all(lease.fences[name] > known[name][node] for name in "ab")
    for name in "ab":
        agreeing = sum(fence == lease.fences[name] for fence in stage.ground.fences(name))
        assert agreeing > stage.count // 2
    await lease.release()


@case
async def test_a_lock_of_the_same_sound_is_another(stage: Stage) -> None:
    """What a set of names is called in messages may be somebody's name."""
    locks = await stage.connect()
    lease = await held(locks.lock("a, b", ttl=LONG))
    both = await held(locks.multi(["a", "b"], ttl=LONG))
    await both.release()
    await lease.release()


@pytest.mark.redis_keys
@pytest.mark.parametrize("bad", ["a", "b", "c"])
def test_a_key_of_another_kind_is_told_and_nothing_half_written(stage: Stage, bad: str) -> None:
    async def told(stage: Stage) -> None:
        assert isinstance(stage.ground, RedisGround)
        locks = await stage.connect()
        for server in stage.ground.servers:
            server.command("HSET", bad, "field", "value")
        for attempt in (locks.multi(["a", "b", "c"], ttl=LONG).try_acquire, locks.lock(bad, ttl=LONG).try_acquire):
            with pytest.raises(NoQuorum, match="another kind"):
                await attempt()
        for server in stage.ground.servers:
            assert server.command("HGET", bad, "field") == b"$5\r\nvalue\r\n"
            assert keys(server) == {bad, "ql:node"}
            assert not any(exists(server, name) for name in {*"abc"} - {bad})

    stage.play(told)
