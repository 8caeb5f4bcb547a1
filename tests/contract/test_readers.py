"""The contract of those who share a lock: each has its own time, and is told of its own loss. And of downgrades."""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import AcquireTimeout, AsyncLease, ConfigurationError, LeaseClosed, LeaseLost, LossReason
from tests.support.waiting import PATIENCE

from .exclusion import nobody_else_gets
from .stage import LONG, Stage, case, held, held_briefly

TTL = 1.0
"""Long enough for most machines to renew in time; see `exclusion.py` for those that are too busy."""


@pytest.mark.takes_time
@case
async def test_each_reader_has_its_own_time(stage: Stage) -> None:
    """One that is not renewed expires alone, whether it came first or last."""
    ours, theirs = await stage.connect(), await stage.connect()
    gone: list[AsyncLease] = []
    brief = ours.read_write("a").read(ttl=stage.ttl_to_expire, keep=False, on_lost=gone.append)
    early = await held_briefly(brief)
    kept = await held(theirs.read_write("a").read(ttl=1.5 * LONG))
    late = await held_briefly(brief)
    await stage.lost(early, late)
    assert await stage.until(lambda: len(gone) == 2)
    kept.check()
    assert await theirs.lock("a", ttl=LONG).try_acquire() is None

    async def alone() -> bool:  # nodes wait a little longer than a client
        return len((await theirs.inspect("a")).holders) == 1

    assert await stage.until(alone)
    holders = (await theirs.inspect("a")).holders
    assert [one.token[:6] for one in holders] == [kept.token.removeprefix("r:")[:6]]
    with pytest.raises(LeaseLost) as why:
        early.check()
    assert why.value.reason is LossReason.EXPIRED
    await early.release()
    await late.release()
    await kept.extend()
    await kept.release()
    await (await held(theirs.lock("a", ttl=LONG))).release()


