"""Which version and role a server has: its four-letter word `srvr`, the one that is allowed by default."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

MOST = 65536


def described(where: tuple[str, int] | None, timeout: float) -> tuple[str | None, str | None]:
    """Version and role; None for what is not told."""
    data = b""
    if where is not None:
        with suppress(OSError), socket.create_connection(where, timeout=timeout) as connection:
            connection.sendall(b"srvr")
            while (more := connection.recv(MOST)) and len(data) < MOST:
                data += more
    return _read(data)


async def described_async(where: tuple[str, int] | None, timeout: float) -> tuple[str | None, str | None]:
    data = b""
    if where is not None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(*where)
                try:
                    writer.write(b"srvr")
                    data = await reader.read(-1)
                finally:
                    writer.close()
    return _read(data)


def _read(data: bytes) -> tuple[str | None, str | None]:
    told = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
    version = told.get("Zookeeper version", "").partition("-")[0].partition(",")[0]
    return version or None, told.get("Mode") or None
