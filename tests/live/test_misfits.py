"""Deployments that would fake a majority, or forget locks, are refused at the first use, with the reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
import redis
import redis.sentinel

import quorumlock
from quorumlock import ConfigurationError, NoQuorum, Unsupported
from quorumlock.lab.servers import Server, Servers, free_port
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

from .tools import get

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.2)]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]


def refused(locks: quorumlock.Locker) -> str:
    """What the first use says."""
    with pytest.raises(ConfigurationError) as wrong:
        locks.lock("a", ttl=1).try_acquire()
    return str(wrong.value)


def test_a_cluster_is_unsupported(make_servers: Make, connect: Connect) -> None:
    server = make_servers(1, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    locks = connect(server, init=False)
    with pytest.raises(Unsupported, match="Cluster"):
        locks.lock("a", ttl=1).try_acquire()


@pytest.mark.one_kind
def test_a_server_under_two_names_is_refused(servers: Servers, connect: Connect) -> None:
    """localhost and 127.0.0.1: found out by the run id. It would vote twice."""
    one, two = servers[0].port, servers[1].port
    urls = [f"redis://127.0.0.1:{one}", f"redis://localhost:{one}", f"redis://127.0.0.1:{two}"]
    locks = connect(urls, init=False)
    with pytest.raises(ConfigurationError, match="one server"):
        locks.init_fleet()
    said = refused(locks)
    assert "one server" in said
    assert f"localhost:{one}" in said
    assert get(servers[1], "a") is None


@pytest.mark.one_kind
def test_two_databases_of_a_server_are_refused(servers: Servers) -> None:
    url = servers[0].url
    with pytest.raises(ConfigurationError, match="one server"):
        quorumlock.connect([f"{url}/0", f"{url}/1", servers[1].url])


@pytest.mark.one_kind
def test_a_server_that_becomes_a_duplicate_later_gets_no_second_vote(
    servers: Servers, connect: Connect, put_proxy: Callable[[Server], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer or a changed DNS entry now leads to a server that is in the list already."""
    monkeypatch.setattr("quorumlock.runners.cable.TRUSTED", 0.0)  # it looks at once whether a connection ended
    proxies = [put_proxy(server) for server in servers.servers[:3]]
    locks = connect([proxy.url for proxy in proxies])
    locks.lock("a", ttl=1).acquire().release()
    proxies[2].target = servers[0]
    proxies[2].cut()
    proxies[1].refusing = True
    proxies[1].cut()
    with pytest.raises((NoQuorum, ConfigurationError), match="one server"):
        locks.lock("b", ttl=1).acquire(timeout=0.3)


