"""`Locker.nodes` and `quorumlock nodes`: how nodes are doing, whatever is wrong with them."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import quorumlock as ql
from quorumlock.lab.servers import Server, Servers, ask, free_port, valkey_binary
from tests.live.chaos.clocks import Clock
from tests.support.waiting import eventually

from .conftest import Start
from .tools import call

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., ql.Locker]


def fleet(*servers: Server) -> str:
    return ",".join(server.url for server in servers)


def stored(server: Server) -> tuple[bytes, bytes]:
    """All that a server remembers: how many keys, and its marker."""
    return server.command("DBSIZE"), server.command("GET", "ql:node")


def one(locks: ql.Locker, server: Server) -> ql.NodeState:
    (found,) = (node for node in locks.nodes() if node.node == server.label)
    return found


def test_a_fleet_that_is_well(servers: Servers, connect: Connect, kind: str) -> None:
    locks = connect(servers.urls[:3])
    with locks.lock("job", ttl=1):
        before = [stored(server) for server in servers.servers[:3]]
        found = locks.nodes()
        assert [stored(server) for server in servers.servers[:3]] == before, "looking has changed something"
    assert [node.node for node in found] == [server.label for server in servers.servers[:3]]
    for node, server in zip(found, servers.servers[:3], strict=True):
        said = server.command("INFO", "server").decode()
        version = re.search(rf"{kind}_version:(\S+)", said)
        assert version is not None
        assert (node.state, node.detail, node.role, node.quarantine) == ("ready", "", "master", 0.0)
        assert (node.server, node.version) == (kind, version[1])
        assert node.latency is not None
        assert 0 < node.latency < 1
        assert node.clock_offset is not None
        assert abs(node.clock_offset) < 0.5


def test_both_fronts_see_the_same(servers: Servers, connect: Connect) -> None:
    connect(servers.urls[:3])
    gone = f"redis://127.0.0.1:{free_port()}"
    urls = [*servers.urls[:2], gone]

    async def looked() -> tuple[ql.NodeState, ...]:
        async with ql.connect_async(urls, max_ttl=1) as locks:
            return await locks.nodes(samples=2)

    def timeless(node: ql.NodeState) -> ql.NodeState:
        return dataclasses.replace(node, latency=None, clock_offset=None)

    with ql.connect(urls, max_ttl=1) as locks:
        ours = locks.nodes()
    assert [timeless(node) for node in asyncio.run(looked())] == [timeless(node) for node in ours]
    assert [node.state for node in ours] == ["misfit", "misfit", "down"], "another list: other terms"


def test_a_closed_locker_looks_at_nothing() -> None:
    locks = ql.connect("memory://")
    locks.close()
    with pytest.raises(ql.ConfigurationError, match="closed"):
        locks.nodes()
    with pytest.raises(ql.ConfigurationError, match="samples"):
        ql.connect("memory://").nodes(samples=0)


def test_nodes_that_are_down_are_rows(start: Start, good: list[Server]) -> None:
    url = f"{fleet(*good)},redis://:geheim@127.0.0.1:{free_port()}"
    assert call("init", "--url", fleet(*good, start()), "--fleet", "one").code == 0
    said = call("nodes", "--url", url, "--fleet", "one")
    assert said.code == 0, "two of three are a majority"
    assert "Connection refused" in said.out
    assert "geheim" not in said.out + said.err
    assert len(said.out.splitlines()) == 5
    good[0].pause()
    said = call("nodes", "--json", "--url", url, "--fleet", "one")
    assert said.code == 69
    assert [node["state"] for node in said.json] == ["down", "ready", "down"]
    assert "did not answer within 1 s" in said.json[0]["detail"]
    assert said.json[0]["latency"] is None


def test_quarantine_from_its_beginning_to_its_end(start: Start, good: list[Server]) -> None:
    kept = start("--appendonly", "yes")
    urls = fleet(*good, kept)
    with ql.connect(urls, max_ttl=30) as locks:
        assert {(node.state, node.quarantine) for node in locks.nodes()} == {("quarantined", 30.0)}
        assert "init" in locks.nodes()[0].detail
        assert call("nodes", "--max-ttl", "30", "--url", urls).code == 69
        locks.init_fleet()
        assert {node.state for node in locks.nodes()} == {"ready"}
        kept.restart()
        restarted = one(locks, kept)
        assert (restarted.state, restarted.quarantine) == ("quarantined", 30.0)
        assert "restarted" in restarted.detail
        with locks.lock("job"):
            assert eventually(lambda: 10 < one(locks, kept).quarantine < 30), "nobody has met it"
        assert one(locks, kept).state == "quarantined"
        assert call("nodes", "--max-ttl", "30", "--url", urls).code == 0


def test_a_durable_node_is_ready_when_it_comes_back(start: Start, good: list[Server]) -> None:
    kept = start("--appendonly", "yes", "--appendfsync", "always")
    with ql.connect(fleet(*good, kept), durable=True) as locks:
        locks.init_fleet()
        kept.restart()
        assert one(locks, kept).state == "ready"


def test_a_node_without_quarantine_is_ready_without_a_marker(start: Start) -> None:
    with ql.connect(start().url) as locks:
        (node,) = locks.nodes()
        assert (node.state, node.quarantine) == ("ready", 0.0)


def test_misfits_are_told_with_the_reason(start: Start, good: list[Server]) -> None:
    other = start()
    with ql.connect(other.url) as alone:
        alone.init_fleet()
    with ql.connect(fleet(*good, other)) as locks:
        node = one(locks, other)
        assert node.state == "misfit"
        assert "number of nodes 1 there, 3 here" in node.detail
    replica = start("--replicaof", "127.0.0.1", str(good[0].port))
    with ql.connect(fleet(*good, replica)) as locks:
        assert (one(locks, replica).state, one(locks, replica).role) == ("misfit", "slave")
    evicting = start("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    with ql.connect(fleet(*good, evicting)) as locks:
        assert "allkeys-lru" in one(locks, evicting).detail
    again = good[0].url.replace("127.0.0.1", "localhost")
    with ql.connect([good[0].url, good[1].url, again]) as locks:
        assert [node.state for node in locks.nodes()] == ["misfit", "quarantined", "misfit"]
        assert "one server" in locks.nodes()[2].detail


@pytest.mark.parametrize("slots", [False, True])
def test_a_node_of_a_cluster_is_a_misfit(start: Start, kind: str, slots: bool) -> None:
    """Also one that has all slots, and would answer: a cluster may take them away."""
    clustered = start("--cluster-enabled", "yes", kind=kind)
    if slots:
        clustered.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        assert eventually(lambda: b"cluster_state:ok" in clustered.command("CLUSTER", "INFO"))
    with ql.connect(clustered.url) as locks:
        (node,) = locks.nodes()
    assert node.state == "misfit"
    assert "Cluster" in node.detail


def test_a_sentinel_is_a_misfit(tmp_path: Path) -> None:
    binary, port = valkey_binary(), free_port()
    assert binary, "no valkey server here"
    (tmp_path / "sentinel.conf").write_text(f"port {port}\ndir {tmp_path}\n")
    command = [binary, str(tmp_path / "sentinel.conf"), "--sentinel"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as sentinel:
        try:
            assert eventually(lambda: ask(port, "PING") == b"+PONG\r\n")
            said = call("nodes", "--json", "--url", f"redis://127.0.0.1:{port}")
        finally:
            sentinel.kill()
    assert said.code == 69
    assert said.json[0]["state"] == "misfit"
    assert "Sentinel" in said.json[0]["detail"]


def test_who_may_not_look_is_told_so(start: Start, good: list[Server]) -> None:
    server = start()
    server.command("ACL", "SETUSER", "eve", "on", ">pw", "~*", "&*", "+@all", "-info")
    server.command("ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-@scripting")
    eve, mute = (server.url.replace("//", f"//{user}:pw@") for user in ("eve", "mute"))
    with ql.connect([good[0].url, good[1].url, eve]) as locks:
        assert (one(locks, server).state, one(locks, server).server) == ("misfit", None)
        assert "INFO" in one(locks, server).detail
    with ql.connect([good[0].url, good[1].url, mute]) as locks:
        assert one(locks, server).state == "down"
        assert "NOPERM" in one(locks, server).detail


def test_a_clock_that_is_off_is_seen(start: Start, good: list[Server], clock: Clock) -> None:
    late = start(before=clock.command)
    clock.offset = -7.0
    with ql.connect(fleet(*good, late)) as locks:
        found = locks.nodes(samples=10)
    offsets = [node.clock_offset for node in found]
    assert all(offset is not None for offset in offsets)
    assert [round(offset or 0.0) for offset in offsets] == [0, 0, -7]
    assert "-7.0s" in call("nodes", "--url", fleet(*good, late)).out


def test_doubles_are_judged_as_servers_are() -> None:
    with ql.connect("memory://?nodes=3", max_ttl=9) as locks:
        assert [(node.state, node.server) for node in locks.nodes()] == [("ready", "memory")] * 3
        locks.engine.servers[1].flush()
        assert [node.state for node in locks.nodes()] == ["ready", "quarantined", "ready"]
        locks.engine.servers[2].restart("run-1", locks.engine.servers[2].snapshot())
        assert "restarted" in locks.nodes()[2].detail
        locks.engine.servers[0].role = "slave"
        assert locks.nodes()[0].state == "misfit"


def test_a_file_is_a_node(tmp_path: Path) -> None:
    said = call("nodes", "--json", "--url", f"sqlite:///{tmp_path}/locks.db")
    assert said.code == 0
    (node,) = said.json
    assert (node["state"], node["server"], node["clock_offset"]) == ("ready", "sqlite", 0.0)
    assert node["version"].startswith("3.")
    assert node["latency"] > 0
    said = call("nodes", "--url", f"sqlite:///{tmp_path}/no/locks.db")
    assert said.code == 69
    assert "its folder does not exist" in said.out
    (tmp_path / "text").write_text("no database " * 100)
    with ql.connect(f"sqlite:///{tmp_path}/text") as locks:
        assert locks.nodes()[0].state == "down"

    async def looked() -> str:
        async with ql.connect_async(f"sqlite:///{tmp_path}/locks.db") as locks:
            return (await locks.nodes())[0].state

    assert asyncio.run(looked()) == "ready"


@pytest.fixture
def stranger() -> Iterator[str]:
    """Something else that listens on a port; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, suppress(OSError):
                        client.recv(65536)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_something_else_that_listens_there_is_a_row(stranger: str) -> None:
    for command in ("nodes", "doctor"):
        said = call(command, "--url", f"redis://{stranger}")
        assert said.code == {"nodes": 69, "doctor": 2}[command]
        assert "no Redis or Valkey server" in said.out

    async def looked() -> str:
        async with ql.connect_async(f"redis://{stranger}") as locks:
            return (await locks.nodes())[0].detail

    assert "no Redis or Valkey server" in asyncio.run(looked())
