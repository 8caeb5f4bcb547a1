"""The contract of reentrant locks: who holds one may enter it again, and nobody else may.

An owner is a task, or a thread; never what happens to inherit its context.
"""

from __future__ import annotations

import pytest

from quorumlock import AsyncLease, ConfigurationError, LeaseLost
from quorumlock.front import DEEPEST

from .stage import LONG, Stage, case, held


@case
async def test_its_holder_enters_again_and_only_the_last_release_frees_it(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()

    async def told() -> None:
        first = await ours.lock("a", ttl=LONG, reentrant=True).acquire()
        second = await ours.lock("a", ttl=LONG, reentrant=True).acquire(timeout=0)
        third = await held(ours.lock("a", ttl=LONG, reentrant=True))
        assert {lease.token for lease in (second, third)} == {first.token}
        assert {lease.fence for lease in (second, third)} == {first.fence}
        for lease in (third, second):
            await lease.release()
            assert first.held
            first.check()
            assert await theirs.lock("a", ttl=LONG).try_acquire() is None
        await first.release()
        assert not first.held
        await (await held(theirs.lock("a", ttl=LONG))).release()

    await stage.as_owner(told)


@case
async def test_nobody_is_asked_to_let_it_enter_again(stage: Stage) -> None:
    """The nodes have forgotten the lock: whoever asked them would find that out."""
    locks = await stage.connect()

    async def told() -> None:
        lease = await locks.lock("a", ttl=LONG, keep=False, reentrant=True).acquire()
        await stage.agrees("a", lease.token)
        stage.ground.delete("a")
        again = await locks.lock("a", ttl=LONG, keep=False, reentrant=True).acquire()
        assert (again.token, again.fence) == (lease.token, lease.fence)
        assert set(stage.ground.holders("a")) == {None}
        await again.release()
        await lease.release()

    await stage.as_owner(told)


@case
async def test_blocks_may_be_nested(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lock = ours.lock("a", ttl=LONG, reentrant=True)

    async def told() -> None:
        async with lock as outer:
            with pytest.raises(KeyError, match="mine"):
                async with lock:
                    raise KeyError("mine")
            outer.check()
            async with lock as inner:
                assert inner.fence == outer.fence
                assert await theirs.lock("a", ttl=LONG).try_acquire() is None
            assert await theirs.lock("a", ttl=LONG).try_acquire() is None
        await (await held(theirs.lock("a", ttl=LONG))).release()

    await stage.as_owner(told)


@case
async def test_others_of_its_process_are_other_owners(stage: Stage) -> None:
    """A child task, or a thread to which the context was handed on."""
    locks = await stage.connect()
    lock = locks.lock("a", ttl=LONG, reentrant=True)

    async def told() -> None:
        async with lock as lease:
            assert await stage.as_owner(lock.try_acquire) is None
            again = await held(lock)
            assert again.token == lease.token
            await again.release()
        other = await stage.as_owner(lock.try_acquire)
        assert other is not None
        assert other.fence > lease.fence
        await other.release()

    await stage.as_owner(told)


@case
async def test_a_lock_that_is_not_reentrant_is_not_entered_again(stage: Stage) -> None:
    """Nor is one that is, by way of one of the same name that is not."""
    locks = await stage.connect()

    async def told() -> None:
        async with locks.lock("a", ttl=LONG):
            assert await locks.lock("a", ttl=LONG).try_acquire() is None
            assert await locks.lock("a", ttl=LONG, reentrant=True).try_acquire() is None
        async with locks.lock("a", ttl=LONG, reentrant=True):
            assert await locks.lock("a", ttl=LONG).try_acquire() is None
            await (await held(locks.lock("b", ttl=LONG, reentrant=True))).release()

    await stage.as_owner(told)


@case
async def test_what_was_lost_is_not_entered_again(stage: Stage) -> None:
    locks = await stage.connect()
    lock = locks.lock("a", ttl=LONG, reentrant=True)

    async def told() -> tuple[AsyncLease, AsyncLease]:
        lost = await lock.acquire()
        await locks.break_("a")
        with pytest.raises(LeaseLost):
            await lost.extend()
        new = await lock.acquire(timeout=5)
        assert new.fence > lost.fence
        await lost.release()
        await new.extend()
        await new.release()
        return lost, new

    lost, new = await stage.as_owner(told)
    assert lost.token != new.token


@pytest.mark.takes_time
@case
async def test_there_is_a_limit_to_how_deep_it_is_entered(stage: Stage) -> None:
    locks = await stage.connect()
    lock = locks.lock("a", ttl=LONG, reentrant=True)

    async def told() -> None:
        lease = await lock.acquire()
        for _ in range(DEEPEST - 1):
            await lock.acquire()
        with pytest.raises(ConfigurationError, match=f"'a' was entered {DEEPEST} times") as deep:
            await lock.acquire()
        assert "release" in str(deep.value)
        for _ in range(DEEPEST - 1):
            await lease.release()
        lease.check()
        await lease.release()
        await stage.agrees("a", None)

    await stage.as_owner(told)
