"""No subscriber is called while nodes are being asked: a slow one would make nodes seem silent that are well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock.events import Event, Extended, NodeDown, NodeQuarantined, NodeUp, RenewalFailed
from quorumlock.lab.servers import Servers
from tests.support.waiting import eventually

from .conftest import SERVER

pytestmark = [
    pytest.mark.live,
    pytest.mark.real_time,
    pytest.mark.parametrize("kind", [SERVER], scope="session"),
]

NODE_TIMEOUT = 0.2

Connect = Callable[..., quorumlock.Locker]


def test_one_that_is_slow_at_news_of_a_node_does_not_make_the_others_silent(
    make_servers: Callable[..., Servers], connect: Connect
) -> None:
    servers = make_servers(3)
    locks = connect(servers, node_timeout=NODE_TIMEOUT, max_ttl=30)
    locks.lock("first").acquire().release()
    news: list[Event] = []

    def slow(event: Event) -> None:
        if isinstance(event, NodeDown | NodeUp):
            news.append(event)
            time.sleep(2 * NODE_TIMEOUT)

    locks.subscribe(slow)
    servers[0].pause()
    try:
        after = 0
        while after < 12:  # the silent node has to be noticed first
            after += bool(news)
            lease = locks.lock("job").try_acquire()
            assert lease is not None
            lease.release()
    finally:
        servers[0].resume()
    assert {event.node for event in news if isinstance(event, NodeDown)} == {locks.engine.labels[0]}


def test_one_that_locks_something_at_news_of_a_node_is_not_told_of_what_it_is_just_told(
    make_servers: Callable[..., Servers], connect: Connect
) -> None:
    locks = connect(make_servers(3), init=False, max_ttl=30)
    depth, deepest = 0, 0

    def locks_too(event: Event) -> None:
        nonlocal depth, deepest
        if isinstance(event, NodeQuarantined):
            depth += 1
            deepest = max(depth, deepest)
            with pytest.raises(quorumlock.NoQuorum):
                locks.lock("about").try_acquire()
            depth -= 1

    locks.subscribe(locks_too)
    with pytest.raises(quorumlock.NoQuorum):
        locks.lock("a").try_acquire()
    assert deepest == 1


def test_one_that_hears_of_a_failed_renewal_does_not_cost_the_next_try(
    make_servers: Callable[..., Servers], connect: Connect
) -> None:
    servers = make_servers(3)
    locks = connect(servers, node_timeout=NODE_TIMEOUT, max_ttl=30)
    lease = locks.lock("a", ttl=20, keep=False).acquire()
    story: list[Event] = []
    locks.subscribe(story.append)
    servers[1].pause()
    servers[2].pause()
    thread = threading.Thread(target=lease.extend)
    thread.start()
    try:
        assert eventually(lambda: lease._grant.extensions > 2), "it is tried again"
        assert story == [], "told while it tries"
    finally:
        servers[1].resume()
        servers[2].resume()
        thread.join(20)
    kinds = [type(event) for event in story]
    assert RenewalFailed in kinds
    assert kinds[-1] is Extended
    lease.release()


def test_a_node_that_goes_down_is_told_to_who_waits(make_servers: Callable[..., Servers], connect: Connect) -> None:
    """Not only when it has waited for long enough."""
    servers = make_servers(3)
    holders = connect(servers, node_timeout=NODE_TIMEOUT, max_ttl=30)
    locks = connect(servers, node_timeout=NODE_TIMEOUT, max_ttl=30)
    lease = holders.lock("a", ttl=10).acquire()
    news: list[Event] = []
    locks.subscribe(news.append)
    thread = threading.Thread(target=lambda: locks.lock("a").acquire(timeout=60).release())
    thread.start()
    assert eventually(lambda: bool(locks._runner.room.ears))
    servers[0].kill()
    try:
        assert eventually(lambda: any(isinstance(event, NodeDown) for event in news), 30)
        assert thread.is_alive()
    finally:
        lease.release()
        thread.join(20)
    assert not thread.is_alive()
