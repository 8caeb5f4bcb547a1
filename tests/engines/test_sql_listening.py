"""Who is told on PostgreSQL, and where."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import quorumlock
from quorumlock import Jitter
from tests.databases import Database, PostgreSQL, needed


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    needed(PostgreSQL)
    with PostgreSQL() as running:
        yield running


def test_a_thread_that_blocks_its_event_loop_is_told_all_the_same(server: Database) -> None:
    """As in a notebook. A task that listens would not run there."""

    async def play() -> None:
        with quorumlock.connect(server.url) as ours, quorumlock.connect(server.url, retry=Jitter(3600)) as theirs:
            lease = ours.lock("a", ttl=30).acquire()
            release = threading.Timer(0.3, lease.release)
            release.start()
            started_at = time.monotonic()
            theirs.lock("a", ttl=30).acquire(timeout=20).release()
            assert time.monotonic() - started_at < 10, "it was not told, and asked in the end"
            release.join()

    asyncio.run(play())
