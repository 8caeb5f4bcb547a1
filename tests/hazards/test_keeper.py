"""Renewal in the background: it goes on whatever happens for a moment, and ends when it should, for good."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import LeaseLost, LossReason, events
from quorumlock.core import renewal
from quorumlock.lab.servers import Server
from tests.live.tools import lock_keys, pttl
from tests.support.proxy import Proxy
from tests.support.waiting import eventually_async

from .driven import TTL, ClockAhead, DrivenSide
from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

Put = Callable[[Server], Proxy]
SHORT = 0.3
"""A ttl that really passes: where the keeper itself must see that time is over."""


def keepers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "quorumlock-keeper"}


def test_work_may_outlive_its_ttl(driven: DrivenSide) -> None:
    """Many leases at a time; a rival is refused all the while."""

    async def main() -> None:
        async with driven.locker() as locks, driven.locker() as rival:
            told: list[events.Event] = []
            locks.subscribe(told.append)
            leases = [await locks.lock(f"a-{index}", ttl=TTL).acquire() for index in range(20)]
            for _ in range(6):
                await driven.a_third_later(*leases)
                for lease in leases:
                    assert await rival.lock(lease.name, ttl=1).try_acquire() is None
            for lease in leases:
                lease.check()
                assert lease.remaining() <= TTL
                assert not lease.lost.is_set()
                await lease.release()
            renewed = {event.name for event in told if isinstance(event, events.Extended)}
            assert renewed == {lease.name for lease in leases}
            assert await eventually_async(lambda: not driven.lock_keys())

    asyncio.run(main())


def test_blocks_and_decorated_functions_are_kept(driven: DrivenSide) -> None:
    async def main() -> None:
        over = threading.Event()
        async with driven.locker() as locks, driven.locker() as rival:

            def in_threads() -> bool:
                inner: quorumlock.Locker = locks.inner  # type: ignore[attr-defined]

                @inner.locked("b", ttl=TTL)
                def work(patience: float) -> bool:
                    with inner.lock("a", ttl=TTL) as lease:
                        assert over.wait(patience)
                        lease.check()
                        return True

                return work(20)

            async def in_tasks() -> bool:
                @locks.locked("b", ttl=TTL)
                async def work(patience: float) -> bool:
                    async with locks.lock("a", ttl=TTL) as lease:
                        assert await eventually_async(over.is_set, patience)
                        lease.check()
                        return True

                return await work(20)

            renewed: Counter[str] = Counter()
            locks.subscribe(
                lambda event: renewed.update([event.name] if isinstance(event, events.Extended) else [])
            )
            working = asyncio.ensure_future(asyncio.to_thread(in_threads) if driven.threads else in_tasks())
            assert await eventually_async(lambda: driven.lock_keys() == {"a", "b"})
            try:
                for turn in range(1, 6):
                    driven.clock.advance(TTL / 3)
                    assert await eventually_async(lambda turn=turn: min(renewed["a"], renewed["b"]) >= turn)  # type: ignore[misc]
                    for name in "ab":
                        assert await rival.lock(name, ttl=1).try_acquire() is None
            finally:
                over.set()
            assert await working
            for name in "ab":
                lease = await rival.lock(name, ttl=1).acquire(timeout=20)
                await lease.release()

    asyncio.run(main())


@pytest.mark.real_time
def test_without_keep_it_ends_by_its_ttl_and_says_so(driven: DrivenSide) -> None:
    """Nobody asks the lease: its end is announced all the same."""

    async def main() -> None:
        async with driven.locker() as locks:
            told: list[str] = []
            renewed: list[events.Event] = []
            locks.subscribe(lambda event: renewed.append(event) if isinstance(event, events.Extended) else None)
            started_at = time.monotonic()
            lease = await locks.lock(
                "a", ttl=SHORT, keep=False, on_lost=lambda lease: told.append(lease.name)
            ).acquire()
            lost = lease.lost
            assert await eventually_async(lost.is_set)
            assert not renewed
            assert time.monotonic() - started_at > 0.9 * SHORT
            assert await eventually_async(lambda: told == ["a"])
            with pytest.raises(LeaseLost) as over:
                lease.check()
            assert over.value.reason is LossReason.EXPIRED
            assert await eventually_async(lambda: not driven.lock_keys())

    asyncio.run(main())


def test_there_is_one_keeper_for_all_leases_and_it_ends_with_its_locker(driven: DrivenSide) -> None:
    """A daemon thread; or no thread at all, and a task only while there is work."""

    async def main() -> None:
        before = keepers()
        async with driven.locker() as locks:
            leases = [await locks.lock(f"a-{index}", ttl=TTL).acquire() for index in range(30)]
            await driven.a_third_later(*leases)
            assert len(keepers() - before) == (1 if driven.threads else 0)
            assert all(one.daemon for one in keepers())
            if not driven.threads:
                assert await eventually_async(lambda: len(asyncio.all_tasks()) == 1), "a task that only waits"
            for lease in leases[1:]:
                await lease.release()
        driven.clock.advance(TTL)
        assert await eventually_async(lambda: keepers() <= before)
        assert not leases[0].held, "the last one ends by its ttl"
        with pytest.raises(LeaseLost):
            leases[0].check()

    asyncio.run(main())


@pytest.mark.real_time
@pytest.mark.parametrize("fault", ["cut", "lose", "silence", "refuse"])
def test_a_transient_fault_does_not_end_renewal(side: Side, put_proxy: Put, ahead: ClockAhead, fault: str) -> None:
    """Of all nodes at once, and shorter than the lease."""

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies], max_ttl=20) as locks:
            told: list[events.Event] = []
            locks.subscribe(told.append)

            def heard(kind: type[events.Event]) -> bool:
                return any(isinstance(event, kind) for event in told)

            lease = await locks.lock("a", ttl=20).acquire()
            ahead.advance(7, locks)
            assert await eventually_async(lambda: heard(events.Extended))
            told.clear()
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
            ahead.advance(7, locks)
            if fault in ("silence", "refuse"):
                assert await eventually_async(lambda: heard(events.RenewalFailed))
            for proxy in proxies:
                proxy.let_go()
                proxy.refusing = False
            told.clear()
            ahead.advance(1, locks)  # it would be asked again soon; or it has been renewed, and is due
            ahead.advance(6, locks)
            assert await eventually_async(lambda: heard(events.Extended)), "given up"
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


@pytest.mark.real_time(1)
def test_a_bug_in_renewal_does_not_end_it(
    driven: DrivenSide, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with driven.locker() as locks:
            leases = [await locks.lock(name, ttl=5).acquire() for name in "abc"]
            failed = failing(monkeypatch, 2)
            driven.clock.advance(2)
            # From now on the clock goes on by itself: nobody but the keeper sees to it that it is tried again.
            assert await eventually_async(lambda: failed() == 2)
            assert await eventually_async(lambda: all(lease.remaining() > 4 for lease in leases)), "given up"
            for lease in leases:
                lease.check()
                await lease.release()

    asyncio.run(main())
    assert "renewing leases failed" in caplog.text


@pytest.mark.real_time
def test_a_bug_in_renewal_leaves_no_lease_that_looks_alive(
    driven: DrivenSide, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails again and again: every lease is announced as lost when its time is over."""

    async def main() -> None:
        async with driven.locker() as locks:
            lost: list[str] = []
            leases = [
                await locks.lock(name, ttl=SHORT, on_lost=lambda lease: lost.append(lease.name)).acquire()
                for name in "abc"
            ]
            flags = [lease.lost for lease in leases]
            failing(monkeypatch, float("inf"))
            assert await eventually_async(lambda: all(flag.is_set() for flag in flags))
            assert await eventually_async(lambda: sorted(lost) == ["a", "b", "c"])
            assert not any(lease.held for lease in leases)

    asyncio.run(main())


