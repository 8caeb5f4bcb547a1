"""Servers that are badly configured, one way at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quorumlock.lab.servers import Server, free_port
from tests.live.chaos import clocks

Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    """A server (valkey, unless said otherwise) with arguments of its own: `start("--maxmemory", "10mb")`."""
    with ExitStack() as stack:

        def make(*arguments: str, kind: str = "valkey", before: list[str] | None = None) -> Server:
            if "--cluster-enabled" in arguments:  # its second port would be one of the system's, and may be taken
                arguments = (*arguments, "--cluster-port", str(free_port()))
            server = Server(kind, arguments=arguments)
            server._command = [*(before or []), *server._command]
            stack.callback(server.stop)
            return server.start()

        yield make


@pytest.fixture
def good(start: Start) -> list[Server]:
    """Two servers with nothing wrong, for a fleet of three."""
    return [start(), start()]


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What moves the wall clock of a server."""
    if missing := clocks.missing():
        pytest.skip(missing)  # in CI there is a compiler: scripts/servers.sh sees to it
    return clocks.build(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def clock(clock_library: Path, tmp_path: Path) -> Iterator[clocks.Clock]:
    """A clock to start a server with: `start(before=clock.command)`."""
    made = clocks.Clock(clock_library, tmp_path.name)
    yield made
    made.close()
