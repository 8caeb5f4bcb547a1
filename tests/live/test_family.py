"""Every kind of lock between processes: what the killed held is had by others within its ttl, and never before."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from quorumlock import Lease, Locker
from quorumlock.lab.servers import Servers
from tests.hazards.programs import ended, start

pytestmark = [pytest.mark.live, pytest.mark.one_kind]

TTL = 1.0
SLACK = 2.0
"""What a busy machine may add to a hand-over."""

CONNECT = "locks = quorumlock.connect(urls[-3:], max_ttl=1.0, node_timeout=0.2)\n"
HOLD = "with {lock} as lease:\n    print(lease.fence, flush=True)\n    time.sleep(60)\n"

KILLED: dict[str, tuple[str, Callable[[Locker], Lease]]] = {
    "lock": ("locks.lock('a', ttl={ttl})", lambda locks: locks.lock("a", ttl=1).acquire(timeout=10)),
    "fair": ("locks.lock('a', ttl={ttl}, fair=True)", lambda locks: locks.lock("a", fair=True, ttl=1).acquire(10)),
    "writer": (
        "locks.read_write('a').write(ttl={ttl})",
        lambda locks: locks.read_write("a").read(ttl=1).acquire(timeout=10),
    ),
    "reader": (
        "locks.read_write('a').read(ttl={ttl})",
        lambda locks: locks.read_write("a").write(ttl=1).acquire(timeout=10),
    ),
    "slot": (
        "locks.semaphore('a', 1, ttl={ttl})",
        lambda locks: locks.semaphore("a", 1, ttl=1).acquire(timeout=10),
    ),
    "multi": (
        "locks.multi(['a', 'b'], ttl={ttl})",
        lambda locks: locks.multi(["b", "a"], ttl=1).acquire(timeout=10),
    ),
    "leader": (
        "locks.election('a', ttl={ttl}).lead()",
        lambda locks: locks.election("a", ttl=1).lead().__enter__(),
    ),
}


@pytest.mark.parametrize("held", KILLED)
def test_what_the_killed_held_is_free_after_its_ttl(
    servers: Servers, connect: Callable[..., Locker], held: str
) -> None:
    """It was renewed until then: more than a ttl has passed since it was acquired."""
    theirs, ours = KILLED[held]
    locks = connect(servers.urls[:3], node_timeout=0.2)
    with start(CONNECT + HOLD.format(lock=theirs.format(ttl=TTL)), *servers.urls[:3]) as program:
        assert program.stdout is not None
        fence, began_at = int(program.stdout.readline()), time.monotonic()
        while time.monotonic() - began_at < 1.5 * TTL:
            seen = locks.inspect("a#0" if held == "slot" else "a")
            assert seen.holder is not None, "it is kept"
            assert seen.holder.pid == program.pid
            time.sleep(TTL / 10)
        program.kill()
        program.wait()
        killed_at = time.monotonic()
    lease = ours(locks)
    assert time.monotonic() - killed_at < TTL + SLACK
    assert lease.fence > fence or held == "writer"
    lease.release()


def test_a_killed_leader_is_seen_and_replaced(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:3], node_timeout=0.2)
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


WORK = (
    CONNECT
    + """
folder, permits = urls[0], int(urls[1])
for _ in range(8):
    with locks.semaphore("s", permits, timeout=60, ttl=1.0) as lease:
        mine = os.open(f"{folder}/{lease.slot}", os.O_CREAT | os.O_EXCL)  # fails if anybody else has this slot
        os.close(mine)
        assert len(os.listdir(folder)) <= permits
        time.sleep(0.002)
        lease.check()
        os.unlink(f"{folder}/{lease.slot}")
        print(lease.slot, lease.fence)
"""
)


@pytest.mark.parametrize("permits", [1, 3])
def test_never_more_than_its_permits_between_processes(
    servers: Servers, connect: Callable[..., Locker], tmp_path: Path, permits: int
) -> None:
    connect(servers.urls[:3])
    with ExitStack() as stack:
        crew = [
            stack.enter_context(start(WORK, str(tmp_path), str(permits), *servers.urls[:3]))
            for _ in range(permits + 2)
        ]
        told = [ended(program, 60) for program in crew]
    assert [complaint for _, complaint in told if complaint] == []
    fences: dict[int, list[int]] = defaultdict(list)
    for lines, _ in told:
        for line in lines.splitlines():
            slot, fence = map(int, line.split())
            fences[slot].append(fence)
    assert set(fences) <= set(range(permits))
    assert sum(map(len, fences.values())) == 8 * len(crew)
    for grown in fences.values():
        assert len(set(grown)) == len(grown)
