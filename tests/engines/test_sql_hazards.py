"""PostgreSQL and MariaDB servers that are killed and paused, and clients that are.

What a lock promises is judged by those who hold it: no two valid leases at a time, fences that grow, and no update
lost of a file that a guard protects.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quorumlock
from quorumlock import NoQuorum
from quorumlock.core.votes import Cause
from tests.hazards.programs import start as start_program

from .failover import Judge
from .sql_servers import Place, cause_of, in_a_thread, own_place, own_places

__all__ = ["own_place", "own_places"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]
SECONDS = float(os.environ.get("QUORUMLOCK_FAILOVER_SECONDS", "0"))
"""For how long servers are killed again and again, at least; a soak test goes on for longer."""
CRASHES = 3
"""How often each of them is killed, at least."""
BETWEEN = 10
"""How many updates are made between two crashes of a server."""


def restart(place: Place) -> None:
    place.server.kill()
    place.server.start()


def test_leases_survive_a_crash(own_place: Place) -> None:
    with own_place.connect(prefix="crash:") as locker, own_place.connect(prefix="crash:") as other:
        lease = locker.lock("a", ttl=30).acquire()
        shared = locker.read_write("rw").read(ttl=30).acquire()
        version = locker.cell("c").set({"n": 1}, 0)
        own_place.server.kill()
        started = time.monotonic()
        with pytest.raises(NoQuorum) as caught:
            other.lock("a").acquire(timeout=0.3)
        assert time.monotonic() - started < 10.0
        assert own_place.label in str(caught.value)
        assert cause_of(caught.value)[0] in (Cause.UNREACHABLE, Cause.DISCONNECTED)
        assert other.nodes()[0].state == "down"
        lease.check()
        own_place.server.start()
        assert other.lock("a").try_acquire() is None
        assert other.read_write("rw").write().try_acquire() is None
        lease.extend(30)
        lease.release()
        shared.release()
        assert other.cell("c").get() == ({"n": 1}, version)
        with other.lock("a", ttl=5) as later:
            assert later.fence > lease.fence
        (state,) = other.nodes()
        assert state.state == "ready"


def test_all_connections_of_a_loop_are_dead_after_a_restart(own_place: Place) -> None:
    """They look as if they were alive; the first request finds out, and is said again over a new one."""

    async def main() -> None:
        async with quorumlock.connect_async(own_place.url(), prefix="dead:") as locker:
            all_hold = asyncio.Barrier(8)

            async def hold(number: int) -> None:
                async with locker.lock(f"n{number}", ttl=30, timeout=0):
                    await all_hold.wait()

            await asyncio.gather(*(hold(number) for number in range(8)))
            restart(own_place)  # not in another thread: a server ends with the thread that has started it
            await asyncio.gather(*(hold(number) for number in range(8)))

    asyncio.run(main())


def test_threads_do_not_notice_a_restart_between_two_locks(own_place: Place) -> None:
    with own_place.connect(prefix="between:") as locker:
        for _ in range(2):
            working = [
                in_a_thread(lambda n: locker.lock(f"n{n}", ttl=5).acquire(timeout=0).release(), n) for n in range(8)
            ]
            for thread, came in working:
                thread.join(10)
                assert came == [None]
            restart(own_place)
        locker.cell("c").set("v", 0)


def test_a_server_that_is_paused(own_place: Place) -> None:
    """It may have heard us: that is not a refusal, and nothing stays locked by it. (Both sides, one on each.)"""

    async def tasks() -> NoQuorum:
        async with quorumlock.connect_async(own_place.url(), prefix="pause:") as locker:
            await (await locker.lock("a", ttl=8).acquire()).release()
            own_place.server.pause()
            with pytest.raises(NoQuorum) as caught:
                await locker.lock("a", ttl=8).acquire(timeout=0.3)
            own_place.server.resume()
            await (await locker.lock("a", ttl=8).acquire(timeout=20)).release()
            return caught.value

    def threads() -> NoQuorum:
        with own_place.connect(prefix="pause:") as locker:
            locker.lock("a", ttl=8).acquire().release()
            own_place.server.pause()
            with pytest.raises(NoQuorum) as caught:
                locker.lock("a", ttl=8).acquire(timeout=0.3)
            own_place.server.resume()
            locker.lock("a", ttl=8).acquire(timeout=20).release()
            return caught.value

    started = time.monotonic()
    try:
        error = threads() if own_place.announces else asyncio.run(tasks())
    finally:
        own_place.server.resume()
    assert time.monotonic() - started < 20.0
    assert own_place.label in str(error)
    assert cause_of(error)[0] in (Cause.SILENT, Cause.UNREACHABLE)
    with own_place.connect(prefix="pause:") as other:
        other.lock("a", ttl=5).acquire(timeout=20).release()


PAUSED = """
locks = quorumlock.connect(urls[0], prefix="client:", max_ttl=1.0)
lease = locks.lock("a", ttl=0.5).acquire()
print("has", lease.fence, flush=True)
sys.stdin.readline()
try:
    lease.check()
