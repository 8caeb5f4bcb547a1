"""PostgreSQL and MariaDB: connections that are cut, silent or left behind, and what they were asked."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock import Locker, NoQuorum
from quorumlock.clocks import boot_time
from quorumlock.core.votes import Cause
from quorumlock.engines.sql.batches import Batch, Query, Silent
from tests.hazards.programs import ended, start
from tests.proxy import Proxy

from .sql_servers import Connect, Place, connect, in_a_thread, place, proxy, shared_place, until

__all__ = ["connect", "place", "proxy", "shared_place"]
pytestmark = pytest.mark.live


class Both:
    """The same on threads and on asyncio."""

    def __init__(self, url: str, prefix: str, side: str) -> None:
        self._side = side
        self._loop = asyncio.new_event_loop()
        make = quorumlock.connect if side == "threads" else quorumlock.connect_async
        self.locker: Any = make(url, prefix=prefix, max_ttl=10.0)

    def do(self, work: Callable[[Any], Any]) -> Any:
        if self._side == "threads":
            return work(self.locker)

        async def awaited() -> Any:
            return await work(self.locker)

        return self._loop.run_until_complete(awaited())

    def acquire(self, timeout: float = 5.0) -> Any:
        return self.do(lambda locker: locker.lock("a", ttl=8, keep=False).acquire(timeout=timeout))

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


def test_a_lost_answer_is_recognised_by_its_token(both: Both, other: Locker, proxy: Proxy) -> None:
    proxy.lose_next_answer = True
    lease = both.acquire()
    assert other.inspect("a").holders[0].fence == lease.fence
    assert not free(other)
    proxy.lose_next_answer = True
    both.do(lambda _: lease.release())
    assert free(other)


def test_a_connection_that_is_cut_in_the_midst(both: Both, other: Locker, proxy: Proxy) -> None:
    proxy.hold_requests()
    cutting = threading.Timer(0.2, proxy.cut)
    cutting.start()
    lease = both.acquire()
    cutting.join()
    both.do(lambda _: lease.release())
    assert free(other)


@pytest.mark.parametrize("hold", ["hold_requests", "hold_answers"])
def test_what_is_silent_is_undone_behind_itself(both: Both, other: Locker, proxy: Proxy, hold: str) -> None:
    """It was not executed yet, or it was and nobody knows: either way nothing comes of it any more."""
    getattr(proxy, hold)()
    started = time.monotonic()
    with pytest.raises(NoQuorum) as caught:
        both.acquire(timeout=0.3)
    assert time.monotonic() - started < 3.0
    assert caught.value.tally.answers[0].cause is Cause.SILENT
    until(lambda: free(other), 2.0)
    proxy.let_go()
    time.sleep(0.1)
    assert free(other)


def test_an_interrupt_in_the_midst_leaves_nothing_behind(place: Place, proxy: Proxy, connect: Connect) -> None:
    prefix = f"sigint{proxy.port}:"
    ours, other = connect(url=place.url(proxy.port), prefix=prefix), connect(prefix=prefix)
    ours.lock("a", ttl=8).acquire().release()
    for hold in (proxy.hold_answers, proxy.hold_requests):
        hold()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            ours.lock("a", ttl=8).acquire(timeout=5)
        until(lambda: free(other), 2.0)
        proxy.let_go()
        assert free(other)
    ours.lock("a", ttl=8).acquire(timeout=1).release()


def test_a_cancelled_task_leaves_nothing_behind(place: Place, proxy: Proxy, connect: Connect) -> None:
    other = connect(prefix=f"cancel{proxy.port}:")

    async def main() -> None:
        async with quorumlock.connect_async(place.url(proxy.port), prefix=f"cancel{proxy.port}:") as locker:
            await (await locker.lock("a", ttl=8).acquire()).release()
            proxy.hold_answers()
            task = asyncio.create_task(locker.lock("a", ttl=8).acquire())
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])
            proxy.let_go()
            await asyncio.sleep(0.2)
            assert await asyncio.to_thread(free, other)

    asyncio.run(main())


def test_a_deadline_that_passes_while_the_loop_is_busy_counts_all_the_same(place: Place, proxy: Proxy) -> None:
    """The first part of an answer comes together with the deadline, and the second does not come."""

    async def main() -> None:
        async with quorumlock.connect_async(place.url(proxy.port)) as locker:
            link = await locker.engine.open_async(boot_time() + 5)  # type: ignore[attr-defined]
            proxy.split_at, proxy.split_pause = 10, 3.0
            asking = asyncio.create_task(link.run(Batch((Query("SELECT 1"),)), boot_time() + 0.3))
            await asyncio.sleep(0)
            time.sleep(0.5)  # noqa: ASYNC251 - that is what it is about
            started = time.monotonic()
            with pytest.raises(Silent):
                await asking
            assert time.monotonic() - started < 1.0
            link.close()

    asyncio.run(main())


# Connections that are left.


def test_loops_that_are_left_leave_no_connections(place: Place) -> None:
    locker = quorumlock.connect_async(place.url(), prefix="loops:")
    before = place.connections()

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(hold(f"a{number}"))

    async def hold(name: str) -> None:
        async with locker.lock(name, ttl=5):
            await asyncio.sleep(0.01)

    async def end() -> None:
        await work()
        await locker.aclose()

    with pytest.warns(ResourceWarning) if not place.announces else ExitStack():
        for _ in range(5):
            asyncio.run(work())
        asyncio.run(end())
        import gc

        gc.collect()
    until(lambda: place.connections() <= before)


def test_what_comes_back_late_is_closed(place: Place) -> None:
    before = place.connections()

    async def main() -> None:
        locker = quorumlock.connect_async(place.url(), prefix="late:")
        shelf = locker.engine._loops._shelf()  # type: ignore[attr-defined]
        link = await locker.engine.open_async(boot_time() + 5)  # type: ignore[attr-defined]
        await locker.aclose()
        await locker.engine.close_async()  # type: ignore[attr-defined]
        shelf.give_back(link)

    asyncio.run(main())
    until(lambda: place.connections() <= before)


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
            lease = one.lock("a", ttl=5).acquire()
            thread, came = in_a_thread(lambda: other.lock("a", ttl=5).acquire(timeout=5).release())
            time.sleep(0.05)
            lease.release()
            thread.join(10)
            assert came == [None]
        one.close(), other.close()


def test_a_fork_leaves_the_parents_connections_alone(place: Place, connect: Connect) -> None:
    locker = connect(prefix="fork:")
    lease = locker.lock("a", ttl=8).acquire()
    other = locker.lock("b", ttl=8).acquire()
    other.release()

    def child() -> int:
        if locker.lock("a").try_acquire() is not None:
            return 2
        with locker.lock("child", ttl=5):
            pass
        return 0

    for _ in range(3):
        pid = os.fork()
        if not pid:
            code = 9
            try:
                code = child()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        lease.extend(8)
        locker.lock("b", ttl=5).acquire().release()
    lease.release()


EXITS = """
import asyncio
async def main():
    async with quorumlock.connect_async(urls[0], prefix="exit:") as locks:
        async with locks.lock("a", ttl=5), locks.multi(["b", "c"], ttl=5):
            assert await locks.lock("a").try_acquire() is None
