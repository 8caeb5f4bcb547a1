"""What happened before a Locker was closed is delivered before its close() returns, or within a bound.

Threads are held where the event could be dropped, so that the order of events does not depend on luck.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import quorumlock
from quorumlock import keeping
from quorumlock.aio.keeper import LoopDesk
from quorumlock.core.room import Room
from quorumlock.engines.memory import MemoryEngine
from quorumlock.events import Event, Extended, Lost, NodeDown
from tests.support.processes import in_child
from tests.support.waiting import eventually, forever


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://") as locker:
        yield locker


class Gate:
    """Holds a thread until it is opened, or until `seconds` have passed."""

    def __init__(self, seconds: float = 0.3) -> None:
        self.seconds = seconds
        self.reached = threading.Event()
        self.open = threading.Event()

    def hold(self) -> None:
        self.reached.set()
        self.open.wait(self.seconds)


class Heard:
    """A subscriber that notes what has been delivered, and is held at the first event of one class."""

    def __init__(self, kind: type[Event], gate: Gate) -> None:
        self.events: list[type[Event]] = []
        self._kind = kind
        self._gate = gate

    def __call__(self, event: Event) -> None:
        if isinstance(event, self._kind) and not self._gate.reached.is_set():
            self._gate.hold()
        self.events.append(type(event))


def expire(locks: quorumlock.Locker) -> None:
    """Lets time pass for the keeper's thread alone: a jump of this clock would notice losses in this thread."""
    assert isinstance(locks.engine, MemoryEngine)
    locks.engine.clock._ahead += 20
    locks._keeper.wake()


def test_a_loss_is_delivered_although_another_lease_is_still_held(locks: quorumlock.Locker) -> None:
    """The keeper's thread goes on for the other lease; the thread that delivers is in the middle of it."""
    gate = Gate()
    heard = Heard(Lost, gate)
    locks.subscribe(heard)
    lease = locks.lock("a", ttl=2, keep=False).acquire()
    held = locks.lock("b", ttl=60, keep=False).acquire()
    expire(locks)
    assert gate.reached.wait(10)
    assert lease.lost.is_set()
    locks.close()
    assert heard.events[-1] is Lost
    assert not held.lost.is_set()


