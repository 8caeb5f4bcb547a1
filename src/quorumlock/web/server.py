"""Runs the dashboard until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn

from .. import Locker
from ..errors import ConfigurationError
from .app import Dashboard
from .patience import Patient
from .settings import WebSettings

log = logging.getLogger("quorumlock.web")


class Server(uvicorn.Server):
    """uvicorn, but streams end first, and signals are left to whoever runs it."""

    def __init__(self, dashboard: Dashboard, *, verbose: bool = False) -> None:
        super().__init__(
            uvicorn.Config(
                dashboard,
                log_config=None,
                log_level="info" if verbose else "error",
                access_log=verbose,
                server_header=False,
                proxy_headers=False,  # `proxy.py` believes who was named, and nobody else
                http=Patient,
                ws="none",
                timeout_graceful_shutdown=3,
                limit_concurrency=500,
            )
        )
        self._dashboard = dashboard

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dashboard.sampler.stop()
        await super().shutdown(sockets)


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound: whoever cannot have the port learns it before anything else happens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        ear = socket.create_server((host, port), family=family, backlog=128)
    except (OSError, UnicodeError) as error:  # a label of no name, or of an endless one
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}") from error
    # asyncio does not do it for sockets that do not say "TCP" themselves; without it each answer takes 40 ms.
    ear.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ear


def serve(
    locker: Locker, breaker: Locker | None, settings: WebSettings, ear: socket.socket, *, verbose: bool = False
) -> None:
    """Serves a Locker on a socket that is bound; returns after SIGINT or SIGTERM."""
    if verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        log.addHandler(_told_on_stderr())
    if settings.exposed:
        may = "sees all locks, and may break them" if settings.allow_break else "sees all locks"
        log.warning("there is no access token: whoever can reach the proxy in front of it %s", may)
    asyncio.run(_serve(Server(Dashboard(locker, settings, breaker), verbose=verbose), settings, ear))


async def _serve(server: Server, settings: WebSettings, ear: socket.socket) -> None:
    def end() -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    what = "locks may be broken" if settings.allow_break else "only looks"
    print(f"http://{host}:{settings.port}{settings.root_path}/ ({what}; Ctrl-C ends it)", flush=True)
    await server.serve(sockets=[ear])


def _told_on_stderr() -> logging.Handler:
    """Breaks are told in any case, and who did it."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("quorumlock: %(asctime)s %(message)s"))
    return handler