@pytest.mark.real_time(0.2)
def test_a_release_is_the_end_whatever_races(side: Side, put_proxy: Put) -> None:
    """Nodes forget, renewal heals, holders extend, and in the midst of it all leases are released.

    Answers come late, so that nearly every release falls into a round of the keeper's. A key that comes back is
    seen on its node, since no lease is left that could have written it, and it stays there for a ttl.
    """

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies], node_timeout=0.15) as locks:
            told: list[events.Event] = []
            locks.subscribe(told.append)

            async def story(index: int) -> None:
                name = f"a-{index}"
                lease = await locks.lock(name, ttl=0.6).acquire(timeout=5)
                end = time.monotonic() + 0.15 + random.random() * 0.25
                while time.monotonic() < end:
                    side.nodes[index % 3].command("DEL", name)
                    await asyncio.sleep(0.01)
                    if index % 4 == 0:
                        try:
                            await lease.extend()
                        except quorumlock.LeaseError:
                            break
                await lease.release()

            for turn in range(5):
                for proxy in proxies:
                    proxy.delay = 0.04
                await asyncio.gather(*(story(24 * turn + index) for index in range(24)))
                for proxy in proxies:
                    proxy.delay = 0
                gone = await eventually_async(lambda: not lock_keys(side.nodes), 0.3)
                assert gone, f"left, or come back: {lock_keys(side.nodes)}"
            assert any(isinstance(event, events.Healed) for event in told), "nothing was healed: a weak test"

    asyncio.run(main())


