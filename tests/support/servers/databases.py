"""PostgreSQL and MariaDB servers of the tests' own. See `base.py`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from tests.support.servers import base as served
from tests.support.servers.base import READY_WITHIN, Served


def program(name: str) -> str | None:
    """Where a program is; Debian keeps servers out of the path of ordinary users."""
    places = ["/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


class Database(Served):
    """One server process, with its data."""

    PROGRAMS: tuple[str, ...]
    FIRST: str
    """The database that `url` names."""

    @classmethod
    def missing(cls) -> list[str]:
        """The programs that are not on this machine."""
        return [name for name in cls.PROGRAMS if program(name) is None]

    def __init__(self, *, durable: bool = False, grants: bool = False) -> None:
        super().__init__(durable=durable)
        self.grants = grants
        """Do users other than the first need a password, and rights?"""
        self.data = self.folder / "data"

    def prepare(self) -> list[str]:
        """The command that makes the data."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        return self.url_of(self.FIRST)

    def url_of(self, database: str) -> str:
        """The URL of a database on this server, for the user who may do everything."""
        raise NotImplementedError

    def execute(self, statement: str) -> None:
        """Runs a statement that concerns the whole server."""
        raise NotImplementedError

    def create_database(self, name: str, options: str = "") -> str:
        """Makes an empty database and returns its URL."""
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url_of(name)

    def start(self, *, wait: bool = True) -> Self:
        """Makes the data, unless it is there, and serves it."""
        if not self.data.exists() and self.spawn(self.prepare()).wait(READY_WITHIN):
            raise RuntimeError(f"{self.PROGRAMS[0]}: {self.log()}")
        return super().start(wait=wait)

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        binary = program(command[0])
        assert binary is not None
        return super().spawn([binary, *command[1:]])

    def answers(self) -> bool:
        try:
            return Path(self.home()) == self.data
        except Exception:
            return False

    def home(self) -> str:
        """Where the data is of the server that answers on the port: it might be another one, that came first."""
        raise NotImplementedError


class PostgreSQL(Database):
    """Its own postmaster; `STOP` is an immediate shutdown, which ends its children with it."""

    PROGRAMS = ("postgres", "initdb")
    FIRST = "postgres"
    USER = "postgres"
    STOP = signal.SIGQUIT

    def prepare(self) -> list[str]:
        options = ["--auth=trust", "--username=test", "--no-sync", "--no-locale", "--encoding=UTF8"]
        return ["initdb", f"--pgdata={self.data}", *options]

    def serve(self) -> list[str]:
        if self.grants:
            trusted, others = "host all test 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256"
            (self.data / "pg_hba.conf").write_text(f"{trusted}\n{others}\n")
        settings: dict[str, object] = {
            "port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
            "shared_buffers": "16MB", "max_connections": 120, "deadlock_timeout": "100ms",
        }  # fmt: skip
        if not self.durable:
            settings |= {
                "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"
            }  # fmt: skip
        given = (f"--{name}={value}" for name, value in settings.items())
        return ["postgres", "-D", str(self.data), *given]

    def url_of(self, database: str) -> str:
        return f"postgresql://test@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def home(self) -> str:
        import psycopg

        with psycopg.connect(self.url, connect_timeout=2) as connection:
            row = connection.execute(b"SHOW data_directory").fetchone()
        assert row is not None
        return str(row[0])


class MariaDB(Database):
    """Anybody on loopback may do anything, unless there are `grants`."""

    PROGRAMS = ("mariadbd", "mariadb-install-db")
    FIRST = "test"
    USER = "mysql"

    def prepare(self) -> list[str]:
        who = ["--auth-root-authentication-method=normal"] if self.grants else []
        return ["mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--skip-test-db", *who]

    def serve(self) -> list[str]:
        options: dict[str, object] = {
            "port": self.port, "bind-address": "127.0.0.1", "socket": self.folder / "s", "datadir": self.data,
            "pid-file": self.folder / "pid", "innodb-buffer-pool-size": "32M", "innodb-log-file-size": "16M",
            "max-connections": 120, "innodb-lock-wait-timeout": 20,
        }  # fmt: skip
        if not self.grants:
            options["skip-grant-tables"] = 1
        if not self.durable:
            options |= {
                "innodb-flush-log-at-trx-commit": 0, "innodb-flush-method": "nosync", "innodb-doublewrite": 0
            }  # fmt: skip
        return ["mariadbd", "--no-defaults", *(f"--{name}={value}" for name, value in options.items())]

    def url_of(self, database: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{database}?ssl_disabled=true"

    def _connect(self, **options: Any) -> Any:
        """A connection to the server, and to none of its databases."""
        import pymysql  # type: ignore[import-untyped]

        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", ssl_disabled=True, **options)

    def execute(self, statement: str) -> None:
        with closing(self._connect(autocommit=True)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def home(self) -> str:
        with closing(self._connect(connect_timeout=2)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@datadir")
            return str(cursor.fetchone()[0])


def needed(kind: type[Database]) -> None:
    """Skips a test whose server is not on this machine; never in CI."""
    served.needed(kind.missing())
