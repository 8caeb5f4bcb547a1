"""What live tests say again and again: wait for a condition, look into a server, hold or break nodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import quorumlock
from quorumlock.events import Event, Extended
from quorumlock.lab.servers import Server

SLACK = 1.5
"""What a busy machine may add to any duration that a test measures."""


class Renewals:
    """How often leases of a locker were renewed, by name, from now on."""

    def __init__(self, locks: quorumlock.Locker | quorumlock.AsyncLocker) -> None:
        self._counts: Counter[str] = Counter()
        locks.subscribe(self._count)

    def _count(self, event: Event) -> None:
        if isinstance(event, Extended):
            self._counts[event.name] += 1

    def of(self, name: str) -> int:
        return self._counts[name]

    def outlive_a_ttl(self, *names: str) -> bool:
        """Have all these been renewed four times? It is done every third of a ttl."""
        return all(self._counts[name] >= 4 for name in names)


def get(server: Server, key: str) -> str | None:
    """The string under `key`, asked on a connection of its own."""
    reply = server.command("GET", key)
    if reply.startswith(b"$-1"):
        return None
    assert reply.startswith(b"$"), reply
    return reply.split(b"\r\n", 1)[1].rsplit(b"\r\n", 1)[0].decode()


def fence(server: Server, name: str) -> int:
    """The fence of a lock; behind the number stands, for people, who was given it."""
    return int((get(server, f"ql:fence:{{{name}}}") or "0").split()[0])


def number(reply: bytes) -> int:
    assert reply.startswith(b":"), reply
    return int(reply[1:])


def exists(server: Server, key: str) -> bool:
    return number(server.command("EXISTS", key)) == 1


def pttl(server: Server, key: str) -> int:
    """Milliseconds that `key` has left: -1 without a TTL, -2 without a key."""
    return number(server.command("PTTL", key))


def keys(server: Server, pattern: str = "*") -> set[str]:
    """All keys that match; few enough for one answer."""
    reply = server.command("KEYS", pattern)
    assert reply.startswith(b"*"), reply
    return {part.decode() for part in reply.split(b"\r\n")[2::2]}


def lock_keys(servers: Iterable[Server]) -> set[str]:
    """Every key on these servers that is a lock, and not one of the library's own."""
    return {key for server in servers for key in keys(server) if "ql:" not in key}


def client_ids(server: Server) -> set[int]:
    """The ids of all normal connections, but the one that asks (it is the last)."""
    reply = server.command("CLIENT", "LIST", "TYPE", "normal").decode()
    assert reply.startswith("$"), reply or f"{server.label} did not answer"
    ids = [int(part.removeprefix("id=")) for part in reply.split() if part.startswith("id=")]
    return set(ids[:-1])


class Stopwatch:
    """`with Stopwatch() as took: …` then `took.seconds`."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._started_at = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._started_at
