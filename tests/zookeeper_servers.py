"""ZooKeeper servers of the tests' own: one, or an ensemble of three; on loopback, in temporary folders.

Debian's jars, started by hand: a small heap and a quick compiler, nothing is synced to disk, and ticks are short,
so that sessions can be. As root they are run as the user that the package made.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from quorumlock.lab.servers import free_port, give_back

READY_WITHIN = 60.0
JAR = Path("/usr/share/java/zookeeper.jar")
USER = "zookeeper"
TICK_MS = 200
_PR_SET_PDEATHSIG = 1
_MEMORY = "/dev/shm"
"""Where there are no disks to wait for."""
_JAVA = [
    "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
    "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.forceSync=no", "-Dzookeeper.jmx.log4j.disable=true",
]  # fmt: skip


def missing() -> list[str]:
    """What a server needs and is not on this machine."""
    return [*(["java"] if shutil.which("java") is None else []), *(["zookeeper"] if not JAR.exists() else [])]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ZooKeeper:
    """One server process. It keeps its data when it is killed."""

    def __init__(self, number: int = 1, settings: dict[str, object] | None = None) -> None:
        self.number = number
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="ql-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        self.settings: dict[str, object] = {
            "tickTime": TICK_MS, "minSessionTimeout": 2 * TICK_MS, "maxSessionTimeout": 60_000, "initLimit": 50,
            "syncLimit": 10, "maxClientCnxns": 0, "4lw.commands.whitelist": "*", "dataDir": self.folder,
            "clientPort": self.port, "clientPortAddress": "127.0.0.1",
        }  # fmt: skip
        self.settings |= settings or {}
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(USER)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}"

    def start(self, *, wait: bool = True) -> ZooKeeper:
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        (self.folder / "myid").write_text(str(self.number))
        java = shutil.which("java")
        assert java is not None
        command = [java, *_JAVA, "-cp", str(JAR), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                **self._as,
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        end = time.monotonic() + READY_WITHIN
        while time.monotonic() < end and self._process is not None and self._process.poll() is None:
            if self.mode():
                return
            time.sleep(0.02)
        log = (self.folder / "log").read_text(errors="replace")[-1000:]
        raise RuntimeError(f"ZooKeeper on port {self.port} did not come up: {log}")

    def mode(self) -> str:
        """standalone, leader or follower; empty for a server that does not serve."""
        lines = self.ask("srvr").splitlines()
        return next((line.partition(": ")[2] for line in lines if line.startswith("Mode: ")), "")

    def ask(self, word: str) -> str:
        """What the server answers to one of its four-letter words."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
        except OSError:
            return ""

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait(READY_WITHIN)

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stand, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)
        give_back(self.port)

    def __enter__(self) -> ZooKeeper:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()


class Ensemble:
    """Several servers that agree with one another."""

    def __init__(self, count: int = 3) -> None:
        self._stack = ExitStack()
        self.servers = [ZooKeeper(number) for number in range(1, count + 1)]
        self._ports = [(free_port(), free_port()) for _ in self.servers]
        for server in self.servers:
            for other, (peer, election) in zip(self.servers, self._ports, strict=True):
                server.settings[f"server.{other.number}"] = f"127.0.0.1:{peer}:{election}"

    @property
    def url(self) -> str:
        return f"zookeeper://{','.join(server.address for server in self.servers)}"

    def leader(self) -> ZooKeeper | None:
        return next((server for server in self.servers if server.mode() == "leader"), None)

    def __enter__(self) -> Ensemble:
        with self._stack:
            for server in self.servers:
                self._stack.callback(server.stop)
                server.start(wait=False)
            for server in self.servers:
                server.wait_until_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for pair in self._ports:
            for port in pair:
                give_back(port)
