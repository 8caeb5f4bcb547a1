"""The parent's side of a contest: many want one lock; who had it when, and what that cost the servers."""

from __future__ import annotations

import itertools
import re
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from quorumlock.lab.servers import Server

from . import contest_ours, contest_peers, ours
from .crew import Child, Crew
from .envs import NotInstalled, python_of, versions
from .machine import cpu_of

TTL = 10.0
LISTEN = 0.15
"""Seconds for which a server is watched command by command, after the measurement."""

_names = itertools.count()


class Host(Child):
    """Holds contests of one subject."""

    program = "bench.contest_worker"

    def start(
        self, subject: str, style: str, count: int, urls: list[str], name: str, hold: float, ttl: float = TTL
    ) -> None:
        self.ask(do="start", subject=subject, style=style, count=count, urls=urls, name=name, ttl=ttl, hold=hold)

    def stop(self) -> tuple[list[list[int]], list[str]]:
        told = self.ask(do="stop")
        return told["turns"], told["errors"]


@dataclass(frozen=True, slots=True)
class Result:
    """One contest."""

    seconds: float
    turns: list[int]
    """For each contender."""
    changes: int
    latencies: list[float] = field(repr=False)
    """From a release until somebody else has the lock, in µs; turns that the same holder takes in between count."""
    overlaps: int
    """Two who had the lock at once."""
    commands: int
    """All that the servers executed."""
    sent: float
    """The share of them that clients sent; the others were called by scripts."""
    cpu: float
    """CPU time of clients and servers, in µs: what is left of a comparison when the machine is busy."""
    errors: list[str]

    @property
    def rate(self) -> float:
        return self.changes / self.seconds

    @property
    def fairness(self) -> float:
        """The least lucky contender's turns against the mean."""
        return min(self.turns) / mean(self.turns) if any(self.turns) else 0.0

    @property
    def fortune(self) -> float:
        """The luckiest contender's turns against the mean."""
        return max(self.turns) / mean(self.turns) if any(self.turns) else 0.0

    def each(self, cost: float) -> float:
        """Commands, or time, for each change; infinite where there was none."""
        return cost / self.changes if self.changes else float("inf")

    def raw(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds, "turns": self.turns, "changes": self.changes, "overlaps": self.overlaps,
            "commands": self.commands, "sent_share": self.sent, "cpu_us": self.cpu,
            "latencies_us": sorted(self.latencies),
            "errors": len(self.errors), "first_errors": self.errors[:3],
        }  # fmt: skip


def new_name() -> str:
    """A lock that nobody has wanted yet: contenders are ended wherever they are, perhaps as holders."""
    return f"contest-{next(_names)}"


def hosts(crew: Crew, with_peers: bool, core: int) -> tuple[dict[str, Host], dict[str, str], dict[str, str]]:
    """A host for every subject, on that core; what is installed for peers; and why some are missing."""
    found = {name: crew.add(Host("bench.contest_ours")) for name in contest_ours.SYNC}
    installed: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, packages in contest_peers.PACKAGES.items():
        if not with_peers:
            missing[name] = "left out by --no-peers"
            continue
        try:
            python = python_of(packages)
            installed[name] = versions(python, packages)
            found[name] = crew.add(Host("bench.contest_peers", python))
        except NotInstalled as why:
            missing[name] = f"cannot be installed: {why}"
    for host in found.values():
        host.pin(core)
    return found, installed, missing


def subjects(size: int, style: str) -> list[str]:
    """Who is compared on so many nodes."""
    tables = (
        (contest_ours.ASYNC, contest_peers.ASYNC) if style == "tasks" else (contest_ours.SYNC, contest_peers.SYNC)
    )
    sizes = {contest_ours.FLOOR: 1, contest_ours.BATON: 1, **contest_peers.SIZES}
    return [name for table in tables for name in table if sizes.get(name, size) == size]


def hold_contest(
    host: Host,
    subject: str,
    style: str,
    count: int,
    servers: Sequence[Server],
    warm: float,
    seconds: float,
    hold: float,
) -> Result:
    """Starts it, waits until it is under way, measures, and ends it."""
    host.start(subject, style, count, [server.url for server in servers], new_name(), hold)
    try:
        time.sleep(warm)
        working = [*host.forks, *(server.pid for server in servers)]
        commands, cpu, began = executed(servers), cpu_of(working), time.monotonic_ns()
        time.sleep(seconds)
        ended, cpu = time.monotonic_ns(), cpu_of(working) - cpu
        commands = executed(servers) - commands - len(servers)
        sent = share_sent(servers[0], LISTEN)
    finally:
        turns, errors = host.stop()
    return judge(turns, began, ended, commands, sent, cpu, errors)


def judge(
    turns: list[list[int]], began: int, ended: int, commands: int, sent: float, cpu: float, errors: list[str]
) -> Result:
    """Puts the turns of all contenders in order."""
    events = sorted(
        (got, left, who)
        for who, flat in enumerate(turns)
        for got, left in zip(flat[::2], flat[1::2], strict=True)
        if began <= got < ended
    )
    count = [0] * len(turns)
    latencies: list[float] = []
    overlaps = 0
    holder, first_left, last_left = -1, 0, 0
    for got, left, who in events:
        count[who] += 1
        overlaps += got < last_left
        if who != holder:
            if holder >= 0:
                latencies.append((got - first_left) / 1000)
            holder, first_left = who, left
        last_left = left
    return Result((ended - began) / 1e9, count, len(latencies), latencies, overlaps, commands, sent, cpu, errors)


def executed(servers: Sequence[Server]) -> int:
    """Commands that the servers have executed, those that scripts called among them. Asking is one more, later."""
    found = [re.search(rb"total_commands_processed:(\d+)", server.command("INFO", "stats")) for server in servers]
    return sum(int(one.group(1)) for one in found if one)


def share_sent(server: Server, seconds: float) -> float:
    """Which share of the commands comes from clients. Not while speed is measured: it makes the server slower."""
    sent, called = watched(server, seconds)
    return sent / (sent + called) if sent + called else float("nan")


def watched(server: Server, seconds: float) -> tuple[int, int]:
    """How many commands clients send, and how many their scripts call: MONITOR marks those."""
    told = bytearray()
    with socket.create_connection(("127.0.0.1", server.port), timeout=2) as connection:
        connection.sendall(b"MONITOR\r\n")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.settimeout(max(0.001, end - time.monotonic()))
            try:
                told += connection.recv(1 << 20)
            except TimeoutError:
                break
    lines = re.findall(rb"^\+[\d.]+ \[\d+ (lua)?", told, re.MULTILINE)
    return lines.count(b""), lines.count(b"lua")


def progress(what: str) -> None:
    print(f"\r{what:70}", end="", file=sys.stderr, flush=True)


def initialise(urls: list[str]) -> None:
    ours.initialise(urls, contest_ours.MAX_TTL, contest_ours.PREFIX)
