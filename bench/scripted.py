"""What the floors say: our own scripts with everything they check, or the plain commands of a minimal lock.

The words of a command are taken apart from what our own `Wire` encodes, so they follow it when it changes; but they
are packed by hiredis alone, so that a floor does not contain what our encoder costs.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

import hiredis

import quorumlock
from quorumlock.core.requests import Acquire, Join, Release
from quorumlock.engines.redis import RedisEngine
from quorumlock.engines.redis.node import Hello
from quorumlock.engines.redis.wire import Wire

from .ours import PREFIX

NAME = "floor"
SUFFIX = b"@floor:12345"  # as long as what `identify` puts behind our own tokens
READ_SIZE = 65536

_TOKEN = b"T" * (40 + len(SUFFIX))
_CANDIDATE = 10**15
_EMPTY = len(b"$0\r\n\r\n")

Say = Callable[[bytes], bytes]
"""A command for a token, still without the node's own tail."""

pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


def new_token() -> bytes:
    return os.urandom(20).hex().encode() + SUFFIX


class Speech:
    """The two commands of a pair, and for each node what has to follow the first one."""

    def __init__(self, acquire: Say, release: Say, tails: list[bytes]) -> None:
        self.acquire = acquire
        self.release = release
        self.tails = tails


def own_scripts(urls: list[str], ttl: float) -> Speech:
    """Our scripts: fence, marker and all. Joins the nodes, which must have been initialised."""
    engine = quorumlock.connect(urls, prefix=PREFIX, max_ttl=ttl).engine
    assert isinstance(engine, RedisEngine)
    wire = engine.wire
    acquiring = Acquire(NAME, _TOKEN.decode(), round(ttl * 1000), _CANDIDATE)
    releasing = Release(NAME, _TOKEN.decode())
    tails = []
    for url in urls:
        marker = _join(url, wire)
        tails.append(wire.tail(marker))
        tell(url, wire.encode(acquiring, source=True) + wire.tail(marker))  # the scripts are known from now on
        tell(url, wire.encode(releasing, source=True))
    first, last = _words(wire.encode(acquiring) + wire.tail(b"")), _words(wire.encode(releasing))
    token_at, candidate_at, release_at = first.index(_TOKEN), first.index(b"%d" % _CANDIDATE), last.index(_TOKEN)
    before, between, after = first[:token_at], first[token_at + 1 : candidate_at], first[candidate_at + 1 :]
    head, rest = last[:release_at], last[release_at + 1 :]

    def acquire(token: bytes) -> bytes:
        return pack((*before, token, *between, int(time.time() * 1_000_000), *after))[:-_EMPTY]

    def release(token: bytes) -> bytes:
        return pack((*head, token, *rest))

    return Speech(acquire, release, tails)


def plain(urls: list[str], ttl: float) -> Speech:
    """`SET NX PX`, and compare-and-delete: the least that could be called a lock."""
    compare = b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
    shas = [tell(url, pack(("SCRIPT", "LOAD", compare))) for url in urls]
    key, ttl_ms = PREFIX + "plain", round(ttl * 1000)
    # The last argument is the tail, as with our scripts.
    tail = b"$%d\r\n%d\r\n" % (len(str(ttl_ms)), ttl_ms)

    def acquire(token: bytes) -> bytes:
        return pack(("SET", key, token, "NX", "PX", b""))[:-_EMPTY]

    def release(token: bytes) -> bytes:
        return pack(("EVALSHA", shas[0], 1, key, token))

    return Speech(acquire, release, [tail] * len(urls))


def granted(reply: Any) -> bool:
    """Is this a grant, of any of the four commands?"""
    return reply == b"OK" or reply == 1 or (type(reply) is list and reply[0] == 1)


def address(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("/")[2].partition(":")
    return host, int(port)


def tell(url: str, packed: bytes) -> Any:
    """One command on a connection of its own."""
    reader = hiredis.Reader()
    with socket.create_connection(address(url), timeout=5) as connection:
        connection.sendall(packed)
        while (reply := reader.gets()) is False:
            reader.feed(connection.recv(READ_SIZE))
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply


def _join(url: str, wire: Wire) -> bytes:
    """The node's marker; a node that has none yet would write one, in quarantine."""
    hello = Hello.parse(tell(url, wire.encode(Join(), source=True)))
    if hello.status != "known":
        raise RuntimeError(f"{url} is {hello.status}: initialise the fleet first")
    return hello.marker


def _words(packed: bytes) -> list[bytes]:
    """The words of a packed command: RESP reads it like any array."""
    reader = hiredis.Reader()
    reader.feed(packed)
    words: list[bytes] = reader.gets()
    return words
