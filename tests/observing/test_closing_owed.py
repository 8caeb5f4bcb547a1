"""What sends releases again, and keeps leases alive beside it, lives as long as its Locker, and no longer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import quorumlock
from quorumlock.core.effects import Route
from quorumlock.core.owed import Debt, Owed
from quorumlock.core.requests import Release
from quorumlock.core.votes import GRANTED, Answer, Cause, Tally, unknown
from quorumlock.engines.memory import MemoryEngine
from quorumlock.events import Event, Extended
from tests.support.waiting import eventually, eventually_async, forever


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://") as locker:
        yield locker


def debt(locks: quorumlock.Locker | quorumlock.AsyncLocker, *, certain: bool) -> Debt:
    """A release that two of three nodes have answered; or that none has."""
    tally = Tally(("a", "b", "c"), 2, any_answer=True)
    for node in range(3 if certain else 2):
        tally.cast(node, unknown(Cause.SILENT) if certain else Answer(GRANTED, Cause.AGREED))
    now = locks._fleet.clock()
    owed = Debt([Release("a", "mine")] * 3, tally, 30.0, now + 30.0, Route(), now)
    assert owed.certain is certain
    return owed


def test_a_release_that_failed_is_sent_again_also_behind_one_that_is_only_slow(locks: quorumlock.Locker) -> None:
    """A client that never held a lock has no keeper's thread yet."""
    locks._keeper.owe(debt(locks, certain=False))
    assert locks._keeper._thread is None
    assert isinstance(locks.engine, MemoryEngine)
    locks.engine.clock._ahead += 1  # unlike advance() it wakes nobody
    failed = debt(locks, certain=True)
    locks._keeper.owe(failed)
    assert eventually(lambda: failed.tries, 10)


class Interrupting(threading.Thread):
    """Whoever waits for it is interrupted."""

    def __init__(self) -> None:
        self.free = threading.Event()
        super().__init__(target=self.free.wait, args=[20])
        self.start()

    def join(self, timeout: float | None = None) -> None:
        if not self.free.is_set():
            raise KeyboardInterrupt
        super().join(timeout)


def test_the_outcome_is_told_although_closing_is_interrupted(locks: quorumlock.Locker) -> None:
    told: list[bool] = []
    open_ = debt(locks, certain=True)
    open_.on_outcome = lambda confirmed, _: told.append(confirmed)
    locks._keeper.owe(open_)
    repeater = locks._keeper._repeater = Interrupting()
    try:
        with pytest.raises(KeyboardInterrupt):
            locks.close()
    finally:
        repeater.free.set()
        repeater.join()
    assert told == [False]


def test_the_outcome_is_told_although_closing_is_cancelled() -> None:
    told: list[bool] = []

    async def play() -> None:
        locks = quorumlock.connect_async("memory://")
        open_ = debt(locks, certain=True)
        open_.on_outcome = lambda confirmed, _: told.append(confirmed)
        locks._keeper.owe(open_)
        (desk,) = locks._keeper._desks.values()
        hanging = desk._repeating = asyncio.create_task(forever())
        closing = asyncio.create_task(locks.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        hanging.cancel()
        assert told == [False]

    asyncio.run(play())


def test_asyncio_sends_nothing_again_once_it_is_closed() -> None:
    async def play() -> None:
        locks = quorumlock.connect_async("memory://")
        lease = await locks.lock("a", ttl=2).acquire()
        locks._keeper.owe(debt(locks, certain=True))
        await locks.aclose()
        locks._keeper.owe(debt(locks, certain=True))
        with pytest.raises(quorumlock.ConfigurationError, match="closed"):
            await lease.release()
        assert [desk for desk in locks._keeper._desks.values() if desk.owed or desk._repeating] == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


def test_asyncio_renews_whatever_becomes_of_what_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Owed) -> list[Callable[[], object]]:
        raise RuntimeError("deque mutated during iteration")

    async def play() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            heard: list[type[Event]] = []
            locks.subscribe(lambda event: heard.append(type(event)))
            lease = await locks.lock("a").acquire()
            locks._keeper.owe(debt(locks, certain=True))
            with monkeypatch.context() as broken:
                broken.setattr(Owed, "sweep", fail)
                locks.engine.clock.advance(6)
                assert await eventually_async(lambda: Extended in heard)
            lease.check()
            await lease.release()

    asyncio.run(play())