except quorumlock.LeaseLost:
    print("lost", flush=True)
else:
    print("believes", flush=True)
"""


def test_a_client_that_is_paused_past_its_ttl_does_not_believe_in_its_lease(own_place: Place) -> None:
    """It says so before it has heard anything from the server, which does not answer."""
    with start_program(PAUSED, own_place.url()) as program, own_place.connect(prefix="client:") as locker:
        assert program.stdout is not None
        assert program.stdin is not None
        fence = int(program.stdout.readline().split()[1])
        program.send_signal(signal.SIGSTOP)
        with locker.lock("a", ttl=30, timeout=20) as lease:
            assert lease.fence > fence
            own_place.server.pause()
            try:
                program.stdin.write("\n")
                program.stdin.flush()
                program.send_signal(signal.SIGCONT)
                assert program.stdout.readline() == "lost\n"
            finally:
                own_place.server.resume()
        program.kill()


def test_a_lease_that_nobody_keeps_ends_though_its_client_lives(own_place: Place) -> None:
    with own_place.connect(prefix="ends:") as locker, own_place.connect(prefix="ends:") as other:
        started = time.monotonic()
        lease = locker.lock("a", ttl=0.4, keep=False).acquire()
        with other.lock("a", ttl=5, timeout=20):
            assert time.monotonic() - started >= 0.4
            with pytest.raises(quorumlock.LeaseLost):
                lease.check()


def test_failover_of_servers_that_are_killed_again_and_again(
    tmp_path: Path, own_places: Callable[[str], Place]
) -> None:
    places = [own_places(kind) for kind in ("postgresql", "mysql")]
    judges = {place: Judge(tmp_path / place.kind) for place in places}

    def work(place: Place, judge: Judge) -> int:
        with place.connect(prefix="killed:", max_ttl=2.0) as locker:
            while not judge.over.is_set():
                with judge.turn(), locker.lock("a", ttl=1.0, timeout=1.0) as lease, judge.inside(lease):
                    judge.count(lease)
                judge.over.wait(random.random() / 50)
        return 1

    working = [in_a_thread(work, *both) for both in judges.items() for _ in range(4)]
    end, crashes = time.monotonic() + SECONDS, 0
    try:
        while crashes < CRASHES or time.monotonic() < end:
            crashes += 1
            for place, judge in judges.items():
                assert judge.changes_hands(BETWEEN)
                time.sleep(random.random() / 10)
                restart(place)
        for judge in judges.values():
            assert judge.changes_hands(BETWEEN)
    finally:
        for judge in judges.values():
            judge.over.set()
        for thread, _ in working:
            thread.join()
    assert [came for _, came in working] == [[1]] * len(working)
    for place, judge in judges.items():
        assert judge.violations == []
        assert judge.total() == judge.written > BETWEEN
        print(f"{place.kind}: {crashes} crashes, {judge}")
