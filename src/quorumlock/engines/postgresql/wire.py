"""A conversation with a PostgreSQL server: libpq speaks, and we wait, with deadlines.

A batch is sent in one go (pipeline mode) and ends with one sync: to the server it is one transaction, also behind a
pooler. Nothing is prepared, and nothing of a session is relied on.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Generator, Sequence
from typing import Any

from psycopg import pq
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, PollingStatus
from psycopg.pq.abc import PGconn

from ...clocks import boot_time
from ..sql.batches import Batch, Cut, Query, Result, Silent, Trouble, Unsent, Value
from . import troubles

READ, WRITE = select.POLLIN, select.POLLOUT
Talk = Generator[int, None, list[Result]]
"""Yields what to wait for."""

HELLO = Batch(
    (
        Query(
            """SELECT pg_backend_pid(), CAST(EXTRACT(EPOCH FROM backend_start) * 1000000 AS BIGINT),
            current_setting('server_version'), current_setting('synchronous_commit')
            FROM pg_stat_get_activity(pg_backend_pid())"""
        ),
    )
)


class Line:
    """One connection, whoever waits for it."""

    def __init__(self, pgconn: PGconn) -> None:
        self.pgconn = pgconn
        self.server_id: tuple[int, int] | None = None
        self.version = ""
        self.pooled = False
        """Does something lie between, that gives us another server each time?"""
        self.texts: dict[str, bytes] = {}

    def greet(self, said: Result) -> Batch | None:
        """Learns who is there; gives what is to be said in turn."""
        pid, started, version, commits = said.rows[0]
        self.version = str(version).split()[0]
        self.pooled = pid != self.pgconn.backend_pid
        if not self.pooled and isinstance(pid, int) and isinstance(started, int):
            self.server_id = (pid, started)
            if commits == "off":
                return Batch((Query("SET synchronous_commit = on"),))
        return None  # behind a pooler it would be somebody else's session

    def alive(self) -> bool:
        """Something to read where nothing was asked is, as a rule, a farewell."""
        if self.pgconn.status != ConnStatus.OK:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, READ)
        if not poll.poll(0):
            return True
        try:
            self.pgconn.consume_input()
        except pq_errors():
            return False  # it has said farewell
        return self.pgconn.status == ConnStatus.OK and not poll.poll(0)

    def close(self) -> None:
        self.pgconn.finish()

    def talk(self, batch: Batch) -> Talk:
        """Says a batch, and hears the answers. Raises Trouble."""
        pgconn = self.pgconn
        try:
            for query in batch.queries:
                values, formats = packed(query.values)
                pgconn.send_query_params(self._numbered(query.text), values, param_formats=formats)
            pgconn.pipeline_sync()
            while pgconn.flush():
                yield READ | WRITE
                pgconn.consume_input()
            results: list[Result] = []
            error: Trouble | None = None
            for _ in batch.queries:
                said = yield from self._next()
                while said is not None:
                    if said.status == ExecStatus.FATAL_ERROR and error is None:
                        error = troubles.told(_field(said, DiagnosticField.SQLSTATE), _words(said))
                    elif said.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
                        results.append(_result(said))
                    said = yield from self._next()
            yield from self._next()  # the sync
        except pq_errors() as failure:
            raise Cut(troubles.plain(str(failure))) from None
        if error is not None:
            if pgconn.status != ConnStatus.OK:  # it has said farewell
                raise Cut(str(error))
            raise error
        return results

    def _next(self) -> Generator[int, None, Any]:
        while self.pgconn.is_busy():
            yield READ
            self.pgconn.consume_input()
        return self.pgconn.get_result()

    def _numbered(self, text: str) -> bytes:
        found = self.texts.get(text)
        if found is None:
            first, *rest = text.split("?")
            found = (first + "".join(f"${at}{part}" for at, part in enumerate(rest, 1))).encode()
            if len(self.texts) < 200:
                self.texts[text] = found
        return found


class SyncLine(Line):
    def run(self, batch: Batch, due: float) -> list[Result]:
        talk = self.talk(batch)
        poll = select.poll()
        try:
            wants = next(talk)
            while True:
                poll.register(self.pgconn.socket, wants)
                if not poll.poll(max(0.0, due - boot_time()) * 1000):
                    raise Silent("no answer in time")
                wants = next(talk)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class AsyncLine(Line):
    async def run(self, batch: Batch, due: float) -> list[Result]:
        loop = asyncio.get_running_loop()
        talk = self.talk(batch)
        socket = self.pgconn.socket
        ready: asyncio.Future[None] | None = None
        writing = late = False

        def wake(*, too_late: bool = False) -> None:
            nonlocal late
            late = late or too_late
            if ready is not None and not ready.done():
                ready.set_result(None)

        timer = loop.call_later(max(0.0, due - boot_time()), lambda: wake(too_late=True))
        try:
            wants = next(talk)
            loop.add_reader(socket, wake)
            try:
                while True:
                    ready = loop.create_future()
                    if wants & WRITE and not writing:
                        loop.add_writer(socket, wake)
                        writing = True
                    await ready
                    if writing:
                        loop.remove_writer(socket)
                        writing = False
                    wants = next(talk)
                    if late:
                        raise Silent("no answer in time")
            finally:
                loop.remove_reader(socket)
                if writing:
                    loop.remove_writer(socket)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            timer.cancel()


def connect(conninfo: str, due: float) -> PGconn:
    """A connection in pipeline mode; raises Unsent, Denied or ConfigurationError."""
    try:
        pgconn: PGconn = pq.PGconn.connect_start(conninfo.encode())
        poll = select.poll()
        while True:
            if pgconn.status == ConnStatus.BAD:
                raise troubles.not_made(pgconn.get_error_message())
            state = pgconn.connect_poll()
            if state == PollingStatus.OK:
                break
            if state == PollingStatus.FAILED:
                raise troubles.not_made(pgconn.get_error_message())
            socket = pgconn.socket
            poll.register(socket, READ if state == PollingStatus.READING else WRITE)
            came = poll.poll(max(0.0, due - boot_time()) * 1000)
            poll.unregister(socket)
            if not came:
                where = (pgconn.host or b"").decode()
                pgconn.finish()
                raise Unsent(f"no connection to {where} in time")
    except pq_errors() as error:
        raise troubles.not_made(str(error)) from None
    pgconn.nonblocking = 1
    pgconn.enter_pipeline_mode()
    return pgconn


def pq_errors() -> tuple[type[Exception], ...]:
    from psycopg import Error

    return (Error, OSError)


def packed(values: Sequence[Value]) -> tuple[list[bytes | None], list[pq.Format]]:
    formats, told = [], []
    for value in values:
        formats.append(pq.Format.BINARY if isinstance(value, bytes) else pq.Format.TEXT)
        told.append(value if value is None or isinstance(value, bytes) else str(value).encode())
    return told, formats


def _result(said: Any) -> Result:
    types = [said.ftype(column) for column in range(said.nfields)]
    rows = [
        tuple(_value(said.get_value(at, column), kind) for column, kind in enumerate(types))
        for at in range(said.ntuples)
    ]
    return Result(rows, said.command_tuples or 0)


INT8, INT4, BYTEA, BOOL = 20, 23, 17, 16


def _value(data: bytes | None, kind: int) -> Value:
    if data is None:
        return None
    if kind in (INT8, INT4):
        return int(data)
    if kind == BYTEA:
        return bytes.fromhex(data[2:].decode())
    if kind == BOOL:
        return int(data == b"t")
    return data.decode()


def _field(said: Any, field: DiagnosticField) -> str:
    return (said.error_field(field) or b"").decode(errors="replace")


def _words(said: Any) -> str:
    return _field(said, DiagnosticField.MESSAGE_PRIMARY)
