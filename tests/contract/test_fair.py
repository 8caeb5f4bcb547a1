"""The contract of fair locks: nobody is overtaken who came before."""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import AcquireTimeout
from tests.support.waiting import PATIENCE

from .stage import LONG, Stage, case, held


@case
async def test_who_comes_first_is_served_first(stage: Stage) -> None:
    """The waiters are of different lockers, as of different processes: no line of one process orders them."""
    ours = await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    served: list[int] = []

    async def wait(index: int) -> None:
        locks = await stage.connect(retry=ours._settings.retry)
        mine = await locks.lock("a", ttl=LONG, fair=True).acquire(timeout=30)
        served.append(index)
        await mine.release()

    waiters = []
    for index in range(3):
        waiters.append(asyncio.create_task(wait(index)))
        await stage.wait_for_waiters("a", index + 1)
    await lease.release()
    await asyncio.gather(*waiters)
    assert served == [0, 1, 2]


@case
async def test_a_free_lock_is_the_heads(stage: Stage) -> None:
    """Who comes when it is just given back does not get it, whether or not the first has taken it already."""
    ours, theirs, late = await stage.connect(), await stage.connect_patient(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG, fair=True))
    waiter = await stage.queue(theirs.lock("a", ttl=LONG, fair=True), 1)
    await lease.release()
    assert await late.lock("a", ttl=LONG, fair=True).try_acquire() is None
    new = await asyncio.wait_for(waiter, PATIENCE)
    assert new.fence > lease.fence
    await new.release()


@pytest.mark.real_time(0.3)
@case
async def test_who_gives_up_keeps_nobody_waiting(stage: Stage) -> None:
    ours, theirs, last = await stage.connect(), await stage.connect(), await stage.connect_patient()
    lease = await held(ours.lock("a", ttl=LONG, fair=True))
    patience = LONG if stage.clock else 1.0
    impatient = asyncio.create_task(theirs.lock("a", ttl=LONG, fair=True).acquire(timeout=patience))
    await stage.wait_for_waiters("a", 1)
    waiter = asyncio.create_task(last.lock("a", ttl=LONG, fair=True).acquire(timeout=60))

    async def behind_it() -> bool:
        return impatient.done() or len((await ours.inspect("a")).waiters) == 2

    assert await stage.until(behind_it)
    await stage.skip(patience)
    with pytest.raises(AcquireTimeout):
        await impatient
    await stage.wait_for_waiters("a", 1)
    await lease.release()
    await (await asyncio.wait_for(waiter, PATIENCE)).release()