def test_a_loss_that_another_thread_has_noticed_is_delivered(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lost` is set there, and the event not emitted yet."""
    gate = Gate()
    heard: list[type[Event]] = []
    lease = locks.lock("a", ttl=50, keep=False).acquire()
    locks.subscribe(lambda event: heard.append(type(event)))
    emit = locks._bus.emit

    def late(_: object, event: Event) -> None:
        gate.hold()
        emit(event)

    monkeypatch.setattr(type(locks._bus), "emit", late)
    thread = threading.Thread(target=lease._lose, args=(quorumlock.LossReason.BROKEN,))
    thread.start()
    assert lease.lost.wait(10)
    locks.close()
    assert heard == [Lost]
    thread.join(10)


def test_on_lost_is_called_before_the_end(locks: quorumlock.Locker) -> None:
    gate = Gate()
    called: list[str] = []

    def on_lost(lease: quorumlock.Lease) -> None:
        gate.hold()
        called.append(lease.name)

    lease = locks.lock("a", ttl=2, keep=False, on_lost=on_lost).acquire()
    expire(locks)
    assert gate.reached.wait(10)
    assert lease.lost.is_set()
    locks.close()
    assert called == ["a"]


def test_on_lost_may_close_the_locker(locks: quorumlock.Locker) -> None:
    took: list[float] = []

    def on_lost(_: quorumlock.Lease) -> None:
        began = time.monotonic()
        locks.close()
        took.append(time.monotonic() - began)

    lease = locks.lock("a", ttl=2, keep=False, on_lost=on_lost).acquire()
    expire(locks)
    assert eventually(lambda: took, 10)
    assert lease.lost.is_set()
    assert took[0] < keeping.TOLD_WITHIN / 2


def test_what_was_reported_is_delivered(locks: quorumlock.Locker) -> None:
    """It is held back while nodes are asked; nobody asks them any more."""
    heard: list[Event] = []
    locks.subscribe(heard.append)
    locks._bus.report(NodeDown("a", "silent"))
    locks.close()
    assert heard == [NodeDown("a", "silent")]


def test_an_event_is_delivered_where_no_thread_could_be_started(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[type[Event]] = []
    locks.subscribe(lambda event: heard.append(type(event)))
    lease = locks.lock("a", ttl=2, keep=False).acquire()
    with monkeypatch.context() as without:

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        without.setattr(threading.Thread, "start", refuse)
        expire(locks)
        assert eventually(lease.lost.is_set, 10)
        assert eventually(lambda: not locks._keeper.charges(), 10)
        locks.close()
    assert heard[-1] is Lost


def test_a_locker_is_closed_where_no_thread_could_be_started(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    locks.lock("a").acquire().release()
    locks.close()


def test_a_room_that_fails_does_not_swallow_the_loss(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Room, grant: object) -> None:
        raise RuntimeError("in the room")

    heard: list[type[Event]] = []
    locks.subscribe(lambda event: heard.append(type(event)))
    lease = locks.lock("a", ttl=2, keep=False).acquire()
    monkeypatch.setattr(Room, "ended", fail)
    expire(locks)
    assert eventually(lease.lost.is_set, 10)
    locks.close()
    assert heard[-1] is Lost


def test_a_subscriber_that_hangs_does_not_hang_the_end(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeping, "TOLD_WITHIN", 0.2)
    gate = Gate(60)
    locks.subscribe(Heard(Lost, gate))
    lease = locks.lock("a", ttl=2, keep=False).acquire()
    expire(locks)
    assert gate.reached.wait(10)
    assert lease.lost.is_set()
    try:
        locks.close()
        assert "not waited for" in caplog.text
    finally:
        gate.open.set()


def test_an_extension_is_told_before_the_loss_that_the_keeper_finds(locks: quorumlock.Locker) -> None:
    heard = Heard(Extended, Gate())
    locks.subscribe(heard)
    lease = locks.lock("a", ttl=9, max_hold=5).acquire()
    assert isinstance(locks.engine, MemoryEngine)
    locks.engine.clock.advance(4)
    assert heard._gate.reached.wait(10)
    expire(locks)
    assert eventually(lease.lost.is_set, 10)
    locks.close()
    assert heard.events[-2:] == [Extended, Lost]


def test_asyncio_waits_for_what_another_thread_has_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[type[Event]] = []
    gate = Gate()

    async def play() -> None:
        locks = quorumlock.connect_async("memory://")
        locks.subscribe(lambda event: heard.append(type(event)))
        lease = await locks.lock("a", ttl=50, keep=False).acquire()
        ended = Room.ended

        def late(room: Room, grant: object) -> None:
            gate.hold()
            ended(room, grant)  # type: ignore[arg-type]

        monkeypatch.setattr(Room, "ended", late)
        thread = threading.Thread(target=lease._lose, args=(quorumlock.LossReason.BROKEN,))
        thread.start()
        await asyncio.to_thread(gate.reached.wait, 10)
        assert not lease.held
        await locks.aclose()
        assert heard[-1] is Lost
        thread.join(10)

    asyncio.run(play())


def test_asyncio_waits_for_an_on_lost_that_is_a_coroutine() -> None:
    called: list[str] = []

    async def on_lost(lease: quorumlock.AsyncLease) -> None:
        for _ in range(10):
            await asyncio.sleep(0.01)
        called.append(lease.name)

    async def play() -> None:
        locks = quorumlock.connect_async("memory://")
        lease = await locks.lock("a", ttl=2, keep=False, on_lost=on_lost).acquire()
        locks.engine.clock.advance(100)
        await asyncio.wait_for(lease.lost.wait(), 10)
        await locks.aclose()
        assert called == ["a"]

    asyncio.run(play())


def test_asyncio_does_not_wait_for_an_on_lost_that_closes_the_locker() -> None:
    took: list[float] = []

    async def play() -> None:
        closed = asyncio.Event()
        locks = quorumlock.connect_async("memory://")

        async def on_lost(_: quorumlock.AsyncLease) -> None:
            began = time.monotonic()
            await locks.aclose()
            took.append(time.monotonic() - began)
            closed.set()

        lease = await locks.lock("a", ttl=2, keep=False, on_lost=on_lost).acquire()
        locks.engine.clock.advance(100)
        await asyncio.wait_for(closed.wait(), 10)
        assert lease.lost.is_set()

    asyncio.run(play())
    assert took[0] < keeping.TOLD_WITHIN / 2


def test_asyncio_does_not_wait_for_an_on_lost_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TOLD_WITHIN", 0.2)

    async def play() -> None:
        locks = quorumlock.connect_async("memory://")

        async def on_lost(_: quorumlock.AsyncLease) -> None:
            await forever()

        lease = await locks.lock("a", ttl=2, keep=False, on_lost=on_lost).acquire()
        locks.engine.clock.advance(100)
        await asyncio.wait_for(lease.lost.wait(), 10)
        await asyncio.wait_for(locks.aclose(), 10)

    asyncio.run(play())


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("quorumlock")}


@pytest.mark.parametrize("another_is_held", [False, True])
def test_no_thread_is_left(another_is_held: bool) -> None:
    before = our_threads()
    called: list[str] = []
    for times in range(3):
        locks = quorumlock.connect("memory://")
        locks.subscribe(lambda event: None)
        other = locks.lock("b", ttl=30, keep=False).acquire() if another_is_held else None
        lease = locks.lock("a", ttl=2, keep=False, on_lost=lambda lost: called.append(lost.name)).acquire()
        expire(locks)
        assert eventually(lambda times=times: len(called) > times, 10)  # type: ignore[misc]
        locks.close()
        assert not lease.held
        if other is not None:
            assert our_threads() - before, "its end is still to be announced"
            expire(locks)
            assert eventually(other.lost.is_set, 10)
    assert eventually(lambda: our_threads() <= before, 10), our_threads() - before


def test_closing_that_is_interrupted_closes_all_the_same(
    locks: quorumlock.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    heard: list[Event] = []
    locks.subscribe(heard.append)
    locks._bus.report(NodeDown("a", "silent"))
    monkeypatch.setattr(type(locks._keeper), "settle_owed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        locks.close()
    assert heard == [NodeDown("a", "silent")]
    with pytest.raises(quorumlock.ConfigurationError, match="closed"):
        locks.lock("a").try_acquire()


def test_closing_that_is_cancelled_closes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopDesk, "_settle_owed", lambda _: forever())

    async def play() -> None:
        locks = quorumlock.connect_async("memory://")
        await (await locks.lock("a").acquire()).release()
        closing = asyncio.create_task(locks.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(quorumlock.ConfigurationError, match="closed"):
            await locks.lock("a").try_acquire()

    asyncio.run(play())


def test_closing_that_is_cancelled_at_its_first_step_closes_all_the_same() -> None:
    async def play() -> None:
        locks = quorumlock.connect_async("memory://")
        await (await locks.lock("a").acquire()).release()
        closing = asyncio.create_task(locks.aclose())
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        closing = asyncio.create_task(locks.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        with pytest.raises(quorumlock.ConfigurationError, match="closed"):
            await locks.lock("a").try_acquire()

    asyncio.run(play())


def test_a_child_does_not_wait_for_what_is_being_told_in_its_parent(locks: quorumlock.Locker) -> None:
    marks: list[object] = []
    thread = threading.Thread(target=lambda: marks.append(locks._bus.begin()))
    thread.start()
    thread.join()
    locks._bus.report(NodeDown("a", "silent"))
    heard: list[Event] = []
    locks.subscribe(heard.append)

    def in_the_child() -> None:
        locks.close()
        assert not heard, "its parent tells of it"
        assert not locks._bus.begun_elsewhere()

    in_child(in_the_child)
    locks._bus.end(marks[0])
