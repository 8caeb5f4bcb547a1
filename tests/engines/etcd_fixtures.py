"""What the tests of the etcd engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import quorumlock
from quorumlock import AsyncLocker, Locker
from quorumlock.engines.etcd import client
from quorumlock.engines.etcd.talk import Post, Reply
from tests.support.proxy import Proxy
from tests.support.servers import etcd as etcd_servers
from tests.support.servers.etcd import EtcdServer, b64

Connect = Callable[..., Locker]


@pytest.fixture(scope="module")
def shared() -> Iterator[EtcdServer]:
    etcd_servers.needed()
    with EtcdServer() as server:
        yield server


@pytest.fixture
def server(shared: EtcdServer) -> EtcdServer:
    """One that is up, and empty."""
    shared.resume()
    if not shared.healthy():
        shared.restart()
    shared.empty()
    return shared


@pytest.fixture
def connect(server: EtcdServer) -> Iterator[Connect]:
    """Lockers for threads, closed at the end."""
    with ExitStack() as stack:

        def make(url: str = "", **options: Any) -> Locker:
            return stack.enter_context(quorumlock.connect(url or server.url, **{"max_ttl": 60.0} | options))

        yield make


@pytest.fixture
def proxy(server: EtcdServer) -> Iterator[Proxy]:
    with Proxy(server) as proxy:  # type: ignore[arg-type]
        yield proxy


def through(proxy: Proxy) -> str:
    return f"etcd://{proxy.label}"


def connect_async(url: str, **options: Any) -> AsyncLocker:
    return quorumlock.connect_async(url, **{"max_ttl": 60.0} | options)


def keys(server: EtcdServer) -> list[bytes]:
    """All keys of ours."""
    import base64

    told = server.ask(
        "/v3/kv/range", {"key": b64("quorumlock/"), "range_end": b64("quorumlock0"), "keys_only": True}
    )
    return [base64.b64decode(kv["key"]) for kv in told.get("kvs", [])]


def holds(server: EtcdServer) -> list[bytes]:
    return [key for key in keys(server) if b"lock/" in key.removeprefix(b"quorumlock/")]


def leases(server: EtcdServer) -> set[str]:
    return {one["ID"] for one in server.ask("/v3/lease/leases", {}).get("leases", [])}


@contextmanager
def listening_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths of what threads ask, in order."""
    asked: list[str] = []
    post = client.Client._post

    def noted(self: client.Client, wanted: Post) -> Reply:
        asked.append(wanted.path.removeprefix("/v3/"))
        return post(self, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(client.Client, "_post", noted)
        yield asked
