"""The contract of holding: one holder at a time, fences that grow, release and extend that touch only one's own."""

from __future__ import annotations

import pytest

import quorumlock
from quorumlock import LeaseClosed, LeaseLost, LossReason
from quorumlock.events import Released
from tests.support.waiting import PATIENCE

from .grounds import SOMEBODY
from .stage import LONG, Stage, case, held, held_briefly, listen


@case
async def test_one_holder_at_a_time(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("orders:42", ttl=LONG))
    assert await theirs.lock("orders:42", ttl=LONG).try_acquire() is None
    assert await ours.lock("orders:42", ttl=LONG).try_acquire() is None
    other = await held(theirs.lock("orders:43", ttl=LONG))
    await lease.release()
    again = await held(theirs.lock("orders:42", ttl=LONG))
    assert again.token != lease.token
    await again.release()
    await other.release()


@case
async def test_the_fence_grows_from_holder_to_holder(stage: Stage) -> None:
    lockers = [await stage.connect(), await stage.connect()]
    fences = []
    for turn in range(6):
        lease = await held(lockers[turn % 2].lock("a", ttl=LONG))
        fences.append(lease.fence)
        await lease.release()
    assert fences == sorted(set(fences))
    assert all(isinstance(fence, int) and fence > 0 for fence in fences)


@pytest.mark.takes_time
@case
async def test_the_fence_grows_past_an_expired_holder_too(stage: Stage) -> None:
    locks = await stage.connect()
    first = await held_briefly(locks.lock("a", ttl=stage.ttl_to_expire, keep=False))
    await stage.skip(stage.ttl_to_expire)
    second = await locks.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    assert second.fence > first.fence
    await second.release()


