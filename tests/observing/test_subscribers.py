"""Subscribers cannot break a lock: not by what they raise, nor by being slow, leaving, or locking something."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import quorumlock
from quorumlock import LossReason
from quorumlock.engines.memory import MemoryEngine
from quorumlock.events import Acquired, Broken, Event, Extended, GivenUp, Lost, Released, Waiting
from quorumlock.sync import messenger
from tests.contract.stage import Stage, case, held
from tests.support.waiting import eventually


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://") as locker:
        yield locker


@pytest.mark.real_time(0.3)
@case
async def test_one_that_raises_at_everything_changes_nothing(stage: Stage) -> None:
    holders, locks = await stage.connect(), await stage.connect()
    heard: list[type[Event]] = []

    def raises(event: Event) -> None:
        heard.append(type(event))
        raise RuntimeError("in a subscriber")

    locks.subscribe(raises)
    holder = await held(holders.lock("a", ttl=1))
    waiter = asyncio.create_task(locks.lock("a", ttl=1).acquire(timeout=20))
    assert await stage.until(lambda: Waiting in heard)
    await holder.release()
    lease = await waiter
    assert await stage.until(lambda: heard.count(Extended) > 1)
    lease.check()
    await lease.release()
    assert set(stage.ground.holders("a")) == {None} or await stage.until(
        lambda: set(stage.ground.holders("a")) == {None}
    )


@case
async def test_one_that_leaves_while_it_is_told_is_not_told_again(stage: Stage) -> None:
    locks = await stage.connect()
    heard: list[Event] = []

    def once(event: Event) -> None:
        heard.append(event)
        leave()

    leave = locks.subscribe(once)
    await (await held(locks.lock("a", ttl=1))).release()
    assert [type(event) for event in heard] == [Acquired]


def test_one_that_uses_the_locker_gets_what_it_asks_for(locks: quorumlock.Locker) -> None:
    """At every event of an acquire: also while somebody stands in line, and from the keeper's news."""
    taken: list[type[Event]] = []
    busy = threading.local()

    def locks_too(event: Event) -> None:
        if not getattr(busy, "inside", False):
            busy.inside = True
            with locks.lock(f"about {type(event).__name__}"):
                taken.append(type(event))
            busy.inside = False

    assert isinstance(locks.engine, MemoryEngine)
    lease = locks.lock("a").acquire()
    locks.subscribe(locks_too)
    with pytest.raises(quorumlock.AcquireTimeout):
        locks.lock("a").acquire(timeout=0.3)
    locks.engine.clock.advance(6)
    assert eventually(lambda: Extended in taken, 10)
    lease.release()
    assert {Waiting, GivenUp, Extended} <= set(taken)


def test_one_that_hangs_holds_up_no_renewal(locks: quorumlock.Locker) -> None:
    stuck, free = threading.Event(), threading.Event()

    def hangs(event: Event) -> None:
        if isinstance(event, Extended):
            stuck.set()
            free.wait(30)

    assert isinstance(locks.engine, MemoryEngine)
    leases = [locks.lock(name).acquire() for name in "abc"]
    locks.subscribe(hangs)
    try:
        for _ in range(4):  # each time beyond a third of the ttl, and together beyond two ttls
            locks.engine.clock.advance(6)
            assert eventually(lambda: all(lease.remaining() > 9 for lease in leases), 10)
            assert stuck.wait(10)
            for lease in leases:
                lease.check()
    finally:
        free.set()
    for lease in leases:
        lease.release()


def test_one_that_hangs_keeps_nobody_from_being_told_of_a_loss(locks: quorumlock.Locker) -> None:
    stuck, free, lost = threading.Event(), threading.Event(), threading.Event()

    def hangs(_: Event) -> None:
        if threading.current_thread().name == "quorumlock-events":
            stuck.set()
            free.wait(30)

    assert isinstance(locks.engine, MemoryEngine)
    locks.subscribe(hangs)
    lease = locks.lock("a", keep=False, on_lost=lambda _: lost.set()).acquire()
    kept = locks.lock("b").acquire()
    try:
        locks.engine.clock.advance(6)  # the other is renewed: that is told
        assert stuck.wait(10)
        locks.engine.clock.advance(6)
        assert lost.wait(10)
        assert lease.lost.is_set()
        with pytest.raises(quorumlock.LeaseLost) as gone:
            lease.check()
        assert gone.value.reason is LossReason.EXPIRED
    finally:
        free.set()
    kept.release()


def test_what_the_keeper_finds_out_is_told_in_order_and_before_the_end(locks: quorumlock.Locker) -> None:
    story: list[tuple[Event, str]] = []
    locks.subscribe(lambda event: story.append((event, threading.current_thread().name)))
    assert isinstance(locks.engine, MemoryEngine)
    lease = locks.lock("a", max_hold=15).acquire()
    for extended in (1, 2):
        locks.engine.clock.advance(6)
        # Not `remaining()`: it grows before the event is emitted, and this thread notices the loss by itself.
        assert eventually(lambda: [type(event) for event, _ in story].count(Extended) == extended, 10)  # noqa: B023
    locks.engine.clock.advance(12)
    assert eventually(lease.lost.is_set, 10)  # or the Locker is closed before its keeper has found it out
    locks.close()
    assert [type(event) for event, _ in story] == [Acquired, Extended, Extended, Lost]
    assert {where for event, where in story if isinstance(event, Extended)} == {"quorumlock-events"}


