"""What tests about waiting share: waiters in threads, and a look into the queues of servers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import quorumlock
from quorumlock import Lease, Lock, Locker
from quorumlock.lab.servers import Server
from tests.support.waiting import eventually

from .tools import keys, number

HOUR = quorumlock.Jitter(3600)
"""A poll so rare that whatever happens was announced."""
LONG = 60.0
SOON = 8.0
"""Much less than a ttl or a poll, and much more than any hand-over on a busy machine."""
CALM: dict[str, object] = {"max_ttl": LONG, "retry": HOUR, "node_timeout": 2.0}
"""Options of a Locker that nothing but announcements wakes; and a busy machine does not make nodes suspect."""


def queued(server: Server, name: str = "a") -> int:
    """How many tickets wait for a name there."""
    return number(server.command("ZCOUNT", f"ql:queue:{{{name}}}", "0", "+inf"))


def tickets(server: Server, name: str = "a") -> str:
    """All that stands in a queue, as text."""
    return server.command("ZRANGEBYSCORE", f"ql:queue:{{{name}}}", "0", "+inf").decode()


def all_queued(servers: Sequence[Server], count: int, name: str = "a", within: float = SOON) -> bool:
    """Do soon as many wait for it? A minority may not know of all: it was being connected to when they asked."""

    def as_many() -> bool:
        found = [queued(server, name) for server in servers]
        return max(found) == count and found.count(count) > len(found) // 2

    return eventually(as_many, within)


def no_tickets(servers: Sequence[Server]) -> bool:
    """Is nothing left of any queue? What is under way may take a moment."""
    return eventually(lambda: not any(keys(server, "ql:queue:*") for server in servers), SOON)


def calls(server: Server) -> int:
    """How many scripts the server was asked to run since `forget_calls`."""
    found = re.findall(rb"cmdstat_eval(?:sha)?:calls=(\d+)", server.command("INFO", "commandstats"))
    return sum(int(one) for one in found)


def forget_calls(servers: Iterable[Server]) -> None:
    for server in servers:
        server.command("CONFIG", "RESETSTAT")


def taken(locks: Locker) -> Lease:
    return locks.lock("a", ttl=LONG / 2).acquire(timeout=5)


class Waiter:
    """Somebody who acquires a lock in a thread of its own, and keeps it until told otherwise."""

    def __init__(self, lock: Lock, timeout: float | None = None, count: Callable[[], int] = int) -> None:
        self.counted = 0
        """What `count` said when it had the lock."""
        self._count = count
        self.lease: Lease | None = None
        self.error: BaseException | None = None
        self.at = 0.0
        self._thread = threading.Thread(target=self._run, args=(lock, timeout), daemon=True)
        self._thread.start()

    def _run(self, lock: Lock, timeout: float | None) -> None:
        try:
            self.lease = lock.acquire(timeout=timeout)
            self.counted = self._count()
        except BaseException as error:
            self.error = error
        self.at = time.monotonic()

    def over(self, within: float = SOON) -> bool:
        self._thread.join(within)
        return not self._thread.is_alive()

    def has_it(self, within: float = SOON) -> Lease:
        """The lease that it was given within that time."""
        assert self.over(within), f"still waiting after {within:g} s"
        if self.error is not None:
            raise self.error
        assert self.lease is not None
        return self.lease


def handed_on(waiters: Sequence[Waiter]) -> list[int]:
    """Lets each of them have the lock and give it back; in which order."""
    order: list[int] = []
    left = dict(enumerate(waiters))
    end = time.monotonic() + SOON * len(waiters)
    while left:
        for index, waiter in list(left.items()):
            if waiter.over(0.002):
                order.append(index)
                waiter.has_it().release()
                del left[index]
        assert time.monotonic() < end, f"{sorted(left)} are still waiting, after {order}"
    return order


class Crowd:
    """Threads that take a lock again and again until they are told to stop."""

    def __init__(self, lock: Lock, count: int) -> None:
        self.taken = 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(lock,), daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, lock: Lock) -> None:
        while not self._stop.is_set():
            try:
                with lock:
                    self.taken += 1
            except BaseException as error:
                self.errors.append(error)
                return

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self._threads), "somebody still waits"


def lockers(connect: object, urls: list[str], count: int, **options: object) -> list[Locker]:
    """Each is a process of its own, as far as queues are concerned."""
    given = {**CALM, **options}
    return [connect(urls, **given) for _ in range(count)]  # type: ignore[operator]


def release_quietly(lease: Lease | None) -> None:
    with suppress(quorumlock.LockError):
        if lease is not None:
            lease.release()