asyncio.run(main())
asyncio.run(main())
with quorumlock.connect(urls[0], prefix="exit:") as locks:
    lease = locks.lock("a", ttl=5).acquire()
    waiter = threading.Thread(target=lambda: locks.lock("a", ttl=5, fair=True).acquire(timeout=5).release())
    other = quorumlock.connect(urls[0], prefix="exit:")
    waiting = threading.Thread(target=lambda: other.lock("a", ttl=5, fair=True).acquire(timeout=5).release())
    waiter.start(), waiting.start()
    time.sleep(0.3)
    lease.release()
    waiter.join(), waiting.join()
    other.close()
del locks, other, lease
gc.collect()
print(len(os.listdir("/proc/self/fd")), [one.name for one in threading.enumerate()])
"""


def test_a_program_ends_without_complaint(place: Place) -> None:
    with start("import warnings; warnings.simplefilter('error')\n" + EXITS, place.url()) as program:
        said, complained = ended(program, 20)
    assert [line for line in complained.splitlines() if not line.startswith("Executing ")] == []
    assert said.split(None, 1)[1].strip() == "['MainThread']"
    assert int(said.split()[0]) <= 8, "stdin, stdout, stderr, and what Python keeps"


def test_two_hundred_tasks_and_fifty_threads_lose_nothing(place: Place, connect: Connect, tmp_path: Path) -> None:
    counter = [0]

    def once() -> None:
        seen = counter[0]
        time.sleep(0)
        counter[0] = seen + 1

    async def tasks() -> None:
        async with quorumlock.connect_async(place.url(), prefix="crowd:") as locker:

            async def one() -> None:
                async with locker.lock("a", ttl=8, timeout=30):
                    once()

            async with asyncio.TaskGroup() as group:
                for _ in range(200):
                    group.create_task(one())

    locker = connect(prefix="crowd:")

    def thread() -> None:
        with locker.lock("a", ttl=8, timeout=30):
            once()

    working = [in_a_thread(thread) for _ in range(50)]
    asyncio.run(tasks())
    for one, came in working:
        one.join(30)
        assert came == [None]
    assert counter == [250]


def test_hundreds_share_and_wait(place: Place) -> None:
    """The document of one row has them all."""

    async def main() -> None:
        async with quorumlock.connect_async(place.url(), prefix="hundreds:") as locker:
            read = locker.read_write("rw").read(ttl=8, keep=False)
            leases = [await read.acquire() for _ in range(200)]
            assert len((await locker.inspect("rw")).holders) == 200
            for lease in leases:
                await lease.release()
            held = await locker.lock("f", ttl=8).acquire()
            order: list[int] = []

            async def wait(number: int) -> None:
                async with locker.lock("f", ttl=8, fair=True, timeout=30):
                    order.append(number)

            async with asyncio.TaskGroup() as group:
                for number in range(60):
                    group.create_task(wait(number))
                await asyncio.sleep(0.5)
                await held.release()
            assert sorted(order) == list(range(60))

    asyncio.run(main())


def test_three_hundred_leases_are_kept_in_few_statements(
    place: Place, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locker = connect(prefix="keeper:")
    names = [f"n{number}" for number in range(300)]
    leases = [locker.lock(name, ttl=2.5).acquire() for name in names]
    link = type(locker.engine._threads._shelf.idle[0])  # type: ignore[attr-defined]
    said: list[int] = []
    run = link.run

    def counted(self: Any, batch: Batch, due: float) -> Any:
        said.append(len(batch.queries))
        return run(self, batch, due)

    monkeypatch.setattr(link, "run", counted)
    time.sleep(2.6)
    for lease in leases:
        lease.check()
    assert 3 <= sum(said) <= 120
    monkeypatch.undo()
    for lease in leases:
        lease.release()
