"""Locks through connections of the user's own: a SQLAlchemy `Engine` or `AsyncEngine`.

Every batch takes a connection out of the pool and gives it back; none is kept. So nobody listens: who waits asks.
How long a connection may think is the pool's affair: with an `Engine` our own deadlines cannot end it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...clocks import boot_time
from ...core.effects import Round
from ...core.states import NodeState
from ...errors import ConfigurationError
from ...options import Settings
from ...retry import Retry
from ..sqlite.polling import Polling
from .batches import Batch, Query, Result, Silent, Trouble, Unsent, Value
from .dialect import MYSQL, POSTGRESQL, Dialect
from .engine import SqlStore
from .links import Hub
from .loops import Loops
from .threads import Threads

if TYPE_CHECKING:
    from sqlalchemy import CursorResult, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

DIALECTS = {"postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}
POLL_FIRST, POLL_MOST = 0.005, 0.25


def pooled(client: Any, settings: Settings) -> PoolEngine | AsyncPoolEngine:
    """The engine for an Engine or an AsyncEngine."""
    dialect = DIALECTS.get(getattr(getattr(client, "dialect", None), "name", ""))
    if dialect is None:
        raise ConfigurationError(
            f"clients: {type(client).__name__} is none that locks can be kept with; give one SQLAlchemy Engine or "
            f"AsyncEngine for {', '.join(DIALECTS)}"
        )
    hub = PoolHub(client, dialect, settings)
    return (AsyncPoolEngine if hasattr(client, "sync_engine") else PoolEngine)(client, dialect, hub, settings)


class PoolHub(Hub):
    def __init__(self, client: Any, dialect: Dialect, settings: Settings) -> None:
        url = client.url
        where = f"{url.host or 'localhost'}:{url.port or (5432 if dialect is POSTGRESQL else 3306)}"
        super().__init__(dialect.name, f"{dialect.name}:{where}/{url.database or ''}", settings)

    def bury(self, server_id: Any) -> Batch:
        raise NotImplementedError  # a connection of the pool's is the pool's to end


class _Pool(SqlStore):
    def __init__(self, client: Any, dialect: Dialect, hub: PoolHub, settings: Settings) -> None:
        super().__init__(dialect, hub, settings)
        self._client = client
        self._visits.locks.deaf = True
        self.polling: Retry = Polling(POLL_FIRST, POLL_MOST)
        """How to wait for a lock, where the user did not say."""


class PoolEngine(_Pool):
    """Over an `Engine`."""

    def __init__(self, client: Engine, dialect: Dialect, hub: PoolHub, settings: Settings) -> None:
        super().__init__(client, dialect, hub, settings)
        self._threads = Threads(self._visits, hub, lambda _: PoolLink(client))

    def perform(self, round_: Round) -> None:
        self._threads.perform(round_)

    def states(self, samples: int) -> tuple[NodeState, ...]:
        return self._threads.states(samples)

    def close(self) -> None:
        """The pool is the user's."""

    def forget(self) -> None:
        """In a forked child: as SQLAlchemy asks for."""
        self._client.dispose(close=False)
        self._threads.forget()


class AsyncPoolEngine(_Pool):
    """Over an `AsyncEngine`."""

    def __init__(self, client: AsyncEngine, dialect: Dialect, hub: PoolHub, settings: Settings) -> None:
        super().__init__(client, dialect, hub, settings)
        self._loops = Loops(self._visits, hub, self._open)

    async def _open(self, _: float) -> AsyncPoolLink:
        return AsyncPoolLink(self._client)

    def perform(self, round_: Round) -> None:
        raise ConfigurationError("an AsyncEngine is for connect_async; connect takes an Engine")

    def states(self, samples: int) -> tuple[NodeState, ...]:
        raise ConfigurationError("an AsyncEngine is for connect_async; connect takes an Engine")

    async def perform_async(self, round_: Round) -> None:
        await self._loops.perform(round_)

    async def states_async(self, samples: int) -> tuple[NodeState, ...]:
        return await self._loops.states(samples)

    def close(self) -> None:
        """The pool is the user's."""

    async def close_async(self) -> None:
        """Likewise."""

    def forget(self) -> None:
        self._client.sync_engine.dispose(close=False)
        self._loops.forget()


class _Link:
    server_id = None

    def __init__(self, client: Any) -> None:
        self._client = client
        told = getattr(client.dialect, "server_version_info", None) or ()
        self.version = ".".join(str(part) for part in told[:3])

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to close."""


class PoolLink(_Link):
    def run(self, batch: Batch, due: float) -> Sequence[Result]:
        from sqlalchemy.exc import SQLAlchemyError

        connection = None
        try:
            connection = self._client.connect()
            with connection:
                if not batch.whole:
                    connection.execution_options(isolation_level="AUTOCOMMIT")
                results = [_result(connection.execute(*_said(query))) for query in batch.queries]
                connection.commit()
                return results
        except (SQLAlchemyError, OSError) as error:
            raise _trouble(error, connection is None, self._client.dialect.name) from None


class AsyncPoolLink(_Link):
    async def run(self, batch: Batch, due: float) -> Sequence[Result]:
        from sqlalchemy.exc import SQLAlchemyError

        connected = False
        try:
            async with asyncio.timeout(max(0.001, due - boot_time())), self._client.connect() as connection:
                connected = True
                if not batch.whole:
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                results = [_result(await connection.execute(*_said(query))) for query in batch.queries]
                await connection.commit()
                return results
        except TimeoutError:
            raise (Silent if connected else Unsent)("no answer in time") from None
        except (SQLAlchemyError, OSError) as error:
            raise _trouble(error, not connected, self._client.dialect.name) from None


def _said(query: Query) -> tuple[Any, dict[str, Value]]:
    from sqlalchemy import text

    first, *rest = query.text.split("?")
    named = first + "".join(f":p{at}{part}" for at, part in enumerate(rest))
    return text(named), {f"p{at}": value for at, value in enumerate(query.values)}


def _result(said: CursorResult[Any]) -> Result:
    if not said.returns_rows:
        return Result((), said.rowcount)
    rows = [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in said.fetchall()]
    return Result(rows, len(rows))


def _trouble(error: Exception, unsent: bool, dialect: str) -> Trouble:
    """What the driver said, whichever it is."""
    told: Any = getattr(error, "orig", None) or error
    if unsent:
        return Unsent(_words(told))
    if dialect == "postgresql":
        from ..postgresql.troubles import told as judged

        code = str(getattr(told, "sqlstate", None) or getattr(told, "pgcode", None) or "")
        return judged(code or "08006", _words(told))
    from ..mysql.troubles import told as mysql_judged

    return mysql_judged(told)


def _words(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:300] or type(error).__name__
