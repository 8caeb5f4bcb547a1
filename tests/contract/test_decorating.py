"""The contract of `locked`: a function whose every call runs under a lock."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from quorumlock import LeaseLost, LockHeld, LossReason
from tests.support.waiting import eventually

from .stage import LONG, Stage, case, held


@case
async def test_every_call_runs_under_the_lock(stage: Stage) -> None:
    locks = await stage.connect()
    inside: list[int] = []

    def work(amount: int, *, times: int = 1) -> int:
        """Works."""
        inside.append(sum(holder is not None for holder in stage.ground.holders("a")))
        return amount * times

    decorated = locks.locked("a", ttl=LONG)(stage.function(work))
    assert await decorated(7, times=3) == 21
    await stage.agrees("a", None)
    assert await decorated(7) == 7
    assert len(inside) == 2
    assert min(inside) > stage.count // 2
    await stage.agrees("a", None)


@case
async def test_calls_do_not_overlap(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    tokens: list[str | None] = []

    def work() -> None:
        token, count = Counter(stage.ground.holders("a")).most_common(1)[0]
        assert count > stage.count // 2
        tokens.append(token)

    calls = [locks.locked("a", ttl=LONG)(stage.function(work)) for locks in (ours, theirs)]
    await asyncio.gather(*(calls[index % 2]() for index in range(6)))
    assert None not in tokens
    assert len(tokens) == len(set(tokens)) == 6, "each call has a lease of its own"


@case
async def test_the_name_may_depend_on_the_arguments(stage: Stage) -> None:
    locks = await stage.connect()
    seen: list[bool] = []

    def work(order: int) -> None:
        seen.append(any(stage.ground.holders(f"orders:{order}")))
        seen.append(any(stage.ground.holders("orders:1")))

    decorated = locks.locked(lambda order: f"orders:{order}", ttl=LONG)(stage.function(work))
    await decorated(42)
    assert seen == [True, False]


@case
async def test_what_the_function_raises_is_raised_and_the_lock_released(stage: Stage) -> None:
    locks = await stage.connect()

    def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await locks.locked("a", ttl=LONG)(stage.function(work))()
    await stage.agrees("a", None)


@case
async def test_a_call_that_does_not_get_the_lock_does_not_happen(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    called: list[None] = []
    decorated = theirs.locked("a", ttl=LONG, timeout=0)(stage.function(lambda: called.append(None)))
    with pytest.raises(LockHeld):
        await decorated()
    assert called == []
    await lease.release()
    await decorated()
    assert called == [None]


@pytest.mark.takes_time
@case
async def test_a_call_that_outlived_its_lease_says_so(stage: Stage) -> None:
    locks = await stage.connect()

    def work() -> None:
        if stage.clock is not None:
            stage.clock.advance(stage.ttl_to_expire)
        assert eventually(lambda: not any(stage.ground.holders("a")))

    with pytest.raises(LeaseLost) as lost:
        await locks.locked("a", ttl=stage.ttl_to_expire, keep=False)(stage.function(work))()
    assert lost.value.reason is LossReason.EXPIRED
