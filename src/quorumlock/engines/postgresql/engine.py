"""The engine on PostgreSQL: rows for leases, the database's clock, NOTIFY for those who wait.

Promises. As `sql/`: at most one valid lease of a name, fences that only grow, whatever connections and clients do.
They hold for as long as the database keeps what it has committed, and its clock does not step: one primary, or a
failover that loses no commit (synchronous replication).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...core.room import Room
from ...errors import ConfigurationError
from ...options import Settings
from ..sql.batches import Batch, Query
from ..sql.dialect import POSTGRESQL
from ..sql.engine import SqlEngine
from ..sql.links import Hub
from ..sql.loops import within

_END = """SELECT pg_terminate_backend(pid{wait}) FROM pg_stat_activity
    WHERE pid = ? AND CAST(EXTRACT(EPOCH FROM backend_start) * 1000000 AS BIGINT) = CAST(? AS BIGINT)"""


class PostgresqlEngine(SqlEngine):
    """One node: a database."""

    def __init__(self, source: str, settings: Settings) -> None:
        """Reads the URL; nothing is opened before the first request."""
        self._conninfo, label = read(source)
        self._pooled = False
        super().__init__(POSTGRESQL, _Hub("postgresql", label, settings), settings)
        from .listening import LoopEars, ThreadEars

        self._thread_ears = ThreadEars(self)
        self._loop_ears = LoopEars(self)

    def open(self, due: float) -> Any:
        from .wire import HELLO, SyncLine, connect

        line = SyncLine(connect(self._conninfo, due))
        try:
            if (more := line.greet(line.run(HELLO, due)[0])) is not None:
                line.run(more, due)
        except BaseException:
            line.close()
            raise
        self._met(line.pooled)
        return line

    async def open_async(self, due: float) -> Any:
        from .wire import HELLO, AsyncLine, connect

        # In a thread: libpq looks names up, and waits for that.
        work = asyncio.to_thread(connect, self._conninfo, due)
        line = AsyncLine(await within(work, due, "no thread was free in time that could connect"))
        try:
            if (more := line.greet((await line.run(HELLO, due))[0])) is not None:
                await line.run(more, due)
        except BaseException:
            line.close()
            raise
        self._met(line.pooled)
        return line

    def _met(self, pooled: bool) -> None:
        """A pooler does not pass on what is announced."""
        if pooled:
            self._pooled = self._visits.locks.deaf = True

    @property
    def pooled(self) -> bool:
        """Does a pooler lie between, which gives us another connection for every transaction?"""
        return self._pooled

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        # Who blocks a thread may do so in an event loop, where a task that listens would not run.
        (self._loop_ears if room.ordered else self._thread_ears).listen(room, done)

    def close(self) -> None:
        self._thread_ears.close()
        super().close()

    async def close_async(self) -> None:
        await self._loop_ears.close()
        await super().close_async()

    def forget(self) -> None:
        self._thread_ears.forget()
        self._loop_ears.forget()
        super().forget()


class _Hub(Hub):
    def bury(self, server_id: Any) -> Batch:
        """A role may end its own connections; from version 14 on it is told when that is done."""
        major = self.version.partition(".")[0]
        wait = ", 500" if major.isdigit() and int(major) >= 14 else ""
        return Batch((Query(_END.format(wait=wait), server_id),))


def read(url: str) -> tuple[str, str]:
    """What libpq is told, and what people are told: the hosts and the database."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ImportError:
        raise ConfigurationError("postgresql:// needs psycopg: pip install 'quorumlock[postgresql]'") from None
    try:
        told = conninfo_to_dict(url)
    except ProgrammingError:
        # Its words may repeat the URL, and with it the password.
        raise ConfigurationError(
            "this postgresql:// URL cannot be read: postgresql://user:password@host:5432/database?option=value, "
            "with the options that libpq knows, and special characters percent-encoded"
        ) from None
    told.setdefault("application_name", "quorumlock")
    told.setdefault("fallback_application_name", "quorumlock")
    hosts = str(told.get("host") or told.get("hostaddr") or "localhost").split(",")
    ports = str(told.get("port") or "5432").split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    where = ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
    database = told.get("dbname") or told.get("user") or ""
    conninfo = make_conninfo(**told)  # type: ignore[arg-type]
    return conninfo, f"postgresql:{where}/{database}"
