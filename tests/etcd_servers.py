"""etcd servers of the tests' own: on loopback, in a temporary folder, gone with their owner.

They vote ten times as often as usual, so that the shortest lease is one second; nothing waits for a disk where
there is memory to write to. As root they are run as the user that Debian's package made.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from quorumlock.lab.servers import free_port, give_back

READY_WITHIN = 30.0
HEARTBEAT_MS, ELECTION_MS = 20, 200
_PR_SET_PDEATHSIG = 1
_MEMORY = "/dev/shm"


def missing() -> list[str]:
    """Programs that are not on this machine."""
    return [] if shutil.which("etcd") else ["etcd"]


def needed() -> None:
    """Skips the test where there is no etcd; in CI that is an error."""
    if absent := missing():
        if os.environ.get("CI"):
            pytest.fail(f"CI must not skip: no {', '.join(absent)} here")
        pytest.skip(f"no {', '.join(absent)} here")


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class EtcdServer:
    """One member, alone or of a cluster."""

    def __init__(self, *arguments: str, scheme: str = "http", name: str = "one") -> None:
        self.name = name
        self.scheme = scheme
        self.port, self.peer_port = free_port(), free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="ql-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            with suppress(KeyError):  # another system, and another package
                user = pwd.getpwnam("etcd")
                os.chown(self.folder, user.pw_uid, user.pw_gid)
                self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.arguments = list(arguments)
        self.cluster = [f"{name}={self.peer_url}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def label(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"etcd{'s' if self.scheme == 'https' else ''}://{self.label}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> EtcdServer:
        here = f"{self.scheme}://{self.label}"
        command = [
            "etcd", "--name", self.name, "--data-dir", str(self.folder / "data"),
            "--listen-client-urls", here, "--advertise-client-urls", here,
            "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
            "--initial-cluster", ",".join(self.cluster), "--initial-cluster-state", "new",
            "--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS),
            "--log-level", "error", *self.arguments,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
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
            if self.healthy():
                return
            time.sleep(0.01)
        log = (self.folder / "log").read_text(errors="replace")[-800:]
        raise RuntimeError(f"etcd on port {self.port} did not come up: {log}")

    def healthy(self) -> bool:
        """Does it answer, and know a leader?"""
        try:
            self.ask("/v3/kv/range", {"key": b64("health")}, timeout=1)
        except urllib.error.HTTPError as error:
            return error.code in (400, 401, 403)  # it wants to know who asks
        except OSError:
            return False
        return True

    def ask(self, path: str, body: dict[str, Any], *, timeout: float = 5.0, token: str = "") -> dict[str, Any]:
        """One request past the library; https is asked for by tests that bring their own way."""
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(f"http://{self.label}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def empty(self) -> None:
        """Deletes every key. Leases that are left end by themselves."""
        self.ask("/v3/kv/deleterange", {"key": b64(b"\0"), "range_end": b64(b"\0")})

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(READY_WITHIN)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Killed, and started again with the same data on the same port."""
        self.kill()
        self.start()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        give_back(self.port)
        give_back(self.peer_port)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def __enter__(self) -> EtcdServer:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class EtcdCluster:
    """Members that elect a leader."""

    def __init__(self, count: int = 3, *arguments: str) -> None:
        self._stack = ExitStack()
        self.members = [EtcdServer(*arguments, name=f"m{index}") for index in range(count)]
        for member in self.members:
            member.cluster = [f"{one.name}={one.peer_url}" for one in self.members]

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(member.label for member in self.members)

    def leader(self) -> EtcdServer | None:
        """Who leads, as far as anybody who answers knows."""
        for member in self.members:
            with suppress(OSError):
                told = member.ask("/v3/maintenance/status", {}, timeout=0.5)
                if told.get("leader", "0") == told["header"]["member_id"]:
                    return member
        return None

    def __enter__(self) -> EtcdCluster:
        with self._stack:
            for member in self.members:
                self._stack.callback(member.stop)
            for member in self.members:
                member.start(wait=False)
            for member in self.members:
                member.wait_until_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
