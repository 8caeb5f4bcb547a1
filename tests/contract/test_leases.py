"""The contract of a lease: what it says of itself, who is told of its loss, and how its block ends."""

from __future__ import annotations

import asyncio
import pickle
import time

import pytest

from quorumlock import AsyncLease, LeaseLost, LossReason, events
from quorumlock.events import Event
from tests.support.waiting import PATIENCE

from .stage import LONG, Stage, case, held, held_briefly


@case
async def test_remaining_counts_down_below_the_ttl_of_the_nodes(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG, keep=False, note="nightly"))
    first = lease.remaining()
    assert 0.5 * LONG < first < 0.995 * LONG, "the drift allowance is not taken off"
    started_at = time.monotonic()
    assert await stage.until(lambda: lease.remaining() < first - 0.02)
    assert time.monotonic() - started_at > 0.015
    assert lease.held
    assert (lease.name, lease.resource, lease.ttl, lease.note) == ("a", "a", LONG, "nightly")
    lease.check()
    await lease.release()


@pytest.mark.takes_time
@case
async def test_check_never_says_yes_past_the_deadline(stage: Stage) -> None:
    """The lease's own deadline comes before the nodes': nobody else can have the lock while check() is quiet."""
    locks = await stage.connect()
    lease = await held_briefly(locks.lock("a", ttl=stage.ground.shortest, keep=False))
    while True:
        try:
            lease.check()
        except LeaseLost:
            break
        before = time.monotonic()
        present = sum(holder is not None for holder in stage.ground.holders("a"))
        if time.monotonic() - before < lease.remaining():
            assert present > stage.count // 2
    await lease.release()


@case
async def test_on_lost_may_fail_without_hiding_the_loss(stage: Stage) -> None:
    def fails(_: AsyncLease) -> None:
        raise RuntimeError("in the user's callback")

    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG, keep=False, on_lost=fails))
    await locks.break_("a")
    with pytest.raises(LeaseLost):
        await lease.extend()
    assert lease.lost.is_set()
    await lease.release()


@case
async def test_a_block_releases_at_its_end(stage: Stage) -> None:
    locks = await stage.connect()
    lock = locks.lock("a", ttl=LONG)
    async with lock as lease:
        lease.check()
        assert await lock.locked()
    assert not await lock.locked()
    async with await held(lock) as lease:
        lease.check()
    assert not await lock.locked()


@pytest.mark.takes_time
@case
async def test_a_block_that_outlived_its_lease_raises(stage: Stage) -> None:
    locks = await stage.connect()
    with pytest.raises(LeaseLost) as lost:
        async with locks.lock("a", ttl=stage.ttl_to_expire, keep=False, timeout=PATIENCE) as lease:
            await stage.lost(lease)
    assert lost.value.reason is LossReason.EXPIRED
    with pytest.raises(LeaseLost):
        async with await held_briefly(locks.lock("a", ttl=stage.ttl_to_expire, keep=False)) as lease:
            await stage.lost(lease)


@pytest.mark.takes_time
@case
async def test_the_own_error_of_a_block_wins(stage: Stage) -> None:
    locks = await stage.connect()

    async def body(name: str, ttl: float, *, overtime: bool) -> None:
        async with locks.lock(name, ttl=ttl, keep=False) as lease:
            if overtime:
                try:
                    await stage.lost(lease)
                except asyncio.CancelledError:
                    pass  # on asyncio the body is cancelled; it fails in its own way all the same
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await body("a", stage.ttl_to_expire, overtime=True)
    with pytest.raises(KeyError, match="mine"):
        await body("b", LONG, overtime=False)
    await stage.agrees("b", None)


@pytest.mark.takes_time
@case
async def test_a_block_left_late_does_not_touch_the_new_holder(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    taken: list[AsyncLease] = []

    async def overslept() -> None:
        async with ours.lock("a", ttl=stage.ttl_to_expire, keep=False) as lease:
            try:
                await stage.lost(lease)
            except asyncio.CancelledError:
                pass  # on asyncio the body is cancelled; it goes on all the same
            await stage.agrees("a", None)
            new = await held(theirs.lock("a", ttl=LONG))
            await stage.spread(new)
            taken.append(new)

    with pytest.raises(LeaseLost):
        await overslept()
    new = taken[0]
    assert set(stage.ground.holders("a")) == {new.token}
    await new.extend()
    await new.release()


@case
async def test_a_released_block_is_quiet(stage: Stage) -> None:
    locks = await stage.connect()
    async with locks.lock("a", ttl=LONG) as lease:
        await lease.release()


@case
async def test_events_tell_the_story_of_a_lease(stage: Stage) -> None:
    locks = await stage.connect()
    story: list[Event] = []
    stop = locks.subscribe(story.append)
    lease = await held(locks.lock("a", ttl=LONG, keep=False))
    await lease.extend()
    await lease.release()
    gone = await held(locks.lock("b", ttl=LONG, keep=False))
    await locks.break_("b")
    with pytest.raises(LeaseLost):
        await gone.extend()
    stop()
    await (await held(locks.lock("c", ttl=LONG))).release()
    kinds = [type(event) for event in story if not isinstance(event, events.Confirmed | events.Healed)]
    assert kinds == [
        events.Acquired,
        events.Extended,
        events.Released,
        events.Acquired,
        events.Broken,
        events.Lost,
    ]
    first = story[0]
    assert isinstance(first, events.Acquired)
    assert (first.name, first.fence) == ("a", lease.fence)
    assert first.waited >= 0
    last = story[-1]
    assert isinstance(last, events.Lost)
    assert (last.name, last.fence) == ("b", gone.fence)
    await gone.release()


@case
async def test_a_failing_subscriber_breaks_nothing(stage: Stage) -> None:
    locks = await stage.connect()

    def fails(_: Event) -> None:
        raise RuntimeError("in a subscriber")

    heard: list[Event] = []
    locks.subscribe(fails)
    locks.subscribe(heard.append)
    lease = await held(locks.lock("a", ttl=LONG))
    await lease.release()
    assert [type(event) for event in heard] == [events.Acquired, events.Released]


@case
async def test_the_token_is_never_shown_whole(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    secret = lease.token.partition("@")[0]
    rival = await stage.connect()
    with pytest.raises(Exception, match="held") as busy:
        await rival.lock("a", ttl=LONG).acquire(timeout=0)
    for shown in (repr(lease), str(lease), repr(lease.tally), str(busy.value), repr(busy.value), repr(locks)):
        assert secret not in shown
        assert secret[:12] not in shown
    assert f"fence={lease.fence}" in repr(lease)
    await lease.release()
    assert "released" in repr(lease)


@case
async def test_errors_travel_between_processes(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    with pytest.raises(Exception, match="held") as busy:
        await theirs.lock("a", ttl=LONG).acquire(timeout=0)
    copy = pickle.loads(pickle.dumps(busy.value))
    assert type(copy) is type(busy.value)
    assert str(copy) == str(busy.value)
    assert copy.may_linger == busy.value.may_linger  # type: ignore[attr-defined]
    await lease.release()
