"""The contract of elections: one leads at a time, everybody can tell who, and who is gone is replaced."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from quorumlock import AcquireTimeout, AsyncLease, LeaseLost, LossReason
from tests.support.waiting import PATIENCE

from .stage import LONG, Stage, case, held


@case
async def test_one_leads_and_everybody_can_tell_who(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    observer = theirs.election("e", ttl=LONG)
    assert await observer.leader() is None
    before = time.time()
    async with ours.election("e", ttl=LONG, note="blue").lead() as lease:
        lease.check()
        leader = await observer.leader()
        assert leader is not None
        assert leader.pid == os.getpid()
        assert leader.host
        assert leader.fence == lease.fence
        assert leader.note == "blue"
        assert leader.since is not None
        assert before - 1 < leader.since < time.time() + 1
        assert lease.token not in repr(leader)
        with pytest.raises(AcquireTimeout):
            async with observer.lead(timeout=0.05):
                raise AssertionError("two leaders")
    assert await observer.leader() is None
    async with observer.lead() as next_:
        assert next_.fence > lease.fence


@case
async def test_to_resign_is_to_hand_over(stage: Stage) -> None:
    """By leaving the block, or within it."""
    ours, theirs = await stage.connect(), await stage.connect_patient()
    for early in (False, True):
        led: list[int] = []

        async def follow(led: list[int] = led) -> None:
            async with theirs.election("e", ttl=LONG).lead() as lease:
                led.append(lease.fence)

        async with ours.election("e", ttl=LONG).lead() as lease:
            follower = asyncio.create_task(follow())
            await stage.wait_for_waiters("e", 1)
            assert not led
            if early:
                await lease.release()
                await asyncio.wait_for(follower, PATIENCE)
        await asyncio.wait_for(follower, PATIENCE)
        assert led[0] > lease.fence


@case
async def test_candidates_lead_in_the_order_they_came(stage: Stage) -> None:
    ours = await stage.connect()
    led: list[int] = []

    async def stand(index: int) -> None:
        locks = await stage.connect()
        async with locks.election("e", ttl=LONG).lead(timeout=30):
            led.append(index)

    async with ours.election("e", ttl=LONG).lead():
        candidates = []
        for index in range(3):
            candidates.append(asyncio.create_task(stand(index)))
            await stage.wait_for_waiters("e", index + 1)
        assert not led
    await asyncio.gather(*candidates)
    assert led == [0, 1, 2]


@pytest.mark.takes_time
@case
async def test_a_leader_that_is_gone_is_replaced_within_its_ttl(stage: Stage) -> None:
    """It neither renews nor resigns: its Locker was closed under it, as by the end of its process."""
    ours, theirs = await stage.connect(), await stage.connect()
    ttl = max(0.5, stage.ttl_to_expire)
    lease = await asyncio.create_task(ours.election("e", ttl=ttl).lead().__aenter__())
    candidate = asyncio.create_task(theirs.election("e", ttl=LONG).lead(timeout=30).__aenter__())
    await stage.wait_for_waiters("e", 1)
    await ours.aclose()
    await stage.skip(ttl)
    new = await asyncio.wait_for(candidate, PATIENCE)
    assert new.fence > lease.fence
    await new.release()


@case
async def test_a_loop_leads_again_and_again(stage: Stage) -> None:
    """Each time that its body ends it resigns; to break out of it is to resign for good."""
    ours, theirs = await stage.connect(), await stage.connect()
    fences: list[int] = []
    async for lease in ours.election("e", ttl=LONG).lead():
        lease.check()
        fences.append(lease.fence)
        if len(fences) == 3:
            break
    assert fences == sorted(set(fences))
    async with theirs.election("e", ttl=LONG).lead(timeout=10) as other:
        assert other.fence > fences[-1]


@pytest.mark.takes_time
@case
async def test_a_loop_that_lost_stands_again(stage: Stage) -> None:
    """The body is told by its lease, and is not interrupted: it could not come back into the loop from that."""
    ours, theirs = await stage.connect(), await stage.connect()
    fences: list[int] = []
    async for lease in ours.election("e", ttl=stage.ttl_to_renew).lead(timeout=30):
        fences.append(lease.fence)
        if len(fences) == 2:
            break
        await theirs.break_("e")
        await stage.lost(lease)
        await asyncio.sleep(0)
        with pytest.raises(LeaseLost) as why:
            lease.check()
        assert why.value.reason is LossReason.BROKEN
    assert fences[1] > fences[0]
    async with theirs.election("e", ttl=LONG).lead(timeout=10):
        pass


@pytest.mark.takes_time
@case
async def test_a_block_that_lost_says_so(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    async def lead() -> None:
        async with ours.election("e", ttl=stage.ttl_to_renew).lead() as lease:
            await theirs.break_("e")
            await stage.lost(lease)

    with pytest.raises(LeaseLost) as lost:
        await lead()
    assert lost.value.reason is LossReason.BROKEN


@pytest.mark.takes_time
@case
async def test_callbacks_are_told(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    elected: list[AsyncLease] = []
    lost: list[AsyncLease] = []
    election = ours.election("e", ttl=stage.ttl_to_renew, on_elected=elected.append, on_lost=lost.append)
    async with election.lead() as lease:
        assert [one.token for one in elected] == [lease.token]
    assert lost == [], "to resign is not to lose"

    async def lead() -> None:
        async with election.lead() as lease:
            await theirs.break_("e")
            await stage.lost(lease)

    with pytest.raises(LeaseLost):
        await lead()
    assert await stage.until(lambda: lost)
    assert len(elected) == 2
    assert [one.token for one in lost] == [elected[1].token]


@case
async def test_a_callback_that_fails_leads_nobody_into_office(stage: Stage) -> None:
    """The block is not entered, so it is not left: what was acquired is given back at once."""
    locks = await stage.connect()

    def fail(lease: AsyncLease) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        async with locks.election("e", ttl=LONG, on_elected=fail).lead():
            raise AssertionError("entered")
    await stage.agrees("e", None)
    await (await held(locks.lock("e", ttl=LONG))).release()


@pytest.mark.only_asyncio
@case
async def test_a_callback_may_be_a_coroutine_function(stage: Stage) -> None:
    locks = await stage.connect()
    elected: list[AsyncLease] = []

    async def note(lease: AsyncLease) -> None:
        await asyncio.sleep(0)
        elected.append(lease)

    async with locks.election("e", ttl=LONG, on_elected=note).lead() as lease:
        assert elected == [lease]
