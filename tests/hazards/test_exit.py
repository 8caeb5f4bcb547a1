"""How blocks, programs and leases end: the first error wins, a loss is told, nothing hangs or is sent late."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import quorumlock
from quorumlock import LeaseLost, LossReason
from quorumlock.lab.servers import Server, Servers
from tests.live.tools import SLACK, Stopwatch, get, lock_keys, pttl
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, eventually_async

from . import programs
from .sides import Side

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Put = Callable[[Server], Proxy]


class Mine(Exception):
    """The body's own error."""


class Stage:
    """A block that is left while something is wrong."""

    def __init__(self, side: Side, put_proxy: Put, wrong: str) -> None:
        self.side = side
        self.proxies = [put_proxy(node) for node in side.nodes]
        self.wrong = wrong

    async def go_wrong(self, lease: Any) -> None:
        if self.wrong == "lost":
            for node in self.side.nodes:
                node.command("SET", "a", "a thief", "PX", "60000")
        elif self.wrong == "over":
            while lease.remaining() > 0:
                time.sleep(0.005)  # noqa: ASYNC251 - a loop that runs would cancel the body
        elif self.wrong == "unreachable":
            for proxy in self.proxies:
                proxy.refusing = True
                proxy.cut()

    async def leave(self, locks: Any, error: Exception | None) -> None:
        """A block whose body ends with this error, or well."""
        ttl, keep = (0.3, False) if self.wrong == "over" else (1, True)
        if not self.side.threads:
            async with locks.lock("a", ttl=ttl, keep=keep) as lease:
                await self.go_wrong(lease)
                if self.wrong == "closed":
                    await locks.aclose()
                if self.wrong == "lost":
                    with pytest.raises(LeaseLost):
                        await lease.extend()
                if error is not None:
                    raise error
            return

        def in_a_thread() -> None:
            with locks.inner.lock("a", ttl=ttl, keep=keep) as lease:
                asyncio.run(self.go_wrong(lease))
                if self.wrong == "closed":
                    locks.inner.close()
                if self.wrong == "lost":
                    with pytest.raises(LeaseLost):
                        lease.extend()
                if error is not None:
                    raise error

        await asyncio.to_thread(in_a_thread)


@pytest.mark.parametrize("wrong", ["lost", "over", "unreachable", "closed", "nothing"])
def test_the_bodys_own_error_wins(side: Side, put_proxy: Put, wrong: str) -> None:
    """Whatever has become of the lease, and whether or not it can be released."""
    stage, mine = Stage(side, put_proxy, wrong), Mine()

    async def main() -> None:
        async with side.locker([proxy.url for proxy in stage.proxies]) as locks:
            with Stopwatch() as took, pytest.raises(Mine) as raised:
                await stage.leave(locks, mine)
            assert raised.value is mine
            assert took.seconds < 1 + SLACK

    asyncio.run(main())


@pytest.mark.parametrize("wrong", ["lost", "over"])
def test_a_lost_lease_after_a_successful_body_raises(side: Side, put_proxy: Put, wrong: str) -> None:
    stage = Stage(side, put_proxy, wrong)

    async def main() -> None:
        async with side.locker([proxy.url for proxy in stage.proxies]) as locks:
            with pytest.raises(LeaseLost) as lost:
                await stage.leave(locks, None)
            assert lost.value.reason is (LossReason.TAKEN if wrong == "lost" else LossReason.EXPIRED)

    asyncio.run(main())


def test_a_block_ends_quietly_and_soon_where_nobody_hears_its_release(side: Side, put_proxy: Put) -> None:
    """The lock ends by its ttl: that is no error of the body's."""
    stage = Stage(side, put_proxy, "unreachable")

    async def main() -> None:
        async with side.locker([proxy.url for proxy in stage.proxies]) as locks:
            with Stopwatch() as took:
                await stage.leave(locks, None)
            assert took.seconds < 3 * 0.1 + SLACK, "three node timeouts"
        assert await eventually_async(lambda: not lock_keys(side.nodes))

    asyncio.run(main())


HELD = {
    "main ends": "lease = quorumlock.connect(urls, max_ttl=1).lock(name, ttl=0.4).acquire(timeout=20)",
    "while renewing": """
locks = quorumlock.connect(urls, max_ttl=1)
leases = [locks.lock(f'{name}-{index}', ttl=0.3).acquire(timeout=20) for index in range(100)]
time.sleep(0.2)
""",
    "a thread waits": """
locks = quorumlock.connect(urls, max_ttl=1)
lease = locks.lock(name, ttl=0.4).acquire(timeout=20)
threading.Thread(target=locks.lock(name, ttl=0.4).acquire, daemon=True).start()
time.sleep(0.1)
""",
    "the loop ends": """
async def main():
    global locks, lease
    locks = quorumlock.connect_async(urls, max_ttl=1)
    lease = await locks.lock(name, ttl=0.3).acquire(timeout=20)
    await asyncio.sleep(0.2)
    await locks.aclose()
asyncio.run(main())
""",
    "a task is inside": """
async def hold(locks):
    async with locks.lock(name, ttl=1):
        await asyncio.sleep(60)
async def main():
    async with quorumlock.connect_async(urls, max_ttl=1) as locks:
        task = asyncio.create_task(hold(locks))
        await asyncio.sleep(0.2)
        task.cancel()
asyncio.run(main())
""",
}


