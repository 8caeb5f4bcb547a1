"""The contract on ZooKeeper: one server for all cases, and a path of its own for each."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]

from quorumlock import AsyncLocker
from quorumlock.engines.zookeeper.gates import CLOSED, read
from quorumlock.engines.zookeeper.paths import Gate, Paths
from tests.support.servers.zookeeper import ZooKeeper, missing

from .grounds import ALL, SOMEBODY

__all__ = ["ground", "missing", "servers"]

SESSION = 50
"""Seconds: enough for the longest ttl of a case."""


class Served:
    """A server, and somebody who looks at it."""

    def __init__(self, server: ZooKeeper) -> None:
        self.server = server
        self.eye = KazooClient(server.address, timeout=SESSION)
        self.eye.start()


@contextmanager
def servers() -> Iterator[Served]:
    with ZooKeeper() as server:
        served = Served(server)
        try:
            yield served
        finally:
            served.eye.stop()
            served.eye.close()


class ZooKeeperGround:
    """What operators see who look at the nodes."""

    count = 1
    shortest = 0.15
    announces = True
    _cases = itertools.count()

    def __init__(self, served: Served) -> None:
        self._zk = served.eye
        root = f"/contract/{next(self._cases)}"
        self.urls = [f"{served.server.url}{root}?session_timeout={SESSION}"]
        self._paths = Paths(root, "")

    async def prepare(self, locker: AsyncLocker) -> None:
        await locker.init_fleet()

    def holders(self, name: str) -> list[str | None]:
        found = self._found(name)
        return [found[0] if found else None]

    def left_ms(self, name: str) -> list[int]:
        found = self._found(name)
        return [found[1] if found else -2]

    def fences(self, name: str) -> list[int]:
        found = self._found(name)
        return [found[2] if found else self._gate(name).fence]

    def delete(self, name: str, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            gate = self._gate(name)
            for node in gate.of(name).nodes:
                self._zk.delete(gate.child(node))

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            self.delete(name)
            self._zk.ensure_path(self._paths.gate(name))
            transaction = self._zk.transaction()
            transaction.set_data(self._paths.gate(name), b"")
            data = json.dumps([SOMEBODY, ttl_ms, 0, ""]).encode()
            path = f"{self._paths.gate(name)}/{self._paths.holder(name, SOMEBODY)}"
            transaction.create(path, data, ephemeral=True)
            transaction.commit()
            timer = threading.Timer(ttl_ms / 1000, lambda: self._zk.delete_async(path))  # as its own client would
            timer.daemon = True
            timer.start()

    def _gate(self, name: str) -> Gate:
        path = self._paths.gate(name)
        try:
            children, stat = self._zk.get_children(path, include_data=True)
        except NoNodeError:
            return Gate(path, 0, 0, ())
        return Gate(path, stat.version, stat.mzxid, children)

    def _found(self, name: str) -> tuple[str, int, int] | None:
        """Token, ms that are left, and fence."""
        gate = self._gate(name)
        seen = gate.of(name)
        for node in [*seen.holders, *(reader.node for reader in seen.readers)]:
            try:
                data, stat = self._zk.get(gate.child(node))
            except NoNodeError:
                continue
            told: dict[str, Any] = read(data)
            return told["token"], int(stat.mtime + told["ttl_ms"] - time.time() * 1000), stat.czxid
        left_ms = max((one.until_ms - int(time.time() * 1000) for one in seen.closed), default=0)
        return (CLOSED, left_ms, gate.fence) if left_ms > 0 else None


def ground(served: Served) -> ZooKeeperGround:
    return ZooKeeperGround(served)
