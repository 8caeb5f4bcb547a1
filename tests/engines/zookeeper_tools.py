"""What tests on ZooKeeper share: one server for those that leave it as it is, lockers, and a look behind them."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]

import quorumlock
from quorumlock.engines.zookeeper import ZookeeperEngine
from tests.support.servers.zookeeper import ZooKeeper, missing

WITHIN = 10.0
_roots = itertools.count()
_stack = ExitStack()


def needs_zookeeper() -> Any:
    """Skips by name where there is no server; CI must not."""
    absent = missing()
    if absent and os.environ.get("CI"):
        raise pytest.UsageError(f"CI must not skip: no {', '.join(absent)}")
    skip = pytest.mark.skipif(bool(absent), reason=f"no {', '.join(absent)} here")
    return [pytest.mark.live, pytest.mark.real_time(0.3), skip]


@functools.cache
def shared() -> ZooKeeper:
    """One for all tests, those that kill or pause it (see `mortal`) included. It ends with this process."""
    import atexit

    atexit.register(_stack.close)
    return _stack.enter_context(ZooKeeper())


def new_root() -> str:
    return f"/tests/{os.getpid()}-{next(_roots)}"


Connect = Callable[..., quorumlock.Locker]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Lockers that share a path, on the shared server unless they are told a URL."""
    root, lockers = new_root(), []

    def new(url: str = "", **options: Any) -> quorumlock.Locker:
        options.setdefault("node_timeout", 0.2)
        locker = quorumlock.connect(url or f"{shared().url}{root}", **options)
        lockers.append(locker)
        return locker

    yield new
    for locker in lockers:
        locker.close()


@pytest.fixture
def mortal() -> Iterator[ZooKeeper]:
    """The shared server, for a test that kills or pauses it."""
    server = shared()
    yield server
    server.resume()
    if not server.mode():
        server.restart()


@pytest.fixture
def zk() -> Iterator[KazooClient]:
    """Somebody who looks at the shared server."""
    client = KazooClient(shared().address)
    client.start()
    yield client
    client.stop()
    client.close()


def engine_of(locker: quorumlock.Locker) -> ZookeeperEngine:
    assert isinstance(locker.engine, ZookeeperEngine)
    return locker.engine


def client_of(locker: quorumlock.Locker) -> KazooClient:
    client = engine_of(locker)._session.client
    assert client is not None
    return client


def end_session(locker: quorumlock.Locker) -> None:
    """As a server does that has not heard of a client for too long."""
    thief = KazooClient(client_of(locker).hosts[0][0] + f":{client_of(locker).hosts[0][1]}")
    thief._session_id, thief._session_passwd = client_of(locker).client_id
    thief.start()
    thief.stop()
    thief.close()


def spy(client: KazooClient) -> list[object]:
    """What is asked from now on."""
    asked: list[object] = []
    call = client._call

    def noted(request: object, result: object) -> object:
        asked.append(request)
        return call(request, result)

    client._call = noted
    return asked
