"""A service for the tests' writers: `PUT /chain` carries a chain of fences on, `GET /chain` tells it.

It runs in a forked child of the tests (see `started`): a new interpreter takes half a second to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import signal
import socket
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import redis.asyncio
import uvicorn

from quorumlock.guards import AsyncRedisGuard, Claim, FencingMiddleware, MemoryFences, RedisFences, SQLFences
from quorumlock.guards.http import CLAIM, Fences, Receive, Scope, Send
from tests.support.processes import fork

from .writers import TornError, extended


class CheckOnly(MemoryFences):
    """The fault: who was admitted is not protected from those who come later."""

    @contextlib.asynccontextmanager
    async def hold(self, claimed: Claim, /) -> AsyncIterator[None]:
        self._admit(claimed.resource, claimed.fence)
        yield


class Service:
    """Reads, waits a little, writes: right only as long as nobody else is let in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.touch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        status, body = 200, await self.read()
        if scope["method"] == "PUT":
            status, body = await self._carry_on(body, scope[CLAIM])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def _carry_on(self, chain: bytes, claim: Claim) -> tuple[int, bytes]:
        try:
            written = extended(chain, claim.fence)
        except TornError as torn:
            return 409, str(torn).encode()
        await asyncio.sleep(random.random() * 0.01)
        await self.write(claim, written)
        return 204, b""

    async def read(self) -> bytes:
        return self._path.read_bytes()

    async def write(self, claim: Claim, chain: bytes) -> None:
        self._path.write_bytes(chain)


class GuardedService(Service):
    """Writes through a guard of its own, with the claim that the middleware hands on: nobody need be kept out."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._guard = AsyncRedisGuard(client)

    async def read(self) -> bytes:
        chain: Any = await self._client.get("chain")
        return chain or b""

    async def write(self, claim: Claim, chain: bytes) -> None:
        await self._guard.set(claim, "chain", chain)


async def made(store: str, folder: Path) -> tuple[Service, Fences]:
    """A service and the store in front of it."""
    if store.startswith("redis:"):
        client = redis.asyncio.Redis.from_url(store)
        return GuardedService(client), RedisFences(client)
    service = Service(folder / "chain")
    if store == "sql":
        fences = SQLFences(lambda: aiosqlite.connect(folder / "fences.db", timeout=30))
        await fences.create()
        return service, fences
    return service, {"memory": MemoryFences, "check-only": CheckOnly}[store]()


async def serve(folder: Path, store: str, listening: socket.socket, ending: int) -> None:
    """Until a byte can be read from `ending`."""
    service, fences = await made(store, folder)
    app = FencingMiddleware(service, store=fences, resource=lambda scope: "http")
    config = uvicorn.Config(app, log_level="critical", lifespan="off", backlog=200)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    await asyncio.to_thread(os.read, ending, 1)
    server.should_exit = True
    await serving


@contextlib.contextmanager
def started(folder: Path, store: str) -> Iterator[str]:
    """A service in a child, and its address; clients may connect at once."""
    reading, writing = os.pipe()
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        pid = fork()
        if not pid:
            status = 1
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with its parent
                warnings.resetwarnings()  # those of the servers are no errors of ours
                warnings.simplefilter("ignore")
                asyncio.run(serve(folder, store, listening, reading))
                status = 0
            finally:
                os._exit(status)
    try:
        yield address
    finally:
        os.write(writing, b"!")
        _, ended = os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
    assert ended == 0
