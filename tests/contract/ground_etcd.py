"""The contract on etcd: a server of the session's own, emptied for each case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quorumlock import AsyncLocker
from quorumlock.engines.etcd.locks import about, read_about
from quorumlock.engines.etcd.words import Kv
from tests.support.servers import etcd as etcd_servers
from tests.support.servers.etcd import EtcdServer, b64

from .grounds import ALL, SOMEBODY

ROOT = "quorumlock/"


def missing() -> list[str]:
    return etcd_servers.missing()


@contextmanager
def servers() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


def ground(server: EtcdServer) -> EtcdGround:
    return EtcdGround(server)


class EtcdGround:
    """One cluster of one member. What is left of a lock is known to the second."""

    count = 1
    shortest = 1.0
    announces = True

    def __init__(self, server: EtcdServer) -> None:
        self._server = server
        self.urls = [server.url]
        server.empty()

    async def prepare(self, locker: AsyncLocker) -> None:
        """There is nothing to do."""

    def holders(self, name: str) -> list[str | None]:
        hold, _, readers, _ = self._look(name)
        return [hold.value.decode() if hold else "ql:readers" if readers else None]

    def left_ms(self, name: str) -> list[int]:
        hold, card, readers, _ = self._look(name)
        held = hold or readers
        if held is None:
            return [-2]
        told = self._server.ask("/v3/lease/timetolive", {"ID": str(held.lease)})
        about_it = card if hold else readers
        ttl_ms = read_about(about_it.value)[1] if about_it else 10**9
        return [min(ttl_ms, 1000 * (int(told.get("TTL", 0)) + 1))]

    def fences(self, name: str) -> list[int]:
        hold, _, _, revision = self._look(name)
        return [hold.created if hold else revision]

    def delete(self, name: str, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            start = f"{ROOT}lock/{name}\0"
            self._server.ask("/v3/kv/deleterange", {"key": b64(start), "range_end": b64(start[:-1] + "\1")})

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            lease = self._server.ask("/v3/lease/grant", {"TTL": str(-(-ttl_ms // 1000))})["ID"]
            for key, value in (
                (f"lock/{name}\0h", SOMEBODY.encode()),
                (f"card/{name}", about("", ttl_ms, 0, 0, "")),
            ):
                self._server.ask("/v3/kv/put", {"key": b64(ROOT + key), "value": b64(value), "lease": lease})

    def _look(self, name: str) -> tuple[Kv | None, Kv | None, Kv | None, int]:
        ranges = [
            {"key": b64(f"{ROOT}lock/{name}\0h")},
            {"key": b64(f"{ROOT}card/{name}")},
            {"key": b64(f"{ROOT}lock/{name}\0r"), "range_end": b64(f"{ROOT}lock/{name}\0s"), "limit": 1},
        ]
        told = self._server.ask("/v3/kv/txn", {"success": [{"request_range": one} for one in ranges]})
        found = [one["response_range"].get("kvs", []) for one in told["responses"]]
        hold, card, readers = (Kv.of(kvs[0]) if kvs else None for kvs in found)
        return hold, card, readers, int(told["header"]["revision"])
