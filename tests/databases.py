"""PostgreSQL and MariaDB servers of the tests' own: on loopback, in a temporary folder, gone with their owner.

Nothing is ever synced to disk, unless they are to be `durable`. As root they are run as the user that their package
made, since PostgreSQL refuses root; otherwise as whoever runs the tests.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

import pytest

from quorumlock.lab.servers import free_port, give_back

READY_WITHIN = 60.0
_PR_SET_PDEATHSIG = 1
_MEMORY = "/dev/shm"
"""Where there are no disks to wait for."""


def program(name: str) -> str | None:
    """Where a program is; Debian keeps servers out of the path of ordinary users."""
    places = ["/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Database:
    """One server process, with its data."""

    url: str
    PROGRAMS: tuple[str, ...]
    USER: str
    STOP = signal.SIGKILL

    @classmethod
    def missing(cls) -> list[str]:
        """The programs that are not on this machine."""
        return [name for name in cls.PROGRAMS if program(name) is None]

    def __init__(self, *, durable: bool = False, grants: bool = False) -> None:
        self.port = free_port()
        self.durable = durable
        self.grants = grants
        """Do users other than the first need a password, and rights?"""
        in_memory = not durable and os.access(_MEMORY, os.W_OK)
        self.folder = Path(tempfile.mkdtemp(prefix="ql-", dir=_MEMORY if in_memory else None))
        self.data = self.folder / "data"
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(self.USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> list[str]:
        """The command that makes the data."""
        raise NotImplementedError

    def serve(self) -> list[str]:
        """The command that serves it."""
        raise NotImplementedError

    def _popen(self, command: list[str]) -> subprocess.Popen[bytes]:
        binary = program(command[0])
        assert binary is not None
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
                [binary, *command[1:]],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C"},
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                **self._as,
            )

    def start(self) -> None:
        """Makes the data, unless it is there, and serves it until it answers."""
        if not self.data.exists() and self._popen(self.prepare()).wait(READY_WITHIN):
            raise RuntimeError(f"{self.PROGRAMS[0]}: {self._log()}")
        self._process = self._popen(self.serve())
        end = time.monotonic() + READY_WITHIN
        while time.monotonic() < end and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.02)
        raise RuntimeError(f"{self.PROGRAMS[0]} on port {self.port} did not come up: {self._log()}")

    def kill(self) -> None:
        """As a crash would."""
        assert self._process is not None
        self._process.send_signal(self.STOP)
        self._process.wait(READY_WITHIN)

    def pause(self) -> None:
        """SIGSTOP for it and its children: connections stand, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        for pid in (self._process.pid, *_children(self._process.pid)):
            with suppress(ProcessLookupError):  # a child that has just ended
                os.kill(pid, number)

    def _answers(self) -> bool:
        """Does it answer? An open port is not enough: PostgreSQL has one while it is starting up."""
        try:
            return Path(self.home()) == self.data
        except Exception:
            return False

    def home(self) -> str:
        """Where the data is of the server that answers on the port: it might be another one, that came first."""
        raise NotImplementedError

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-1000:]

    def __enter__(self) -> Database:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        give_back(self.port)


class PostgreSQL(Database):
    """Its own postmaster; `STOP` is an immediate shutdown, which ends its children with it."""

    PROGRAMS = ("postgres", "initdb")
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
        return ["postgres", "-D", str(self.data), *(f"--{name}={value}" for name, value in settings.items())]

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"postgresql://test@127.0.0.1:{self.port}/postgres"

    def home(self) -> str:
        import psycopg

        with psycopg.connect(self.url, connect_timeout=2) as connection:
            row = connection.execute(b"SHOW data_directory").fetchone()
        assert row is not None
        return str(row[0])


class MariaDB(Database):
    """Anybody on loopback may do anything, unless there are `grants`."""

    PROGRAMS = ("mariadbd", "mariadb-install-db")
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

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"mysql://root@127.0.0.1:{self.port}/test?ssl_disabled=true"

    def home(self) -> str:
        import pymysql  # type: ignore[import-untyped]

        options = {"host": "127.0.0.1", "port": self.port, "user": "root"}
        with (
            closing(pymysql.connect(**options, ssl_disabled=True, connect_timeout=2)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT @@datadir")
            return str(cursor.fetchone()[0])


def needed(kind: type[Database]) -> None:
    """Skips a test whose server is not on this machine; never in CI."""
    missing = kind.missing()
    if missing and os.environ.get("CI"):
        raise pytest.UsageError(f"CI must not skip: no {', '.join(missing)}")
    if missing:
        pytest.skip(f"no {', '.join(missing)} here")
