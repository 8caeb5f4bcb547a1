"""Partitions without netem or a firewall: network namespaces of our own, and a router between them.

    home (this process, nodes 10.77.1.x) ── router ── side 0 (10.77.10.1)
                                                  └── side 1 (10.77.11.1)

A rule in the router drops what comes from one address for another, without a word to either: one direction or both,
for any pair of a side and a node. Nothing outside of these namespaces is touched, and they are gone with the
processes that live in them. It takes root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from types import TracebackType

from quorumlock.lab.servers import _end_with_parent

CLONE_NEWNET = 0x40000000
HOME = "10.77.1"
NEEDED = ("ip", "unshare", "nsenter", "sleep")


def missing() -> str | None:
    """Why there can be no namespaces here."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces take root"
    absent = [tool for tool in NEEDED if shutil.which(tool) is None]
    if absent:
        return f"there is no {', '.join(absent)}"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, timeout=10, check=False)
    return f"not permitted: {done.stderr.strip()}" if done.returncode else None


class Network:
    """The namespaces; this process moves into the one called home, and its threads and children with it."""

    def __init__(self, nodes: int, sides: int = 2) -> None:
        self.nodes = [f"{HOME}.{number + 1}" for number in range(nodes)]
        self.store = f"{HOME}.200"
        """Never cut off: there is the resource."""
        self.sides = [f"10.77.{number + 10}.1" for number in range(sides)]
        self._stack = ExitStack()
        self._spaces: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Network:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace of our own")
        _run("ip", "link", "set", "lo", "up")
        with self._stack:
            router = self._space()
            self._wire(os.getpid(), "home", [*self.nodes, self.store], f"{HOME}.254", router)
            for number, address in enumerate(self.sides):
                self._wire(self._space(), f"side{number}", [address], f"10.77.{number + 10}.254", router)
            self._in_router("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def inside(self, side: int) -> list[str]:
        """To be put in front of a command that is to run on that side."""
        return _enter(self._spaces[side + 1].pid)

    def cut(self, side: int, node: int, requests: bool, answers: bool) -> None:
        self._rules("add", side, node, requests, answers)

    def mend(self, side: int, node: int, requests: bool, answers: bool) -> None:
        self._rules("del", side, node, requests, answers)

    def _rules(self, verb: str, side: int, node: int, requests: bool, answers: bool) -> None:
        here, there = self.sides[side], self.nodes[node]
        for wanted, source, target in ((requests, here, there), (answers, there, here)):
            if wanted:
                self._in_router("ip", "rule", verb, "from", source, "to", target, "blackhole")

    def _in_router(self, *command: str) -> None:
        _run(*_enter(self._spaces[0].pid), *command)

    def _space(self) -> int:
        """A new namespace lives as long as the process in it, which lives as long as this one."""
        keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=_end_with_parent)
        self._stack.callback(keeper.wait)
        self._stack.callback(keeper.kill)
        self._spaces.append(keeper)
        mine = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{keeper.pid}/ns/net") == mine:  # it has not come to it yet
            if keeper.poll() is not None:
                raise OSError("no network namespace")
        return keeper.pid

    def _wire(self, space: int, name: str, addresses: list[str], gateway: str, router: int) -> None:
        far = f"to-{name}"
        _run(
            "ip",
            "link",
            "add",
            name,
            "netns",
            str(space),
            "type",
            "veth",
            "peer",
            "name",
            far,
            "netns",
            str(router),
        )
        for address in addresses:
            _run(*_enter(space), "ip", "address", "add", f"{address}/24", "dev", name)
        _run(*_enter(space), "ip", "link", "set", name, "up")
        _run(*_enter(router), "ip", "address", "add", f"{gateway}/24", "dev", far)
        _run(*_enter(router), "ip", "link", "set", far, "up")
        _run(*_enter(space), "ip", "route", "add", "default", "via", gateway)


def _enter(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
