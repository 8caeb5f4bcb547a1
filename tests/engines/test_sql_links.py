"""PostgreSQL and MariaDB: connections that are cut, silent or left behind, and what they were asked."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import quorumlock
from quorumlock import Locker, NoQuorum
from quorumlock.clocks import boot_time
from quorumlock.core.votes import Cause
from quorumlock.engines.sql.batches import Batch, Query, Silent
from tests.hazards.programs import ended, start
from tests.support.processes import fork
from tests.support.proxy import Line, Proxy
from tests.support.waiting import eventually, eventually_async

from .sql_servers import Connect, Place, cause_of, connect, in_a_thread, place, proxy

__all__ = ["connect", "place", "proxy"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


class Both:
    """The same on threads and on asyncio."""

    def __init__(self, url: str, prefix: str, side: str) -> None:
        self._side = side
        self._loop = asyncio.new_event_loop()
        make = quorumlock.connect if side == "threads" else quorumlock.connect_async
        self.locker: Any = make(url, prefix=prefix)

    def do(self, work: Callable[[Any], Any]) -> Any:
        if self._side == "threads":
            return work(self.locker)

        async def awaited() -> Any:
            return await work(self.locker)

        return self._loop.run_until_complete(awaited())

    def acquire(self, timeout: float = 5.0) -> Any:
        return self.do(lambda locker: locker.lock("a", ttl=30, keep=False).acquire(timeout=timeout))

    def close(self) -> None:
        if self._side == "threads":
            self.locker.close()
        else:
            self._loop.run_until_complete(self.locker.aclose())
        self._loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def both(request: pytest.FixtureRequest, place: Place, proxy: Proxy) -> Iterator[Both]:
    """A client through the proxy, which has a connection."""
    made = Both(place.url(proxy.port), f"both{proxy.port}:", request.param)
    lease = made.acquire()
    made.do(lambda _: lease.release())
    yield made
    proxy.let_go()
    made.close()


@pytest.fixture
def other(both: Both, proxy: Proxy, connect: Connect) -> Locker:
    """Another client for the same locks, straight to the server."""
    return connect(prefix=f"both{proxy.port}:")


def free(other: Locker) -> bool:
    """At once, and not when a ttl is over."""
    lease = other.lock("a", ttl=5).try_acquire()
    if lease is not None:
        lease.release()
    return lease is not None


def standing(proxy: Proxy) -> list[Line]:
    """The connections through the proxy that no client has given up."""
    return [line for line in proxy.lines if not line.left]


def given_up(lines: list[Line]) -> bool:
    """Whether the client has hung up at least one, and the server every such one: nothing comes of it any more."""
    left = [line for line in lines if line.left]
    return bool(left) and not any(line.threads[1].is_alive() for line in left)


def test_a_lost_answer_is_recognised_by_its_token(both: Both, other: Locker, proxy: Proxy) -> None:
    proxy.lose_next_answer = True
    lease = both.acquire(timeout=0)
    assert other.inspect("a").holders[0].fence == lease.fence
    assert not free(other)
    proxy.lose_next_answer = True
    both.do(lambda _: lease.release())
    assert free(other)


def cut_in_the_midst(proxy: Proxy) -> None:
    assert eventually(lambda: proxy.holds)
    proxy.cut()


def test_a_connection_that_is_cut_in_the_midst(both: Both, other: Locker, proxy: Proxy) -> None:
    proxy.hold_requests()
    cutting, _ = in_a_thread(cut_in_the_midst, proxy)
    lease = both.acquire(timeout=20)
    cutting.join()
    both.do(lambda _: lease.release())
    assert free(other)


@pytest.mark.parametrize(
    ("both", "hold"), [("threads", "hold_requests"), ("asyncio", "hold_answers")], indirect=["both"]
)
def test_what_is_silent_is_undone_behind_itself(both: Both, other: Locker, proxy: Proxy, hold: str) -> None:
    """It was not executed yet, or it was and nobody knows: either way nothing comes of it any more."""
    lines = standing(proxy)
    getattr(proxy, hold)()
    started = time.monotonic()
    with pytest.raises(NoQuorum) as caught:
        both.acquire(timeout=0.3)
    assert time.monotonic() - started < 10.0
    assert cause_of(caught.value)[0] is Cause.SILENT
    both.do(lambda locker: locker.inspect("a"))  # whatever is asked next first has the silent one ended
    if hold == "hold_answers":
        assert free(other)
    proxy.let_go()  # nobody has touched the row since: what comes late would find it as it was
    assert eventually(lambda: given_up(lines))
    assert free(other)


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 40, bytes(range(1, 65)), b"\xff" * 9]
)
def test_answers_of_something_else(
    both: Both, other: Locker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    """Nobody knows what was executed: it is asked again over another connection, or undone."""
    monkeypatch.setattr("tests.support.proxy.first_reply", len)
    proxy.garble(garbage)
    try:
        lease = both.acquire(timeout=5)
    except NoQuorum:
        pass
    else:
        both.do(lambda _: lease.release())
    assert eventually(lambda: free(other))


def test_a_port_where_nobody_answers(place: Place) -> None:
    """It accepts, and says nothing: no connection, within the time for that; and nothing is left of the attempt."""

    async def tasks() -> NoQuorum:
        async with quorumlock.connect_async(url) as locker:
            with pytest.raises(NoQuorum) as caught:
                await locker.lock("a", ttl=5).acquire(timeout=0.2)
            return caught.value

    def threads() -> NoQuorum:
        with quorumlock.connect(url) as locker, pytest.raises(NoQuorum) as caught:
            locker.lock("a", ttl=5).acquire(timeout=0.2)
        return caught.value

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = place.url(silent.getsockname()[1])
        for ask in (threads, lambda: asyncio.run(tasks())):
            started = time.monotonic()
            assert cause_of(ask())[0] is Cause.UNREACHABLE
            assert time.monotonic() - started < 10.0
    gc.collect()


def interrupt_in_the_midst(other: Locker, proxy: Proxy) -> None:
    """When the lock was asked for: the request waits in the proxy, or was executed."""
    assert eventually(lambda: proxy.holds or other.inspect("a").holders)
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_in_the_midst_leaves_nothing_behind(place: Place, proxy: Proxy, connect: Connect) -> None:
    prefix = f"sigint{proxy.port}:"
    ours, other = connect(url=place.url(proxy.port), prefix=prefix), connect(prefix=prefix)
    for hold in (proxy.hold_answers, proxy.hold_requests):
        ours.lock("a", ttl=8).acquire().release()  # who knows the row asks for the lock in its first word
        lines = standing(proxy)
        hold()
        thread, _ = in_a_thread(interrupt_in_the_midst, other, proxy)
        with pytest.raises(KeyboardInterrupt):
            ours.lock("a", ttl=30).acquire(timeout=20)
        thread.join()
        ours.inspect("a")
        proxy.let_go()
        assert eventually(functools.partial(given_up, lines))
        assert free(other)
    ours.lock("a", ttl=8).acquire(timeout=20).release()


def test_a_cancelled_task_leaves_nothing_behind(place: Place, proxy: Proxy, connect: Connect) -> None:
    other = connect(prefix=f"cancel{proxy.port}:")

    async def main() -> None:
        async with quorumlock.connect_async(place.url(proxy.port), prefix=f"cancel{proxy.port}:") as locker:
            await (await locker.lock("a", ttl=8).acquire()).release()
            lines = standing(proxy)
            proxy.hold_answers()
            task = asyncio.create_task(locker.lock("a", ttl=30).acquire(timeout=20))
            assert await eventually_async(lambda: asyncio.to_thread(lambda: other.inspect("a").holders))
            task.cancel()
            await asyncio.wait([task])
            proxy.let_go()
            assert await eventually_async(lambda: given_up(lines))
            assert await asyncio.to_thread(free, other)

    asyncio.run(main())


def test_a_deadline_that_passes_while_the_loop_is_busy_counts_all_the_same(place: Place, proxy: Proxy) -> None:
    """The first part of an answer comes together with the deadline, and the second does not come."""

    async def main() -> None:
        async with quorumlock.connect_async(place.url(proxy.port)) as locker:
            link = await locker.engine.open_async(boot_time() + 5)
            proxy.split_at, proxy.split_pause = 10, 1.0
            due = boot_time() + 0.1
            asking = asyncio.create_task(link.run(Batch((Query("SELECT 1"),)), due))
            await asyncio.sleep(0)
            eventually(lambda: boot_time() > due)  # meanwhile nothing else runs in this loop
            with pytest.raises(Silent):
                await asking
            assert boot_time() < due + 0.8, "it waited for the second part"
            link.close()

    asyncio.run(main())


# Connections that are left.


def test_loops_that_are_left_leave_no_connections(place: Place) -> None:
    locker = quorumlock.connect_async(place.url(), prefix="loops:")
    before = place.connections()

    async def work() -> None:
        all_hold = asyncio.Barrier(6)
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(hold(f"a{number}", all_hold))

    async def hold(name: str, all_hold: asyncio.Barrier) -> None:
        async with locker.lock(name, ttl=30):
            await all_hold.wait()

    async def end() -> None:
        await work()
        await locker.aclose()

    with pytest.warns(ResourceWarning) if not place.announces else ExitStack():
        for _ in range(5):
            asyncio.run(work())
        asyncio.run(end())
        gc.collect()
    assert eventually(lambda: place.connections() <= before)


def test_what_comes_back_late_is_closed(place: Place) -> None:
    before = place.connections()

    async def main() -> None:
        locker = quorumlock.connect_async(place.url(), prefix="late:")
        shelf = locker.engine._loops._shelf()
        link = await locker.engine.open_async(boot_time() + 5)
        await locker.aclose()
        await locker.engine.close_async()
        shelf.give_back(link)

    asyncio.run(main())
    assert eventually(lambda: place.connections() <= before)


@contextmanager
def many_files(count: int = 1100) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    try:
        yield
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_files_are_open_than_select_can_count(place: Place, connect: Connect) -> None:
    with many_files():
        one, other = connect(prefix="files:"), connect(prefix="files:")
        for _ in range(3):
            lease = one.lock("a", ttl=30).acquire()
            thread, came = in_a_thread(lambda: other.lock("a", ttl=5, fair=True).acquire(timeout=20).release())
            assert eventually(lambda: one.inspect("a").waiters)
            lease.release()
            thread.join()
            assert came == [None]
        one.close()
        other.close()


def test_a_fork_leaves_the_parents_connections_alone(place: Place, connect: Connect) -> None:
    locker = connect(prefix="fork:")
    lease = locker.lock("a", ttl=30).acquire()
    other = locker.lock("b", ttl=30).acquire()
    other.release()

    def child() -> int:
        for _ in range(15):
            if locker.lock("a").try_acquire() is not None:
                return 2
            with locker.lock("child", ttl=5):
                pass
        return 0

    for _ in range(3):
        pid = fork()
        if not pid:
            code = 9
            try:
                code = child()
            finally:
                os._exit(code)
        for _ in range(15):  # at the same time: who had a connection in common would read the other's answers
            lease.extend(30)
            locker.lock("b", ttl=5).acquire().release()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lease.release()


EXITS = """
import asyncio
before = len(os.listdir("/proc/self/fd"))
async def main():
    async with quorumlock.connect_async(urls[0], prefix="exit:") as locks:
        async with locks.lock("a", ttl=5), locks.multi(["b", "c"], ttl=5):
            assert await locks.lock("a").try_acquire() is None
asyncio.run(main())
asyncio.run(main())
with quorumlock.connect(urls[0], prefix="exit:") as locks:
    lease = locks.lock("a", ttl=30).acquire()
    waiter = threading.Thread(target=lambda: locks.lock("a", ttl=5, fair=True).acquire(timeout=20).release())
    other = quorumlock.connect(urls[0], prefix="exit:")
    waiting = threading.Thread(target=lambda: other.lock("a", ttl=5, fair=True).acquire(timeout=20).release())
    waiter.start(), waiting.start()
    while len(locks.inspect("a").waiters) < 2:
        time.sleep(0.005)
    lease.release()
    waiter.join(), waiting.join()
    other.close()
print(len(os.listdir("/proc/self/fd")) - before, [one.name for one in threading.enumerate()])
del locks, other, lease
gc.collect()
"""


def test_a_program_ends_without_complaint(place: Place) -> None:
    with start("import warnings; warnings.simplefilter('error')\n" + EXITS, place.url()) as program:
        said, complained = ended(program, 60)
    assert [line for line in complained.splitlines() if not line.startswith("Executing ")] == []
    assert said.split(None, 1)[1].strip() == "['MainThread']"
    assert int(said.split()[0]) <= 0, "connections that nobody closed"
