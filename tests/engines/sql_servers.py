"""Databases for the tests of this folder: on the shared servers, and on others that a test may kill or pause."""

from __future__ import annotations

import functools
import itertools
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any
from urllib.parse import quote

import pytest

import quorumlock
from quorumlock import Locker, NoQuorum
from quorumlock.core.votes import Cause
from quorumlock.retry import Jitter
from tests.support.proxy import Proxy
from tests.support.servers.databases import Database, MariaDB, PostgreSQL, needed
from tests.support.servers.shared import shared_server

KINDS: dict[str, type[Database]] = {"postgresql": PostgreSQL, "mysql": MariaDB}
PASSWORD = "pass'w%rd/é"
_numbers = itertools.count(1)


class PgBouncer(Database):
    """A pooler in front of a PostgreSQL server, which gives every transaction another connection."""

    PROGRAMS = ("pgbouncer",)
    USER = "postgres"

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place
        where = f"host=127.0.0.1 port={place.server.port} user=test dbname={place.database}"
        (self.folder / "ini").write_text(
            f"[databases]\n* = {where}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\n"
            "unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        self.data.mkdir()

    def serve(self) -> list[str]:
        return ["pgbouncer", str(self.folder / "ini")]

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Place:
    """A server, seen from behind."""

    def __init__(self, server: Database) -> None:
        self.server = server
        self.kind = "postgresql" if isinstance(server, PostgreSQL) else "mysql"
        self.announces = self.kind == "postgresql"
        self.database = "engines"
        server.create_database(self.database)

    @property
    def label(self) -> str:
        return f"{self.kind}:127.0.0.1:{self.server.port}/{self.database}"

    def url(self, port: int = 0, user: str = "", password: str = "", database: str = "") -> str:
        who = user or ("test" if self.announces else "root")
        secret = f":{quote(password, safe='')}" if password else ""
        rest = "" if self.announces else "?ssl_disabled=true"
        where = f"127.0.0.1:{port or self.server.port}/{database or self.database}"
        return f"{self.kind}://{who}{secret}@{where}{rest}"

    def connect(self, **options: Any) -> Locker:
        options.setdefault("prefix", f"t{next(_numbers)}:")
        options.setdefault("max_ttl", 60.0)
        return quorumlock.connect(options.pop("url", self.url()), **options)

    def connection(self, database: str | None = None, user: str = "", password: str = "") -> Any:
        """One that commits by itself."""
        if self.announces:
            import psycopg

            name = {None: self.database, "": "postgres"}.get(database, database)
            return psycopg.connect(
                host="127.0.0.1", port=self.server.port, user=user or "test", password=password, dbname=name,
                autocommit=True,
            )  # fmt: skip
        import pymysql  # type: ignore[import-untyped]

        return pymysql.connect(
            host="127.0.0.1", port=self.server.port, user=user or "root", password=password, ssl_disabled=True,
            database={None: self.database, "": None}.get(database, database), autocommit=True,
        )  # fmt: skip

    def sql(self, *statements: str, database: str | None = None, values: Sequence[Any] = ()) -> list[Any]:
        """What the last of them found."""
        found: list[Any] = []
        with closing(self.connection(database)) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement, values or None)
                found = list(cursor.fetchall()) if cursor.description else []
        return found

    def another_database(self, options: str = "") -> str:
        """The name of an empty one."""
        name = f"engines{next(_numbers)}"
        self.server.create_database(name, options)
        return name

    def connections(self) -> int:
        """Of clients to this database, without ours."""
        if self.announces:
            query = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND backend_type = 'client backend'"
            )
        else:
            query = "SELECT count(*) FROM information_schema.processlist WHERE db = database()"
        return int(self.sql(query)[0][0]) - 1


@functools.cache
def shared(kind: str) -> Place:
    """Our database on the shared server of a kind. Call it with a fixture that depends on `shared_databases`."""
    return Place(shared_server(KINDS[kind]))


@functools.cache
def _with_poor_user(kind: str) -> Place:
    place, quoted = shared(kind), PASSWORD.replace("'", "''")
    if place.announces:
        place.sql("SET password_encryption = 'scram-sha-256'", f"CREATE ROLE poor LOGIN PASSWORD '{quoted}'")
    else:
        place.sql(
            "DELETE FROM mysql.global_priv WHERE user = ''",  # nobody, as which everybody is let in
            "FLUSH PRIVILEGES",
            f"CREATE USER poor IDENTIFIED BY '{quoted}'",
        )
    return place


@pytest.fixture(scope="session", params=KINDS)
def shared_place(request: pytest.FixtureRequest) -> Place:
    """Do not kill, pause or reconfigure its server."""
    return shared(request.param)


@pytest.fixture(scope="session")
def poor(shared_place: Place) -> Place:
    """A place with a user of that name, who has a password and may do nothing."""
    return _with_poor_user(shared_place.kind)


@pytest.fixture
def place(shared_place: Place) -> Place:
    return shared_place


@pytest.fixture(scope="module")
def own_places() -> Iterator[Callable[[str], Place]]:
    """Servers of a module's own by their kind, started when they are first asked for."""
    with ExitStack() as stack:

        def start(kind: str) -> Place:
            needed(KINDS[kind])
            return Place(stack.enter_context(KINDS[kind]()))

        yield functools.cache(start)


@pytest.fixture(params=KINDS)
def own_place(request: pytest.FixtureRequest, own_places: Callable[[str], Place]) -> Place:
    """To be killed and paused: it is up again when a test ends."""
    return own_places(request.param)


Connect = Callable[..., Locker]
on_postgresql = pytest.mark.parametrize("shared_place", ["postgresql"], indirect=True)
on_mysql = pytest.mark.parametrize("shared_place", ["mysql"], indirect=True)
SELDOM = Jitter(3600)
"""Who polls so seldom was told."""


def cause_of(error: NoQuorum) -> tuple[Cause, str]:
    """What the node has said."""
    assert error.tally is not None
    (answer,) = error.tally.answers
    assert answer is not None
    return answer.cause, answer.detail


def in_a_thread(work: Callable[..., Any], *arguments: Any) -> tuple[threading.Thread, list[Any]]:
    """The thread, and what comes of it."""
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.append(work(*arguments)))
    thread.start()
    return thread, came


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    """Between clients and the shared server."""
    with Proxy(place.server) as made:  # type: ignore[arg-type]
        yield made


@pytest.fixture
def connect(place: Place) -> Iterator[Connect]:
    """Lockers on the shared server, closed at the end."""
    made: list[Locker] = []

    def make(**options: Any) -> Locker:
        made.append(place.connect(**options))
        return made[-1]

    yield make
    for locker in made:
        locker.close()
