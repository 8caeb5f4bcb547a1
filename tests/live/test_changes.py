"""Changing a fleet in use: its size, its max_ttl, its nodes. Nobody is admitted beside a lease of the old fleet."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import quorumlock
from quorumlock import ConfigurationError, LeaseLost, LockError, NoQuorum
from quorumlock.core import fleet
from quorumlock.core.effects import Effect, Round, Steps
from quorumlock.core.requests import Close, Initialise, Request
from quorumlock.lab.servers import Server, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .tools import get

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]
Put = Callable[[Server], Proxy]


MAX_TTL = 0.6
"""Of the fleets here: nearly every test waits for it, some more than once."""


@pytest.fixture
def connect(connect: Connect) -> Connect:
    return functools.partial(connect, max_ttl=MAX_TTL)


@contextmanager
def busy(locks: quorumlock.Locker, name: str = "a", ttl: float = 0.4) -> Iterator[list[tuple[float, float, int]]]:
    """A client of a fleet that takes the lock, holds it and renews it; gives from when to when, and the fence."""
    spans: list[tuple[float, float, int]] = []
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            try:
                lease = locks.lock(name, ttl=ttl).acquire(timeout=0.2)
            except LockError:
                enough.wait(0.02)
                continue
            began = time.monotonic()
            until = began
            while not enough.is_set() and lease.held:
                until = time.monotonic() + lease.remaining()
                enough.wait(0.02)
            spans.append((began, min(until, time.monotonic()) if enough.is_set() else until, lease.fence))
            lease.release()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert eventually(locks.lock(name, ttl=0.4).locked)
        yield spans
    finally:
        enough.set()
        worker.join()


def votes(server: Server) -> bool:
    """Whether its quarantine is over."""
    return int((get(server, "ql:node") or "").split()[0]) < time.time() * 1e6


def admitted(locks: quorumlock.Locker, name: str = "a") -> tuple[float, int]:
    """Waits for the new fleet to give the lock away: when that was, and the fence."""
    lease = locks.lock(name, ttl=0.4).acquire(timeout=20)
    at = time.monotonic()
    lease.release()
    return at, lease.fence


CHANGES: dict[str, tuple[slice, slice, float]] = {
    "three to five": (slice(0, 3), slice(0, 5), MAX_TTL),
    "five to three": (slice(0, 5), slice(0, 3), MAX_TTL),
    "one node replaced": (slice(0, 3), slice(1, 4), MAX_TTL),
    "one to three": (slice(0, 1), slice(0, 3), MAX_TTL),
    "a longer max_ttl": (slice(0, 3), slice(0, 3), 0.9),
    "a shorter max_ttl": (slice(0, 3), slice(0, 3), 0.4),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_admits_nobody_beside_the_old_fleet(servers: Servers, connect: Connect, change: str) -> None:
    before, after, max_ttl = CHANGES[change]
    old = connect(servers.urls[before])
    with busy(old) as spans:
        new = connect(servers.urls[after], max_ttl=max_ttl)
        with pytest.raises(ConfigurationError, match="other terms"):
            new.lock("a", ttl=0.4).try_acquire()
        began = time.monotonic()
        wait = new.init_fleet(force=True)
        assert max(MAX_TTL, max_ttl) - 0.1 < wait <= max(MAX_TTL, max_ttl)
        at, fence = admitted(new)
    assert at - began > wait - 0.1
    assert spans, "the old fleet was never used"
    assert spans[-1][1] < at, "a lease of the old fleet was valid when the new one gave the lock away"
    assert spans[-1][2] < fence
    with pytest.raises((ConfigurationError, NoQuorum)):
        old.lock("a", ttl=0.4).try_acquire()
    connect(servers.urls[after], max_ttl=max_ttl).lock("a", ttl=0.4).acquire(timeout=20).release()


def test_a_holder_is_told_that_its_fleet_is_gone(servers: Servers, connect: Connect) -> None:
    lease = connect(servers.urls[:3]).lock("a", ttl=0.4).acquire()
    connect(servers.urls).init_fleet(force=True)
    assert lease.lost.wait(20)
    with pytest.raises(LeaseLost):
        lease.check()


def test_a_fleet_that_would_go_on_is_not_taken_apart(servers: Servers, connect: Connect) -> None:
    """Two of three nodes replaced at once: the old ones would still be a majority of the old fleet."""
    old = connect(servers.urls[:3])
    new = connect(servers.urls[2:5])
    with pytest.raises(ConfigurationError, match="other 2 would go on granting"):
        new.init_fleet(force=True)
    old.lock("a", ttl=0.4).acquire().release()
    between = connect(servers.urls[1:4])
    between.init_fleet(force=True)
    new.init_fleet(force=True)
    new.lock("a", ttl=0.4).acquire(timeout=20).release()


def test_a_change_that_ends_half_way_lets_nobody_in_until_it_is_repeated(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """One node is cut off in the midst of it, first before it is closed, then before it begins to wait."""
    proxies = [put_proxy(server) for server in servers.servers[:3]]
    old = connect(servers.urls[:3], fleet="shop")
    urls, terms = [proxy.url for proxy in proxies], {"fleet": "shop", "max_ttl": 0.4, "node_timeout": 0.3}
    new = connect(urls, **terms)
    proxies[2].refusing = True
    with pytest.raises(NoQuorum, match="nothing was changed"):
        new.init_fleet(force=True)
    old.lock("a", ttl=0.4).acquire(timeout=20).release()
    proxies[2].refusing = False

    def interrupted(new: quorumlock.Locker, request: type[Request]) -> Steps[float]:
        steps = fleet.initialise(new._fleet, True)
        for effect in steps:
            if isinstance(effect, Round) and isinstance(effect.requests[0], request):
                proxies[2].refusing = True
                proxies[2].cut()
            yield effect
        raise AssertionError("it was not interrupted")

    new = connect(urls, **terms)
    with pytest.raises(NoQuorum, match="grant nothing until"):
        new._run(interrupted(new, Close))

    def has_begun() -> bool:
        with pytest.raises(NoQuorum, match="closed"):
            new.lock("a", ttl=0.4).try_acquire()
        return False

    assert not eventually(has_begun, within=2 * MAX_TTL), "nobody begins by itself, however long that takes"
    for locks in (old, connect(servers.urls[:3], **terms)):
        with pytest.raises((ConfigurationError, NoQuorum)):
            locks.lock("a", ttl=0.4).try_acquire()
    proxies[2].refusing = False
    with pytest.raises(ConfigurationError, match="closed"):
        connect(urls, **terms).init_fleet()

    # Closed are they all now: a majority that heard the rest of it is enough, and the third follows when repeated.
    new = connect(urls, **terms)
    with pytest.raises(NoQuorum, match="repeat"):
        new._run(interrupted(new, Initialise))
    new.lock("a", ttl=0.4).acquire(timeout=20).release()
    proxies[2].refusing = False
    new = connect(urls, **terms)
    assert new.init_fleet(force=True) > MAX_TTL - 0.1
    new.lock("a", ttl=0.4).acquire(timeout=20).release()


def test_a_node_is_replaced_behind_a_named_fleet_without_a_pause(make_servers: Make, connect: Connect) -> None:
    """The old node is stopped for good, then clients are restarted with the new list, one after another."""
    servers = make_servers(4)
    old = connect(servers.urls[:3], fleet="shop", max_ttl=1)
    with busy(old, ttl=1) as spans:
        servers[2].kill()
        new = connect([*servers.urls[:2], servers.urls[3]], fleet="shop", max_ttl=1)
        assert new.lock("a", ttl=0.4).try_acquire() is None, "the marker is the same: it takes part at once"

        def taken_in() -> bool:
            assert new.lock("a", ttl=0.4).try_acquire() is None
            return get(servers[3], "ql:node") is not None

        assert eventually(taken_in)
        assert eventually(lambda: votes(servers[3]))
        assert new.lock("a", ttl=0.4).try_acquire() is None
    assert len(spans) == 1, "the lease was lost"
    new.lock("a", ttl=0.4).acquire(timeout=20).release()


def test_nodes_that_are_new_wait_for_the_locks_of_the_old_ones_too(servers: Servers, connect: Connect) -> None:
    """One node becomes three, with a much shorter max_ttl: the two new ones alone are a majority."""
    lease = connect(servers.urls[:1], max_ttl=1).lock("a", ttl=1, keep=False).acquire()
    new = connect(servers.urls[:3], max_ttl=0.3)
    assert new.init_fleet(force=True) > 0.9
    following = new.lock("a", ttl=0.3).acquire(timeout=20)
    assert not lease.held
    assert following.fence > lease.fence
    following.release()


def test_without_quarantine_the_longest_max_ttl_of_all_clients_is_waited_for(
    servers: Servers, connect: Connect
) -> None:
    """There they may differ, and the first one's is in the marker."""
    connect(servers.urls[:1], max_ttl=0.2).lock("warm", ttl=0.2).acquire().release()
    connect(servers.urls[:1], max_ttl=3).lock("a", ttl=2, keep=False).acquire()
    assert connect(servers.urls[:3], max_ttl=0.2).init_fleet(force=True) > 2.8


