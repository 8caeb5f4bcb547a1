"""Whose a path and a client are, who may lock, and how operators see it: on ZooKeeper."""

from __future__ import annotations

import logging
import os
import threading

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

import quorumlock
from quorumlock import ConfigurationError, LeaseLost, LossReason, NoQuorum, Unsupported
from tests.cli.tools import quorumlock as command
from tests.support.processes import in_child
from tests.support.waiting import eventually

from .zookeeper_tools import Connect, connect, needs_zookeeper, new_root, shared, zk

__all__ = ["connect", "zk"]  # fixtures

pytestmark = needs_zookeeper()

# Whose it is.


def test_a_client_of_the_users_is_used_and_left_alone(connect: Connect) -> None:
    client = KazooClient(f"{shared().address}", timeout=5)
    assert not client.connected
    with quorumlock.connect(clients=[client], node_timeout=0.2, prefix=new_root()) as locks:
        assert repr(locks.engine) == f"<ZookeeperEngine zookeeper:{shared().address}>"
        with locks.lock("a", ttl=1) as lease:
            assert lease.fence
        assert client.connected, "started"
    assert not eventually(lambda: not client.connected, within=0.1), "it was stopped"
    second = quorumlock.connect(clients=[client], node_timeout=0.2, patience=0.2)
    second.lock("a", ttl=1).acquire().release()
    with pytest.raises(ConfigurationError, match=r"KazooClient\(timeout=6\.67\)"):
        second.lock("a", ttl=4).acquire()
    client.stop()
    with pytest.raises(NoQuorum, match="its client was stopped"):
        second.lock("a", ttl=1).acquire()
    second.close()
    client.close()


def test_a_path_of_something_else_is_refused(connect: Connect, zk: KazooClient) -> None:
    for data, words in [
        (b"", "belongs to something else"), (b"quorumlock locks 2", "newer quorumlock .format 2, this one knows 1"),
    ]:  # fmt: skip
        root = new_root()
        zk.create(f"{root}/locks", data, makepath=True)
        locks = connect(f"{shared().url}{root}")
        with pytest.raises(ConfigurationError, match=words):
            locks.lock("a").acquire()
        (state,) = locks.nodes()
        assert (state.state, state.server) == ("misfit", "zookeeper")


def test_who_is_not_let_in_is_told_so_without_secrets(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    logging.getLogger("kazoo").setLevel(0)
    root, host = new_root(), shared().address
    with connect(f"zookeeper://me:s3cret@{host}{root}") as mine, mine.lock("a") as lease:
        for login in ("me:wr0ng@", ""):
            other = connect(f"zookeeper://{login}{host}{root}", patience=0.1)
            with pytest.raises(NoQuorum, match=r"does not let us in \(its ACL does not allow this user") as denied:
                other.lock("a").acquire()
            assert host in str(denied.value)
            assert "wr0ng" not in str(denied.value) + repr(other.engine)
        again = connect(f"zookeeper://me:s3cret@{host}{root}")
        assert again.lock("a").try_acquire() is None
        said = "".join(record.getMessage() for record in caplog.records)
        assert "s3cret" not in said
        assert lease.token[:20] not in said


def test_who_may_only_read_can_look_but_not_lock(connect: Connect, zk: KazooClient) -> None:
    root = new_root()
    with connect(f"{shared().url}{root}") as locks:
        locks.lock("a").acquire().release()
    acl = [make_digest_acl("other", "x", all=True), make_digest_acl("me", "y", read=True)]
    for path in (f"{root}/locks", *(f"{root}/locks/{gate}" for gate in zk.get_children(f"{root}/locks"))):
        zk.set_acls(path, acl)
    reader = connect(f"zookeeper://me:y@{shared().address}{root}", patience=0.1)
    assert reader.list("*") == []
    assert not reader.lock("a").locked()
    with pytest.raises(NoQuorum, match="does not let us in"):
        reader.lock("a").acquire()


def test_a_child_locks_for_itself_and_owns_nothing_of_its_parents(connect: Connect) -> None:
    locks = connect()
    lease = locks.lock("a", ttl=3).acquire()

    def child() -> None:
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.FORKED
        lease.release()
        assert locks.lock("a", keep=False).try_acquire() is None
        with locks.lock("b", keep=False) as mine:
            assert mine.fence > lease.fence
        locks.close()

    in_child(child)
    lease.extend()
    lease.release()
    with locks.lock("b"):
        pass


def test_a_client_of_the_users_is_not_taken_into_a_child() -> None:
    client = KazooClient(shared().address, timeout=5)
    locks = quorumlock.connect(clients=[client], node_timeout=0.2, prefix=new_root())
    locks.lock("a", ttl=1).acquire().release()

    def child() -> None:
        with pytest.raises(quorumlock.EngineError, match="before this process was forked"):
            locks.lock("a", ttl=1).acquire()

    in_child(child)
    locks.lock("a", ttl=1).acquire().release()
    locks.close()
    client.stop()
    client.close()


# Looking after it.


def test_the_command_line_knows_it(connect: Connect) -> None:
    url = f"{shared().url}{new_root()}?session_timeout=20"
    env = {"QUORUMLOCK_URL": url}
    assert command("init", env=env).returncode == 0
    locks = connect(url)
    lease = locks.lock("orders:42", note="nightly").acquire()
    nodes = command("nodes", "--json", env=env)
    assert nodes.returncode == 0, nodes.stderr
    assert '"zookeeper"' in nodes.stdout
    assert '"3.8' in nodes.stdout
    assert "orders:42" in command("ls", env=env).stdout
    assert str(lease.fence) in command("show", "orders:42", env=env).stdout
    doctor = command("doctor", env=env)
    assert doctor.returncode in (0, 1), doctor.stderr
    assert "Traceback" not in doctor.stderr
    assert command("break", "orders:42", "--yes", env=env).returncode == 0
    done = command("run", "nightly", "--", "true", env=env)
    assert done.returncode == 0, f"its ttl is more than a session carries: {done.stderr}"
    assert eventually(lambda: not lease.held)


def test_a_node_tells_how_it_is_doing(connect: Connect) -> None:
    locks = connect()
    with locks.lock("a"):
        (state,) = locks.nodes()
    assert (state.state, state.role, state.server) == ("ready", "standalone", "zookeeper")
    assert state.version is not None
    assert state.version.startswith("3.")
    assert state.latency is not None
    assert state.clock_offset is not None
    assert abs(state.clock_offset) < 5


def test_there_is_no_journal_and_the_alternative_is_named(connect: Connect) -> None:
    assert not connect().journal().kept
    with pytest.raises(Unsupported, match="subscribe to the events"):
        connect(journal=100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_nothing_is_opened_before_it_is_asked_for() -> None:
    before = threading.active_count()
    locks = quorumlock.connect("zookeeper://127.0.0.1:1")
    assert threading.active_count() == before
    locks.close()
