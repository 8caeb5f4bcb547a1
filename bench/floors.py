"""The floors: what a pair costs with nothing around it but a socket and hiredis; for `worker.py`.

With five nodes a floor writes to all, returns at the third answer, and reads what is owed along with the next.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import hiredis

from .scripted import READ_SIZE, Speech, address, granted, new_token, own_scripts, plain
from .worker import AsyncPair, Pair

OWN = "floor: our scripts"
PLAIN = "floor: SET NX + compare-and-delete"

Words = Callable[[list[str], float], Speech]


def _connected(url: str) -> socket.socket:
    connection = socket.create_connection(address(url))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _one(url: str, speech: Speech) -> Pair:
    """A blocking socket: write, read."""
    connection, reader = _connected(url), hiredis.Reader()
    send, recv, feed, gets = connection.sendall, connection.recv, reader.feed, reader.gets
    acquire, release, tail = speech.acquire, speech.release, speech.tails[0]

    def ask(data: bytes) -> None:
        send(data)
        feed(recv(READ_SIZE))
        while (reply := gets()) is False:
            feed(recv(READ_SIZE))
        if not granted(reply):
            raise RuntimeError(f"the floor was answered {reply!r}")

    def run() -> None:
        token = new_token()
        ask(acquire(token) + tail)
        ask(release(token))

    return run


class _Lane:
    """One of several connections: answers come in order, so only the last one owed is the current question's."""

    __slots__ = ("feed", "gets", "owed", "recv", "send")

    def __init__(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        self.send, self.recv = connection.sendall, connection.recv
        self.feed, self.gets = reader.feed, reader.gets
        self.owed = 0

    def read(self) -> bool:
        """Takes in what is there; True if the current question is granted by it."""
        self.feed(self.recv(READ_SIZE))
        last = None
        while (reply := self.gets()) is not False:
            self.owed -= 1
            last = reply
        return self.owed == 0 and granted(last)


def _several(urls: list[str], speech: Speech) -> Pair:
    """Sockets under one poll."""
    lanes = {connection.fileno(): _Lane(connection) for connection in map(_connected, urls)}
    poll = select.poll()
    for fd in lanes:
        poll.register(fd, select.POLLIN)
    majority = len(urls) // 2 + 1
    none = [b""] * len(urls)

    def ask(data: bytes, tails: list[bytes]) -> None:
        for lane, tail in zip(lanes.values(), tails, strict=True):
            lane.send(data + tail)
            lane.owed += 1
        grants = 0
        while grants < majority:
            for fd, _ in poll.poll(1000) or _silence():
                grants += lanes[fd].read()

    def run() -> None:
        token = new_token()
        ask(speech.acquire(token), speech.tails)
        ask(speech.release(token), none)

    return run


def _silence() -> Iterable[tuple[int, int]]:
    raise RuntimeError("the floor was not granted by a majority within a second")


class _AsyncLane(asyncio.Protocol):
    """The same on asyncio."""

    def __init__(self, board: _Board) -> None:
        reader = hiredis.Reader()
        self._feed, self._gets = reader.feed, reader.gets
        self._board = board
        self.owed = 0

    def data_received(self, data: bytes) -> None:
        self._feed(data)
        last = None
        while (reply := self._gets()) is not False:
            self.owed -= 1
            last = reply
        if self.owed == 0:
            self._board.heard(last)


class _Board:
    """Waits for a majority of the lanes."""

    def __init__(self, nodes: int) -> None:
        self.majority = nodes // 2 + 1
        self.grants = 0
        self.future: asyncio.Future[None] | None = None

    def heard(self, reply: Any) -> None:
        if not granted(reply):
            raise RuntimeError(f"the floor was answered {reply!r}")
        self.grants += 1
        if self.grants == self.majority and self.future is not None:
            self.future.set_result(None)


async def _async_lanes(urls: list[str], speech: Speech) -> AsyncPair:
    loop = asyncio.get_running_loop()
    board = _Board(len(urls))
    lanes: list[tuple[_AsyncLane, Callable[[bytes], None]]] = []
    for url in urls:
        transport, lane = await loop.create_connection(lambda: _AsyncLane(board), *address(url))
        lanes.append((lane, transport.write))
    none = [b""] * len(urls)

    def ask(data: bytes, tails: list[bytes]) -> asyncio.Future[None]:
        board.grants = 0
        board.future = future = loop.create_future()
        for (lane, write), tail in zip(lanes, tails, strict=True):
            write(data + tail)
            lane.owed += 1
        return future

    async def run() -> None:
        token = new_token()
        await ask(speech.acquire(token), speech.tails)
        await ask(speech.release(token), none)

    return run


def _opened(words: Words) -> Callable[[list[str], float], Pair]:
    def opened(urls: list[str], ttl: float) -> Pair:
        speech = words(urls, ttl)
        return _one(urls[0], speech) if len(urls) == 1 else _several(urls, speech)

    return opened


def _async_opened(words: Words) -> Callable[[list[str], float], Awaitable[AsyncPair]]:
    async def opened(urls: list[str], ttl: float) -> AsyncPair:
        return await _async_lanes(urls, words(urls, ttl))

    return opened


SYNC = {OWN: _opened(own_scripts), PLAIN: _opened(plain)}
ASYNC = {OWN: _async_opened(own_scripts), PLAIN: _async_opened(plain)}
