"""PostgreSQL and MariaDB: what only rows that are compared and set can get wrong."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from quorumlock.retry import Jitter

from .sql_servers import Connect, Place, connect, place, shared_place

__all__ = ["connect", "place", "shared_place"]
pytestmark = pytest.mark.live
SELDOM = Jitter(3600)
"""Who polls so seldom was told."""


def in_a_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.append(work()))
    thread.start()
    return thread, came


def until(true: Any, within: float = 5.0) -> None:
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_a_renewal_does_not_make_us_forget_who_waits(place: Place, connect: Connect) -> None:
    """What is remembered of a row is what was written; a renewal changes the version of a row that has changed."""
    told = {"prefix": "renewed:"} | ({"retry": SELDOM} if place.announces else {})
    ours, theirs = connect(**told), connect(**told)
    lease = ours.lock("a", ttl=8, keep=False).acquire()
    thread, came = in_a_thread(lambda: theirs.lock("a", ttl=5, fair=True).acquire(timeout=6))
    until(lambda: ours.inspect("a").waiters)
    lease.extend(9)
    lease.release()
    started = time.monotonic()
    thread.join(10)
    assert time.monotonic() - started < 1.0
    came[0].release()