@case
async def test_the_fence_stays_when_the_lease_is_extended(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    before = lease.fence
    await lease.extend()
    assert lease.fence == before
    assert await stage.until(lambda: set(stage.ground.fences("a")) == {before})
    await lease.release()


@case
async def test_a_released_lock_is_gone_from_every_node(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    await stage.agrees("a", lease.token)
    await lease.release()
    await stage.agrees("a", None)


@case
async def test_release_is_idempotent(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(ours)
    lease = await held(ours.lock("a", ttl=LONG))
    await lease.release()
    await lease.release()
    other = await held(theirs.lock("a", ttl=LONG))
    await lease.release()
    await stage.agrees("a", other.token)
    assert sum(isinstance(event, Released) for event in story) == 1
    await other.extend()
    await other.release()


@pytest.mark.takes_time
@case
async def test_a_late_release_does_not_touch_the_new_holder(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    late = await held_briefly(ours.lock("a", ttl=stage.ttl_to_expire, keep=False))
    await stage.skip(stage.ttl_to_expire)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    await stage.spread(new)
    await late.release()
    assert set(stage.ground.holders("a")) == {new.token}
    await new.extend()
    await new.release()


@pytest.mark.takes_time
@case
async def test_a_late_extend_does_not_touch_the_new_holder(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    late = await held_briefly(ours.lock("a", ttl=stage.ttl_to_expire, keep=False))
    await stage.skip(stage.ttl_to_expire)
    new = await theirs.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    await stage.spread(new)
    with pytest.raises(LeaseLost) as lost:
        await late.extend(1.5 * LONG)
    assert lost.value.reason is LossReason.EXPIRED
    assert set(stage.ground.holders("a")) == {new.token}
    assert all(0 < left <= 1000 * LONG for left in stage.ground.left_ms("a"))
    await new.release()


@case
async def test_the_nodes_themselves_refuse_another_holder(stage: Stage) -> None:
    """Also where the client does not know that its time is over: the nodes compare."""
    ours = await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG, keep=False))
    await stage.agrees("a", lease.token)
    stage.ground.take("a", 30_000)
    with pytest.raises(LeaseLost) as lost:
        await lease.extend()
    assert lost.value.reason is LossReason.TAKEN
    await lease.release()
    assert set(stage.ground.holders("a")) == {SOMEBODY}
    assert all(1000 * LONG < left <= 30_000 for left in stage.ground.left_ms("a"))


@pytest.mark.takes_time
@case
async def test_extend_prolongs_on_the_nodes_and_in_the_client(stage: Stage) -> None:
    locks = await stage.connect()
    ttl = max(0.3, stage.ttl_to_expire)
    lease = await held_briefly(locks.lock("a", ttl=ttl, keep=False))
    assert all(left <= 1000 * ttl for left in stage.ground.left_ms("a"))
    await lease.extend(1.5 * LONG)
    assert lease.ttl == 1.5 * LONG
    assert ttl < lease.remaining() <= 1.5 * LONG
    prolonged = sum(1000 * ttl < left <= 1500 * LONG for left in stage.ground.left_ms("a"))
    assert prolonged > stage.count // 2
    await stage.pass_time(ttl)
    lease.check()
    await lease.extend()
    assert lease.ttl == 1.5 * LONG
    await lease.release()


@case
async def test_extend_may_shorten(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    await lease.extend(LONG / 2)
    assert lease.remaining() <= LONG / 2
    assert lease.ttl == LONG / 2
    await lease.release()


@case
async def test_no_extension_takes_time_away_from_a_node(stage: Stage) -> None:
    """It might be executed late, or twice, behind a longer one that its holder counts on."""
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=1.5 * LONG, keep=False))
    await stage.agrees("a", lease.token)
    await lease.extend(5)
    sight = await locks.inspect("a")
    assert sight.holder is not None
    assert sight.holder.remaining > 10
    assert lease.remaining() <= 5
    await lease.release()


@case
async def test_extend_after_a_loss_says_why_and_stays_lost(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    await stage.agrees("a", lease.token)
    stage.ground.delete("a")
    with pytest.raises(LeaseLost) as lost:
        await lease.extend()
    assert lost.value.reason is LossReason.BROKEN
    assert lease.lost.is_set()
    assert not lease.held
    with pytest.raises(LeaseLost):
        await lease.extend()
    with pytest.raises(LeaseLost):
        lease.check()
    assert not any(stage.ground.holders("a")), "what was deleted on a majority was healed"
    await lease.release()


@case
async def test_a_released_lease_is_closed(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    await lease.release()
    assert lease.remaining() == 0
    assert not lease.held
    assert not lease.lost.is_set()
    with pytest.raises(LeaseClosed):
        lease.check()
    with pytest.raises(LeaseClosed):
        await lease.extend()


@case
async def test_a_broken_lock_is_told_to_its_holder_and_raises_the_fence(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    await theirs.break_("a")
    await stage.agrees("a", None)
    assert await stage.until(lambda: all(fence > lease.fence for fence in stage.ground.fences("a")))
    with pytest.raises(LeaseLost) as lost:
        await lease.extend()
    assert lost.value.reason is LossReason.BROKEN
    new = await held(theirs.lock("a", ttl=LONG))
    assert new.fence > lease.fence + 1
    await lease.release()
    await new.extend()
    await new.release()


@case
async def test_breaking_a_free_lock_is_quiet(stage: Stage) -> None:
    locks = await stage.connect()
    await locks.break_("a")
    lease = await held(locks.lock("a", ttl=LONG))
    await lease.release()


@case
async def test_prefixes_keep_locks_apart(stage: Stage) -> None:
    shop, bank = await stage.connect(prefix="shop:"), await stage.connect(prefix="bank:")
    lease, other = await held(shop.lock("a", ttl=LONG)), await held(bank.lock("a", ttl=LONG))
    await stage.agrees("shop:a", lease.token)
    await stage.agrees("bank:a", other.token)
    await shop.break_("a")
    await stage.agrees("shop:a", None)
    await other.extend()
    await lease.release()
    await other.release()


@pytest.mark.takes_time
@case
async def test_a_lock_set_by_another_hand_excludes_us(stage: Stage) -> None:
    """As another library would set it, of those that exclude us; or another version of this one."""
    locks = await stage.connect()
    await (await held(locks.lock("a", ttl=LONG))).release()
    await stage.agrees("a", None)
    stage.ground.take("a", round(1000 * max(0.3, stage.ttl_to_expire)))
    assert await locks.lock("a", ttl=LONG).try_acquire() is None
    await stage.skip(stage.ttl_to_expire)
    lease = await locks.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    await lease.release()


@case
async def test_an_anonymous_token_names_no_host(stage: Stage) -> None:
    named, anonymous = await stage.connect(), await stage.connect(identify=False)
    first, second = await held(named.lock("a", ttl=LONG)), await held(anonymous.lock("b", ttl=LONG))
    assert "@" in first.token
    assert "@" not in second.token
    assert len(second.token) == 40
    await first.release()
    await second.release()


@case
async def test_the_tally_of_a_lease_shows_a_majority(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    granted = [answer for answer in lease.tally.answers if answer and answer.vote is quorumlock.Vote.GRANTED]
    assert len(granted) > stage.count // 2
    await lease.release()
