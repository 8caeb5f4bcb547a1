"""Renewal in the background: it goes on whatever happens for a moment, and ends when it should, for good."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import LeaseLost, LossReason, events
from quorumlock.core import renewal
from quorumlock.lab.servers import Server
from tests.live.tools import SLACK, exists, get, lock_keys, pttl
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

Put = Callable[[Server], Proxy]
TTL = 1.0
"""Renewed every third of it: a busy machine may miss one, or two."""


async def comes(condition: Callable[[], object], within: float = 3.0) -> bool:
    """The same as `eventually`, without standing in the way of the loop."""
    return await asyncio.to_thread(eventually, condition, within)


def threads(name: str = "quorumlock-keeper") -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_work_may_outlive_its_ttl(side: Side) -> None:
    """Many leases at a time, by all ways to get one; a rival is refused all the while."""

    async def main() -> None:
        async with side.locker() as locks, side.locker() as rival:
            told: list[events.Event] = []
            locks.subscribe(told.append)
            leases = [await locks.lock(f"a-{index}", ttl=TTL).acquire() for index in range(20)]
            end = time.monotonic() + 2 * TTL
            while time.monotonic() < end:
                assert await rival.lock(f"a-{random.randrange(20)}", ttl=1).try_acquire() is None
                await asyncio.sleep(0.02)
            for lease in leases:
                lease.check()
                assert lease.remaining() <= TTL
                assert not lease.lost.is_set()
                await lease.release()
            renewed = {event.name for event in told if isinstance(event, events.Extended)}
            assert renewed == {lease.name for lease in leases}
            assert await comes(lambda: not lock_keys(side.nodes), 0.5)

    asyncio.run(main())


def test_blocks_and_decorated_functions_are_kept(side: Side) -> None:
    async def main() -> None:
        over = threading.Event()
        async with side.locker() as locks, side.locker() as rival:

            def in_threads() -> bool:
                inner: quorumlock.Locker = locks.inner  # type: ignore[attr-defined]

                @inner.locked("b", ttl=TTL)
                def work(seconds: float) -> bool:
                    with inner.lock("a", ttl=TTL) as lease:
                        time.sleep(seconds)
                        lease.check()
                        over.set()
                        return True

                return work(1.5 * TTL)

            async def in_tasks() -> bool:
                @locks.locked("b", ttl=TTL)
                async def work(seconds: float) -> bool:
                    async with locks.lock("a", ttl=TTL) as lease:
                        await asyncio.sleep(seconds)
                        lease.check()
                        over.set()
                        return True

                return await work(1.5 * TTL)

            working = asyncio.ensure_future(asyncio.to_thread(in_threads) if side.threads else in_tasks())
            assert await comes(lambda: get(side.nodes[0], "a") is not None)
            while not working.done():
                for name in "ab":
                    lease = await rival.lock(name, ttl=1).try_acquire()
                    if lease is not None:
                        await lease.release()
                        assert over.is_set()
                await asyncio.sleep(0.03)
            assert await working

    asyncio.run(main())


def test_without_keep_it_ends_by_its_ttl_and_says_so(side: Side) -> None:
    """Nobody asks the lease: its end is announced all the same."""

    async def main() -> None:
        async with side.locker() as locks:
            told: list[str] = []
            lease = await locks.lock(
                "a", ttl=TTL, keep=False, on_lost=lambda lease: told.append(lease.name)
            ).acquire()
            lost = lease.lost
            assert await comes(lost.is_set, TTL + 1)
            assert await comes(lambda: told == ["a"])
            with pytest.raises(LeaseLost) as over:
                lease.check()
            assert over.value.reason is LossReason.EXPIRED
            assert await comes(lambda: not lock_keys(side.nodes), 1)

    asyncio.run(main())


def test_there_is_one_keeper_for_all_leases_and_it_ends_with_its_locker(side: Side) -> None:
    """A daemon thread; or no thread at all, and a task only while there is work."""

    async def main() -> None:
        before = threads()
        async with side.locker() as locks:
            leases = [await locks.lock(f"a-{index}", ttl=TTL).acquire() for index in range(30)]
            assert threads() - before == (1 if side.threads else 0)
            assert all(one.daemon for one in threading.enumerate() if one.name == "quorumlock-keeper")
            if not side.threads:
                idle = 0
                for _ in range(20):
                    await asyncio.sleep(0.01)
                    idle += len(asyncio.all_tasks()) == 1
                assert idle > 10, "a task that only waits"
            assert await comes(lambda: min(lease.remaining() for lease in leases) > TTL * 0.3)
            for lease in leases[1:]:
                await lease.release()
        assert await comes(lambda: threads() == before)
        assert await comes(lambda: not leases[0].held), "the last one ends by its ttl"
        with pytest.raises(LeaseLost):
            leases[0].check()

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["cut", "lose", "silence", "refuse"])
def test_a_transient_fault_does_not_end_renewal(side: Side, put_proxy: Put, fault: str) -> None:
    """Of all nodes at once, and shorter than the lease."""

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies], node_timeout=0.05) as locks:
            told: list[events.Event] = []
            locks.subscribe(told.append)
            lease = await locks.lock("a", ttl=0.8).acquire()

            def renewed() -> bool:
                return any(isinstance(event, events.Extended) for event in told)

            assert await comes(renewed, 1)
            for proxy in proxies:
                if fault == "cut":
                    proxy.cut()
                elif fault == "lose":
                    proxy.lose_next_answer = True
                elif fault == "silence":
                    proxy.hold_requests()
                else:
                    proxy.refusing = True
                    proxy.cut()
            await asyncio.sleep(0.25)
            for proxy in proxies:
                proxy.let_go()
                proxy.refusing = False
            told.clear()
            assert await comes(renewed, 1), "given up"
            lease.check()
            assert not lease.lost.is_set()
            await lease.release()

    asyncio.run(main())


def failing(monkeypatch: pytest.MonkeyPatch, times: float) -> Callable[[], int]:
    """Makes renewal raise what nobody expects; gives how often it has done so."""
    count = 0
    real = renewal.judged

    def judged(*args: Any) -> renewal.Extension:
        nonlocal count
        if count < times:
            count += 1
            raise ZeroDivisionError("a bug")
        return real(*args)

    monkeypatch.setattr(renewal, "judged", judged)
    return lambda: count


def test_a_bug_in_renewal_does_not_end_it(
    side: Side, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with side.locker() as locks:
            leases = [await locks.lock(name, ttl=TTL).acquire() for name in "abc"]
            failed = failing(monkeypatch, 2)
            await asyncio.sleep(1.5 * TTL)
            assert failed() == 2
            for lease in leases:
                lease.check()
                await lease.release()

    asyncio.run(main())
    assert "renewing leases failed" in caplog.text


def test_a_bug_in_renewal_leaves_no_lease_that_looks_alive(
    side: Side, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails again and again: every lease is announced as lost when its time is over."""

    async def main() -> None:
        async with side.locker() as locks:
            lost: list[str] = []
            leases = [
                await locks.lock(name, ttl=TTL, on_lost=lambda lease: lost.append(lease.name)).acquire()
                for name in "abc"
            ]
            flags = [lease.lost for lease in leases]
            failing(monkeypatch, float("inf"))
            assert await comes(lambda: all(flag.is_set() for flag in flags), TTL + 1)
            assert await comes(lambda: sorted(lost) == ["a", "b", "c"])
            assert not any(lease.held for lease in leases)

    asyncio.run(main())


