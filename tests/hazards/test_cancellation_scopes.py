"""Cancellation as programs meet it: wait_for, gather, TaskGroup, a second cancellation, the end of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings

import pytest

from quorumlock import AsyncLocker
from tests.live.attribution import every_answer_is_its_own
from tests.live.tools import Stopwatch, lock_keys
from tests.support.waiting import eventually_async

from .late import DELAY, Bench, acquire, nothing_is_left, owes

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time]


def test_wait_for_around_acquire_leaves_nothing(bench: Bench) -> None:
    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            for turn in range(1, 13):
                bench.late(True)
                try:
                    lease = await asyncio.wait_for(acquire(locks, next(bench.names)), turn * DELAY / 4)
                except TimeoutError:
                    pass
                else:
                    await lease.release()
            await bench.verdict(locks)

    asyncio.run(main())


def test_gather_that_is_cancelled_leaves_nothing(bench: Bench) -> None:
    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            bench.hold()
            together = asyncio.gather(*(acquire(locks, next(bench.names)) for _ in range(50)))
            await bench.reached(50)
            together.cancel()
            bench.let_go_soon()
            with pytest.raises(asyncio.CancelledError):
                await together
            await bench.verdict(locks)  # gather does not wait for the clean-up of the others

    asyncio.run(main())


def test_a_task_group_that_fails_leaves_nothing(bench: Bench) -> None:
    """When the group is left, the clean-up of every member is over: its tasks have ended."""

    async def fail() -> None:
        await bench.reached(20)
        for proxy in bench.proxies:  # what they clean up with takes its time
            proxy.hold_requests()
            asyncio.get_running_loop().call_later(0.05, proxy.let_go)
        raise ZeroDivisionError

    async def crowd(locks: AsyncLocker) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(acquire(locks, next(bench.names)))
            group.create_task(fail())

    async def main() -> None:
        async with bench.locker(node_timeout=2.0) as locks:  # no stall makes it give up
            await every_answer_is_its_own(locks, bench.nodes)
            bench.hold()
            with pytest.raises(ExceptionGroup) as failed:
                await crowd(locks)
            assert failed.group_contains(ZeroDivisionError)
            left = sum(bool(lock_keys([node])) for node in bench.nodes)  # a release waits for a majority
            assert left <= len(bench.nodes) // 2, "the group was left before its members had cleaned up"
            await bench.verdict(locks)

    asyncio.run(main())


def test_a_second_cancellation_does_not_stop_the_clean_up(bench: Bench) -> None:
    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            for turn in range(4):
                bench.hold()
                task = asyncio.create_task(acquire(locks, next(bench.names)))
                await bench.reached()
                task.cancel()
                bench.let_go_soon()
                await asyncio.sleep(turn * DELAY / 4)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await (await task).release()
                await bench.verdict(locks)

    asyncio.run(main())


def test_a_loop_that_ends_in_the_middle_leaves_nothing(bench: Bench) -> None:
    """asyncio.run cancels what is left; the clean-up is on its way before the loop is closed."""

    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            bench.hold()
            tasks = [asyncio.create_task(acquire(locks, next(bench.names))) for _ in range(5)]
            await bench.reached(5)
            bench.let_go_soon()
            for task in tasks:
                task.cancel()

    asyncio.run(main())
    nothing_is_left(bench.nodes)


def test_closing_the_locker_waits_for_the_clean_up(bench: Bench) -> None:
    async def main() -> None:
        locks = bench.new_locker()
        await every_answer_is_its_own(locks, bench.nodes)
        bench.hold()
        task = asyncio.create_task(acquire(locks, next(bench.names)))
        await bench.reached()
        task.cancel()
        bench.let_go_soon()
        await locks.aclose()
        await asyncio.to_thread(nothing_is_left, bench.nodes)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("ttl", [1, 6], ids=["quick", "slow"])
def test_a_cancellation_is_one_also_where_the_locker_is_being_closed(bench: Bench, ttl: float) -> None:
    """Whoever was cancelled in time hears of that, and not that the Locker is closed.

    Its clean-up waits for a quarter of the ttl at most: for less, or for longer, than closing waits for it.
    """

    async def once(k: int) -> bool:
        locks = bench.new_locker(node_timeout=5)
        await (await acquire(locks, next(bench.names))).release()
        assert await eventually_async(lambda: not owes(locks)), "closing would wait for its last answers"
        bench.hold()
        task = asyncio.create_task(acquire(locks, next(bench.names), ttl))
        await bench.reached()
        closing = asyncio.create_task(locks.aclose())
        for _ in range(k):
            await asyncio.sleep(0)
        in_time = task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or not in_time, f"at await point {k} of closing: {task.exception()!r}"
        bench.let_go()
        await closing
        for node in bench.nodes:
            node.command("DEL", *(f"name-{index}" for index in range(16)))  # nobody was left to give it back
        return in_time

    came = [asyncio.run(once(k)) for k in (0, 1, 2, 3, 5, 8)]
    assert came[0]
    assert not came[-1], "closing took longer than that"


def test_an_acquire_that_is_dropped_says_its_release(bench: Bench) -> None:
    """A coroutine that is closed can await nothing any more."""

    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            bench.hold()
            dropped = acquire(locks, next(bench.names))
            dropped.send(None)
            await bench.reached()
            dropped.close()
            bench.let_go()
            await asyncio.to_thread(nothing_is_left, bench.nodes)
            await bench.verdict(locks)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(one.message)[:60] for one in said] == []


def test_a_cancelled_acquire_ends_soon_although_a_node_is_silent(bench: Bench) -> None:
    """The clean-up has its own short deadline: a silent fleet does not keep the caller for long."""

    async def main() -> None:
        async with bench.locker() as locks:
            await every_answer_is_its_own(locks, bench.nodes)
            for proxy in bench.proxies:
                proxy.hold_answers()
            task = asyncio.create_task(acquire(locks, next(bench.names), ttl=5))
            await bench.reached()
            task.cancel()
            with Stopwatch() as took, pytest.raises(asyncio.CancelledError):
                await task
            assert took.seconds < 2.5, "its deadline is a node's timeout, which is a tenth of that"
            for proxy in bench.proxies:
                proxy.let_go()
            await bench.verdict(locks)

    asyncio.run(main())


def test_closing_in_the_midst_of_connecting_leaves_no_connection(bench: Bench) -> None:
    """An acquire is cancelled while its connections are made, and the Locker is closed behind it."""

    async def once(k: int) -> None:
        async with bench.locker() as locks:
            task = asyncio.create_task(acquire(locks, next(bench.names)))
            for _ in range(k):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).release()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(14):
            asyncio.run(once(k))
            gc.collect()
            assert [str(one.message)[:60] for one in said] == [], f"at await point {k}"
    nothing_is_left(bench.nodes)
