"""What keeps the locks of a case, looked at from behind: one small adapter for each engine.

Cases ask what an operator could find out, or do, on any engine. Answers are lists, with an entry for each node.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from quorumlock import AsyncLocker
from quorumlock.clocks import boot_time
from quorumlock.engines.memory import MemoryEngine
from quorumlock.engines.memory.server import ServerDouble
from quorumlock.engines.memory.world import Clock
from quorumlock.engines.redis import scripts
from quorumlock.engines.sqlite.boot import this_boot
from quorumlock.lab.servers import Server
from tests.live.tools import fence, get, pttl

SCRIPTS = [script for script in vars(scripts).values() if isinstance(script, scripts.Script)]
SOMEBODY = "somebody else"
ALL = slice(None)


INSERT_LEASE = """INSERT OR REPLACE INTO leases (name, token, fence, expires_ms, ttl_ms, boot)
    VALUES (?, ?, ?, ?, ?, ?)"""


class Ground(Protocol):
    """Some empty nodes of one engine."""

    urls: list[str]
    count: int
    announces: bool
    """Are waiters told that it is their turn?"""
    shortest: float
    """The shortest ttl, in seconds, with which a lock can be acquired here, on a busy machine at the latest when it
    is tried again."""

    async def prepare(self, locker: AsyncLocker) -> None:
        """Before the first use by a locker with this prefix."""

    def holders(self, name: str) -> list[str | None]:
        """The token that each node names; None where the lock is free."""

    def left_ms(self, name: str) -> list[int]:
        """How long each node will keep the lock; less than 0 where it is free."""

    def fences(self, name: str) -> list[int]:
        """The highest fence that each node knows of for this name."""

    def delete(self, name: str, nodes: slice = ALL) -> None:
        """Deletes the lock on these nodes, as an operator would, past the library."""

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        """Gives the lock on these nodes to somebody else, past the library."""


class RedisGround:
    """Real servers."""

    announces = True
    shortest = 0.15

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers
        self.urls = [server.url for server in servers]
        self.count = len(servers)
        for server in servers:
            server.command("FLUSHALL")

    async def prepare(self, locker: AsyncLocker) -> None:
        # A node that learns a script after a round is decided gets no request of that round, and that is right:
        # here every node shall take part in everything.
        known = b"".join(b":1\r\n" for _ in SCRIPTS)
        for server in self.servers:
            if not server.command("SCRIPT", "EXISTS", *(script.sha for script in SCRIPTS)).endswith(known):
                for script in SCRIPTS:
                    server.command("SCRIPT", "LOAD", script.source)
        await locker.init_fleet()

    def holders(self, name: str) -> list[str | None]:
        return [get(server, name) for server in self.servers]

    def left_ms(self, name: str) -> list[int]:
        return [pttl(server, name) for server in self.servers]

    def fences(self, name: str) -> list[int]:
        return [fence(server, name) for server in self.servers]

    def delete(self, name: str, nodes: slice = ALL) -> None:
        for server in self.servers[nodes]:
            server.command("DEL", name)

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        for server in self.servers[nodes]:
            server.command("SET", name, SOMEBODY, "PX", str(ttl_ms))


class MemoryGround:
    """Doubles of servers; every case has a world of its own, which its lockers share."""

    announces = True
    shortest = 0.15
    clock: Clock | None = None
    """Of nodes and clients; it can be moved."""
    _worlds = itertools.count()

    def __init__(self, count: int) -> None:
        self.urls = [f"memory://contract-{next(self._worlds)}?nodes={count}"]
        self.count = count
        self.servers: Sequence[ServerDouble] = ()

    async def prepare(self, locker: AsyncLocker) -> None:
        assert isinstance(locker.engine, MemoryEngine)
        self.servers, self.clock = locker.engine.servers, locker.engine.clock

    def holders(self, name: str) -> list[str | None]:
        return [self._get(server, name) for server in self.servers]

    def left_ms(self, name: str) -> list[int]:
        return [server.pttl(name) for server in self.servers]

    def fences(self, name: str) -> list[int]:
        return [int((self._get(server, f"ql:fence:{{{name}}}") or "0").split()[0]) for server in self.servers]

    def delete(self, name: str, nodes: slice = ALL) -> None:
        for server in self.servers[nodes]:
            server.delete(name)

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        for server in self.servers[nodes]:
            server.set(name, SOMEBODY.encode(), ttl_ms)

    def _get(self, server: ServerDouble, key: str) -> str | None:
        value = server.get(key)
        return value.decode() if isinstance(value, bytes) else None


class SqliteGround:
    """A file. What has expired may still be in it, and counts as gone."""

    count = 1
    announces = False
    shortest = 0.15

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks.db"
        self.urls = [f"sqlite:///{self._path}"]

    async def prepare(self, locker: AsyncLocker) -> None:
        await locker.lock("makes the file", ttl=0.1).locked()

    def holders(self, name: str) -> list[str | None]:
        row = self._row(name)
        return [row[0] if row else None]

    def left_ms(self, name: str) -> list[int]:
        row = self._row(name)
        return [int(row[2] - boot_time() * 1000) if row else -2]

    def fences(self, name: str) -> list[int]:
        row = self._row(name)
        return [row[1] if row else self._execute("SELECT fence FROM meta")[0][0]]

    def delete(self, name: str, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            self._execute("DELETE FROM leases WHERE name = ?", name)

    def take(self, name: str, ttl_ms: int, nodes: slice = ALL) -> None:
        if range(self.count)[nodes]:
            row = (name, SOMEBODY, 1, self._now_ms() + ttl_ms, ttl_ms, this_boot().clock)
            self._execute(INSERT_LEASE, *row)

    def _row(self, name: str) -> tuple[str, int, int] | None:
        """Token, fence and end."""
        found = self._execute(
            "SELECT token, fence, expires_ms FROM leases WHERE name = ? AND expires_ms > ?", name, self._now_ms()
        )
        return found[0] if found else None

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self._path, timeout=5, isolation_level=None)) as db:
            return db.execute(statement, values).fetchall()

    def _now_ms(self) -> int:
        return int(boot_time() * 1000)
