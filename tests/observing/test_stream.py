"""The stream of events: what is told of an acquire and its lease, from the first refusal to the end."""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import AcquireTimeout, AsyncLease, LeaseLost, LockHeld, LossReason
from quorumlock.events import (
    Acquired,
    Confirmed,
    Event,
    Extended,
    GivenUp,
    Healed,
    Lost,
    Released,
    ReleasedLate,
    Waiting,
)
from tests.contract.stage import Stage, case, held, listen

pytestmark = pytest.mark.real_time


def told(story: list[Event]) -> list[Event]:
    """Without what depends on which nodes were the first to answer."""
    return [event for event in story if not isinstance(event, Confirmed | Healed)]


def kinds(story: list[Event]) -> list[type[Event]]:
    return [type(event) for event in told(story)]


@case
async def test_who_waits_is_told_of_and_so_is_what_became_of_it(stage: Stage) -> None:
    holders, waiters = await stage.connect(), await stage.connect()
    story = listen(waiters)
    holder = await held(holders.lock("a", ttl=1))
    waiter = asyncio.create_task(waiters.lock("a", ttl=1).acquire(timeout=20))
    assert await stage.until(lambda: story)
    [waiting] = told(story)
    assert isinstance(waiting, Waiting)
    assert (waiting.name, waiting.kind, waiting.fence) == ("a", "mutex", holder.fence)
    assert waiting.remaining is not None
    assert 0 < waiting.remaining <= 1.1
    await holder.release()
    lease = await waiter
    await lease.release()
    assert kinds(story) == [Waiting, Acquired, Released]
    _, acquired, released = told(story)
    assert isinstance(acquired, Acquired)
    assert isinstance(released, Released)
    assert acquired.serial == waiting.serial == released.serial > 0
    assert (acquired.name, acquired.fence, acquired.ttl) == ("a", lease.fence, 1)
    assert acquired.tally is lease.tally
    assert acquired.waited > 0


@case
async def test_two_who_wait_in_one_process_are_each_told_of(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=1))
    story = listen(locks)
    waiters = [asyncio.create_task(locks.lock("a", ttl=1).acquire(timeout=20)) for _ in range(2)]
    assert await stage.until(lambda: len(told(story)) == 2)
    await lease.release()
    for waiter in asyncio.as_completed(waiters):
        await (await waiter).release()
    serials = [{event.serial for event in story if isinstance(event, kind)} for kind in (Waiting, Acquired)]
    assert serials[0] == serials[1]
    assert len(serials[0]) == 2


@case
async def test_an_acquire_that_is_given_up_says_why(stage: Stage) -> None:
    holders, others = await stage.connect(), await stage.connect()
    lease = await held(holders.lock("a", ttl=1))
    story = listen(others)
    lock = others.lock("a", ttl=1)
    assert await lock.try_acquire() is None
    with pytest.raises(LockHeld):
        await lock.acquire(timeout=0)
    with pytest.raises(AcquireTimeout):
        await lock.acquire(timeout=0.05)
    assert kinds(story) == [GivenUp, GivenUp, Waiting, GivenUp]
    tried, not_waited, waiting, waited = told(story)
    assert isinstance(tried, GivenUp)
    assert isinstance(not_waited, GivenUp)
    assert isinstance(waiting, Waiting)
    assert isinstance(waited, GivenUp)
    assert [tried.why, not_waited.why, waited.why] == ["held", "held", "timeout"]
    assert not_waited.tally is not None
    assert waited.waited >= 0.05
    assert waiting.serial == waited.serial > 0
    await lease.release()


@pytest.mark.parametrize("side", ["asyncio"])
@case
async def test_who_is_cancelled_while_waiting_has_given_up(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=1))
    story = listen(locks)
    waiter = asyncio.create_task(locks.lock("a", ttl=1).acquire())
    assert await stage.until(lambda: story)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    waiting, gone = told(story)
    assert isinstance(waiting, Waiting)
    assert isinstance(gone, GivenUp)
    assert (gone.why, gone.serial, gone.tally) == ("interrupted", waiting.serial, None)
    await lease.release()