def test_a_replica_is_refused(make_servers: Make, connect: Connect) -> None:
    fleet = make_servers(3)
    fleet[2].command("REPLICAOF", "127.0.0.1", str(fleet[0].port))
    assert "slave" in (said := refused(connect(fleet, init=False))) or "replica" in said
    assert fleet[2].label in said
    assert "master" in refused(connect([fleet[2].url], init=False))


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru", "volatile-ttl"])
def test_eviction_is_refused_for_three_and_warned_of_for_one(
    make_servers: Make, connect: Connect, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    fleet = make_servers(3, "--maxmemory", "100mb", "--maxmemory-policy", policy)
    said = refused(connect(fleet, init=False))
    assert "evict" in said
    assert policy in said
    alone = connect([fleet[0].url], init=False, prefix="alone:")
    with caplog.at_level(logging.WARNING, "quorumlock"):
        alone.lock("a", ttl=1).acquire().release()
    assert any("evict" in record.getMessage() for record in caplog.records)


def test_noeviction_with_a_limit_is_fine(make_servers: Make, connect: Connect) -> None:
    fleet = make_servers(3, "--maxmemory", "100mb")
    connect(fleet).lock("a", ttl=1).acquire().release()


def test_a_user_without_info_is_refused_where_a_restart_would_go_unnoticed(
    servers: Servers, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    urls = []
    for server in servers.servers[:3]:
        server.command("ACL", "SETUSER", "eve", "reset", "on", ">pw", "~*", "&*", "+@all", "-info")
        urls.append(f"redis://eve:pw@127.0.0.1:{server.port}")
    assert "INFO" in refused(connect(urls, init=False))
    alone = connect(urls[:1], init=False, prefix="alone:")
    with caplog.at_level(logging.WARNING, "quorumlock"):
        alone.lock("a", ttl=1).acquire().release()
    assert any("INFO" in record.getMessage() for record in caplog.records)


@pytest.mark.one_kind
def test_other_terms_are_refused(servers: Servers, connect: Connect) -> None:
    """mixed-fleet: majorities of different lists need not meet."""
    locks = connect(servers.urls[:3], fleet="shop")
    locks.lock("a", ttl=1).acquire().release()
    five = refused(connect(servers.urls, fleet="shop"))
    assert "number of nodes 3 there, 5 here" in five
    assert "max_ttl 1 s there, 2 s here" in refused(connect(servers.urls[:3], fleet="shop", max_ttl=2))
    assert "durable off there, on here" in refused(connect(servers.urls[:3], fleet="shop", durable=True))
    assert "node list" in refused(connect(servers.urls[:3], fleet="bank"))
    assert "node list" in refused(connect(servers.urls[:3]))
    assert "quarantine on there, off here" in refused(connect(servers.urls[:3], fleet="shop", quarantine=False))
    alone = refused(connect(servers.urls[:1]))
    assert "number of nodes 3 there, 1 here" in alone
    connect(servers.urls[:3], fleet="shop").lock("a", ttl=1).acquire(timeout=20).release()


@pytest.mark.one_kind
def test_a_node_of_a_newer_version_is_refused_and_left_as_it_is(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).lock("a", ttl=1).acquire().release()
    newer = "0 1000 2 and whatever comes then"
    servers[1].command("SET", "ql:node", newer)
    assert "format 2" in (said := refused(connect(servers.urls[:3])))
    assert "upgrade" in said
    with pytest.raises(ConfigurationError, match="upgrade"):
        connect(servers.urls[:3]).init_fleet(force=True)
    assert get(servers[1], "ql:node") == newer
    assert get(servers[0], "ql:node") != newer


@pytest.mark.one_kind
def test_a_client_of_part_of_the_list_is_refused_while_others_lock(servers: Servers, connect: Connect) -> None:
    """A shares three of B's five nodes: B must not get a majority of five on the rest."""
    connect(servers.urls[:3]).lock("a", ttl=1, keep=False).acquire()
    stranger = connect(servers.urls, init=False)
    refused(stranger)
    assert get(servers[4], "a") is None


@pytest.mark.one_kind
def test_fleets_with_other_prefixes_do_not_meet(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3]).lock("a", ttl=1, keep=False).acquire()
    other = connect(servers.urls, init=False, prefix="other:")
    other.init_fleet()
    other.lock("a", ttl=1).acquire(timeout=20).release()


@pytest.mark.one_kind
def test_a_new_fleet_must_be_all_there(make_servers: Make, connect: Connect) -> None:
    fleet = make_servers(3)
    fleet[1].kill()
    locks = connect(fleet, init=False)
    with pytest.raises(NoQuorum, match="all nodes") as wrong:
        locks.init_fleet()
    assert fleet[1].label in str(wrong.value)
    assert get(fleet[0], "ql:node") is None, "nothing is marked where not all can be"
    fleet[1].start()

    def initialised() -> bool:
        """A node that was just found missing is left in peace for a moment."""
        try:
            locks.init_fleet()
        except NoQuorum:
            return False
        return True

    assert eventually(initialised)
    locks.lock("a", ttl=1).acquire(timeout=20).release()


@pytest.mark.one_kind
def test_a_fleet_in_use_is_not_initialised_again(servers: Servers, connect: Connect) -> None:
    locks = connect(servers.urls[:3])
    markers = [get(server, "ql:node") for server in servers.servers[:3]]
    with pytest.raises(ConfigurationError, match="already belong"):
        connect(servers.urls[:3]).init_fleet()
    assert [get(server, "ql:node") for server in servers.servers[:3]] == markers
    locks.lock("a", ttl=1).acquire().release()


@pytest.mark.one_kind
def test_one_marked_node_is_enough_to_refuse(servers: Servers, connect: Connect) -> None:
    """Its locks may be alive; the two others stay unmarked."""
    connect(servers.urls[:1]).lock("a", ttl=1, keep=False).acquire()
    with pytest.raises(ConfigurationError, match="1 of 3 nodes already belong"):
        connect(servers.urls[:3]).init_fleet()
    assert get(servers[1], "ql:node") is None


@pytest.mark.one_kind
def test_force_waits_for_the_locks_of_the_old_fleet(servers: Servers, connect: Connect) -> None:
    old = connect(servers.urls[:3])
    old.lock("a", ttl=1, keep=False).acquire()
    new = connect(servers.urls, max_ttl=0.5)
    new.init_fleet(force=True)
    forced_at = time.monotonic()
    with pytest.raises(NoQuorum, match="quarantine"):
        new.lock("a", ttl=0.4).try_acquire()
    new.lock("a", ttl=0.4).acquire(timeout=20).release()
    assert time.monotonic() - forced_at > 0.8, "the old fleet's max_ttl is one second"
    assert "other terms" in refused(old)


@pytest.mark.one_kind
def test_a_new_fleet_that_was_never_initialised_warns_and_works_after_max_ttl(
    servers: Servers, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    locks = connect(servers.urls[:3], init=False)
    with caplog.at_level(logging.WARNING, "quorumlock"), pytest.raises(NoQuorum, match="quarantine"):
        locks.lock("a", ttl=1).try_acquire()
    assert any("init" in record.getMessage() for record in caplog.records)
    locks.lock("a", ttl=1).acquire(timeout=20).release()


def test_sentinel_clients_are_refused() -> None:
    sentinel = redis.sentinel.Sentinel([("127.0.0.1", 1)])  # type: ignore[no-untyped-call]
    master = sentinel.master_for("main")  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigurationError, match="Sentinel"):
        quorumlock.connect(clients=[master])


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="redis-py clients"):
        quorumlock.connect(clients=["redis://127.0.0.1"])
    with pytest.raises(ConfigurationError, match="either urls or clients"):
        quorumlock.connect("redis://127.0.0.1", clients=[redis.Redis()])