def test_a_client_that_was_left_running_does_not_take_an_emptied_node(servers: Servers, connect: Connect) -> None:
    """1, 2, 3 became 1, 2, 4; then node 1 is emptied. With it and node 3, an old client would have a majority."""
    old = connect(servers.urls[:3])
    old.lock("a", ttl=0.4).acquire().release()
    new = connect([*servers.urls[:2], servers.urls[3]])
    new.init_fleet(force=True)
    new.lock("a", ttl=0.4).acquire(timeout=20).release()
    servers[0].command("FLUSHALL")
    end = time.monotonic() + 2 * MAX_TTL
    told = []
    while time.monotonic() < end:
        with pytest.raises((ConfigurationError, NoQuorum)) as refusal:
            old.lock("a", ttl=0.4).try_acquire()
        told.append(refusal.type)
        time.sleep(0.01)
    assert told[-1] is ConfigurationError, "once the others have told of the change"
    assert get(servers[0], "ql:node") is None

    def taken_back() -> bool:
        new.lock("a", ttl=0.4).acquire(timeout=20).release()
        return get(servers[0], "ql:node") is not None

    assert eventually(taken_back)


def test_an_emptied_node_is_not_taken_while_one_that_may_tell_of_a_change_is_silent(
    make_servers: Make, connect: Connect
) -> None:
    servers = make_servers(4)
    old = connect(servers.urls[:3], node_timeout=0.3)
    old.lock("a", ttl=0.4).acquire().release()
    new = connect([*servers.urls[:2], servers.urls[3]], node_timeout=0.3)
    new.init_fleet(force=True)
    new.lock("a", ttl=0.4).acquire(timeout=20).release()
    servers[0].command("FLUSHALL")
    servers[1].pause()
    for _ in range(3):
        with pytest.raises((ConfigurationError, NoQuorum)):
            old.lock("a", ttl=0.4).try_acquire()
    assert get(servers[0], "ql:node") is None
    servers[1].resume()
    new.lock("a", ttl=0.4).acquire(timeout=20).release()


