"""etcd servers of the tests' own. See `base.py`.

They vote twice as often as usual: if they did so less often, the shortest lease would be longer than one second.
"""

from __future__ import annotations

import base64
import json
import shutil
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from typing import Any

from quorumlock.lab.servers import free_port, give_back
from tests.support.servers import base as served
from tests.support.servers.base import Served

HEARTBEAT_MS, ELECTION_MS = 50, 500


def missing() -> list[str]:
    """Programs that are not on this machine."""
    return [] if shutil.which("etcd") else ["etcd"]


def needed() -> None:
    """Skips the test where there is no etcd; in CI that is an error."""
    served.needed(missing())


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


class EtcdServer(Served):
    """One member, alone or of a cluster."""

    USER = "etcd"

    def __init__(self, *arguments: str, scheme: str = "http", name: str = "one", durable: bool = False) -> None:
        super().__init__(durable=durable)
        self.name = name
        self.scheme = scheme
        self.peer_port = free_port()
        self.arguments = list(arguments)
        self.cluster = [f"{name}={self.peer_url}"]

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def label(self) -> str:
        return self.address

    @property
    def url(self) -> str:
        return f"etcd{'s' if self.scheme == 'https' else ''}://{self.label}"

    def serve(self) -> list[str]:
        here = f"{self.scheme}://{self.label}"
        return [
            "etcd", "--name", self.name, "--data-dir", str(self.folder / "data"),
            "--listen-client-urls", here, "--advertise-client-urls", here,
            "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
            "--initial-cluster", ",".join(self.cluster), "--initial-cluster-state", "new",
            "--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS),
            "--log-level", "error", *self.arguments,
        ]  # fmt: skip

    def answers(self) -> bool:
        return self.healthy()

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

    def stop(self) -> None:
        super().stop()
        give_back(self.peer_port)


class EtcdCluster:
    """Members that elect a leader."""

    def __init__(self, count: int = 3, *arguments: str, durable: bool = False) -> None:
        self._stack = ExitStack()
        self.members = [EtcdServer(*arguments, name=f"m{index}", durable=durable) for index in range(count)]
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
