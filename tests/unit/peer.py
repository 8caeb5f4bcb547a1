"""The other end of a link, in memory: reads the commands a link sends, and answers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quorumlock.core.requests import Acquire, Release, Request
from quorumlock.core.votes import Answer, Tally
from quorumlock.engines.redis import scripts
from quorumlock.engines.redis.link import Link
from quorumlock.engines.redis.node import Node, Terms
from quorumlock.engines.redis.resp import PlainReader, ReplyError
from quorumlock.engines.redis.wire import Wire

TERMS = Terms("f00d", 3, 60.0, durable=False, quarantine=True)
WIRE = Wire(prefix="", fleet="f00d", nodes=3, max_ttl=60.0, fence_ttl=86400.0, durable=False, quarantine=True)
MARKER = b"1000 60000 1 f00d 3 60000 0 1 abc"
NOSCRIPT = ReplyError("NOSCRIPT No matching script.")
STRANGER = [-1]

_NAMES = {
    script: name.lower()
    for name in ("ACQUIRE", "CONFIRM", "EXTEND", "HEAL", "BREAK", "LOOK", "RELEASE", "JOIN")
    for script in (getattr(scripts, name).sha.encode(), getattr(scripts, name).source.encode())
}


def new_node(index: int = 0) -> Node:
    node, *others = [Node(index + more, f"node{index + more}:6379", TERMS) for more in range(3)]
    node.mates = [node, *others]
    return node


def hello(status: str = "known", marker: bytes = MARKER, **other: Any) -> list[Any]:
    """What join.lua answers."""
    said = {"now_us": b"2000", "run_id": b"r1", "role": b"master", "mode": b"standalone", "maxmemory": b"0",
            "policy": b"noeviction"} | other  # fmt: skip
    return [status.encode(), marker, *said.values()]


def encode(reply: Any) -> bytes:
    if isinstance(reply, ReplyError):
        return b"-%b\r\n" % str(reply).encode()
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join(map(encode, reply))


def spoken(data: bytes) -> list[str]:
    """The commands in `data`, by name; a script that is sent whole has a `!`, a token or verb comes behind."""
    reader = PlainReader()
    reader.feed(data)
    found = []
    while (command := reader.gets()) is not False:
        found.append(_spoken(command))
    return found


def _spoken(command: list[bytes]) -> str:
    if command[0] not in (b"EVAL", b"EVALSHA"):
        return " ".join(_NAMES.get(word, word.decode()) for word in command)
    name = _NAMES[command[1]] + ("!" if command[0] == b"EVAL" else "")
    arguments = command[3 + int(command[2]) :]
    if name.startswith(("extend", "heal")):
        arguments = arguments[1:]  # the token of the first lease stands behind fence_ttl
    if name.startswith("join"):
        return name.replace("join", arguments[0].decode())
    return f"{name} {arguments[0].decode()}" if arguments else name


LOADED = ("SCRIPT LOAD release", "SCRIPT LOAD acquire")
"""What every connection loads ahead."""


class Peer:
    """A link, and the server that it talks to."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or new_node()
        self.link = Link(self.node, WIRE)
        self.opening: list[str] = []

    def begin(self, client_id: int | ReplyError = 7) -> Peer:
        """A connection that is new: its id is told, and whatever else it opens with is answered."""
        self.opening = spoken(self.link.begin(0.0))
        assert self.opening[:3] == ["CLIENT INFO", *LOADED]
        named = f"id={client_id} addr=10.0.0.9:{client_id} fd=8".encode()
        replies: list[Any] = [client_id if isinstance(client_id, ReplyError) else named, b"its hash"]
        replies += [1] * len(self.opening[2:])
        assert self.answer(*replies) == []
        assert not self.link.owes
        return self

    def joined(self, client_id: int | ReplyError = 7) -> Peer:
        """A connection that has met its node."""
        self.begin(client_id)
        tally = self.tally()
        assert self.ask(Acquire("warm", "warm", 10, 1), tally) == ["join"]
        assert self.answer(hello()) == ["acquire warm"]
        assert self.answer([1, 1]) == []
        assert not self.link.owes
        return self

    def tally(self) -> Tally:
        return Tally(("node0", "node1", "node2"), 2)

    def ask(self, request: Request, tally: Tally, now: float = 0.0) -> list[str]:
        return spoken(self.link.submit(request, WIRE.encode(request), tally, now))

    def acquire(self, token: str) -> tuple[Tally, list[str]]:
        tally = self.tally()
        return tally, self.ask(Acquire("job", token, 1000, 1), tally)

    def release(self, token: str) -> tuple[Tally, list[str]]:
        tally = self.tally()
        return tally, self.ask(Release("job", token), tally)

    def answer(self, *replies: Any) -> list[str]:
        """The server answers; gives what the link sends in turn."""
        return spoken(self.link.receive(b"".join(map(encode, replies))))


def vote(tally: Tally, node: int = 0) -> Answer:
    answer = tally.answers[node]
    assert answer is not None, "no vote yet"
    return answer


def silent(tallies: Sequence[Tally], node: int = 0) -> bool:
    return all(tally.answers[node] is None for tally in tallies)