def test_a_client_with_the_wrong_terms_does_not_take_an_emptied_node(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire().release()
    servers[0].command("FLUSHALL")
    wrong = connect(servers.urls[:3], max_ttl=7)
    for _ in range(3):
        with pytest.raises(ConfigurationError):
            wrong.lock("a", ttl=0.4).try_acquire()
    assert get(servers[0], "ql:node") is None
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire(timeout=20).release()


def stopped_before(locks: quorumlock.Locker, request: type[Request]) -> Callable[[], float]:
    """A change that has come as far as that; calling it goes on to the end."""
    steps = fleet.initialise(locks._fleet, True)
    pending: list[Effect] = []

    def until_there() -> Steps[None]:
        for effect in steps:
            if isinstance(effect, Round) and isinstance(effect.requests[0], request):
                pending.append(effect)
                return
            yield effect

    def rest() -> Steps[float]:
        yield pending[0]
        return (yield from steps)

    locks._run(until_there())
    return lambda: locks._run(rest())


def test_of_two_changes_at_once_only_one_succeeds(servers: Servers, connect: Connect) -> None:
    """One has looked at the nodes; then the other is made, from beginning to end; then the first goes on."""
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire().release()
    one, other = connect([*servers.urls[1:3], servers.urls[4]]), connect([*servers.urls[:2], servers.urls[3]])
    go_on = stopped_before(one, Close)
    other.init_fleet(force=True)
    with pytest.raises(ConfigurationError, match=r"would go on granting.*are closed now"):
        go_on()
    with pytest.raises((ConfigurationError, NoQuorum)):
        one.lock("a", ttl=0.4).try_acquire()


def test_nodes_that_another_change_has_closed_are_left_alone(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire().release()
    one, other = connect(servers.urls[:4]), connect(servers.urls[:5])
    go_on = stopped_before(one, Initialise)
    with pytest.raises(NoQuorum, match="not finished"):
        other.init_fleet(force=True)
    assert go_on() > MAX_TTL - 0.1


def test_an_old_attempt_that_is_repeated_does_not_take_nodes_from_who_came_after(
    servers: Servers, connect: Connect
) -> None:
    """1, 2, 4 was begun; then 1, 2, 3, 5, 6 was made instead; then the first is repeated."""
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire().release()
    begun = connect([*servers.urls[:2], servers.urls[3]])
    stopped_before(begun, Initialise)
    for server in servers.servers[:2]:
        server.command("SET", "ql:node", "0 1000 1 made-instead 5 1000 0 1 id")
    with pytest.raises(ConfigurationError, match="other 3 would go on granting"):
        begun.init_fleet(force=True)


def test_a_change_whose_last_round_was_interrupted_is_repeated(servers: Servers, connect: Connect) -> None:
    """Node 1 has come to its end, 2 and 4 are closed: of the old fleet only node 2 can be seen."""
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire().release()
    new = connect([*servers.urls[:2], servers.urls[3]])
    stopped_before(new, Initialise)
    marker = (get(servers[0], "ql:node") or "").split()
    servers[0].command("SET", "ql:node", " ".join(["0", *marker[1:8], "id"]))
    assert new.init_fleet(force=True) > MAX_TTL - 0.1
    new.lock("a", ttl=0.4).acquire(timeout=20).release()


def test_a_fleet_of_which_a_majority_was_emptied_can_be_changed(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).lock("a", ttl=0.4).acquire().release()
    for server in servers.servers[:2]:
        server.command("FLUSHALL")
    new = connect(servers.urls[:3], max_ttl=0.4)
    assert new.init_fleet(force=True) > MAX_TTL - 0.1
    new.lock("a", ttl=0.4).acquire(timeout=20).release()


def test_a_fleet_with_a_name_is_not_taken_apart_either(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3], fleet="shop").lock("a", ttl=0.4).acquire().release()
    with pytest.raises(ConfigurationError, match="would go on granting"):
        connect(servers.urls[2:5], fleet="shop").init_fleet(force=True)
    assert connect([*servers.urls[:2], servers.urls[3]], fleet="shop").init_fleet(force=True) > MAX_TTL - 0.1
