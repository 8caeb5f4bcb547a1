"""Every kind of lock between processes: what the killed held is had by others within its ttl, and never before."""

from __future__ import annotations

import functools
import os
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

import quorumlock
from quorumlock import Lease, Locker
from quorumlock.lab.servers import Servers
from tests.hazards.programs import start
from tests.support.processes import in_child
from tests.support.waiting import eventually

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time(0.3)]

TTL = 1.0
SLACK = 2.0
"""What a busy machine may add to a hand-over."""

CONNECT = "locks = quorumlock.connect(urls[-3:], max_ttl=1.0, node_timeout=0.5)\n"
HOLD = "with {lock} as lease:\n    print(lease.fence, flush=True)\n    time.sleep(60)\n"


class Killed(NamedTuple):
    """What the program holds until it is killed, what we then ask for, and under which name its holder is seen."""

    theirs: str
    ours: Callable[[Locker], Lease]
    seen_as: str


KILLED = {
    "lock": Killed("lock('lock', ttl=1.0)", lambda locks: locks.lock("lock", ttl=1).acquire(20), "lock"),
    "fair": Killed(
        "lock('fair', ttl=1.0, fair=True)",
        lambda locks: locks.lock("fair", fair=True, ttl=1).acquire(20),
        "fair",
    ),
    "writer": Killed(
        "read_write('writer').write(ttl=1.0)",
        lambda locks: locks.read_write("writer").read(ttl=1).acquire(20),
        "writer",
    ),
    "reader": Killed(
        "read_write('reader').read(ttl=1.0)",
        lambda locks: locks.read_write("reader").write(ttl=1).acquire(20),
        "reader",
    ),
    "slot": Killed(
        "semaphore('slot', 1, ttl=1.0)",
        lambda locks: locks.semaphore("slot", 1, ttl=1).acquire(20),
        "slot#0",
    ),
    "multi": Killed(
        "multi(['multi', 'other'], ttl=1.0)",
        lambda locks: locks.multi(["other", "multi"], ttl=1).acquire(20),
        "multi",
    ),
    "leader": Killed(
        "election('leader', ttl=1.0).lead()",
        lambda locks: locks.election("leader", ttl=1).lead(timeout=20).__enter__(),
        "leader",
    ),
}
HOLD_ALL = """
from contextlib import ExitStack
with ExitStack() as stack:
    for source in {sources!r}:
        print(stack.enter_context(eval("locks." + source)).fence, flush=True)
    time.sleep(60)
"""


def test_what_the_killed_held_is_free_after_its_ttl(servers: Servers, connect: Callable[..., Locker]) -> None:
    """All of it was renewed until then: more than a ttl has passed since it was acquired."""
    locks = connect(servers.urls[:3])
    source = CONNECT + HOLD_ALL.format(sources=[held.theirs for held in KILLED.values()])
    with start(source, *servers.urls[:3]) as program:
        assert program.stdout is not None
        fences = {what: int(program.stdout.readline()) for what in KILLED}
        held_at = time.monotonic()

        def is_kept() -> bool:
            """For longer than a ttl, and all of it every time that we look."""
            for what, held in KILLED.items():
                seen = locks.inspect(held.seen_as).holder
                assert seen is not None, f"{what} is not kept"
                assert seen.pid == program.pid, what
            return time.monotonic() - held_at > 1.2 * TTL

        assert eventually(is_kept)
        program.kill()
        program.wait()
        killed_at = time.monotonic()

    def take(what: str) -> tuple[float, int]:
        """How long after the end it was given to us, and its fence."""
        lease = KILLED[what].ours(locks)
        took = time.monotonic() - killed_at
        lease.release()
        return took, lease.fence

    with ThreadPoolExecutor(len(KILLED)) as threads:
        given = dict(zip(KILLED, threads.map(take, KILLED), strict=True))
    for what, (took, fence) in given.items():
        assert took < TTL + SLACK, f"{what}: {took:.1f} s"
        assert fence > fences[what] or what == "writer"


def test_a_killed_leader_is_seen_and_replaced(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:3])
    election = locks.election("e", ttl=TTL)
    assert election.leader() is None
    lead = f"locks.election('e', ttl={TTL}, note='theirs').lead()"
    with start(CONNECT + HOLD.format(lock=lead), *servers.urls[:3]) as program:
        assert program.stdout is not None
        program.stdout.readline()
        leader = election.leader()
        assert leader is not None
        assert (leader.pid, leader.note) == (program.pid, "theirs")
        program.kill()
        killed_at = time.monotonic()
        with election.lead(timeout=10):
            assert time.monotonic() - killed_at < TTL + SLACK
            leader = election.leader()
            assert leader is not None
            assert leader.pid == os.getpid()


ROUNDS = 8


def work(urls: list[str], folder: Path, permits: int, log: Path) -> None:
    """In a process of its own: takes a slot again and again, and fails if anybody else has it meanwhile."""
    with quorumlock.connect(urls, max_ttl=TTL, node_timeout=0.5) as locks, log.open("w") as told:
        for _ in range(ROUNDS):
            with locks.semaphore("s", permits, timeout=60, ttl=TTL) as lease:
                mine = folder / str(lease.slot)
                mine.touch(exist_ok=False)
                assert len(list(folder.iterdir())) <= permits
                time.sleep(0.002)
                lease.check()
                mine.unlink()
                print(lease.slot, lease.fence, file=told)


@pytest.mark.parametrize("permits", [1, 3])
def test_never_more_than_its_permits_between_processes(
    servers: Servers, connect: Callable[..., Locker], tmp_path: Path, permits: int
) -> None:
    connect(servers.urls[:3])
    slots = tmp_path / "slots"
    slots.mkdir()
    logs = [tmp_path / f"log-{number}" for number in range(permits + 2)]
    with ThreadPoolExecutor(len(logs)) as threads:
        for done in [
            threads.submit(in_child, functools.partial(work, servers.urls[:3], slots, permits, log)) for log in logs
        ]:
            done.result()
    fences: dict[int, list[int]] = defaultdict(list)
    for log in logs:
        for line in log.read_text().splitlines():
            slot, fence = map(int, line.split())
            fences[slot].append(fence)
    assert set(fences) <= set(range(permits))
    assert sum(map(len, fences.values())) == ROUNDS * len(logs)
    for grown in fences.values():
        assert len(set(grown)) == len(grown)