@case
async def test_a_release_tells_how_long_it_was_held(stage: Stage) -> None:
    locks = await stage.connect()
    story = listen(locks)
    lease = await held(locks.lock("a", ttl=1, keep=False))
    await lease.extend(0.9)
    at_first = lease.remaining()
    assert await stage.until(lambda: lease.remaining() < at_first - 0.1)
    await lease.release()
    assert kinds(story) == [Acquired, Extended, Released]
    acquired, extended, released = told(story)
    assert isinstance(acquired, Acquired)
    assert isinstance(extended, Extended)
    assert isinstance(released, Released)
    assert 0.1 <= released.held < 3
    assert released.confirmed
    assert (extended.ttl, extended.serial) == (0.9, acquired.serial)
    assert {acquired.serial, extended.serial, released.serial} == {acquired.serial}


@case
async def test_what_was_lost_and_given_back_then_is_released_late(stage: Stage) -> None:
    locks = await stage.connect()
    story = listen(locks)
    lease = await held(locks.lock("a", ttl=1, keep=False))
    stage.ground.delete("a")
    with pytest.raises(LeaseLost):
        await lease.extend()
    await lease.release()
    assert kinds(story) == [Acquired, Lost, ReleasedLate]
    _, lost, late = told(story)
    assert isinstance(lost, Lost)
    assert isinstance(late, ReleasedLate)
    assert lost.reason is late.reason is LossReason.BROKEN
    assert lost.serial == late.serial > 0
    assert 0 < lost.held <= late.held


@case
async def test_what_was_given_back_when_its_time_was_over_is_released_late(stage: Stage) -> None:
    locks = await stage.connect()
    story = listen(locks)
    lease = await held(locks.lock("a", ttl=0.3, keep=False))
    assert await stage.until(lambda: Lost in kinds(story))
    await lease.release()
    assert kinds(story) == [Acquired, Lost, ReleasedLate]
    [late] = [event for event in story if isinstance(event, ReleasedLate)]
    assert late.reason is LossReason.EXPIRED
    assert late.late > 0
    assert isinstance(late, Released), "who knows only of releases still hears of it"


@case
async def test_every_kind_of_lock_has_its_word(stage: Stage) -> None:
    locks = await stage.connect()
    story = listen(locks)
    shared = locks.read_write("rw")
    for lock in (
        locks.lock("a", ttl=1), shared.read(ttl=1), shared.write(ttl=1), locks.semaphore("s", 2, ttl=1),
        locks.multi(["m", "n"], ttl=1),
    ):  # fmt: skip
        await (await held(lock)).release()
    acquired = [(event.name, event.kind) for event in story if isinstance(event, Acquired)]
    assert [kind for _, kind in acquired] == ["mutex", "read", "write", "slot", "multi"]
    assert [event.kind for event in story if isinstance(event, Released)] == [kind for _, kind in acquired]


@case
async def test_a_downgrade_ends_one_lease_and_begins_another(stage: Stage) -> None:
    locks = await stage.connect()
    story = listen(locks)
    shared = locks.read_write("rw")
    lease = await held(shared.write(ttl=1, keep=False))
    reader = await shared.downgrade(lease)
    await reader.release()
    assert kinds(story) == [Acquired, Released, Acquired, Released]
    lives = [event for event in told(story) if isinstance(event, Acquired | Released)]
    assert [event.kind for event in lives] == ["write", "write", "read", "read"]
    first, second = lives[0].serial, lives[2].serial
    assert [event.serial for event in lives] == [first, first, second, second]
    assert first != second


@case
async def test_who_subscribes_later_hears_the_end(stage: Stage) -> None:
    locks = await stage.connect()
    lease: AsyncLease = await held(locks.lock("a", ttl=1))
    story = listen(locks)
    await lease.release()
    [released] = told(story)
    assert released == Released("a", lease.fence, confirmed=True)
    assert isinstance(released, Released)
    assert released.serial == 0