def test_what_a_subscriber_cannot_keep_up_with_does_not_pile_up(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(messenger, "BEHIND_MOST", 5)
    stuck, free = threading.Event(), threading.Event()
    heard: list[Event] = []

    def slow(event: Event) -> None:
        if isinstance(event, Extended):
            stuck.set()
            free.wait(30)
            heard.append(event)

    assert isinstance(locks.engine, MemoryEngine)
    leases = [locks.lock(str(number)).acquire() for number in range(20)]
    locks.subscribe(slow)
    try:
        locks.engine.clock.advance(6)
        assert stuck.wait(10)
        assert eventually(lambda: all(lease.remaining() > 9 for lease in leases), 10)
        assert eventually(lambda: "5 events behind" in caplog.text, 10)
    finally:
        free.set()
    assert eventually(lambda: len(heard) >= 5, 10)
    assert len(heard) <= 6
    for lease in leases:
        lease.release()


@pytest.mark.parametrize("at", [Waiting, Acquired, GivenUp])
def test_an_interrupt_in_a_subscriber_leaves_no_lock_behind(locks: quorumlock.Locker, at: type[Event]) -> None:
    def interrupted(event: Event) -> None:
        if isinstance(event, at):
            raise KeyboardInterrupt

    lease = locks.lock("a").acquire()
    leave = locks.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        locks.lock("b" if at is Acquired else "a").acquire(timeout=0.3)
    leave()
    assert not locks.lock("b").locked()
    assert locks.inspect("a").waiters == ()
    lease.release()
    with locks.lock("a").acquire(timeout=5), locks.lock("b").acquire(timeout=5):
        pass


def test_a_cancellation_that_is_not_ours_goes_no_further() -> None:
    """What a subscriber has asked was cancelled: the lock is not, and its grant is not left to nobody."""

    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:

            def asks_for_what_was_cancelled(_: object) -> None:
                raise asyncio.CancelledError

            locks.subscribe(asks_for_what_was_cancelled)
            async with locks.lock("a"):
                pass
            assert not await locks.lock("a").locked()

    asyncio.run(main())


@case
async def test_all_events_of_a_lease_have_its_name(stage: Stage) -> None:
    locks = await stage.connect()
    names: list[tuple[str, str]] = []
    locks.subscribe(lambda event: names.append((type(event).__name__, getattr(event, "name", ""))))
    for lock in (locks.semaphore("permits", 2, keep=False), locks.multi(["x", "y"], keep=False)):
        lease = await held(lock)
        await lease.extend()
        await lease.release()
    told = [one for one in names if one[0] not in ("Confirmed", "Healed")]
    assert told == [(what, name) for name in ("permits", "x, y") for what in ("Acquired", "Extended", "Released")]


@pytest.mark.parametrize("strike", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_subscriber_of_a_downgrade_leaves_nothing_shared(
    locks: quorumlock.Locker, strike: type[BaseException]
) -> None:
    def interrupted(_: Event) -> None:
        raise strike

    shelf = locks.read_write("a")
    lease = shelf.write().acquire()
    leave = locks.subscribe(interrupted)
    with pytest.raises(strike):
        shelf.downgrade(lease)
    leave()
    assert locks.inspect("a").state == "free"


def test_an_interrupt_in_a_subscriber_leaves_nothing_behind_on_asyncio_either() -> None:
    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:

            def interrupted(event: Event) -> None:
                if not isinstance(event, GivenUp):
                    raise SystemExit

            shelf = locks.read_write("a")
            lease = await shelf.write().acquire()
            leave = locks.subscribe(interrupted)
            with pytest.raises(SystemExit):
                await shelf.downgrade(lease)
            with pytest.raises(SystemExit):
                await locks.lock("b").acquire()
            with pytest.raises(SystemExit):
                await locks.lock("c").try_acquire()
            leave()
            assert [(await locks.inspect(name)).state for name in "abc"] == ["free"] * 3

    asyncio.run(main())


def test_who_breaks_its_own_lock_has_lost_it_whatever_a_subscriber_does(locks: quorumlock.Locker) -> None:
    def interrupted(event: Event) -> None:
        if isinstance(event, Broken):
            raise KeyboardInterrupt

    lease = locks.lock("a").acquire()
    locks.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        locks.break_("a")
    assert not lease.held


def test_what_was_over_and_not_noticed_was_not_held_meanwhile(locks: quorumlock.Locker) -> None:
    assert isinstance(locks.engine, MemoryEngine)
    story: list[Event] = []
    locks.subscribe(story.append)
    late, gone = (locks.lock(name, ttl=10, keep=False).acquire() for name in "ab")
    locks.engine.clock.advance(3600)
    late.release()
    with pytest.raises(quorumlock.LeaseLost):
        gone.check()
    times = [event.held for event in story if isinstance(event, Lost | Released)]
    assert len(times) >= 2
    assert all(9 < seconds < 11 for seconds in times), times


def test_closing_waits_until_all_was_told(locks: quorumlock.Locker) -> None:
    stuck, free = threading.Event(), threading.Event()
    told: list[Event] = []

    def slow(event: Event) -> None:
        if isinstance(event, Extended):
            stuck.set()
            free.wait(30)
            told.append(event)

    assert isinstance(locks.engine, MemoryEngine)
    lease = locks.lock("a").acquire()
    locks.subscribe(slow)
    locks.engine.clock.advance(6)
    assert stuck.wait(10)
    lease.release()
    closing = threading.Thread(target=locks.close)
    closing.start()
    try:
        assert not eventually(lambda: not closing.is_alive(), within=0.1)
    finally:
        free.set()
    closing.join(10)
    assert len(told) == 1
