"""What the tests of the etcd engine share."""

from __future__ import annotations

import threading
import time
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
from tests.support.waiting import eventually

TOLD_WITHIN = 20.0
"""A waiter that is not told finds out by itself after a minute at the earliest."""

Connect = Callable[..., Locker]


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """One for all files, so it belongs to conftest.py."""
    etcd_servers.needed()
    with EtcdServer() as server:
        yield server


@pytest.fixture
def server(etcd_server: EtcdServer) -> EtcdServer:
    """One that is up, and empty. Tests may kill and pause it."""
    etcd_server.resume()
    if not etcd_server.healthy():
        etcd_server.restart()
    etcd_server.empty()
    return etcd_server


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
def released_when(condition: Callable[[], object], lease: quorumlock.Lease) -> Iterator[None]:
    """Another thread gives a lease back as soon as a condition holds."""

    def release() -> None:
        if eventually(condition):
            lease.release()

    thread = threading.Thread(target=release)
    thread.start()
    yield
    thread.join()


def acquire_when_told(lock: quorumlock.Lock) -> quorumlock.Lease:
    """Long before it would find out by itself that the lock is free. The holder's ttl is 60 s."""
    started_at = time.monotonic()
    lease = lock.acquire(timeout=60)
    assert time.monotonic() - started_at < TOLD_WITHIN, "it was not told, and found out by itself in the end"
    return lease


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
