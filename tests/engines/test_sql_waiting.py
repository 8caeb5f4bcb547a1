"""Waiting for a lock in a database: who is told, who is passed over, and what a pooler makes of it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import quorumlock
from quorumlock import Locker
from quorumlock.engines.postgresql import listening
from quorumlock.engines.sql.leases import sign_of_life
from tests.hazards.programs import start
from tests.live.tools import Renewals
from tests.support.proxy import Proxy
from tests.support.servers.databases import needed
from tests.support.waiting import eventually

from .sql_servers import SELDOM, Connect, PgBouncer, Place, connect, in_a_thread, on_postgresql, place, proxy

__all__ = ["connect", "place", "proxy"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


class Wait:
    """Somebody who waits in a thread; `came` tells when it had the lock.

    Who polls seldom (`SELDOM`) and is not told of a release does not get the lock in time at all.
    """

    def __init__(self, locker: Locker, name: str = "a", **options: Any) -> None:
        def wait() -> float:
            with locker.lock(name, ttl=5, timeout=20, **options):
                return time.monotonic()

        before = len(locker.inspect(name).waiters)
        self._thread, self._came = in_a_thread(wait)
        assert eventually(lambda: len(locker.inspect(name).waiters) > before)

    def came(self) -> float:
        self._thread.join()
        return float(self._came[0])


@on_postgresql
def test_a_hand_over_is_announced(connect: Connect) -> None:
    lockers = [connect(prefix="told:", retry=SELDOM) for _ in range(3)]
    lease = lockers[0].lock("a", ttl=60).acquire()
    waits = [Wait(lockers[1]), Wait(lockers[2])]
    lease.release()
    for wait in waits:
        wait.came()


@on_postgresql
def test_a_hand_over_between_tasks_is_announced(place: Place) -> None:
    async def main() -> None:
        one, other = (quorumlock.connect_async(place.url(), prefix="told2:", retry=SELDOM) for _ in range(2))
        async with one, other:
            lease = await one.lock("a", ttl=60).acquire()
            waiting = asyncio.create_task(other.lock("a", ttl=60).acquire(timeout=20))
            while not (await one.inspect("a")).waiters:
                pass
            await lease.release()
            later = await waiting
            await later.release()

    asyncio.run(main())


def test_a_hand_over_does_not_take_long(connect: Connect) -> None:
    """Also where nobody tells: who waits asks again soon."""
    one, other = connect(prefix="soon:"), connect(prefix="soon:")
    lease = one.lock("a", ttl=60).acquire()
    wait = Wait(other, fair=True)
    released = time.monotonic()
    lease.release()
    assert wait.came() - released < 10.0


def _listeners(place: Place, *, of: Locker | None = None) -> set[int]:
    """The server's processes that hold a sign of life: of a Locker, or of anybody. Without announcements: none."""
    if not place.announces:
        return set()
    query = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'"
    if of is not None:
        sign = sign_of_life(of._runner.room.id) % 2**64
        query += f" AND classid = {sign >> 32} AND objid = {sign % 2**32}"
    return {pid for (pid,) in place.sql(query)}


KILLED = """
locks = quorumlock.connect(urls[0], prefix="killed:")
locks.lock("a", ttl=5, fair=True).acquire(timeout=30)
"""


def test_a_waiter_that_was_killed_is_passed_over(place: Place, connect: Connect) -> None:
    told = {"prefix": "killed:"} | ({"retry": SELDOM} if place.announces else {})
    one, other = connect(**told), connect(**told)
    lease = one.lock("a", ttl=60).acquire()
    listened = _listeners(place)
    with start(KILLED, place.url()) as program:
        assert eventually(lambda: one.inspect("a").waiters)
        listeners = _listeners(place) - listened
        assert listeners or not place.announces
        wait = Wait(other, fair=True)
        program.send_signal(signal.SIGKILL)
        program.wait()
        assert eventually(lambda: not listeners & _listeners(place)), "the server did not notice that it is gone"
        released = time.monotonic()
        lease.release()
        assert wait.came() - released < 10.0, "it waited until who was killed would have given up"


