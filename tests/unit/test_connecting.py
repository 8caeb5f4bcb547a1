"""From URLs and clients to a Locker: nothing is connected, and mistakes are told at once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.backoff
import redis.retry
import redis.sentinel

import quorumlock
from quorumlock import ConfigurationError, Unsupported

SCHEMES = ["redis", "rediss", "unix", "valkey", "valkeys", "sqlite", "memory"]


@pytest.fixture(params=[quorumlock.connect, quorumlock.connect_async], ids=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    chosen: Callable[..., Any] = request.param
    return chosen


def labels(locker: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = locker.engine.labels
    return found


@pytest.mark.parametrize("scheme", ["http", "consul", "Redis", "redis+tls", ""])
def test_an_unknown_scheme_is_answered_with_the_known_ones(connect: Callable[..., Any], scheme: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        connect(f"{scheme}://10.0.0.1")
    for known in SCHEMES:
        assert f"{known}://" in str(raised.value)


@pytest.mark.parametrize(
    "url", ["localhost", "localhost:6379", "10.0.0.1:6379", "redis:localhost", "/run/redis.sock"]
)
def test_a_url_without_a_scheme_is_answered_with_the_known_ones(connect: Callable[..., Any], url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"without a scheme; known: redis://, rediss://"):
        connect(url)


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("redis://10.0.0.1", "10.0.0.1:6379"),
        ("redis://10.0.0.1:7000", "10.0.0.1:7000"),
        ("redis://10.0.0.1:7000/2", "10.0.0.1:7000/2"),
        ("redis://10.0.0.1:7000/0", "10.0.0.1:7000"),
        ("redis://Host.Example", "host.example:6379"),
        ("rediss://10.0.0.1", "10.0.0.1:6379"),
        ("valkey://10.0.0.1:1", "10.0.0.1:1"),
        ("valkeys://10.0.0.1:1", "10.0.0.1:1"),
        ("redis://[::1]:7000", "[::1]:7000"),
        ("unix:///run/redis.sock", "unix:/run/redis.sock"),
        ("unix:///run/redis.sock?db=3", "unix:/run/redis.sock/3"),
        ("redis://", "localhost:6379"),
    ],
)
def test_a_node_is_named_by_its_address(connect: Callable[..., Any], url: str, label: str) -> None:
    assert labels(connect(url)) == (label,)


@pytest.mark.parametrize(
    "urls",
    [
        "redis://a:1,redis://b:2,redis://c:3",
        ["redis://a:1", "redis://b:2", "redis://c:3"],
        ("redis://a:1", "valkey://b:2", "rediss://c:3"),
        " redis://a:1,redis://b:2,redis://c:3 ",
        ["redis://a:1 ", " redis://b:2", "redis://c:3"],
    ],
)
def test_several_nodes_come_in_one_string_or_in_a_list(connect: Callable[..., Any], urls: Any) -> None:
    assert labels(connect(urls)) == ("a:1", "b:2", "c:3")


def test_a_comma_within_a_password_does_not_part_a_url(connect: Callable[..., Any]) -> None:
    assert labels(connect("redis://:a,b@one:1,redis://:c,d@two:2,redis://three:3")) == ("one:1", "two:2", "three:3")


@pytest.mark.parametrize("urls", ["redis://a:1,b:2", "redis://a,b", "redis://a,b,redis://c"])
def test_hosts_separated_by_commas_within_one_url_are_refused(connect: Callable[..., Any], urls: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read|write a full URL for each"):
        connect(urls)


@pytest.mark.parametrize("urls", ["", [], (), b"redis://a", [b"redis://a"], [None], [""], ["  "], 5, {"redis://a"}])
def test_what_is_no_url_is_refused(connect: Callable[..., Any], urls: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^urls"):
        connect(urls)


@pytest.mark.parametrize("url", ["redis://h:port", "redis://h:70000", "redis://[::1", "redis://h?db=x",
                                 "redis://h?socket_timeout=soon"])  # fmt: skip
def test_a_malformed_url_is_refused(connect: Callable[..., Any], url: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        connect(url)


def test_no_url_reads_the_environment(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOCK_URL", "redis://a:1,redis://b:2,redis://c:3")
    assert labels(connect()) == ("a:1", "b:2", "c:3")
    assert labels(connect("redis://given:9")) == ("given:9",), "what is given comes first"


@pytest.mark.parametrize("value", [None, ""])
def test_no_url_at_all_is_a_file_of_this_users(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("QUORUMLOCK_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("QUORUMLOCK_URL", value)
    locker = connect()
    assert locker.engine.name == "sqlite"
    assert str(tmp_path) in repr(locker)
    assert not list(tmp_path.iterdir()), "it connects on first use"


@pytest.mark.parametrize(
    "urls",
    [
        ["redis://a:1", "redis://b:2", "redis://a:1"],
        ["redis://a", "redis://a:6379", "redis://b"],
        ["redis://a:1/0", "redis://a:1/1", "redis://b:2"],
        ["redis://a:1/3", "redis://a:1/4", "redis://b:2"],
        ["redis://A:1", "redis://a:1", "redis://b:2"],
        ["redis://u:p@a:1", "redis://v:q@a:1", "redis://b:2"],
        ["redis://[::1]:1", "redis://[::1]:1/2", "redis://b:2"],
        ["unix:///run/s.sock", "unix:///run/s.sock?db=1", "redis://b:2"],
    ],
)
def test_a_server_that_is_listed_twice_would_vote_twice(connect: Callable[..., Any], urls: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="one server: it would vote twice"):
        connect(urls)


def test_sockets_whose_names_are_numbers_are_different_servers(connect: Callable[..., Any]) -> None:
    """The number at the end of a path is no number of a database."""
    urls = [f"unix:///run/valkey/{port}" for port in (6379, 6380, 6381)]
    assert len(labels(connect(urls))) == 3


def test_an_even_number_of_nodes_works_but_warns(
    connect: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "quorumlock"):
        connect(["redis://a", "redis://b", "redis://c"])
        assert not caplog.records
        connect(["redis://a", "redis://b"])
    assert "an odd number is better" in caplog.text


def test_clients_are_taken_instead_of_urls(connect: Callable[..., Any]) -> None:
    clients = [redis.Redis("a", 1), redis.asyncio.Redis(host="b", port=2, db=3), redis.Redis.from_url("unix:///s")]
    assert labels(connect(clients=clients)) == ("a:1", "b:2/3", "unix:/s")


def test_urls_and_clients_together_are_refused(connect: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="either urls or clients"):
        connect("redis://a", clients=[redis.Redis()])


def test_clients_make_the_environment_unimportant(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORUMLOCK_URL", "redis://elsewhere")
    assert labels(connect(clients=[redis.Redis("a", 1)])) == ("a:1",)


@pytest.mark.parametrize("clients", [[], ["redis://a"], [None], "redis", [redis.ConnectionPool()], 5])
def test_what_is_no_list_of_clients_is_refused(connect: Callable[..., Any], clients: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^clients"):
        connect(clients=clients)


def test_one_client_without_a_list_is_refused_and_not_read_from(connect: Callable[..., Any]) -> None:
    """A redis-py client can be iterated: that would send GET 0."""
    with pytest.raises(ConfigurationError, match=r"^clients"):
        connect(clients=redis.Redis("a", 1, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)))


def test_a_client_that_found_its_master_through_sentinel_is_refused(connect: Callable[..., Any]) -> None:
    sentinel = redis.sentinel.Sentinel([("a", 1)])  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigurationError, match="Sentinel"):
        connect(clients=[sentinel.master_for("main")])  # type: ignore[no-untyped-call]


def test_a_cluster_client_is_unsupported(connect: Callable[..., Any]) -> None:
    class RedisCluster:
        """Making a real one asks its nodes."""

    with pytest.raises(Unsupported, match="Cluster"):
        connect(clients=[RedisCluster()])


def test_redis_pys_retries_are_switched_off() -> None:
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 3)
    client = redis.Redis("a", 1, retry=retry, retry_on_error=[OSError], socket_timeout=9.0, health_check_interval=3)
    engine = quorumlock.connect(clients=[client], node_timeout=0.02).engine
    [kwargs] = engine._kwargs
    assert not {"retry", "retry_on_error", "health_check_interval"} & kwargs.keys()
    assert kwargs["socket_timeout"] == pytest.approx(1.0), "no connection is waited for as long as the client would"
    assert kwargs["protocol"] == 2


def test_a_missing_extra_says_how_to_install_it(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name == "redis" or name.startswith("redis.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'quorumlock\[redis\]'"):
        connect("redis://a")


def test_fleets_are_told_apart_by_their_nodes_in_any_order() -> None:
    def fleet(*urls: str, **named: str) -> str:
        engine: Any = quorumlock.connect(list(urls), **named).engine  # type: ignore[arg-type]
        return str(engine.nodes[0].terms.fleet)

    three = ("redis://a", "redis://b", "redis://c")
    assert fleet(*three) == fleet(*three[::-1])
    assert fleet(*three) != fleet("redis://a", "redis://b", "redis://d")
    assert fleet(*three) != fleet(*three, fleet="mine")
    assert fleet(*three, fleet="mine") == fleet("redis://x", fleet="mine")
    assert fleet("redis://localhost:1", *three[1:]) == fleet("redis://127.0.0.1:1", *three[1:])
    assert fleet("redis://a") == fleet("redis://b"), "one node alone is always the same majority"
    assert " " not in fleet("redis://a", fleet="two words"), "it is one word of the marker"
