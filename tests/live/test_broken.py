"""No majority: NoQuorum in time, naming nodes and reasons, and locks again by itself when the nodes are back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

import quorumlock
from quorumlock import Jitter, LeaseLost, LossReason, NoQuorum
from quorumlock.lab.servers import Servers
from tests.support.waiting import eventually, eventually_async

from .attribution import nothing_is_left
from .tools import SLACK, Stopwatch, exists, get

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]

NODE_TIMEOUT = 0.12


@pytest.fixture(scope="module")
def five(kind: str) -> Iterator[Servers]:
    """Five servers of this module: every test leaves them running."""
    with Servers(5, kind) as servers:
        yield servers


@pytest.fixture
def fleet(five: Servers) -> Iterator[Servers]:
    """They, emptied."""
    for server in five.servers:
        server.command("FLUSHALL")
    yield five
    for server in five.servers:
        server.resume()


def pause(fleet: Servers, count: int) -> None:
    for server in fleet.servers[:count]:
        server.pause()


def resume(fleet: Servers) -> None:
    for server in fleet.servers:
        server.resume()


def used(locks: quorumlock.Locker) -> quorumlock.Locker:
    locks.lock("used", ttl=1).acquire(timeout=20).release()
    return locks


@pytest.mark.one_kind
def test_three_of_five_paused_is_no_quorum_in_time(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT))
    pause(fleet, 3)
    for timeout in (0.0, 0.3):
        with Stopwatch() as took, pytest.raises(NoQuorum) as broken:
            locks.lock("a", ttl=1).acquire(timeout=timeout)
        assert took.seconds < timeout + 3 * NODE_TIMEOUT + SLACK
        assert isinstance(broken.value, ConnectionError)
    for server in fleet.servers[:3]:
        assert server.label in str(broken.value)
    assert "did not answer in time" in str(broken.value)
    assert fleet[4].label not in str(broken.value), "a node that agreed is not to blame"


@pytest.mark.one_kind
def test_three_of_five_paused_is_no_quorum_in_time_with_asyncio(fleet: Servers, connect: Connect) -> None:
    used(connect(fleet))

    async def main() -> None:
        async with quorumlock.connect_async(fleet.urls, max_ttl=1, node_timeout=NODE_TIMEOUT) as locks:
            await (await locks.lock("used", ttl=1).acquire(timeout=20)).release()
            pause(fleet, 3)
            for timeout in (0.0, 0.3):
                with Stopwatch() as took, pytest.raises(NoQuorum, match="did not answer in time"):
                    await locks.lock("a", ttl=1).acquire(timeout=timeout)
                assert took.seconds < timeout + 3 * NODE_TIMEOUT + SLACK
            with pytest.raises(NoQuorum):
                await locks.lock("a", ttl=1).try_acquire()
            resume(fleet)
            lease = await locks.lock("a", ttl=1).acquire(timeout=20)
            await lease.release()

    asyncio.run(main())


@pytest.mark.one_kind
def test_try_acquire_says_no_quorum_and_not_none(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT))
    pause(fleet, 3)
    with Stopwatch() as took, pytest.raises(NoQuorum) as broken:
        locks.lock("a", ttl=1).try_acquire()
    assert took.seconds < 3 * NODE_TIMEOUT + SLACK
    assert broken.value.may_linger, "paused nodes may still execute what they were sent"


@pytest.mark.one_kind
def test_a_held_lock_is_no_quorum_too_while_nobody_can_tell(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT))
    locks.lock("a", ttl=1, keep=False).acquire()
    pause(fleet, 3)
    rival = connect(fleet, node_timeout=NODE_TIMEOUT)
    for _ in range(3):  # the first call finds out about the nodes; the later ones know
        with pytest.raises(NoQuorum):
            rival.lock("a", ttl=1).try_acquire()
    with pytest.raises(NoQuorum):
        locks.lock("a", ttl=1).locked()
    with pytest.raises(NoQuorum):
        locks.break_("b")


@pytest.mark.one_kind
def test_a_client_that_starts_while_the_majority_is_paused(fleet: Servers, connect: Connect) -> None:
    used(connect(fleet))
    pause(fleet, 3)
    locks = connect(fleet, node_timeout=NODE_TIMEOUT)
    with Stopwatch() as took, pytest.raises(NoQuorum):
        locks.lock("a", ttl=1).acquire(timeout=0.3)
    assert took.seconds < 0.3 + 3 * NODE_TIMEOUT + SLACK
    resume(fleet)
    locks.lock("a", ttl=1).acquire(timeout=20).release()


@pytest.mark.one_kind
def test_locks_again_within_a_second_of_resuming_without_a_new_client(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT))
    pause(fleet, 3)
    with pytest.raises(NoQuorum):
        locks.lock("a", ttl=1).acquire(timeout=0.3)
    resume(fleet)
    with Stopwatch() as took:
        lease = locks.lock("b", ttl=1).acquire(timeout=5)
    assert took.seconds < 1.0
    lease.release()
    nothing_is_left(fleet.servers, within=0.5, locks=locks)


@pytest.mark.one_kind
def test_patience_ends_a_wait_without_a_timeout(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT, patience=0.4, retry=Jitter(0.05)))
    pause(fleet, 3)
    with Stopwatch() as took, pytest.raises(NoQuorum, match="patience"):
        locks.lock("a", ttl=1).acquire(timeout=None)
    assert 0.3 < took.seconds < 0.4 + 3 * NODE_TIMEOUT + SLACK
    resume(fleet)
    locks.lock("a", ttl=1).acquire(timeout=20).release()


@pytest.mark.one_kind
def test_a_short_outage_within_patience_is_waited_out(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT, patience=5, retry=Jitter(0.05)))
    pause(fleet, 3)
    loop_end = time.monotonic() + 0.3

    async def main() -> None:
        waiting = asyncio.create_task(asyncio.to_thread(locks.lock("a", ttl=1).acquire))
        await asyncio.sleep(max(0.0, loop_end - time.monotonic()))
        resume(fleet)
        lease = await asyncio.wait_for(waiting, 3)
        lease.release()

    asyncio.run(main())


@pytest.mark.one_kind
def test_a_holder_that_loses_the_majority_is_told_unreachable(fleet: Servers, connect: Connect) -> None:
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT))
    lease = locks.lock("a", ttl=0.6).acquire()
    pause(fleet, 3)
    with Stopwatch() as took, pytest.raises(LeaseLost) as lost:
        lease.extend()
    assert lost.value.reason in (LossReason.UNREACHABLE, LossReason.EXPIRED)
    assert took.seconds < 0.6 + SLACK
    assert lease.lost.is_set()
    lease.release()
    resume(fleet)
    assert eventually(lambda: not any(exists(server, "a") for server in fleet.servers))


@pytest.mark.one_kind
def test_an_extend_outlasts_a_short_outage(fleet: Servers, connect: Connect) -> None:
    """Unknown is not lost: it is tried again while the lease is valid."""
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT, max_ttl=20))
    lease = locks.lock("a", ttl=20).acquire()
    pause(fleet, 3)

    async def main() -> None:
        extending = asyncio.create_task(asyncio.to_thread(lease.extend))
        assert await eventually_async(lambda: lease._grant.extensions > 1), "the first round has timed out"
        resume(fleet)
        await extending

    asyncio.run(main())
    lease.check()
    lease.release()


@pytest.mark.one_kind
def test_a_dead_minority_is_no_matter(make_servers: Make, connect: Connect) -> None:
    """holder-nodes-die: A holds all five; two die; a rival is refused, and A goes on."""
    fleet = make_servers(5)
    locks, rival = connect(fleet, node_timeout=0.3), connect(fleet, node_timeout=0.3)
    lease = locks.lock("a", ttl=1).acquire()
    assert eventually(lambda: all(get(server, "a") == lease.token for server in fleet.servers))
    fleet[0].kill()
    fleet[1].kill()
    assert rival.lock("a", ttl=1).try_acquire() is None
    for _ in range(3):
        lease.extend()
        assert rival.lock("a", ttl=1).try_acquire() is None
    other = rival.lock("b", ttl=1).acquire(timeout=20)
    other.release()
    fleet[2].kill()
    with pytest.raises(LeaseLost) as lost:
        lease.extend()
    assert lost.value.reason in (LossReason.UNREACHABLE, LossReason.EXPIRED)
    with pytest.raises(NoQuorum) as broken:
        rival.lock("a", ttl=1).try_acquire()
    assert all(fleet[dead].label in str(broken.value) for dead in range(3))


@pytest.mark.one_kind
def test_a_restarted_majority_waits_out_its_quarantine(make_servers: Make, connect: Connect) -> None:
    """majority-restart: nobody can lock for one max_ttl, the error counts down, and then all is well by itself."""
    fleet = make_servers(5)
    locks = used(connect(fleet, node_timeout=NODE_TIMEOUT))
    lease = locks.lock("held", ttl=1).acquire()
    for server in fleet.servers[:3]:
        server.restart()
    met_at = time.monotonic()
    with pytest.raises(NoQuorum) as broken:
        locks.lock("a", ttl=1).acquire(timeout=0.2)
    assert "quarantine" in str(broken.value)
    assert " s more" in str(broken.value)
    assert any(server.label in str(broken.value) for server in fleet.servers[:3])
    with pytest.raises(LeaseLost):
        lease.extend()
    locks.lock("a", ttl=1).acquire(timeout=20).release()
    since = time.monotonic() - met_at
    assert since < 1.0 + 1.0 + SLACK, f"quarantine is 1 s, and it took {since:.1f} s"
    assert since > 0.5, "restarted nodes granted at once"