def test_a_release_is_the_end_whatever_races(side: Side, put_proxy: Put) -> None:
    """Nodes forget, renewal heals, holders extend, and in the midst of it all leases are released.

    Answers come late, so that nearly every release falls into a round of the keeper's. A key that comes back is
    seen on its node, since no lease is left that could have written it.
    """

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies]) as locks:
            told: list[events.Event] = []
            locks.subscribe(told.append)

            async def story(index: int) -> None:
                name = f"a-{index}"
                lease = await locks.lock(name, ttl=0.2).acquire(timeout=5)
                end = time.monotonic() + 0.06 + random.random() * 0.1
                while time.monotonic() < end:
                    side.nodes[index % 3].command("DEL", name)
                    await asyncio.sleep(0.005)
                    if index % 4 == 0:
                        try:
                            await lease.extend()
                        except quorumlock.LeaseError:
                            break
                await lease.release()

            for turn in range(6):
                for proxy in proxies:
                    proxy.delay = 0.015
                await asyncio.gather(*(story(8 * turn + index) for index in range(8)))
                for proxy in proxies:
                    proxy.delay = 0
                gone = await comes(lambda: not lock_keys(side.nodes), 0.1)
                assert gone, f"left, or come back: {lock_keys(side.nodes)}"
            assert any(isinstance(event, events.Healed) for event in told), "nothing was healed: a weak test"

    asyncio.run(main())


def test_a_lease_never_promises_more_than_a_majority_keeps(side: Side, put_proxy: Put) -> None:
    """While the keeper renews, the holder extends for other times, a node forgets, and answers come late."""

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies]) as locks:
            lease = await locks.lock("a", ttl=1).acquire()
            for proxy in proxies:
                proxy.delay = 0.03
            compared = 0
            ended = time.monotonic() + 0.9

            async def hinder() -> None:
                for ttl in itertools.cycle([0.8, 1.0, 0.9, 1.0]):  # every other is what the nodes really keep
                    await asyncio.sleep(random.random() * 0.2)
                    await lease.extend(ttl)
                    side.nodes[2].command("DEL", "a")
                    if time.monotonic() > ended and compared > 30:
                        return

            hindering = asyncio.create_task(hinder())
            while not hindering.done():
                before = lease.remaining()
                kept = sorted(pttl(node, "a") for node in side.nodes)[1]
                after = lease.remaining()
                if 0 < after < before:  # nothing was promised meanwhile
                    compared += 1
                    assert kept / 1000 >= after, f"{after:.3f} s promised, {kept} ms kept"
                await asyncio.sleep(0.002)
            await hindering
            await lease.release()

    asyncio.run(main())


def test_max_hold_ends_renewal(side: Side) -> None:
    async def main() -> None:
        async with side.locker() as locks:
            started_at = time.monotonic()
            lease = await locks.lock("a", ttl=TTL, max_hold=TTL).acquire()
            lost = lease.lost
            assert await comes(lost.is_set, 2 * TTL + 1)
            took = time.monotonic() - started_at
            assert TTL <= took < 2 * TTL + SLACK
            with pytest.raises(LeaseLost) as over:
                lease.check()
            assert over.value.reason is LossReason.MAX_HOLD
            await lease.release()

    asyncio.run(main())


def test_a_lease_that_is_garbage_is_not_renewed(side: Side) -> None:
    """Nobody can release it any more: a warning, and it ends by its ttl."""

    async def main() -> None:
        async with side.locker() as locks:
            lease = await locks.lock("a", ttl=TTL).acquire()
            assert exists(side.nodes[0], "a") or exists(side.nodes[1], "a")
            await asyncio.sleep(0)  # the loop itself remembers what it gave last
            with pytest.warns(ResourceWarning, match="'a'"):  # noqa: PT031
                del lease
                gc.collect()
            assert await comes(lambda: not lock_keys(side.nodes), TTL + 0.5)

    asyncio.run(main())
