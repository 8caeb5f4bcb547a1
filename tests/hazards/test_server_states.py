"""Every state in which a real server refuses to work is that node's vote: named, counted, and outvoted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
import redis

import quorumlock
from quorumlock import ConfigurationError, NoQuorum, Unsupported
from quorumlock.lab.servers import Server, Servers, free_port
from tests.live.attribution import nothing_is_left
from tests.live.tools import exists, lock_keys
from tests.support.waiting import eventually

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]


@pytest.fixture(scope="module")
def three(kind: str) -> Iterator[Servers]:
    """Three servers of this module; each test puts the first one right again."""
    with Servers(3, kind, arguments=["--lua-time-limit", "30"]) as servers:
        yield servers


class Patient:
    """A fleet whose first node is going to be ill, seen by a client of all three and by one of it alone."""

    def __init__(self, fleet: Servers, connect: Connect) -> None:
        self.fleet = fleet
        self.node = fleet[0]
        self.connect = connect
        self.three = connect(fleet, node_timeout=0.4)
        self.alone = connect([self.node.url], init=False, prefix="alone:", node_timeout=0.2)
        for locks in (self.three, self.alone):
            lease = locks.lock("warm", ttl=1).acquire(timeout=20)
            lease.extend()
            lease.release()

    def says(self, words: str) -> bool:
        """Whether the first node, asked alone, is said to be ill in these words."""
        with pytest.raises(NoQuorum) as broken:
            self.alone.lock("a", ttl=1).try_acquire()
        return words in str(broken.value)

    def is_named(self, *words: str) -> NoQuorum:
        """Alone it means NoQuorum, with the node and the cause; among three it is outvoted."""
        with pytest.raises(NoQuorum) as broken:
            self.alone.lock("a", ttl=1).try_acquire()
        for word in (self.node.label, *words):
            assert word in str(broken.value)
        for _ in range(2):
            lease = self.three.lock("b", ttl=1).try_acquire()
            assert lease is not None
            lease.extend()
            assert self.three.lock("b", ttl=1).try_acquire() is None
            lease.release()
        return broken.value

    def is_well_again(self) -> None:
        def locks() -> bool:
            try:
                lease = self.alone.lock("c", ttl=1).try_acquire()
            except NoQuorum:
                return False
            assert lease is not None
            lease.release()
            return True

        assert eventually(locks)
        assert eventually(lambda: not lock_keys(self.fleet.servers))


@pytest.fixture
def patient(three: Servers, connect: Connect) -> Patient:
    for server in three.servers:
        server.command("FLUSHALL")
    return Patient(three, connect)


@pytest.mark.parametrize("count", [1, 3])
def test_scripts_that_were_forgotten_are_sent_in_the_same_round(
    servers: Servers, connect: Connect, count: int
) -> None:
    """NOSCRIPT, after SCRIPT FLUSH or a restart: nobody notices."""
    nodes = servers.servers[:count]
    locks = connect(servers.urls[:count], node_timeout=0.25)

    def forget() -> None:
        for node in nodes:
            assert node.command("SCRIPT", "FLUSH") == b"+OK\r\n"

    for _ in range(3):
        forget()
        lease = locks.lock("a", ttl=1).try_acquire()
        assert lease is not None
        forget()
        lease.extend()
        forget()
        assert locks.lock("a", ttl=1).locked()
        forget()
        assert locks.lock("a", ttl=1).try_acquire() is None
        forget()
        lease.release()
        nothing_is_left(nodes, locks=locks)
        forget()
        locks.break_("a")


def test_out_of_memory(patient: Patient) -> None:
    lease = patient.alone.lock("held", ttl=1).acquire()
    patient.node.command("CONFIG", "SET", "maxmemory", "1")
    try:
        patient.is_named("OOM")
        lease.release()
        assert not exists(patient.node, "alone:held"), "a release needs no memory"
    finally:
        patient.node.command("CONFIG", "SET", "maxmemory", "0")
    patient.is_well_again()


def test_turned_into_a_replica(patient: Patient) -> None:
    patient.node.command("REPLICAOF", "127.0.0.1", "1")
    try:
        patient.is_named("READONLY")
    finally:
        patient.node.command("REPLICAOF", "NO", "ONE")
    patient.is_well_again()


def test_busy_with_a_script(patient: Patient) -> None:
    endless = threading.Thread(
        target=patient.node.command, args=("EVAL", "while true do end", "0"), kwargs={"timeout": 5.0}
    )
    endless.start()
    try:
        assert eventually(lambda: patient.node.command("PING", timeout=1.0).startswith(b"-BUSY"))
        patient.is_named("BUSY")
    finally:
        patient.node.command("SCRIPT", "KILL")
        endless.join()
    patient.is_well_again()


def test_paused_by_client_pause(patient: Patient) -> None:
    patient.node.command("CLIENT", "PAUSE", "60000", "WRITE")
    patient.is_named("did not answer in time")
    patient.node.command("CLIENT", "UNPAUSE")
    patient.is_well_again()
    patient.node.command("CLIENT", "PAUSE", "1500", "ALL")  # only time ends that: UNPAUSE would wait, too
    patient.is_named("did not answer in time")
    patient.is_well_again()


def test_a_password_set_at_run_time(patient: Patient) -> None:
    node = patient.node
    node.command("CONFIG", "SET", "requirepass", "sesame")
    with ExitStack() as stack:
        door = stack.enter_context(redis.Redis(port=node.port, password="sesame", decode_responses=True))
        stack.callback(door.config_set, "requirepass", "")
        door.client_kill_filter(_type="normal", skipme=True)
        assert eventually(lambda: patient.says("wants a password"))
        patient.is_named("wants a password")
    patient.is_well_again()


@pytest.mark.parametrize("denied", ["evalsha", "eval", "set", "time"])
def test_a_user_who_may_not(patient: Patient, denied: str) -> None:
    """Without EVAL, a server that has forgotten its scripts cannot be taught them."""
    node = patient.node
    node.command("ACL", "SETUSER", "bob", "reset", "on", ">pw", "~*", "&*", "+@all", f"-{denied}")
    node.command("SCRIPT", "FLUSH")
    locks = patient.connect([f"redis://bob:pw@127.0.0.1:{node.port}"], init=False, prefix="bob:")
    with pytest.raises(NoQuorum, match=r"NOPERM|can't run this command|ACL failure|NOSCRIPT") as broken:
        locks.lock("a", ttl=1).try_acquire()
    assert node.label in str(broken.value)
    assert not exists(node, "bob:a")


def test_a_user_who_may_not_use_client_still_locks(patient: Patient) -> None:
    """CLIENT ID and CLIENT KILL are for orphans: without them, one may live for a ttl."""
    node = patient.node
    node.command("ACL", "SETUSER", "bob", "reset", "on", ">pw", "~*", "&*", "+@all", "-client")
    locks = patient.connect([f"redis://bob:pw@127.0.0.1:{node.port}"], init=False, prefix="bob:")
    for _ in range(2):
        with locks.lock("a", ttl=1) as lease:
            lease.extend()
        node.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_writes_stopped_because_saving_failed(patient: Patient) -> None:
    node = patient.node
    blocked = node.folder / "dump.rdb"
    blocked.mkdir()
    (blocked / "in the way").touch()
    try:
        node.command("CONFIG", "SET", "save", "3600 1")
        node.command("BGSAVE")
        assert eventually(lambda: node.command("SET", "x", "y", "PX", "1").startswith(b"-MISCONF"))
        patient.is_named("MISCONF")
    finally:
        node.command("CONFIG", "SET", "save", "")
        (blocked / "in the way").unlink()
        blocked.rmdir()
        node.command("BGSAVE")
        assert eventually(lambda: node.command("SET", "x", "y", "PX", "1") == b"+OK\r\n")
    patient.is_well_again()


def test_a_key_of_another_type_is_not_overwritten(patient: Patient) -> None:
    for server in patient.fleet.servers:
        server.command("HSET", "b", "field", "value")
    patient.node.command("HSET", "alone:a", "field", "value")
    with pytest.raises(NoQuorum, match="key of another kind") as broken:
        patient.three.lock("b", ttl=1).try_acquire()
    assert patient.node.label in str(broken.value) or patient.fleet[1].label in str(broken.value)
    with pytest.raises(NoQuorum, match="key of another kind"):
        patient.alone.lock("a", ttl=1).acquire(timeout=0.1)
    with pytest.raises(NoQuorum, match="key of another kind"):
        patient.three.break_("b")
    for server in patient.fleet.servers:
        assert server.command("HGET", "b", "field") == b"$5\r\nvalue\r\n"
        assert server.command("PTTL", "b") == b":-1\r\n"
        server.command("DEL", "b", "alone:a")


def test_a_key_of_another_type_on_one_node_is_outvoted(patient: Patient) -> None:
    patient.node.command("LPUSH", "b", "value")
    lease = patient.three.lock("b", ttl=1).try_acquire()
    assert lease is not None
    lease.extend()
    lease.release()
    assert patient.node.command("LRANGE", "b", "0", "-1") == b"*1\r\n$5\r\nvalue\r\n"
    patient.node.command("DEL", "b")


@pytest.mark.one_kind
def test_loading_its_data(kind: str, connect: Connect) -> None:
    """A server that reads a big file at its start says LOADING; then it is well by itself."""
    arguments = ["--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"]
    with Server(kind, arguments=arguments) as node:
        with redis.Redis(port=node.port) as client:
            client.mset({f"key-{index}": "x" for index in range(3000)})
            client.save()
        locks = connect([node.url], init=False, node_timeout=0.4)
        node.kill()
        node.start(wait=False)
        assert eventually(lambda: node.command("PING").startswith(b"-LOADING"))
        with pytest.raises(NoQuorum, match="LOADING") as broken:
            locks.lock("a", ttl=1).try_acquire()
        assert node.label in str(broken.value)
        locks.lock("a", ttl=1).acquire(timeout=20).release()


def test_too_many_clients(patient: Patient) -> None:
    """New connections are accepted, told off and closed; who is connected already works on."""
    node = patient.node
    with redis.Redis(port=node.port, decode_responses=True) as door:
        most = door.config_get("maxclients")["maxclients"]
        door.config_set("maxclients", 1)
        try:
            late = patient.connect([node.url], init=False, prefix="late:", node_timeout=0.1)
            with pytest.raises(NoQuorum, match=node.label):
                late.lock("a", ttl=1).try_acquire()
            patient.three.lock("b", ttl=1).acquire(timeout=0).release()
        finally:
            door.config_set("maxclients", most)
    late.lock("a", ttl=1).acquire(timeout=20).release()
    patient.is_well_again()


def test_a_policy_that_may_evict_locks(patient: Patient) -> None:
    """Refused for three nodes, whichever of them it is; a new client finds out."""
    patient.node.command("CONFIG", "SET", "maxmemory", "100mb")
    try:
        for policy in ("volatile-lru", "allkeys-random", "volatile-ttl"):
            patient.node.command("CONFIG", "SET", "maxmemory-policy", policy)
            locks = patient.connect(patient.fleet)
            with pytest.raises(ConfigurationError, match=policy) as refused:
                locks.lock("a", ttl=1).try_acquire()
            assert patient.node.label in str(refused.value)
    finally:
        patient.node.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        patient.node.command("CONFIG", "SET", "maxmemory", "0")
    patient.is_well_again()


def test_a_cluster(kind: str, connect: Connect) -> None:
    """MOVED, CLUSTERDOWN, CROSSSLOT: it is said what is wrong, and nothing is locked."""
    with Server(kind, arguments=["--cluster-enabled", "yes", "--cluster-port", str(free_port())]) as node:
        locks = connect([node.url], init=False)
        for _ in range(2):
            with pytest.raises(Unsupported, match="Cluster"):
                locks.lock("a", ttl=1).try_acquire()
        assert node.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383") == b"+OK\r\n"
        assert eventually(lambda: b"cluster_state:ok" in node.command("CLUSTER", "INFO"), 10)
        with pytest.raises(Unsupported, match="Cluster"):  # one that has all slots, and could answer
            connect([node.url], init=False).lock("a", ttl=1).try_acquire()


def test_not_a_redis_at_all(connect: Connect) -> None:
    """Somebody else listens on that port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            for _ in range(2):
                with listener.accept()[0] as client:
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    with suppress(ConnectionResetError):
                        while client.recv(65536):
                            pass  # until it has hung up

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        locks = connect([f"redis://127.0.0.1:{port}"], init=False)
        with pytest.raises(NoQuorum, match=f"127.0.0.1:{port}"):
            locks.lock("a", ttl=1).try_acquire()
        socket.create_connection(("127.0.0.1", port)).close()  # if it has not been asked twice
        server.join(timeout=20)
        assert not server.is_alive()
