"""Each finding about servers, provoked on servers that are really so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quorumlock.doctoring.versions import open_bugs, parsed
from quorumlock.lab.servers import Server, free_port
from tests.support.waiting import eventually

from .conftest import Start
from .examining import examined, fleet, only, toml, troubles
from .tools import call

pytestmark = [pytest.mark.live, pytest.mark.real_time]


def test_a_fleet_that_is_well_gets_a_clean_bill(start: Start, good: list[Server], tmp_path: Path) -> None:
    urls = fleet(*good, start())
    patient = toml(tmp_path, node_timeout=5.0)  # the machine may be busy
    assert call("init", "--url", urls).code == 0
    found = examined(urls, patient)
    assert {one["severity"] for one in found} == {"ok"}, found
    said = call("doctor", "--seconds", "0", "--url", urls, patient)
    assert said.code == 0
    assert len(said.out.splitlines()) == len(found)


def test_looking_changes_nothing(start: Start) -> None:
    server = start()
    examined(server.url)
    assert b"rdb_changes_since_last_save:0\r" in server.command("INFO", "persistence"), "not even for a moment"
    assert server.command("DBSIZE") == b":0\r\n"
    assert server.command("PUBSUB", "CHANNELS") == b"*0\r\n"


def test_unreachable(good: list[Server]) -> None:
    gone = f"127.0.0.1:{free_port()}"
    severity, node, says = only(troubles(f"{fleet(*good)},redis://{gone}", "reachable"))
    assert (severity, node) == ("error", gone)
    assert "refused" in says


def test_silent(start: Start, good: list[Server]) -> None:
    hung = start()
    hung.pause()
    severity, node, says = only(troubles(fleet(*good, hung), "reachable"))
    assert (severity, node) == ("error", hung.label)
    assert "Timeout" in says or "did not answer" in says


def test_a_wrong_password_is_not_shown(start: Start, good: list[Server]) -> None:
    closed = start()
    closed.command("CONFIG", "SET", "requirepass", "richtig")
    url = f"{fleet(*good)},{closed.url.replace('//', '//:geheim@')}"
    said = call("doctor", "--seconds", "0", "--url", url)
    assert said.code == 2
    assert "correct the user or the password" in said.out
    assert "geheim" not in said.out + said.err


def test_same_server_under_two_names(good: list[Server]) -> None:
    again = good[0].url.replace("127.0.0.1", "localhost")
    severity, node, says = only(troubles(f"{fleet(*good)},{again}", "same server"))
    assert (severity, node) == ("error", f"localhost:{good[0].port}")
    assert good[0].label in says


def test_a_list_that_connect_refuses_is_a_finding(good: list[Server]) -> None:
    said = call("doctor", "--json", "--url", f"{fleet(*good)},{good[0].url}")
    assert said.code == 2
    (found,) = said.json["findings"]
    assert found["check"] == "configuration"
    assert "one server" in found["says"]


def test_a_replica_and_its_master(start: Start, good: list[Server]) -> None:
    replica = start("--replicaof", "127.0.0.1", str(good[0].port))
    assert eventually(lambda: b"connected_slaves:1" in good[0].command("INFO", "replication"))
    found = troubles(fleet(*good, replica), "role")
    assert [(severity, node) for severity, node, _ in found] == [
        ("warning", good[0].label),
        ("error", replica.label),
    ]
    assert "1 replica." in found[0][2]


def test_a_cluster(start: Start, good: list[Server]) -> None:
    severity, _, says = only(troubles(fleet(*good, start("--cluster-enabled", "yes")), "role"))
    assert severity == "error"
    assert "cluster" in says


def test_durable_but_not_on_disk(start: Start) -> None:
    always = start("--appendonly", "yes", "--appendfsync", "always")
    second = start("--appendonly", "yes", "--appendfsync", "everysec")
    never = start()
    found = troubles(fleet(always, second, never), "persistence", "--durable")
    assert [(severity, node) for severity, node, _ in found] == [("error", second.label), ("error", never.label)]
    assert "appendfsync everysec" in found[0][2]
    assert "appendonly no" in found[1][2]
    assert troubles(fleet(always, second, never), "persistence") == [], "who is quarantined needs no disk"


def test_durable_and_nobody_may_ask(start: Start) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    server.command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-config")
    url = server.url.replace("//", "//bob:pw@")
    severity, _, says = only(troubles(url, "persistence", "--durable"))
    assert severity == "warning"
    assert "CONFIG GET" in says


def test_no_quarantine_and_no_disk(start: Start, good: list[Server], tmp_path: Path) -> None:
    always = start("--appendonly", "yes", "--appendfsync", "always")
    found = troubles(fleet(*good, always), "persistence", toml(tmp_path, quarantine=False))
    assert [(severity, node) for severity, node, _ in found] == [("error", server.label) for server in good]
    assert "without quarantine" in found[0][2]


def test_a_disk_that_cannot_be_written(start: Start) -> None:
    server = start("--save", "3600 1")
    assert troubles(server.url, "disk") == []
    shutil.rmtree(server.folder)
    server.command("BGSAVE")
    assert eventually(lambda: b"rdb_last_bgsave_status:err" in server.command("INFO", "persistence"))
    severity, _, says = only(troubles(server.url, "disk"))
    assert severity == "error"
    assert "refuses writes" in says
    assert server.command("SET", "a", "b").startswith(b"-MISCONF"), "it does not: the finding is wrong"
    server.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert only(troubles(server.url, "disk"))[0] == "warning"


@pytest.mark.parametrize(("nodes", "severity"), [(1, "warning"), (3, "error")])
def test_eviction(start: Start, good: list[Server], nodes: int, severity: str) -> None:
    evicts = start("--maxmemory", "500mb", "--maxmemory-policy", "volatile-lru")
    found = only(troubles(fleet(*(good if nodes == 3 else []), evicts), "memory"))
    assert found[:2] == (severity, evicts.label)
    assert "volatile-lru" in found[2]


def test_memory_that_is_nearly_full_and_full(start: Start) -> None:
    server = start("--maxmemory", "12mb")
    assert troubles(server.url, "memory") == []
    for number in range(200):
        server.command("SET", f"ballast-{number}", b"x" * 200_000)
        if int(server.command("INFO", "memory").split(b"used_memory:")[1].split()[0]) > 10_700_000:
            break
    severity, _, says = only(troubles(server.url, "memory"))
    assert severity == "warning", says
    assert "maxmemory 12.6 MB" in says
    server.command("CONFIG", "SET", "maxmemory", "5mb")
    severity, _, says = only(troubles(server.url, "memory"))
    assert severity == "error"
    assert "OOM" in says


def test_a_version_with_known_bugs(start: Start) -> None:
    """Debian 12's Redis calls itself 7.0.15, whatever was mended in it; Valkey's newest has none that we know."""
    old = start(kind="redis")
    version = old.command("INFO", "server").split(b"redis_version:")[1].split()[0].decode()
    bugs = open_bugs("redis", parsed(version))
    found = troubles(old.url, "version")
    assert [severity for severity, _, _ in found] == (["warning"] if bugs else [])
    assert all(f"Redis {version}" in says and bug.name in says for _, _, says in found for bug in bugs)
    assert troubles(start().url, "version") == []