@on_postgresql
def test_a_listener_that_was_cut_listens_again(place: Place, connect: Connect) -> None:
    one, other = (connect(prefix="cut:", retry=SELDOM) for _ in range(2))
    lease = one.lock("a", ttl=60).acquire()
    wait = Wait(other)
    (pid,) = _listeners(place, of=other)
    place.sql(f"SELECT pg_terminate_backend({pid})")
    assert eventually(lambda: _listeners(place, of=other) - {pid})
    lease.release()
    wait.came()


@on_postgresql
def test_who_waits_is_served_while_nobody_listens(
    place: Place, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "AGAIN_AFTER", 60.0)
    one, other = connect(prefix="deaf:"), connect(prefix="deaf:")
    lease = one.lock("a", ttl=60).acquire()
    wait = Wait(other)
    (pid,) = _listeners(place, of=other)
    place.sql(f"SELECT pg_terminate_backend({pid})")
    assert eventually(lambda: not _listeners(place, of=other))
    released = time.monotonic()
    lease.release()
    assert wait.came() - released < 10.0


@on_postgresql
def test_a_server_that_does_not_know_of_the_cut_believes_the_new_listener(
    place: Place, proxy: Proxy, connect: Connect
) -> None:
    """The old connection still holds the sign of life: it is ended, and not waited for."""
    one = connect(prefix="half:", retry=SELDOM)
    other = connect(url=place.url(proxy.port), prefix="half:", retry=SELDOM)
    lease = one.lock("a", ttl=60).acquire()
    wait = Wait(other)
    (pid,) = _listeners(place, of=other)
    proxy.half_open = True
    proxy.cut_clients()
    assert eventually(lambda: _listeners(place, of=other) - {pid})
    lease.release()
    wait.came()


@on_postgresql
def test_listeners_are_one_for_a_process_and_gone_with_it(place: Place) -> None:
    before = place.connections()
    one, other = (place.connect(prefix="ears:") for _ in range(2))
    for _ in range(3):
        lease = one.lock("a", ttl=60).acquire()
        wait = Wait(other)
        lease.release()
        wait.came()
    assert len(_listeners(place, of=other)) == 1
    one.close()
    other.close()
    assert eventually(lambda: place.connections() <= before)


# Through a pooler.


@pytest.fixture
def pooler(place: Place) -> Iterator[PgBouncer]:
    needed(PgBouncer)
    with PgBouncer(place) as running:
        yield running


@on_postgresql
def test_through_a_pooler_that_changes_connections(place: Place, pooler: PgBouncer) -> None:
    one, other = (place.connect(url=place.url(pooler.port), prefix="pooled:") for _ in range(2))
    with one, other:
        renewals = Renewals(one)
        with one.lock("a", ttl=1) as lease:
            assert one.engine.pooled
            assert other.lock("a").try_acquire() is None
            assert eventually(lambda: renewals.outlive_a_ttl("a"))
            lease.check()
        lease = one.lock("a", ttl=60).acquire()
        wait = Wait(other, fair=True)
        released = time.monotonic()
        lease.release()
        assert wait.came() - released < 10.0
        with one.read_write("rw").read(ttl=5), other.read_write("rw").read(ttl=5):
            assert one.read_write("rw").write(ttl=5).try_acquire() is None
        with one.multi(["x", "y"], ttl=5), one.semaphore("s", 2, ttl=5), other.semaphore("s", 2, ttl=5):
            assert other.lock("x").try_acquire() is None
        assert one.cell("c").set("v", 0) > 0
        (state,) = one.nodes()
        assert state.state == "ready"
    assert eventually(lambda: not _listeners(place)), "through a pooler nobody can listen"


@on_postgresql
def test_a_pooler_and_those_who_are_told_are_served_alike(
    place: Place, pooler: PgBouncer, connect: Connect
) -> None:
    """Of two who wait one asks and one is told, and both get the lock soon."""
    one = connect(prefix="alike:", retry=SELDOM)
    other = place.connect(url=place.url(pooler.port), prefix="alike:")
    direct = connect(prefix="alike:", retry=SELDOM)
    with other:
        lease = one.lock("a", ttl=60).acquire()
        waits = [Wait(other, fair=True), Wait(direct, fair=True)]
        released = time.monotonic()
        lease.release()
        came = [wait.came() for wait in waits]
        assert came == sorted(came)
        assert came[-1] - released < 10.0