@pytest.mark.real_time(0.25)
def test_a_lease_never_promises_more_than_a_majority_keeps(side: Side, put_proxy: Put) -> None:
    """While the keeper renews, the holder extends for other times, a node forgets, and answers come late."""

    async def main() -> None:
        proxies = [put_proxy(node) for node in side.nodes]
        async with side.locker([proxy.url for proxy in proxies]) as locks:
            told: list[events.Event] = []
            locks.subscribe(told.append)
            lease = await locks.lock("a", ttl=1).acquire()
            for proxy in proxies:
                proxy.delay = 0.04
            compared = 0

            async def hinder() -> None:
                for turn, ttl in enumerate(itertools.cycle([0.8, 1.0, 0.9, 1.0])):  # every other is what they keep
                    await asyncio.sleep(random.random() * 0.2)
                    await lease.extend(ttl)
                    side.nodes[2].command("DEL", "a")
                    by_the_keeper = sum(isinstance(event, events.Extended) for event in told) - turn - 1
                    if by_the_keeper >= 4 and compared > 60:
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


def test_max_hold_ends_renewal(driven: DrivenSide) -> None:
    async def main() -> None:
        async with driven.locker() as locks:
            lease = await locks.lock("a", ttl=TTL, max_hold=TTL).acquire()
            lost = lease.lost
            for _ in range(2):
                await driven.a_third_later(lease)
            driven.clock.advance(TTL / 3)
            assert await eventually_async(lambda: fate(lease) is LossReason.MAX_HOLD), "the keeper goes on"
            lease.check()  # until its ttl is over
            driven.clock.advance(TTL)
            assert await eventually_async(lost.is_set)
            with pytest.raises(LeaseLost) as over:
                lease.check()
            assert over.value.reason is LossReason.MAX_HOLD
            await lease.release()

    asyncio.run(main())


def fate(lease: Any) -> LossReason:
    """Why a lease would be lost, as far as its keeper knows."""
    return getattr(lease, "inner", lease)._fate  # type: ignore[no-any-return]


def test_a_lease_that_is_garbage_is_not_renewed(driven: DrivenSide) -> None:
    """Nobody can release it any more: a warning, and it ends by its ttl."""

    async def main() -> None:
        async with driven.locker() as locks:
            lease = await locks.lock("a", ttl=TTL).acquire()
            other = await locks.lock("b", ttl=TTL).acquire()
            assert driven.lock_keys() == {"a", "b"}
            await asyncio.sleep(0)  # the loop itself remembers what it gave last
            with pytest.warns(ResourceWarning, match="'a'"):  # noqa: PT031
                del lease
                gc.collect()
            for _ in range(4):
                await driven.a_third_later(other)
            assert driven.lock_keys() == {"b"}
            await other.release()

    asyncio.run(main())
