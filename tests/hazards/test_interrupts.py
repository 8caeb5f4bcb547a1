"""KeyboardInterrupt in acquire, extend and release of the front for threads, at every place where it can strike."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TypeVar

import pytest

import quorumlock
from quorumlock.lab.servers import Server, Servers
from tests.live.attribution import every_answer_is_its_own_with_threads
from tests.live.tools import SLACK, Stopwatch, client_ids
from tests.support.waiting import eventually

from .late import DELAY, TTL, Bench, nothing_is_left
from .striking import Strike

pytestmark = [
    pytest.mark.live,
    pytest.mark.one_kind,
    pytest.mark.real_time,
    # A connection that an interrupt has lost is closed when it is collected: by its own finaliser, or by that of
    # its socket, whichever the collector calls first. That it is closed is seen on the server.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Connect = Callable[..., quorumlock.Locker]
T = TypeVar("T")


@pytest.fixture(params=[1, 3], ids=["1-node", "3-nodes"])
def nodes(request: pytest.FixtureRequest, servers: Servers) -> Sequence[Server]:
    return servers.servers[: int(request.param)]


@pytest.fixture
def locks(nodes: Sequence[Server], connect: Connect) -> quorumlock.Locker:
    """A locker in its stride: connected, and every script known to every node."""
    locks = connect([node.url for node in nodes], node_timeout=0.25, identify=False, max_ttl=TTL)
    for _ in range(3):
        lease = locks.lock("warm", ttl=1).acquire()
        lease.extend()
        lease.release()
    return locks


def sweep(locks: quorumlock.Locker, nodes: Sequence[Server], once: Callable[[Strike, str], None]) -> list[str]:
    """Strikes `once` at every place; gives the places after which something was left behind."""
    unclean = []
    for k in itertools.count(1):
        strike = Strike(k)
        once(strike, f"name-{k}")
        try:
            assert not locks._runner.room.held, "others of this process would wait for its end"
            nothing_is_left(nodes, locks=locks)
        except AssertionError:
            unclean.append(strike.where)
            locks._runner.room.held.clear()
            for node in nodes:
                node.command("DEL", f"name-{k}")
        if not strike.struck or len(unclean) > 2:
            break
        if k % 40 == 0:
            every_answer_is_its_own_with_threads(locks, nodes)
    every_answer_is_its_own_with_threads(locks, nodes)
    assert k > 50 or unclean, "hardly anything was interrupted"

    def closed() -> bool:
        gc.collect()  # an interrupt may lose a connection, which is closed when it is collected
        return all(len(client_ids(node)) <= 2 for node in nodes)

    assert eventually(closed), "connections leak"
    return unclean


def test_acquire_interrupted_everywhere_leaves_nothing(locks: quorumlock.Locker, nodes: Sequence[Server]) -> None:
    def once(strike: Strike, name: str) -> None:
        lock = locks.lock(name, ttl=TTL)
        lease = strike.run(lock.try_acquire if strike.left % 2 else lock.acquire)
        if lease is not None:
            lease.release()

    assert sweep(locks, nodes, once) == []


def test_an_interrupted_extend_does_not_hinder_the_release(
    locks: quorumlock.Locker, nodes: Sequence[Server]
) -> None:
    def once(strike: Strike, name: str) -> None:
        lease = locks.lock(name, ttl=TTL).acquire(timeout=20)
        strike.run(lease.extend)
        lease.release()

    assert sweep(locks, nodes, once) == []


def test_an_interrupted_release_can_be_repeated(locks: quorumlock.Locker, nodes: Sequence[Server]) -> None:
    def once(strike: Strike, name: str) -> None:
        lease = locks.lock(name, ttl=TTL).acquire(timeout=20)
        strike.run(lease.release)
        lease.release()

    assert sweep(locks, nodes, once) == []


def test_a_first_acquire_interrupted_everywhere_leaves_a_locker_that_works(
    servers: Servers, connect: Connect
) -> None:
    """Also where a connection is being made and begun: no node is taken for connected that is not."""
    nodes = servers.servers[:1]
    broken = []
    for k in itertools.count(1, 2):
        strike = Strike(k)
        locks = connect([nodes[0].url], node_timeout=0.25, identify=False, max_ttl=TTL)
        lease = strike.run(locks.lock(f"name-{k}", ttl=TTL).acquire)
        if lease is not None:
            lease.release()
        try:
            locks.lock("after", ttl=1).acquire(timeout=2).release()
        except quorumlock.NoQuorum:
            broken.append(strike.where)
        locks.close()
        nothing_is_left(nodes)
        if not strike.struck or len(broken) > 2:
            break
    assert broken == []
    assert k > 200, "hardly anything was interrupted"


class Interrupt:
    """Raises KeyboardInterrupt in the main thread, by a real signal, while it is armed."""

    armed = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def after(self, seconds: float, call: Callable[[], T]) -> T | None:
        """What the call gives; None if it was interrupted, that many seconds from now."""
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR1))
        timer.start()
        try:
            self.armed = True
            result = call()
            self.armed = False
        except KeyboardInterrupt:
            result = None
        timer.join()
        return result


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    """Not SIGINT, whose handler is pytest's, nor SIGALRM, which is the timeout's."""
    interrupt = Interrupt()
    before = signal.signal(signal.SIGUSR1, interrupt.handle)
    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def test_signals_while_answers_are_late_leave_nothing(bench: Bench, interrupt: Interrupt) -> None:
    """Most strike where a program really waits: in poll, in sleep, in a connection being made."""
    urls = [proxy.url for proxy in bench.proxies]
    with quorumlock.connect(urls, max_ttl=TTL, node_timeout=0.25, fleet="bench", identify=False) as locks:
        for turn in range(12):
            bench.late(True)
            lock = locks.lock(next(bench.names), ttl=TTL)
            lease = interrupt.after(turn * DELAY / 6, lambda lock=lock: lock.acquire(timeout=20))  # type: ignore[misc]
            if lease is not None:
                interrupt.after((turn % 6) * DELAY / 4, lease.extend)
                interrupt.after((turn % 7) * DELAY / 4, lease.release)
                lease.release()
            bench.late(False)
            nothing_is_left(bench.nodes, locks=locks)
            if turn % 6 == 5:
                every_answer_is_its_own_with_threads(locks, bench.nodes)


def test_a_waiting_acquire_is_interrupted_at_once(servers: Servers, connect: Connect, interrupt: Interrupt) -> None:
    locks = connect(servers.urls[:3])
    lease = locks.lock("a", ttl=1).acquire()
    with Stopwatch() as took:
        assert interrupt.after(0.05, lambda: locks.lock("a", ttl=1).acquire(timeout=3)) is None
    assert took.seconds < 0.05 + SLACK
    lease.extend()
    lease.release()
    nothing_is_left(servers.servers[:3], locks=locks)
    every_answer_is_its_own_with_threads(locks, servers.servers[:3])


class Stuck(Exception):
    """Raised by the watchdog where a thread waits for itself."""


@pytest.fixture
def watchdog() -> Iterator[Callable[[Callable[[], None]], None]]:
    """`watchdog(call)`: raises Stuck in the main thread if the call takes more than two seconds."""

    def bite(number: int, frame: FrameType | None) -> None:
        raise Stuck

    before = signal.signal(signal.SIGUSR2, bite)
    main = threading.main_thread().ident
    assert main is not None

    def watch(call: Callable[[], None]) -> None:
        timer = threading.Timer(2, signal.pthread_kill, (main, signal.SIGUSR2))
        timer.start()
        try:
            call()
        finally:
            timer.cancel()
            timer.join()

    yield watch
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("verb", ["acquire", "extend", "release"])
def test_a_signal_handler_may_use_the_lease_and_the_locker(
    servers: Servers, connect: Connect, watchdog: Callable[[Callable[[], None]], None], verb: str
) -> None:
    """SIGTERM's handler gives back what is held, wherever the main thread is just then, and waits for nobody."""
    nodes = servers.servers[:1]
    used = connect([nodes[0].url], node_timeout=0.25)
    stuck: list[str] = []
    for k in itertools.count(1, 9 if verb == "acquire" else 1):
        locks = connect([nodes[0].url], node_timeout=0.25) if verb == "acquire" else used
        lease = used.lock("a", ttl=1).acquire(timeout=2)

        def handler(locks: quorumlock.Locker = locks, lease: quorumlock.Lease = lease, k: int = k) -> None:
            assert not lease.lost.is_set()
            other = locks.lock("other", ttl=1).try_acquire()
            for one in (lease, other):
                if one is not None and k % 2:
                    with contextlib.suppress(quorumlock.LeaseError):
                        one.extend()
            if other is not None:
                other.release()
            lease.release()

        strike = Strike(k, handler)

        def acquire(locks: quorumlock.Locker = locks) -> None:
            locks.lock("b", ttl=1).acquire(timeout=2).release()

        use = acquire if verb == "acquire" else getattr(lease, verb)
        try:
            watchdog(lambda use=use, strike=strike: strike.run(use))  # type: ignore[misc]
        except quorumlock.LeaseError:
            pass  # released, by the handler
        except Stuck:
            stuck.append(strike.where)
        lease.release()
        if verb == "acquire":
            locks.close()
        if not strike.struck or len(stuck) > 2:
            break
    assert stuck == []
    nothing_is_left(nodes, locks=used)
    every_answer_is_its_own_with_threads(used, nodes)
