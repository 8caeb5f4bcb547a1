"""KeyboardInterrupt in acquire, extend and release of the front for threads, at every place where it can strike."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TypeVar

import pytest

import quorumlock
from quorumlock.lab.servers import Server, Servers

from .attribution import every_answer_is_its_own_with_threads, nothing_is_left
from .late import DELAY, Bench
from .striking import Strike
from .tools import SLACK, Stopwatch, client_ids, eventually

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

Connect = Callable[..., quorumlock.Locker]
T = TypeVar("T")


@pytest.fixture(params=[1, 3], ids=["1-node", "3-nodes"])
def nodes(request: pytest.FixtureRequest, servers: Servers) -> Sequence[Server]:
    return servers.servers[: int(request.param)]


@pytest.fixture
def locks(nodes: Sequence[Server], connect: Connect) -> quorumlock.Locker:
    """A locker in its stride: connected, and every script known to every node."""
    locks = connect([node.url for node in nodes], node_timeout=0.25, identify=False)
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
            nothing_is_left(nodes, within=0.2, locks=locks)
        except AssertionError:
            unclean.append(strike.where)
            for node in nodes:
                node.command("DEL", f"name-{k}")
        if not strike.struck:
            break
        if k % 40 == 0:
            every_answer_is_its_own_with_threads(locks, nodes)
    every_answer_is_its_own_with_threads(locks, nodes)
    assert k > 50, "hardly anything was interrupted"
    assert all(eventually(lambda node=node: len(client_ids(node)) <= 2) for node in nodes), "connections leak"  # type: ignore[misc]
    return unclean


def test_acquire_interrupted_everywhere_leaves_nothing(locks: quorumlock.Locker, nodes: Sequence[Server]) -> None:
    def once(strike: Strike, name: str) -> None:
        lock = locks.lock(name, ttl=1)
        lease = strike.run(lock.try_acquire if strike.left % 2 else lock.acquire)
        if lease is not None:
            lease.release()

    assert sweep(locks, nodes, once) == []


def test_an_interrupted_extend_does_not_hinder_the_release(
    locks: quorumlock.Locker, nodes: Sequence[Server]
) -> None:
    def once(strike: Strike, name: str) -> None:
        lease = locks.lock(name, ttl=1).acquire(timeout=5)
        strike.run(lease.extend)
        lease.release()

    assert sweep(locks, nodes, once) == []


def test_an_interrupted_release_can_be_repeated(locks: quorumlock.Locker, nodes: Sequence[Server]) -> None:
    def once(strike: Strike, name: str) -> None:
        lease = locks.lock(name, ttl=1).acquire(timeout=5)
        strike.run(lease.release)
        lease.release()

    assert sweep(locks, nodes, once) == []


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
    with quorumlock.connect(urls, max_ttl=1, node_timeout=0.25, fleet="bench", identify=False) as locks:
        for turn in range(24):
            bench.late(True)
            lock = locks.lock(next(bench.names), ttl=1)
            lease = interrupt.after(turn * DELAY / 6, lambda lock=lock: lock.acquire(timeout=5))  # type: ignore[misc]
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
        assert interrupt.after(0.05, lambda: locks.lock("a", ttl=1).acquire(timeout=30)) is None
    assert took.seconds < 0.05 + SLACK
    lease.extend()
    lease.release()
    nothing_is_left(servers.servers[:3], locks=locks)
    every_answer_is_its_own_with_threads(locks, servers.servers[:3])
