"""ZooKeeper servers of the tests' own: one, or an ensemble of three. See `base.py`.

Debian's jars, started by hand: a small heap and a quick compiler, and ticks are short, so that sessions can be.
"""

from __future__ import annotations

import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

from quorumlock.lab.servers import free_port, give_back
from tests.support.servers.base import Served

JAR = Path("/usr/share/java/zookeeper.jar")
TICK_MS = 200
_JAVA = [
    "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
    "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
]  # fmt: skip


def missing() -> list[str]:
    """What a server needs and is not on this machine."""
    return [*(["java"] if shutil.which("java") is None else []), *(["zookeeper"] if not JAR.exists() else [])]


class ZooKeeper(Served):
    """One server process."""

    USER = "zookeeper"

    def __init__(
        self, number: int = 1, settings: dict[str, object] | None = None, *, durable: bool = False
    ) -> None:
        super().__init__(durable=durable)
        self.number = number
        self.settings: dict[str, object] = {
            "tickTime": TICK_MS, "minSessionTimeout": 2 * TICK_MS, "maxSessionTimeout": 60_000, "initLimit": 50,
            "syncLimit": 10, "maxClientCnxns": 0, "4lw.commands.whitelist": "*", "dataDir": self.folder,
            "clientPort": self.port, "clientPortAddress": "127.0.0.1",
        }  # fmt: skip
        self.settings |= settings or {}

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}"

    def serve(self) -> list[str]:
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        (self.folder / "myid").write_text(str(self.number))
        java = shutil.which("java")
        assert java is not None
        sync = f"-Dzookeeper.forceSync={'yes' if self.durable else 'no'}"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [java, *_JAVA, sync, "-cp", str(JAR), main, str(config)]

    def answers(self) -> bool:
        return bool(self.mode())

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


class Ensemble:
    """Several servers that agree with one another."""

    def __init__(self, count: int = 3, *, durable: bool = False) -> None:
        self._stack = ExitStack()
        self.servers = [ZooKeeper(number, durable=durable) for number in range(1, count + 1)]
        self._ports = [(free_port(), free_port()) for _ in self.servers]
        for server in self.servers if count > 1 else ():
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