def test_a_program_that_ends_with_a_held_lease_ends_at_once(servers: Servers, connect: Connect) -> None:
    """No hang, no traceback; what was not released ends by its ttl, since nobody is left to renew it."""
    connect(servers.urls[:3]).close()
    last = "\nprint('the last line', flush=True)"
    with ExitStack() as stack:
        started = {
            story: stack.enter_context(programs.start(f"name = {story!r}\n{source}{last}", *servers.urls[:3]))
            for story, source in HELD.items()
        }
        for story, program in started.items():
            assert program.stdout is not None
            told = program.stdout.readline()
            _, complaints = programs.ended(program)
            assert told == "the last line\n", f"{story}: {complaints}"
            assert program.returncode == 0, f"{story}: {complaints}"
            for bad in ("Traceback", "Exception ignored", "Fatal"):
                assert bad not in complaints, story
    assert eventually(lambda: not lock_keys(servers.servers[:3]))


ENDINGS = {"sys.exit(3)": 0, "raise ZeroDivisionError": 1, "os.kill(os.getpid(), signal.SIGINT)": 1}
"""How a program ends, and with how many tracebacks."""


def test_a_program_that_ends_inside_a_block_releases(servers: Servers) -> None:
    """Its ttl is a minute: nobody would wait for its end."""
    with quorumlock.connect(servers.urls[:3], max_ttl=60) as locks:
        locks.init_fleet()
    with ExitStack() as stack:
        started = {}
        for ending in ENDINGS:
            taken = f"quorumlock.connect(urls, max_ttl=60).lock({ending!r}, ttl=60)"
            block = f"with {taken}:\n    {ending}\n    time.sleep(5)"
            started[ending] = stack.enter_context(programs.start(block, *servers.urls[:3]))
        for ending, program in started.items():
            _, complaints = programs.ended(program)
            assert program.returncode != 0
            assert complaints.count("Traceback") == ENDINGS[ending], complaints
    assert eventually(lambda: not lock_keys(servers.servers[:3]))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed:ResourceWarning")
def test_a_lease_outlives_its_event_loop_without_harm(servers: Servers, connect: Connect) -> None:
    """Acquired in a loop that is closed: checked, released or dropped in another one."""
    connect(servers.urls[:3], max_ttl=20).close()
    locks = quorumlock.connect_async(servers.urls[:3], max_ttl=20)
    told: list[str] = []

    async def acquire() -> list[quorumlock.AsyncLease]:
        lock = locks.lock("lost", ttl=0.2, on_lost=lambda lease: told.append(lease.name))
        made = [
            await lock.acquire(),
            await locks.lock("a", ttl=20).acquire(),
            await locks.lock("b", ttl=20).acquire(),
        ]
        await locks._runner.close()  # connections, not the keeper: asyncio would warn of them
        locks._runner._closed = False
        return made

    lost, kept, dropped = asyncio.run(acquire())

    async def use() -> None:
        assert await eventually_async(lambda: lost.remaining() == 0)
        with pytest.raises(LeaseLost) as over:
            lost.check()
        # Unreachable, if the first loop was so slow that it was about to be renewed when the connections went.
        assert over.value.reason in (LossReason.EXPIRED, LossReason.UNREACHABLE)
        assert lost.lost.is_set() or not lost.held
        kept.check()
        await kept.extend()
        await kept.release()
        await locks.aclose()

    asyncio.run(use())
    assert eventually(lambda: get(servers[0], "a") is None)
    with pytest.warns(ResourceWarning, match="'b'"):  # noqa: PT031
        del dropped
        gc.collect()


def test_collecting_a_lease_sends_nothing_and_takes_no_time(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """Collection happens anywhere, in any thread, and inside of anything: a warning is all it may do."""
    proxies = [put_proxy(server) for server in servers.servers[:3]]
    locks = connect([proxy.url for proxy in proxies], node_timeout=3, max_ttl=30)
    lease = locks.lock("a", ttl=20).acquire()  # not to be renewed for a long time
    lease.extend(30)
    assert eventually(lambda: all(pttl(server, "a") > 20_000 for server in servers.servers[:3])), "under way"
    for proxy in proxies:
        proxy.hold_requests()
    with Stopwatch() as took, pytest.warns(ResourceWarning, match="dropped without a release"):  # noqa: PT031
        del lease
        gc.collect()
    assert took.seconds < 3, "it waited for an answer"
    assert not eventually(lambda: any(proxy.holds for proxy in proxies), 0.1), "something was sent"
    assert get(servers[0], "a") is not None
    for proxy in proxies:
        proxy.let_go()


def test_a_released_or_lost_lease_is_collected_in_silence(side: Side) -> None:
    async def main() -> None:
        async with side.locker() as locks:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                released = await locks.lock("a", ttl=1).acquire()
                await released.release()
                lost = await locks.lock("b", ttl=0.1, keep=False).acquire()
                flag = lost.lost
                assert await eventually_async(flag.is_set)
                async with locks.lock("c", ttl=1) if not side.threads else asyncio.timeout(1):
                    pass
                await asyncio.sleep(0)
                del released, lost
                gc.collect()
            assert [str(one.message) for one in seen if "lease" in str(one.message)] == []

    asyncio.run(main())
