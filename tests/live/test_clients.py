"""Ways to a node: redis-py clients of both kinds, unix sockets, TLS, users, and what a URL may say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio

import quorumlock
from quorumlock.lab.servers import Server, Servers, free_port

from .attribution import every_answer_is_its_own, every_answer_is_its_own_with_threads
from .tools import get

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]
Make = Callable[..., Servers]


def holds(locks: quorumlock.Locker) -> None:
    """The whole way, once."""
    with locks.lock("a", ttl=1) as lease:
        lease.extend()
        assert locks.lock("a", ttl=1).try_acquire() is None


async def holds_async(locks: quorumlock.AsyncLocker) -> None:
    async with locks.lock("a", ttl=1) as lease:
        await lease.extend()
        assert await locks.lock("a", ttl=1).try_acquire() is None


@pytest.mark.parametrize("count", [1, 3])
def test_redis_py_clients_instead_of_urls(servers: Servers, count: int) -> None:
    """Their retries and their decoding are theirs, not ours."""
    clients = [
        redis.Redis(port=server.port, decode_responses=True, health_check_interval=1)
        for server in servers.servers[:count]
    ]
    with quorumlock.connect(clients=clients, max_ttl=1) as locks:
        locks.init_fleet()
        holds(locks)
        every_answer_is_its_own_with_threads(locks, servers.servers[:count])
    for client in clients:
        assert client.ping(), "the client itself is left alone"
        client.close()


@pytest.mark.parametrize("count", [1, 3])
def test_asyncio_clients_instead_of_urls(servers: Servers, count: int) -> None:
    async def main() -> None:
        clients = [redis.asyncio.Redis(port=server.port) for server in servers.servers[:count]]
        async with quorumlock.connect_async(clients=clients, max_ttl=1) as locks:
            await locks.init_fleet()
            await holds_async(locks)
            await every_answer_is_its_own(locks, servers.servers[:count])
        for client in clients:
            await client.aclose()

    asyncio.run(main())


def test_clients_of_one_kind_serve_the_other_front(servers: Servers) -> None:
    """Only their connection settings are taken."""

    async def main() -> None:
        with redis.Redis(port=servers[0].port) as client:
            async with quorumlock.connect_async(clients=[client], max_ttl=1) as locks:
                await holds_async(locks)

    asyncio.run(main())
    with quorumlock.connect(clients=[redis.asyncio.Redis(port=servers[0].port)], max_ttl=1) as locks:
        holds(locks)


def test_urls_and_clients_count_as_one_fleet(servers: Servers, connect: Connect) -> None:
    locks = connect(servers.urls[:3])
    lease = locks.lock("a", ttl=1).acquire()
    clients = [redis.Redis(host="localhost", port=server.port) for server in servers.servers[:3]]
    with quorumlock.connect(clients=clients, max_ttl=1) as others:
        assert others.lock("a", ttl=1).try_acquire() is None
    lease.release()


def test_a_unix_socket(make_servers: Make, tmp_path: Path) -> None:
    path = tmp_path / "s"
    make_servers(1, "--unixsocket", str(path))
    with quorumlock.connect(f"unix://{path}", max_ttl=1) as locks:
        holds(locks)
        assert str(path) in repr(locks)

    async def main() -> None:
        async with quorumlock.connect_async(f"unix://{path}", max_ttl=1) as locks:
            await holds_async(locks)
        async with quorumlock.connect_async(
            clients=[redis.asyncio.Redis(unix_socket_path=str(path))], max_ttl=1
        ) as locks:
            await holds_async(locks)

    asyncio.run(main())


def test_a_database_number_and_a_valkey_url(servers: Servers, connect: Connect) -> None:
    server = servers[0]
    locks = connect([f"valkey://127.0.0.1:{server.port}/3"], init=False)
    with locks.lock("a", ttl=1):
        assert get(server, "a") is None
        assert server.command("EXISTS", "a") == b":0\r\n"
        with redis.Redis(port=server.port, db=3) as client:
            assert client.exists("a")


@pytest.fixture
def tls_url(kind: str, certificate: tuple[Path, Path]) -> Iterator[str]:
    """A server that speaks TLS, and the URL that trusts it."""
    crt, key = certificate
    port = free_port()
    arguments = ["--tls-port", str(port), "--tls-cert-file", str(crt), "--tls-key-file", str(key)]
    arguments += ["--tls-ca-cert-file", str(crt), "--tls-auth-clients", "no"]
    server = Server(kind, arguments=arguments)
    try:
        server.start()
    except RuntimeError:
        pytest.skip(f"this {kind} server was built without TLS")
    else:
        yield f"rediss://localhost:{port}?ssl_ca_certs={crt}"
    finally:
        server.stop()


def test_tls(tls_url: str) -> None:
    with quorumlock.connect(tls_url, max_ttl=1, node_timeout=1) as locks:
        holds(locks)
        for turn in range(50):
            locks.lock(f"name-{turn}", ttl=1).acquire().release()

    async def main() -> None:
        async with quorumlock.connect_async(tls_url, max_ttl=1, node_timeout=1) as locks:
            await holds_async(locks)
            leases = await asyncio.gather(*(locks.lock(f"name-{turn}", ttl=1).acquire() for turn in range(50)))
            await asyncio.gather(*(lease.release() for lease in leases))

    asyncio.run(main())


def test_tls_that_is_not_trusted_is_said(tls_url: str) -> None:
    url = tls_url.partition("?")[0]
    with quorumlock.connect(url, max_ttl=1) as locks, pytest.raises(quorumlock.NoQuorum, match="certificate"):
        locks.lock("a", ttl=1).try_acquire()
