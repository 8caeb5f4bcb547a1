"""The ends of waiting, for threads: what is forbidden, closed, interrupted or forked meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock.events import Event, Waiting
from quorumlock.lab.servers import Server, Servers
from tests.hazards.programs import ended, start
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .queues import CALM, LONG, SOON, Waiter, all_queued, calls, forget_calls, lockers, no_tickets, queued, taken
from .tools import keys

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]


@pytest.mark.one_kind
@pytest.mark.parametrize("refused", ["subscribe", "channel"])
def test_who_may_neither_subscribe_nor_publish_polls(make_servers: Make, connect: Connect, refused: str) -> None:
    server = make_servers(1)[0]
    rights = ["+@all", "-subscribe", "-publish", "&*"] if refused == "subscribe" else ["+@all", "resetchannels"]
    server.command("ACL", "SETUSER", "bob", "on", ">secret", "~*", *rights)
    url = f"redis://bob:secret@127.0.0.1:{server.port}"
    holder, other = connect([url], max_ttl=LONG), connect([url], max_ttl=LONG)
    lease = taken(holder)
    waits: list[Event] = []
    other.subscribe(lambda event: waits.append(event) if isinstance(event, Waiting) else None)
    waiters = [Waiter(other.lock("a", ttl=30)) for _ in range(2)]
    assert eventually(lambda: waits)
    assert eventually(lambda: len(other._runner.room._lines.get("a", ())) == 1)
    lease.release()
    for _ in range(2):
        assert eventually(lambda: any(waiter.over(0) for waiter in waiters), SOON)
        first = next(waiter for waiter in waiters if waiter.over(0))
        waiters.remove(first)
        first.has_it().release()
    assert keys(server, "ql:queue:*") == set()


@pytest.mark.one_kind
@pytest.mark.parametrize("count", [1, 3])
def test_a_locker_that_is_closed_lets_its_waiters_go(servers: Servers, connect: Connect, count: int) -> None:
    nodes = servers.servers[:count]
    holder, other = lockers(connect, servers.urls[:count], 2)
    lease = taken(holder)
    waiters = [Waiter(other.lock("a", ttl=30)) for _ in range(5)]
    fair = [Waiter(other.lock("a", ttl=30, fair=True)) for _ in range(2)]
    assert all_queued(nodes, 3)
    forget_calls(nodes)
    other.close()
    for waiter in (*waiters, *fair):
        assert waiter.over(), "a closed Locker keeps a thread"
        assert isinstance(waiter.error, quorumlock.ConfigurationError), waiter.error
    assert max(calls(server) for server in nodes) < 60, "it asked again and again"
    assert no_tickets(nodes)
    lease.release()


@pytest.mark.one_kind
def test_who_is_let_go_leaves_no_ticket_where_it_has_to_connect_anew(
    make_servers: Make, connect: Connect, put_proxy: Callable[[Server], Proxy]
) -> None:
    """The two others have answered long before the third has let anybody in."""
    nodes = make_servers(3).servers
    nodes[2].command("ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@all")
    proxy = put_proxy(nodes[2])
    slow = proxy.url.replace("//", "//bob:secret@")
    holder, other = lockers(connect, [nodes[0].url, nodes[1].url, slow], 2)
    for number, locks in enumerate((holder, other)):
        while not keys(nodes[2], f"*first-{number}*"):  # from then on it is connected to
            locks.lock(f"first-{number}", ttl=30).acquire().release()
    lease = taken(holder)
    waiters: list[Waiter] = []
    while not queued(nodes[2]):  # it may be free there, or just being connected to
        assert len(waiters) < 20
        lease.extend()
        waiters.append(Waiter(other.lock("a", ttl=30, fair=True)))
        assert all_queued(nodes, len(waiters))
    waiters += [Waiter(other.lock("a", ttl=30, fair=True)) for _ in range(9)]
    assert all_queued(nodes, len(waiters))
    proxy.delay = 0.1
    other.close()
    assert all(waiter.over() for waiter in waiters)
    assert no_tickets(nodes)
    lease.release()


@pytest.mark.one_kind
def test_a_keyboard_interrupt_ends_the_wait_and_leaves_no_ticket(servers: Servers, connect: Connect) -> None:
    nodes = servers.servers[:3]
    holder, other = lockers(connect, servers.urls[:3], 2)
    lease = taken(holder)
    source = """
locks = quorumlock.connect(urls, max_ttl=60, retry=quorumlock.Jitter(3600))
try:
    locks.lock("a", ttl=30).acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
locks.close()
"""
    with start(source, *servers.urls[:3]) as program:
        assert eventually(lambda: sum(queued(server) == 1 for server in nodes) >= 2, 20)
        waiter = Waiter(other.lock("a", ttl=30))
        assert all_queued(nodes, 2)
        program.send_signal(signal.SIGINT)
        said, complaints = ended(program)
        assert said == "interrupted\n"
        assert "Traceback" not in complaints
    assert all_queued(nodes, 1)
    lease.release()
    waiter.has_it().release()
    assert no_tickets(nodes)


@pytest.mark.one_kind
def test_a_fork_among_waiters_disturbs_neither_side(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3], **CALM)
    source = """
locks = quorumlock.connect(urls, max_ttl=60, retry=quorumlock.Jitter(3600))
rival = quorumlock.connect(urls, max_ttl=60, retry=quorumlock.Jitter(3600))
lease = rival.lock("a", ttl=30).acquire()
got = []
def wait():
    with locks.lock("a", ttl=30):
        got.append(1)
threads = [threading.Thread(target=wait) for _ in range(3)]
for thread in threads: thread.start()
time.sleep(0.5)
child = os.fork()
if child == 0:
    mine = locks.lock("b", ttl=30).acquire(timeout=5)
    mine.release()
    assert locks._runner.room.ears == set() and not locks._runner.room.waiting
    try:
        locks.lock("a", ttl=30).acquire(timeout=0.3)
    except quorumlock.AcquireTimeout:
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(child, 0)
lease.release()
for thread in threads: thread.join(10)
print(os.waitstatus_to_exitcode(status), len(got), flush=True)
locks.close(); rival.close()
"""
    with start(source, *servers.urls[:3]) as program:
        said, complaints = ended(program, 30)
    assert said == "7 3\n", complaints
    assert no_tickets(servers.servers[:3])