@pytest.mark.takes_time
@case
async def test_a_lock_whose_readers_all_expired_is_free(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    for _ in range(2):
        await held_briefly(ours.read_write("a").read(ttl=stage.ttl_to_expire, keep=False))
    await stage.skip(stage.ttl_to_expire)
    writer = await theirs.read_write("a").write(ttl=LONG).acquire(timeout=PATIENCE)
    await writer.release()


@pytest.mark.takes_time
@case
async def test_readers_are_kept(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    async def take() -> list[AsyncLease]:
        return [await locks.read_write("a").read(ttl=TTL).acquire(timeout=10) for locks in (ours, ours, theirs)]

    readers = await nobody_else_gets([ours, theirs], take, [theirs.lock("a", ttl=1)])
    for lease in readers:
        await lease.release()
    await (await held(theirs.lock("a", ttl=1))).release()


@case
async def test_readers_are_told_that_it_was_broken(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    readers = [await held(locks.read_write("a").read(ttl=LONG, keep=False)) for locks in (ours, theirs)]
    await theirs.break_("a")
    new = await held(theirs.read_write("a").read(ttl=LONG))
    assert new.fence > readers[0].fence, "break_ raises the fence"
    for lease in readers:
        with pytest.raises(LeaseLost) as lost:
            await lease.extend()
        assert lost.value.reason is LossReason.BROKEN
        assert lease.lost.is_set()
        await lease.release()
    await new.extend()
    await new.release()


@pytest.mark.takes_time
@case
async def test_a_kept_reader_learns_by_itself_that_it_lost(stage: Stage) -> None:
    """By force, or because somebody else has it alone by now."""
    locks = await stage.connect()
    told: list[AsyncLease] = []
    broken = await held(locks.read_write("a").read(ttl=stage.ttl_to_renew, on_lost=told.append))
    taken = await held(locks.read_write("b").read(ttl=stage.ttl_to_renew, on_lost=told.append))
    await locks.break_("a")
    stage.ground.take("b", 30_000)
    await stage.lost(broken, taken)
    assert await stage.until(lambda: len(told) == 2)
    for lease, reason in ((broken, LossReason.BROKEN), (taken, LossReason.TAKEN)):
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is reason
        await lease.release()


@case
async def test_a_downgrade_lets_readers_in_and_no_writer(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    pair = ours.read_write("a")
    writer = await held(pair.write(ttl=LONG))
    reader = await pair.downgrade(writer)
    assert (reader.fence, reader.name, reader.ttl) == (writer.fence, "a", LONG)
    assert reader.token != writer.token
    assert not writer.held
    assert not writer.lost.is_set()
    with pytest.raises(LeaseClosed):
        writer.check()
    await writer.release()
    other = await held(theirs.read_write("a").read(ttl=LONG))
    assert other.fence == writer.fence
    assert await theirs.lock("a", ttl=LONG).try_acquire() is None
    assert await ours.lock("a", ttl=LONG).try_acquire() is None
    await other.release()
    await reader.extend()
    assert await theirs.lock("a", ttl=LONG).try_acquire() is None
    await reader.release()
    new = await held(theirs.lock("a", ttl=LONG))
    assert new.fence > writer.fence
    await new.release()


@pytest.mark.only_asyncio
@case
async def test_who_is_giving_up_to_have_it_alone_does_not_have_it_alone(stage: Stage) -> None:
    """Nodes may let others in before it is known here."""
    pair = (await stage.connect()).read_write("a")
    writer = await held(pair.write(ttl=LONG))
    downgrade = asyncio.create_task(pair.downgrade(writer))
    while not downgrade.done():
        await asyncio.sleep(0)
        assert not writer.held
    await (await downgrade).release()


@case
async def test_a_downgrade_tells_those_who_wait_to_share(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect_patient()
    pair = ours.read_write("a")
    writer = await held(pair.write(ttl=LONG))
    waiter = await stage.queue(theirs.read_write("a").read(ttl=LONG), 1)
    reader = await pair.downgrade(writer)
    other = await asyncio.wait_for(waiter, PATIENCE)
    reader.check()
    await reader.release()
    await other.release()


@pytest.mark.takes_time
@case
async def test_a_writer_that_gives_up_lets_the_readers_behind_it_in(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect_patient()
    first = await held(ours.read_write("a").read(ttl=LONG))
    wanted = theirs.read_write("a").write(ttl=LONG)
    writer = await stage.queue(wanted, 1, timeout=LONG if stage.clock else 1)
    waiters = [asyncio.create_task(theirs.read_write("a").read(ttl=LONG).acquire(timeout=60)) for _ in range(2)]

    async def behind_it() -> bool:
        return writer.done() or len((await ours.inspect("a")).waiters) == 3

    assert await stage.until(behind_it)
    await stage.skip(LONG)
    with pytest.raises(AcquireTimeout):
        await writer
    for lease in await asyncio.wait_for(asyncio.gather(*waiters), PATIENCE):
        await lease.release()
    first.check()
    await first.release()


@pytest.mark.takes_time
@case
async def test_a_downgraded_lease_has_the_options_of_the_first(stage: Stage) -> None:
    """It is told of its loss; and is renewed only if the first was."""
    locks = await stage.connect()
    pair = locks.read_write("a")
    told: list[AsyncLease] = []
    ttl = max(0.3, stage.ttl_to_expire)
    writer = await held_briefly(pair.write(ttl=ttl, keep=False, note="nightly", on_lost=told.append))
    reader = await pair.downgrade(writer)
    assert reader.note == "nightly"
    await stage.lost(reader)
    assert await stage.until(lambda: told)
    assert [lease.token for lease in told] == [reader.token]


@pytest.mark.takes_time
@case
async def test_a_downgraded_lease_is_kept(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    pair = ours.read_write("a")

    async def take() -> list[AsyncLease]:
        return [await pair.downgrade(await pair.write(ttl=TTL).acquire(timeout=10))]

    (reader,) = await nobody_else_gets([ours], take, [theirs.lock("a", ttl=1)])
    await reader.release()


@case
async def test_only_a_write_lease_of_that_lock_is_downgraded(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    pair = ours.read_write("a")
    reader = await held(pair.read(ttl=LONG))
    with pytest.raises(ConfigurationError, match="no write lease of 'a'"):
        await pair.downgrade(reader)
    reader.check()
    await reader.release()
    for other in (
        ours.read_write("b").write(ttl=LONG),
        theirs.lock("c", ttl=LONG),
        ours.semaphore("a", 2, ttl=LONG),
        ours.multi(["a"], ttl=LONG),
    ):
        lease = await held(other)
        with pytest.raises(ConfigurationError, match="no write lease of 'a'"):
            await pair.downgrade(lease)
        lease.check()
        await lease.release()
    released = await held(pair.write(ttl=LONG))
    await released.release()
    with pytest.raises(LeaseClosed):
        await pair.downgrade(released)


@case
async def test_what_was_lost_is_not_downgraded(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    pair = ours.read_write("a")
    writer = await held(pair.write(ttl=LONG, keep=False))
    await theirs.break_("a")
    new = await held(theirs.lock("a", ttl=LONG))
    await stage.spread(new)
    with pytest.raises(LeaseLost) as lost:
        await pair.downgrade(writer)
    assert lost.value.reason is LossReason.TAKEN
    assert not writer.held
    assert writer.lost.is_set()
    assert set(stage.ground.holders("a")) == {new.token}
    await new.extend()
    await new.release()


@pytest.mark.only_asyncio
@case
async def test_an_interrupted_downgrade_leaves_nothing_behind(stage: Stage) -> None:
    locks = await stage.connect()
    pair = locks.read_write("a")
    writer = await held(pair.write(ttl=LONG))
    downgrade = asyncio.create_task(pair.downgrade(writer))
    await asyncio.sleep(0)
    downgrade.cancel()
    try:
        reader = await downgrade
    except asyncio.CancelledError:
        assert not writer.held
    else:  # it was faster than that
        await reader.release()
    await stage.agrees("a", None)
    await writer.release()
    await (await held(locks.lock("a", ttl=LONG))).release()
