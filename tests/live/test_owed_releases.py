"""Releases that nodes have not answered are sent again in the background, until the nodes are back."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import quorumlock
from quorumlock import NoQuorum
from quorumlock.events import Event, NodeDown, NodeUp, Released, ReleaseRepeated
from quorumlock.lab.servers import Server, Servers
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .queues import calls
from .tools import exists, get, lock_keys, pttl

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time(0.3)]

TTL = 60.0
SOON = 20.0
"""Long before the ttl is over."""

Lock = Any
"""Of either front."""


class Client:
    """A Locker of either front, used alike: what is a coroutine runs in an event loop of its own thread."""

    def __init__(self, side: str, urls: list[str], node_timeout: float = 0.1) -> None:
        self.locks: Any
        self.events: list[Event] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        options: dict[str, Any] = {"max_ttl": 90, "node_timeout": node_timeout}
        if side == "asyncio":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
            self.locks = quorumlock.connect_async(urls, **options)
        else:
            self.locks = quorumlock.connect(urls, **options)
        self.locks.subscribe(self.events.append)

    def do(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result

        async def wait() -> Any:
            return await result

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(60)

    def heard(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def close(self) -> None:
        self.do(self.locks.close() if self._loop is None else self.locks.aclose())

    def end(self) -> None:
        self.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nodes(servers: Servers) -> list[Server]:
    return servers.servers[:3]


@pytest.fixture
def proxies(nodes: list[Server], put_proxy: Callable[[Server], Proxy]) -> list[Proxy]:
    return [put_proxy(node) for node in nodes]


Clients = Callable[..., Client]
"""Makes clients of the URLs it is given."""


@pytest.fixture
def clients(side: str) -> Iterator[Clients]:
    with ExitStack() as stack:

        def make(urls: list[str], **options: float) -> Client:
            client = Client(side, urls, **options)
            stack.callback(client.end)
            return client

        yield make


@pytest.fixture
def client(clients: Clients, proxies: list[Proxy]) -> Client:
    """Gives a silent node up soon."""
    return connected(clients([proxy.url for proxy in proxies]))


@pytest.fixture
def patient(clients: Clients, proxies: list[Proxy]) -> Client:
    """Gives no node up because the machine stood still for a moment."""
    return connected(clients([proxy.url for proxy in proxies], node_timeout=0.5))


def connected(client: Client) -> Client:
    """All nodes know its scripts, and have answered everything."""
    client.do(client.locks.init_fleet())
    held(client, client.locks.lock("warm", ttl=1), release=True)
    client.do(client.locks.inspect("warm"))  # waits for every node, and what comes next is the next answer
    return client


def held(client: Client, lock: Lock, *, release: bool = False) -> Any:
    lease = client.do(lock.acquire(10))
    if release:
        client.do(lease.release())
    return lease


def silence(proxies: list[Proxy]) -> None:
    for proxy in proxies:
        proxy.go_silent()


def cut(proxies: list[Proxy], *, refusing: bool = False) -> None:
    for proxy in proxies:
        proxy.refusing = refusing
        proxy.cut()


def are_free(nodes: list[Server]) -> bool:
    return eventually(lambda: not lock_keys(nodes), SOON)


def test_a_release_over_connections_that_were_cut_reaches_every_node(
    client: Client, proxies: list[Proxy], nodes: list[Server]
) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    assert eventually(lambda: all(exists(node, "a") for node in nodes))
    cut(proxies)
    client.do(lease.release())
    client.do(lease.release())
    assert are_free(nodes)


@pytest.mark.real_time
def test_a_node_that_comes_back_is_sent_the_release(
    client: Client, proxies: list[Proxy], nodes: list[Server]
) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    assert eventually(lambda: exists(nodes[2], "a"))
    cut(proxies[2:], refusing=True)
    client.do(lease.release())
    assert client.heard(Released)[-1].confirmed
    assert eventually(lambda: proxies[2].refused > 1)
    assert exists(nodes[2], "a")
    proxies[2].refusing = False
    assert are_free(nodes)
    assert not client.heard(ReleaseRepeated), "a majority had confirmed it at once"


def test_a_connection_that_a_router_has_forgotten_is_replaced(
    client: Client, proxies: list[Proxy], nodes: list[Server]
) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    silence(proxies)
    client.do(lease.release())
    assert not client.heard(Released)[-1].confirmed
    assert are_free(nodes)
    assert eventually(lambda: client.heard(ReleaseRepeated))
    (repeated,) = client.heard(ReleaseRepeated)
    assert repeated == ReleaseRepeated("a", lease.fence, True)
    assert 0 < repeated.after < SOON
    assert repeated.serial == client.heard(Released)[-1].serial


def test_so_is_that_of_a_minority(client: Client, proxies: list[Proxy], nodes: list[Server]) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    assert eventually(lambda: exists(nodes[1], "a"))
    silence(proxies[1:2])
    client.do(lease.release())
    assert exists(nodes[1], "a")
    assert are_free(nodes)


KINDS: dict[str, Callable[[Any], Lock]] = {
    "read": lambda locks: locks.read_write("a").read(ttl=TTL),
    "write": lambda locks: locks.read_write("a").write(ttl=TTL),
    "semaphore": lambda locks: locks.semaphore("a", 3, ttl=TTL),
    "multi": lambda locks: locks.multi(["a", "b"], ttl=TTL),
    "fair": lambda locks: locks.lock("a", ttl=TTL, fair=True),
    "not kept": lambda locks: locks.lock("a", ttl=TTL, keep=False),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_lock_is_released_so(
    client: Client, proxies: list[Proxy], nodes: list[Server], name: str
) -> None:
    lease = held(client, KINDS[name](client.locks))
    assert lock_keys(nodes)
    silence(proxies)
    client.do(lease.release())
    assert lock_keys(nodes)
    assert are_free(nodes)
    assert eventually(lambda: [event.confirmed for event in client.heard(ReleaseRepeated)] == [True])


def test_many_releases_are_sent_again(patient: Client, proxies: list[Proxy], nodes: list[Server]) -> None:
    leases = [held(patient, patient.locks.lock(f"a{number}", ttl=TTL)) for number in range(20)]
    assert eventually(lambda: len(lock_keys(nodes[:1])) == 20)
    cut(proxies, refusing=True)
    for lease in leases:
        patient.do(lease.release())
    assert len(lock_keys(nodes[:1])) == 20
    for proxy in proxies:
        proxy.refusing = False
    assert are_free(nodes)
    assert eventually(lambda: len(patient.heard(ReleaseRepeated)) == 20)


def test_the_lock_of_somebody_else_is_left_alone(
    client: Client, clients: Clients, proxies: list[Proxy], nodes: list[Server]
) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    cut(proxies, refusing=True)
    client.do(lease.release())
    other = clients([proxy.url for proxy in proxies])  # the same list of nodes: one fleet
    for proxy in proxies:
        proxy.refusing = False
    other.do(other.locks.break_("a"))
    theirs = held(other, other.locks.lock("a", ttl=TTL))
    assert eventually(lambda: client.heard(ReleaseRepeated), SOON)
    assert {get(node, "a") for node in nodes} == {theirs.token}
    other.do(theirs.release())


def test_a_lock_that_stays_closed_stays_so_no_longer(
    client: Client, proxies: list[Proxy], nodes: list[Server]
) -> None:
    began = time.monotonic()
    lease = held(client, client.locks.lock("a", ttl=TTL, at_least=6))
    got = time.monotonic()
    cut(proxies, refusing=True)
    client.do(lease.release())
    assert eventually(lambda: all(proxy.refused > 1 for proxy in proxies))
    for proxy in proxies:
        proxy.refusing = False
    assert eventually(lambda: {get(node, "a") for node in nodes} <= {"ql:closed", None}, SOON)
    asked = time.monotonic()
    left = [pttl(node, "a") / 1000 for node in nodes if exists(node, "a")]
    assert all(seconds <= got + 6 - asked + 0.1 for seconds in left), (left, began, asked)
    assert are_free(nodes)
    assert began + 5.5 < time.monotonic(), "and not shorter"


def test_a_failed_attempt_is_undone_on_a_node_that_comes_back(
    client: Client, proxies: list[Proxy], nodes: list[Server]
) -> None:
    cut(proxies[1:], refusing=True)
    proxies[0].lose_next_answer = proxies[0].refusing = True
    with pytest.raises(NoQuorum):
        client.do(client.locks.lock("a", ttl=TTL).try_acquire())
    assert exists(nodes[0], "a")
    proxies[0].refusing = False
    assert eventually(lambda: not exists(nodes[0], "a"), SOON)


@pytest.mark.real_time
def test_close_sends_what_is_owed_once_more(client: Client, proxies: list[Proxy], nodes: list[Server]) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    assert eventually(lambda: exists(nodes[2], "a"))
    silence(proxies[2:])
    client.do(lease.release())
    time.sleep(0.35)  # the connection is silent for long enough to be replaced
    client.close()
    assert not lock_keys(nodes)


def test_close_tells_what_was_never_confirmed(client: Client, proxies: list[Proxy], nodes: list[Server]) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    cut(proxies, refusing=True)
    client.do(lease.release())
    client.close()
    assert client.heard(ReleaseRepeated) == [ReleaseRepeated("a", lease.fence, False)]


def test_close_tells_what_was_answered_late(client: Client, proxies: list[Proxy], nodes: list[Server]) -> None:
    lease = held(client, client.locks.lock("a", ttl=TTL))
    assert eventually(lambda: all(exists(node, "a") for node in nodes))
    for node in nodes:
        node.pause()
    client.do(lease.release())
    assert not client.heard(Released)[-1].confirmed
    for node in nodes:
        node.resume()
    assert eventually(lambda: not lock_keys(nodes))
    client.close()
    assert client.heard(ReleaseRepeated) == [ReleaseRepeated("a", lease.fence, True)]


def test_a_node_that_is_found_back_is_told_of_although_nobody_uses_the_locker(
    client: Client, proxies: list[Proxy], nodes: list[Server]
) -> None:
    nodes[2].pause()
    held(client, client.locks.lock("a", ttl=TTL), release=True)
    keeper = client.locks._keeper
    desks = [keeper] if hasattr(keeper, "owed") else list(keeper._desks.values())
    assert eventually(lambda: any(debt.tries > 2 for desk in desks for debt in desk.owed.all()))
    assert client.heard(NodeDown)
    nodes[2].resume()
    assert eventually(lambda: client.heard(NodeUp), SOON)


def test_the_end_of_the_ttl_is_told(client: Client, proxies: list[Proxy]) -> None:
    lease = held(client, client.locks.lock("a", ttl=1))
    cut(proxies, refusing=True)
    client.do(lease.release())
    assert eventually(lambda: client.heard(ReleaseRepeated), SOON)
    assert client.heard(ReleaseRepeated) == [ReleaseRepeated("a", lease.fence, False)]


EXTENDED: dict[str, tuple[Callable[[Any], Lock], float]] = {
    "for a shorter time": (lambda locks: locks.lock("a", ttl=TTL, keep=False), 1.0),
    "all of several, for a longer time": (lambda locks: locks.multi(["a", "b"], ttl=1, keep=False), TTL),
}


@pytest.mark.parametrize("how", EXTENDED)
def test_a_release_is_owed_for_as_long_as_nodes_keep_the_lock(
    patient: Client, proxies: list[Proxy], nodes: list[Server], how: str
) -> None:
    make, ttl = EXTENDED[how]
    lease = held(patient, make(patient.locks))
    patient.do(lease.extend(ttl))
    assert lease.ttl == ttl
    assert eventually(lambda: all(pttl(node, "a") > SOON * 1000 for node in nodes)), "the last has heard of it, too"
    cut(proxies, refusing=True)
    began = time.monotonic()
    patient.do(lease.release())
    time.sleep(max(0.0, began + 1.3 - time.monotonic()))  # the shorter of both times is over
    assert all(pttl(node, "a") > SOON * 1000 for node in nodes), "the nodes do not shorten what they were told"
    for proxy in proxies:
        proxy.refusing = False
    assert are_free(nodes)
    assert eventually(lambda: [event.confirmed for event in patient.heard(ReleaseRepeated)] == [True])


def test_where_nothing_is_owed_nothing_is_sent_and_no_thread_started(
    client: Client, nodes: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        held(client, client.locks.lock("a", ttl=TTL), release=True)
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    held(client, client.locks.lock("a", ttl=TTL), release=True)
    assert are_free(nodes), "each has executed the release"
    before = [calls(node) for node in nodes]
    assert not eventually(lambda: [calls(node) for node in nodes] != before, within=1.5)
    assert not started
