"""Waiting without polling, for threads: who is told, when connections break, processes die and people give up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock import AcquireTimeout
from quorumlock.lab.servers import Server, Servers
from tests.hazards.programs import start
from tests.support.proxy import Line, Proxy
from tests.support.waiting import eventually

from .queues import (
    LONG,
    SOON,
    Crowd,
    Waiter,
    all_queued,
    calls,
    forget_calls,
    handed_on,
    lockers,
    no_tickets,
    queued,
    taken,
    tickets,
)
from .tools import SLACK

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.5)]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]
Put = Callable[[Server], Proxy]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_release_hands_the_lock_over_without_any_poll(servers: Servers, connect: Connect, count: int) -> None:
    nodes = servers.servers[:count]
    holder, *others = lockers(connect, servers.urls[:count], 5)
    lease = taken(holder)
    waiters = [Waiter(locks.lock("a", ttl=30)) for locks in others]
    assert all_queued(nodes, 4)
    lease.release()
    assert sorted(handed_on(waiters)) == [0, 1, 2, 3]
    assert no_tickets(nodes)


def test_each_locker_has_one_channel_of_its_own_on_every_node(servers: Servers, connect: Connect) -> None:
    nodes = servers.servers[:3]
    before = [server.command("PUBSUB", "CHANNELS") for server in nodes]
    holder, one, two = lockers(connect, servers.urls[:3], 3)
    leases = [holder.lock(name, ttl=30).acquire() for name in "abcd"]
    waiters = [Waiter(locks.lock(name, ttl=30)) for locks in (one, two) for name in "abcd"]
    for name in "abcd":
        assert all_queued(nodes, 2, name)

    def wake_channels(server: Server, known: bytes) -> int:
        channels = set(server.command("PUBSUB", "CHANNELS").split()) - set(known.split())
        return sum(b"ql:wake:" in channel for channel in channels)

    assert eventually(lambda: all(wake_channels(*pair) == 2 for pair in zip(nodes, before, strict=True)))
    for lease in leases:
        lease.release()
    handed_on(waiters)
    assert no_tickets(nodes)


@pytest.mark.one_kind
@pytest.mark.parametrize("dies", ["before", "meanwhile"])
def test_hand_over_with_one_node_dead(make_servers: Make, connect: Connect, dies: str) -> None:
    fleet = make_servers(3)
    holder, one, two = lockers(connect, fleet.urls, 3)
    if dies == "before":
        fleet[0].kill()
    lease = taken(holder)
    waiters = [Waiter(locks.lock("a", ttl=30)) for locks in (one, two)]
    assert all_queued(fleet.servers if dies == "meanwhile" else fleet.servers[1:], 2)
    if dies == "meanwhile":
        fleet[0].kill()
    lease.release()
    handed_on(waiters)
    assert no_tickets(fleet.servers[1:])


@pytest.mark.parametrize("count", [1, 3])
def test_hand_over_while_subscriptions_are_cut_again_and_again(
    servers: Servers, connect: Connect, count: int
) -> None:
    nodes = servers.servers[:count]
    locks = lockers(connect, servers.urls[:count], 4)
    stop = threading.Event()
    cuts: list[int] = []

    def cut() -> None:
        while not stop.wait(0.013):
            nodes[len(cuts) % count].command("CLIENT", "KILL", "TYPE", "pubsub")
            cuts.append(1)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        for _ in range(8):
            lease = taken(locks[0])
            waiters = [Waiter(one.lock("a", ttl=30)) for one in locks[1:]]
            before = len(cuts)
            assert eventually(lambda: len(cuts) >= before + 2)  # noqa: B023
            lease.release()
            handed_on(waiters)
    finally:
        stop.set()
        cutter.join()
    assert no_tickets(nodes)


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_who_begins_to_wait_just_after_its_subscriptions_were_cut_is_told_all_the_same(
    servers: Servers, connect: Connect, count: int
) -> None:
    """For a moment there is nothing to be told by, and nobody tries to change that unless somebody waits."""
    nodes = servers.servers[:count]
    holder, other = lockers(connect, servers.urls[:count], 2)
    lease = taken(holder)
    waiter = Waiter(other.lock("a", ttl=30))
    assert all_queued(nodes, 1)
    lease.release()
    waiter.has_it().release()
    for _ in range(3):  # more than one failure makes the pause before the next try longer
        for server in nodes:
            server.command("CLIENT", "KILL", "TYPE", "pubsub")
        lease = taken(holder)
        waiter = Waiter(other.lock("a", ttl=30))
        assert all_queued(nodes, 1)
        lease.release()
        waiter.has_it().release()
    assert no_tickets(nodes)


@pytest.mark.one_kind
def test_a_head_that_was_killed_is_dropped_and_the_next_is_told(servers: Servers, connect: Connect) -> None:
    nodes = servers.servers[:3]
    holder, other = lockers(connect, servers.urls[:3], 2)
    lease = taken(holder)
    source = (
        "quorumlock.connect(urls, max_ttl=60, node_timeout=1, retry=quorumlock.Jitter(3600)).lock('a').acquire()"
    )
    with start(source, *servers.urls[:3]) as program:
        assert eventually(lambda: sum(queued(server) == 1 for server in nodes) >= 2, 20)
        waiter = Waiter(other.lock("a", ttl=30))
        assert all_queued(nodes, 2)
        program.send_signal(signal.SIGKILL)
        program.wait(10)
    lease.release()
    waiter.has_it().release()
    assert no_tickets(nodes)


@pytest.mark.real_time(0.2)
@pytest.mark.one_kind
def test_a_holder_that_was_killed_is_succeeded_when_its_time_is_over_and_not_by_all_at_once(
    servers: Servers, connect: Connect
) -> None:
    nodes = servers.servers[:3]
    others = lockers(connect, servers.urls[:3], 10)
    source = "lease = quorumlock.connect(urls, max_ttl=60, node_timeout=0.5).lock('a', ttl=1).acquire()\n"
    source += "print('held', flush=True)\n"
    with start(source + "time.sleep(60)", *servers.urls[:3]) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        waiters = [Waiter(locks.lock("a", ttl=30)) for locks in others]
        assert all_queued(nodes, 10)
        program.send_signal(signal.SIGKILL)
        program.wait(10)
        killed_at = time.monotonic()
        forget_calls(nodes)
        assert eventually(lambda: any(waiter.over(0) for waiter in waiters), 1 + SOON)
        took = time.monotonic() - killed_at
        asked = max(calls(server) for server in nodes)
    assert took < 1 + SLACK
    # Each needs one attempt, and perhaps what undoes it; a herd would need many more.
    assert asked <= 10 * 4, f"{asked} scripts on one node"
    handed_on(waiters)
    assert no_tickets(nodes)


@pytest.mark.one_kind
def test_announcements_that_are_lost_are_made_up_for_by_the_poll(
    servers: Servers, connect: Connect, put_proxy: Put
) -> None:
    """The subscription looks alive to the server, but nothing comes through it."""
    connect(servers.urls[:1], max_ttl=LONG).close()
    proxy = put_proxy(servers[0])
    holder = connect(servers.urls[:1], init=False, max_ttl=LONG)
    other = connect([proxy.url], init=False, max_ttl=LONG)
    lease = taken(holder)
    waiter = Waiter(other.lock("a", ttl=30))
    assert all_queued([servers[0]], 1)
    assert eventually(lambda: subscription(servers[0], proxy))
    line = subscription(servers[0], proxy)
    assert line is not None
    line.answers_flow.clear()
    lease.release()
    waiter.has_it(2 + SOON).release()


def subscription(server: Server, proxy: Proxy) -> Line | None:
    """The line on which the client is subscribed, by what the server says."""
    listed = server.command("CLIENT", "LIST", "TYPE", "pubsub")
    return next((line for line in proxy.lines if b":%d " % line.server.getsockname()[1] in listed), None)


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_of_many_threads_one_asks_the_nodes(servers: Servers, connect: Connect, count: int) -> None:
    nodes = servers.servers[:count]
    holder, other = lockers(connect, servers.urls[:count], 2)
    lease = taken(holder)
    forget_calls(nodes)
    waiters = [Waiter(other.lock("a", ttl=30)) for _ in range(50)]
    assert all_queued(nodes, 1)
    room = other._runner.room
    assert eventually(lambda: len(room._lines.get("a", ())) == 49), "they wait behind the one that asks"
    assert max(calls(server) for server in nodes) <= 2 * 3, "each attempt, and what undoes it"
    assert max(queued(server) for server in nodes) == 1
    lease.release()
    assert sorted(handed_on(waiters)) == list(range(50))
    assert no_tickets(nodes)
    assert not any((room._contenders, room._lines, room._tickets, room.held))


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_a_process_with_many_threads_does_not_starve_one_with_few(
    servers: Servers, connect: Connect, count: int
) -> None:
    many, few = lockers(connect, servers.urls[:count], 2)
    crowd = Crowd(many.lock("a", ttl=30), 12)
    ours, nodes = few._runner.room.id, servers.servers[:count]

    def stands_on() -> int:
        return sum(ours in tickets(node) for node in nodes)

    def has_gone() -> bool:
        few.lock("something else", ttl=1).locked()  # a minority is told when its locker speaks again
        return stands_on() == 0

    try:
        assert eventually(lambda: crowd.taken > 50, SOON)
        waits = []
        for _ in range(20):
            assert eventually(has_gone, SOON)
            waiter = Waiter(few.lock("a", ttl=30), count=lambda: crowd.taken)
            # How long it takes until a majority has it in the queue is a matter of who is given the processor:
            # the first to wait is told by, and stands in the queues of, those it has subscribed to by then.
            assert eventually(lambda: waiter.over(0) or stands_on() > count // 2, SOON)  # noqa: B023
            before = crowd.taken
            waiter.has_it().release()
            waits.append(waiter.counted - before)
    finally:
        crowd.stop()
    assert not crowd.errors
    # Whoever came before us may go first; then it is our turn, after the hand-overs that a process is allowed.
    assert max(waits) <= 12 + 3 * 5, waits
    assert no_tickets(servers.servers[:count])


@pytest.mark.real_time(0.2)
@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_who_gives_up_takes_its_ticket_away_and_wakes_the_next(
    servers: Servers, connect: Connect, count: int
) -> None:
    nodes = servers.servers[:count]
    holder, one, two = lockers(connect, servers.urls[:count], 3)
    lease = taken(holder)
    impatient, patient = Waiter(one.lock("a", ttl=30), timeout=1.5), Waiter(two.lock("a", ttl=30))
    assert all_queued(nodes, 2)
    assert impatient.over()
    assert type(impatient.error) is AcquireTimeout
    assert all_queued(nodes, 1)
    lease.release()
    patient.has_it().release()
    assert no_tickets(nodes)


@pytest.mark.real_time(0.2)
@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_a_ticket_is_taken_away_over_a_new_connection_where_the_old_one_was_closed(
    servers: Servers, connect: Connect, count: int
) -> None:
    """Servers close connections that idle, and who waits for long idles."""
    nodes = servers.servers[:count]
    holder, one, two = lockers(connect, servers.urls[:count], 3)
    lease = taken(holder)
    impatient, patient = Waiter(one.lock("a", ttl=30), timeout=1.5), Waiter(two.lock("a", ttl=30))
    assert all_queued(nodes, 2)
    for server in nodes:
        server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert impatient.over()

    def has_gone() -> bool:
        one.lock("something else", ttl=1).locked()  # a minority is told when its locker speaks again
        return not any(one._runner.room.id in tickets(node) for node in nodes)

    assert eventually(has_gone, SOON), "its ticket is still there"
    lease.release()
    patient.has_it().release()


@pytest.mark.one_kind
def test_who_waited_and_has_it_is_not_shown_as_waiting(servers: Servers, connect: Connect) -> None:
    """Its ticket stands in the queue until the release: whoever comes next is told then."""
    nodes = servers.servers[:3]
    holder, one, two, looker = lockers(connect, servers.urls[:3], 4)
    lease = taken(holder)
    waiter = Waiter(one.lock("a", ttl=30))
    assert all_queued(nodes, 1)
    assert len(looker.inspect("a").waiters) == 1
    lease.release()
    given = waiter.has_it()
    assert any(queued(node) for node in nodes), "there is nothing to leave out"
    assert looker.inspect("a").waiters == ()
    patient = Waiter(two.lock("a", ttl=30))
    assert all_queued(nodes, 2)
    assert len(looker.inspect("a").waiters) == 1
    given.release()
    patient.has_it().release()
    assert no_tickets(nodes)
