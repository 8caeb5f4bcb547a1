"""Fixtures for every test: real servers, shared where a test leaves them as it found them."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import quorumlock
from quorumlock.lab.servers import BINARIES, Servers, kinds
from tests.support.certificates import make_certificate
from tests.support.servers.shared import stop_shared_servers

pytest_plugins = ["tests.support.repeats", "tests.support.profile"]

MAX_TTL = 1.0
"""Quarantine and expiry are cheap in live tests."""


def server_kinds() -> list[object]:
    """Both kinds of server; one that is missing is skipped by name, and never in CI."""
    present = kinds()
    if os.environ.get("CI") and set(present) != set(BINARIES):
        missing = sorted(set(BINARIES) - set(present))
        raise pytest.UsageError(f"CI must not skip: no server of kind {', '.join(missing)}")
    return [
        kind if kind in present else pytest.param(kind, marks=pytest.mark.skip(reason=f"no {kind} server here"))
        for kind in BINARIES
    ]


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What locks without a URL does so in a folder of the tests', also in processes that they start."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ.pop("QUORUMLOCK_URL", None)


@pytest.fixture(scope="session", autouse=True)
def signals_that_work() -> None:
    """Also where the tests were started in the background, which ignores some, and hands that down."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session", autouse=True)
def shared_databases() -> Iterator[None]:
    """Database servers that tests share (`shared_server(PostgreSQL)`) run until the session ends."""
    yield
    stop_shared_servers()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of loopback that nobody else has signed, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session", params=server_kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """valkey, then redis."""
    return str(request.param)


@pytest.fixture(scope="session")
def crowd() -> Iterator[Callable[[str], Servers]]:
    """Five servers of a kind, started when they are first asked for: not anew whenever the tests change kinds."""
    with ExitStack() as stack:
        yield functools.cache(lambda kind: stack.enter_context(Servers(5, kind)))


@pytest.fixture(scope="session")
def shared_servers(crowd: Callable[[str], Servers], kind: str) -> Servers:
    """Five servers of a kind for the whole session: do not pause, kill or reconfigure them."""
    return crowd(kind)


@pytest.fixture
def servers(shared_servers: Servers) -> Servers:
    """The shared servers, emptied."""
    for server in shared_servers.servers:
        for words in (("FLUSHALL",), ("SCRIPT", "FLUSH")):
            assert server.command(*words, timeout=10) == b"+OK\r\n", f"{server.label} was not emptied"
    return shared_servers


@pytest.fixture
def make_servers(kind: str) -> Iterator[Callable[..., Servers]]:
    """Servers of a test's own, to pause, kill and restart: `make_servers(5)`."""
    made: list[Servers] = []

    def make(count: int, *arguments: str) -> Servers:
        servers = Servers(count, kind, arguments=arguments)
        servers.__enter__()
        made.append(servers)
        return servers

    yield make
    for servers in made:
        servers.__exit__(None, None, None)


@pytest.fixture
def connect() -> Iterator[Callable[..., quorumlock.Locker]]:
    """Lockers that are closed at the end; the fleet is initialised unless `init=False`."""
    made: list[quorumlock.Locker] = []

    def make(servers: Servers | list[str], *, init: bool = True, **options: object) -> quorumlock.Locker:
        options.setdefault("max_ttl", MAX_TTL)
        options.setdefault("node_timeout", 0.25)  # a busy machine
        urls = servers.urls if isinstance(servers, Servers) else servers
        locker = quorumlock.connect(urls, **options)  # type: ignore[arg-type]
        made.append(locker)
        if init and not made[:-1]:
            locker.init_fleet()
        return locker

    yield make
    for locker in made:
        locker.close()
