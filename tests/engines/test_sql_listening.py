"""Who is told on PostgreSQL, and where; and how much is told at once."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import cast

import psycopg
import pytest

import quorumlock
from quorumlock.core.room import Room
from quorumlock.engines.postgresql import listening
from quorumlock.engines.postgresql.engine import PostgresqlEngine
from tests.support.waiting import eventually

from .sql_servers import SELDOM, Connect, Place, connect, in_a_thread, on_postgresql, place

__all__ = ["connect", "place"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(1)]


@on_postgresql
def test_a_thread_that_blocks_its_event_loop_is_told_all_the_same(connect: Connect) -> None:
    """As in a notebook. A task that listens would not run there."""
    ours, theirs = connect(prefix="blocked:"), connect(prefix="blocked:", retry=SELDOM)
    lease = ours.lock("a", ttl=30).acquire()

    def release_when_awaited() -> None:
        assert eventually(lambda: ours.inspect("a").waiters)
        lease.release()

    async def play() -> None:
        thread, came = in_a_thread(release_when_awaited)
        theirs.lock("a", ttl=30).acquire(timeout=20).release()  # who polls so seldom comes too late, if not told
        thread.join()
        assert came == [None]

    asyncio.run(play())


@on_postgresql
def test_more_locks_than_one_look_tells(place: Place) -> None:
    """They are told in several steps, in order, each once."""
    url = place.url()
    with quorumlock.connect(url, prefix="many:") as locks, psycopg.connect(url) as connection:
        locks.lock("a", ttl=5).acquire().release()
        connection.execute(
            """INSERT INTO quorumlock_locks (name, begins, version, fence, token, until_us, touched_us, doc)
            SELECT 'many:' || n, 5, 1, 1, 'somebody', 9000000000000000, 0, '' FROM generate_series(1, 2500) AS n"""
        )
        connection.commit()
        found = locks.list("*", 10_000)
        assert len(found) == len({*found}) == 2500
        assert locks.list("12?") == [f"12{digit}" for digit in range(10)]
        connection.execute("DELETE FROM quorumlock_locks WHERE token = 'somebody'")


def test_ears_that_are_closed_before_they_hear_leave_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is in the midst of connecting to a server that says nothing; it clears up when it is over."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        locks = quorumlock.connect(f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/postgres")
        monkeypatch.setattr(listening, "ANSWERS_WITHIN", 1.0)
        monkeypatch.setattr(listening, "CLOSES_WITHIN", 0.05)
        ears = listening.ThreadEars(cast(PostgresqlEngine, locks.engine))
        before = {*os.listdir("/proc/self/fd")}
        ears.listen(Room(), lambda: None)
        (thread,) = (one for one in threading.enumerate() if one.name == "quorumlock-listen")
        ears.close()
        assert thread.is_alive(), "it was to be in the midst of it"
        thread.join(20)
        assert not thread.is_alive()
        assert {*os.listdir("/proc/self/fd")} <= before
        locks.close()
