"""quorumlock as a contender, and two floors of one node over a raw socket; for `contest_worker.py`."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis

import quorumlock

from . import ours
from .contest_worker import AsyncTurn, Turn
from .scripted import READ_SIZE, address, new_token, pack, tell

PREFIX = "contest:"
MAX_TTL = 600.0
FLOOR = "floor: SET + BLPOP"
BATON = "baton: BLPOP + LPUSH"
BLOCK_SECONDS = 10
_NOWHERE = "redis://127.0.0.1:1"

_RELEASE = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return redis.call('LPUSH', KEYS[2], 1)
"""


def _opened(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    locks = quorumlock.connect(urls, prefix=PREFIX, max_ttl=MAX_TTL)

    def contender() -> Turn:
        lock = locks.lock(name, ttl=ttl)

        def turn(inside: Callable[[], None]) -> None:
            with lock:
                inside()

        return turn

    return contender


async def _async_opened(urls: list[str], name: str, ttl: float) -> Callable[[], AsyncTurn]:
    locks = quorumlock.connect_async(urls, prefix=PREFIX, max_ttl=MAX_TTL)

    def contender() -> AsyncTurn:
        lock = locks.lock(name, ttl=ttl)

        async def turn(inside: Callable[[], Awaitable[None]]) -> None:
            async with lock:
                await inside()

        return turn

    return contender


def _asking(url: str) -> Callable[..., Any]:
    """A connection of its own, on which one asks and waits."""
    connection, reader = socket.create_connection(address(url)), hiredis.Reader()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(*words: Any) -> Any:
        connection.sendall(pack(words))
        while (reply := reader.gets()) is False:
            reader.feed(connection.recv(READ_SIZE))
        return reply

    return ask


def _floor(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    """A lock that wakes one waiter, and the least that it can send. A holder that comes back may be faster."""
    url, ttl_ms = urls[0], round(ttl * 1000)
    sha = tell(url, pack(("SCRIPT", "LOAD", _RELEASE)))
    key, signal = PREFIX + name, PREFIX + name + ":signal"

    def contender() -> Turn:
        ask = _asking(url)

        def turn(inside: Callable[[], None]) -> None:
            token = new_token()
            while ask("SET", key, token, "NX", "PX", ttl_ms) != b"OK":
                ask("BLPOP", signal, BLOCK_SECONDS)
            inside()
            ask("EVALSHA", sha, 2, key, signal, token)

        return turn

    return contender


def _baton(urls: list[str], name: str, ttl: float) -> Callable[[], Turn]:
    """No lock at all: an element of a list goes from one to the next, in the order in which they came."""
    key = PREFIX + name + ":baton"
    tell(urls[0], pack(("SET", key + ":made", 1, "NX", "GET"))) or tell(urls[0], pack(("LPUSH", key, 1)))

    def contender() -> Turn:
        ask = _asking(urls[0])

        def turn(inside: Callable[[], None]) -> None:
            while ask("BLPOP", key, BLOCK_SECONDS) is None:
                pass
            inside()
            ask("LPUSH", key, 1)

        return turn

    return contender


def prepare() -> None:
    """Imports what is imported on first use: a fork that still has to does not take part in its contest yet."""
    with quorumlock.connect(_NOWHERE):
        quorumlock.connect_async(_NOWHERE)


SYNC = {ours.NAME: _opened, FLOOR: _floor, BATON: _baton}
ASYNC = {ours.NAME: _async_opened}
