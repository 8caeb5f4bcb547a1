"""Connections to MySQL and MariaDB: one that blocks (PyMySQL), one for event loops (asyncmy).

Neither pipelines: the queries of a batch are said one after the other, and each is a transaction of its own.
Whoever is stopped in the midst of one that spans several would keep all others from its rows for hours.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...clocks import boot_time
from ..sql.batches import Batch, Cut, Query, Result, Silent, Unsent
from . import troubles
from .place import Place

SETTINGS = "SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION innodb_lock_wait_timeout = 1, SESSION sql_notes = 0"
"""What does not fit is an error; another's transaction is not waited for as long as we would be; and nothing is
noted of tables that are there already, which asyncmy would log."""
NOT_MYSQL = (AssertionError, LookupError, struct.error, TypeError, ValueError, AttributeError)
"""What the drivers come to when they read what is none."""
LEAST = 0.001
IDLE_MOST = 5.0


def formatted(query: Query) -> str:
    return query.text.replace("%", "%%").replace("?", "%s") if query.values else query.text


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
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._connection._force_close()

    def run(self, batch: Batch, due: float) -> Sequence[Result]:
        import pymysql  # type: ignore[import-untyped]

        try:
            return [self._say(query, due) for query in batch.queries]
        except (pymysql.Error, OSError) as error:
            if isinstance(error, TimeoutError) or boot_time() >= due:
                raise Silent("no answer in time") from None
            raise troubles.told(error) from None
        except NOT_MYSQL as error:
            raise Cut(f"no MySQL server would answer so ({type(error).__name__})") from None

    def _say(self, query: Query, due: float) -> Result:
        # Its timeouts are those of the connection; a request has less and less time.
        self._connection._read_timeout = self._connection._write_timeout = max(LEAST, due - boot_time())
        with self._connection.cursor() as cursor:
            count = cursor.execute(formatted(query), query.values or None)
            return Result(cursor.fetchall() if cursor.description else (), count)


class AsyncConnection(Connection):
    """asyncmy's. Some versions do not show that the server has said farewell: none is trusted that was idle."""

    _used_at = 0.0

    def alive(self) -> bool:
        broken = not self._connection.connected or getattr(self._connection, "_stream_broken", False)
        return not broken and boot_time() - self._used_at < IDLE_MOST

    def close(self) -> None:
        try:
            self._connection.close()
        except RuntimeError:  # its event loop is closed, and cannot do it any more
            sock = self._connection._transport.get_extra_info("socket")
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    async def run(self, batch: Batch, due: float) -> Sequence[Result]:
        from asyncmy.errors import MySQLError  # type: ignore[import-not-found,import-untyped,unused-ignore]

        try:
            async with asyncio.timeout(max(LEAST, due - boot_time())):
                results = [await self._say(query) for query in batch.queries]
        except TimeoutError:
            raise Silent("no answer in time") from None
        except (MySQLError, OSError, EOFError, RuntimeError) as error:
            raise troubles.told(error) from None
        except NOT_MYSQL as error:
            raise Cut(f"no MySQL server would answer so ({type(error).__name__})") from None
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
    except NOT_MYSQL as error:
        raise Unsent(f"no MySQL server would answer so ({type(error).__name__})") from None
    except (pymysql.Error, OSError, RuntimeError) as error:  # the last one wants a library that is not there
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
    except NOT_MYSQL as error:
        raise Unsent(f"no MySQL server would answer so ({type(error).__name__})") from None
    except (MySQLError, OSError, EOFError, RuntimeError) as error:
        raise troubles.not_made(error) from None
    except (Cut, Silent) as error:
        raise Unsent(str(error)) from None
    return link
