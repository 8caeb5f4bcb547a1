"""`quorumlock init` on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import quorumlock as ql
from quorumlock.lab.servers import Servers, free_port

from .tools import complaint, quorumlock

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., ql.Locker]


def test_a_new_fleet_locks_at_once(servers: Servers, connect: Connect) -> None:
    done = quorumlock("init", "--max-ttl", "1", *(f"--url={url}" for url in servers.urls[:3]))
    assert done.returncode == 0, done.stderr
    assert "fleet of 3 nodes, max_ttl 1 s" in done.stdout
    assert servers[2].label in done.stdout
    assert done.stderr == ""
    with connect(servers.urls[:3], init=False).lock("orders", ttl=1, timeout=0) as lease:
        lease.check()


def test_without_it_a_new_fleet_waits(servers: Servers, connect: Connect) -> None:
    with pytest.raises(ql.NoQuorum, match="quarantine"):
        connect(servers.urls[:3], init=False).lock("orders", ttl=1).try_acquire()


def test_the_url_may_come_from_the_environment(servers: Servers, connect: Connect) -> None:
    done = quorumlock("init", "--max-ttl=1", "--prefix=app:", env={"QUORUMLOCK_URL": ",".join(servers.urls)})
    assert "fleet of 5 nodes under the prefix 'app:'" in done.stdout
    with connect(servers, init=False, prefix="app:").lock("orders", ttl=1, timeout=0):
        pass


def test_one_node_and_a_named_fleet(servers: Servers, connect: Connect) -> None:
    told = json.loads(quorumlock("init", "--json", "--url", servers[0].url).stdout)
    assert told == {"nodes": [servers[0].label], "wait": 0, "prefix": "", "max_ttl": 60.0}
    urls = servers.urls[1:4]
    named = quorumlock("init", "--max-ttl=1", "--fleet=blue", "--durable", "--url", ",".join(urls))
    assert named.returncode == 0, named.stderr
    with connect(urls, init=False, fleet="blue", durable=True).lock("orders", ttl=1, timeout=0):
        pass
    with pytest.raises(ql.ConfigurationError, match="node list"):
        connect(urls, init=False, fleet="green", durable=True).lock("orders", ttl=1).try_acquire()


def test_a_fleet_is_initialised_once_unless_forced(servers: Servers, connect: Connect) -> None:
    call = ("init", "--max-ttl", "1", "--url", ",".join(servers.urls[:3]))
    assert quorumlock(*call).returncode == 0
    again = complaint(quorumlock(*call), 64)
    assert "3 of 3 nodes already belong to a fleet" in again
    assert "init --force" in again

    forced = quorumlock(*call, "--force")
    assert forced.returncode == 0, forced.stderr
    assert "grants nothing for" in forced.stdout
    lock = connect(servers.urls[:3], init=False).lock("orders", ttl=1)
    with pytest.raises(ql.NoQuorum, match="quarantine"):
        lock.try_acquire()
    lock.acquire(timeout=5).release()


def test_a_node_that_is_down_is_named(servers: Servers) -> None:
    gone = f"127.0.0.1:{free_port()}"
    done = quorumlock("init", "--url", ",".join([*servers.urls[:2], f"redis://:geheim@{gone}"]))
    said = complaint(done, 69)
    assert gone in said
    assert "geheim" not in said
    assert servers[0].command("EXISTS", "ql:node") == b":0\r\n"  # all or nothing


def test_a_node_that_hangs_is_named(make_servers: Callable[..., Servers]) -> None:
    servers = make_servers(3)
    servers[1].pause()
    assert servers[1].label in complaint(quorumlock("init", "--url", ",".join(servers.urls)), 69)


def test_a_wrong_password_is_not_shown(make_servers: Callable[..., Servers]) -> None:
    servers = make_servers(1)
    servers[0].command("CONFIG", "SET", "requirepass", "richtig")
    wrong = servers[0].url.replace("//", "//:geheim@")
    said = complaint(quorumlock("init", "--url", wrong), 69)
    assert servers[0].label in said
    assert "geheim" not in said
    right = quorumlock("init", env={"QUORUMLOCK_URL": servers[0].url.replace("//", "//:richtig@")})
    assert right.returncode == 0, right.stderr
    assert "richtig" not in right.stdout + right.stderr


def test_a_replica_is_a_mistake_of_the_deployment(make_servers: Callable[..., Servers]) -> None:
    servers = make_servers(3)
    servers[2].command("REPLICAOF", "127.0.0.1", str(servers[0].port))
    assert "independent masters" in complaint(quorumlock("init", "--url", ",".join(servers.urls)), 64)
