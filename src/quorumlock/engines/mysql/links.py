"""Connections to MySQL and MariaDB: one that blocks (PyMySQL), one for event loops (asyncmy).

Neither pipelines: the queries of a batch are said one after the other.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Sequence
from typing import Any

from ...clocks import boot_time
from ..sql.batches import Batch, Cut, Query, Result, Silent, Trouble, Unsent
from . import troubles
from .place import Place

SETTINGS = "SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION innodb_lock_wait_timeout = 1"
"""What does not fit is an error; and another's transaction is not waited for as long as we would be."""
LEAST = 0.001
IDLE_MOST = 5.0


def formatted(query: Query) -> str:
    return query.text.replace("%", "%%").replace("?", "%s") if query.values else query.text


def undone(results: list[Result], batch: Batch) -> bool:
    """Has a query of a whole changed other than the rows it should?"""
    return batch.whole and any(
        query.changes not in (-1, result.count) for query, result in zip(batch.queries, results, strict=False)
    )


def said_undone(batch: Batch) -> list[Result]:
    return [Result((), 0) for _ in batch.queries]


class Connection:
    """What the two have in common."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.server_id: int = connection.thread_id()
        self.version = str(connection.get_server_info()).partition("-")[0]


class SyncConnection(Connection):
    """PyMySQL's."""

    def alive(self) -> bool:
        sock = self._connection._sock
        return sock is not None and not select.select([sock], [], [], 0)[0]

    def close(self) -> None:
        self._connection._force_close()

    def run(self, batch: Batch, due: float) -> Sequence[Result]:
        import pymysql  # type: ignore[import-untyped]

        results: list[Result] = []
        try:
            if batch.whole:
                self._say(Query("START TRANSACTION"), due)
            for query in batch.queries:
                results.append(self._say(query, due))
                if undone(results, batch):
                    self._say(Query("ROLLBACK"), due)
                    return said_undone(batch)
            if batch.whole:
                self._say(Query("COMMIT"), due)
        except (pymysql.Error, OSError) as error:
            raise self._failed(error, batch, due) from None
        return results

    def _say(self, query: Query, due: float) -> Result:
        # Its timeouts are those of the connection; a request has less and less time.
        self._connection._read_timeout = self._connection._write_timeout = max(LEAST, due - boot_time())
        with self._connection.cursor() as cursor:
            count = cursor.execute(formatted(query), query.values or None)
            return Result(cursor.fetchall() if cursor.description else (), count)

    def _failed(self, error: Exception, batch: Batch, due: float) -> Trouble:
        if isinstance(error, TimeoutError) or boot_time() >= due:
            return Silent("no answer in time")
        trouble = troubles.told(error)
        if batch.whole and not trouble.broken:
            trouble.broken = True  # what it has begun ends with the connection
        return trouble


class AsyncConnection(Connection):
    """asyncmy's. It does not let us see whether the server has said farewell: none is trusted that was idle."""

    _used_at = 0.0

    def alive(self) -> bool:
        return bool(self._connection.connected) and boot_time() - self._used_at < IDLE_MOST

    def close(self) -> None:
        self._connection.close()

    async def run(self, batch: Batch, due: float) -> Sequence[Result]:
        from asyncmy.errors import MySQLError  # type: ignore[import-not-found,import-untyped,unused-ignore]

        results: list[Result] = []
        try:
            async with asyncio.timeout(max(LEAST, due - boot_time())):
                if batch.whole:
                    await self._say(Query("START TRANSACTION"))
                for query in batch.queries:
                    results.append(await self._say(query))
                    if undone(results, batch):
                        await self._say(Query("ROLLBACK"))
                        return said_undone(batch)
                if batch.whole:
                    await self._say(Query("COMMIT"))
        except TimeoutError:
            raise Silent("no answer in time") from None
        except (MySQLError, OSError, EOFError, RuntimeError) as error:
            trouble = troubles.told(error)
            if batch.whole:
                trouble.broken = True
            raise trouble from None
        self._used_at = boot_time()
        return results

    async def _say(self, query: Query) -> Result:
        async with self._connection.cursor() as cursor:
            count = await cursor.execute(formatted(query), query.values or None)
            return Result(await cursor.fetchall() if cursor.description else (), count)


def connect(place: Place, due: float) -> SyncConnection:
    """Raises Unsent or Denied."""
    import pymysql

    left = max(LEAST, due - boot_time())
    try:
        connection = pymysql.connect(**place.for_pymysql(), connect_timeout=left, read_timeout=left)
        link = SyncConnection(connection)
        link.run(Batch((Query(SETTINGS),)), due)
    except (pymysql.Error, OSError) as error:
        raise troubles.not_made(error) from None
    except (Cut, Silent) as error:
        raise Unsent(str(error)) from None
    return link


async def connect_async(place: Place, due: float) -> AsyncConnection:
    import asyncmy
    from asyncmy.errors import MySQLError

    try:
        async with asyncio.timeout(max(LEAST, due - boot_time())):
            connection = await asyncmy.connect(**place.for_asyncmy())
            link = AsyncConnection(connection)
            await link.run(Batch((Query(SETTINGS),)), due)
    except TimeoutError:
        raise Unsent("no connection in time") from None
    except (MySQLError, OSError, EOFError) as error:
        raise troubles.not_made(error) from None
    except (Cut, Silent) as error:
        raise Unsent(str(error)) from None
    return link
