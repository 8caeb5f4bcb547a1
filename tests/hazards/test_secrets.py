"""Passwords in URLs and tokens never reach messages, logs, tallies or representations."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator

import pytest
import redis

import quorumlock
from quorumlock.events import Event
from quorumlock.lab.servers import Server, Servers

pytestmark = [pytest.mark.live, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]

SECRET = "s3cret-p4ss"


@pytest.fixture(scope="module")
def locked_up(kind: str) -> Iterator[Servers]:
    """Three servers with a password."""
    with Servers(3, kind) as servers:
        for server in servers.servers:
            server.command("ACL", "SETUSER", "alice", "on", f">{SECRET}", "~*", "&*", "+@all")
            server.command("CONFIG", "SET", "requirepass", SECRET)
        yield servers


@pytest.fixture
def vault(locked_up: Servers) -> Servers:
    for server in locked_up.servers:
        with redis.Redis(port=server.port, password=SECRET) as client:
            client.flushall()
    return locked_up


def url(server: Server, secret: str = SECRET, user: str = "") -> str:
    return f"redis://{user}:{secret}@127.0.0.1:{server.port}"


def shown(error: BaseException) -> str:
    """Everything that a program could print of it."""
    return "\n".join(
        [
            str(error),
            repr(error),
            repr(getattr(error, "tally", "")),
            repr(error.__dict__),
            "".join(traceback.format_exception(error)),
            repr(pickle.loads(pickle.dumps(error))),
        ]
    )


def test_a_password_is_used_and_never_shown(
    vault: Servers, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Event] = []
    with caplog.at_level(logging.DEBUG):
        locks = connect([url(server) for server in vault.servers])
        locks.subscribe(told.append)
        lease = locks.lock("a", ttl=1).acquire()
        with pytest.raises(quorumlock.LockHeld) as held:
            locks.lock("a", ttl=1).acquire(timeout=0)
        lease.extend()
        lease.release()
        named = connect([url(server, user="alice") for server in vault.servers], fleet="x", init=False)
        with pytest.raises(quorumlock.ConfigurationError) as misfit:
            named.lock("a", ttl=1).acquire(timeout=0)
    seen = "\n".join([repr(locks), repr(locks.engine), repr(lease), repr(told), caplog.text, shown(held.value)])
    seen += shown(misfit.value) + repr(locks.lock("a", ttl=1)) + repr(lease.tally)
    assert SECRET not in seen
    assert lease.token.partition("@")[0] not in seen


def test_a_wrong_password_is_never_shown(
    vault: Servers, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "wr0ng-p4ss"
    with caplog.at_level(logging.DEBUG):
        locks = connect([url(server, wrong) for server in vault.servers], init=False)
        with pytest.raises(quorumlock.NoQuorum) as broken:
            locks.lock("a", ttl=1).try_acquire()
        with pytest.raises(quorumlock.LockError) as incomplete:
            locks.init_fleet()
    assert vault[0].label in str(broken.value)
    assert "does not let us in (invalid username-password pair" in str(broken.value)
    assert "Correct the user or the password" in str(broken.value)
    assert "run, and can be reached" not in str(broken.value), "it does, and can"
    assert wrong not in shown(broken.value) + shown(incomplete.value) + caplog.text


def test_a_wrong_password_is_never_shown_with_asyncio(vault: Servers, caplog: pytest.LogCaptureFixture) -> None:
    wrong = "wr0ng-p4ss"

    async def main() -> str:
        async with quorumlock.connect_async([url(server, wrong) for server in vault.servers], max_ttl=1) as locks:
            with pytest.raises(quorumlock.NoQuorum) as broken:
                await locks.lock("a", ttl=1).try_acquire()
            return shown(broken.value) + repr(locks)

    with caplog.at_level(logging.DEBUG):
        seen = asyncio.run(main())
    assert vault[0].label in seen
    assert "does not let us in (invalid username-password pair" in seen
    assert wrong not in seen + caplog.text


def test_a_password_that_was_forgotten_is_asked_for(vault: Servers, connect: Connect) -> None:
    urls = [server.url for server in vault.servers]
    wants = "does not let us in (it wants a password, and was given none)"

    async def with_asyncio() -> str:
        async with quorumlock.connect_async(urls, max_ttl=1) as locks:
            with pytest.raises(quorumlock.NoQuorum) as broken:
                await locks.lock("a", ttl=1).try_acquire()
            assert {node.detail for node in await locks.nodes()} == {"it wants a password, and was given none"}
            return str(broken.value)

    locks = connect(urls, init=False)
    with pytest.raises(quorumlock.NoQuorum) as broken:
        locks.lock("a", ttl=1).try_acquire()
    with pytest.raises(quorumlock.NoQuorum) as unseen:
        locks.list("*")
    for told in (str(broken.value), str(unseen.value), asyncio.run(with_asyncio())):
        assert told.count(wants) == len(urls), told
    assert {(node.state, node.detail) for node in locks.nodes()} == {
        ("down", "it wants a password, and was given none")
    }


@pytest.mark.parametrize(
    "address",
    [
        f"redis://user:{SECRET}@127.0.0.1:notaport",
        f"redis://user:{SECRET}@127.0.0.1:99999999",
        f"redis://:{SECRET}@127.0.0.1/notadb?db=x",
        f"redis://127.0.0.1?password={SECRET}&socket_timeout=abc",
        f"mysql://user:{SECRET}@127.0.0.1",
        f"redis://:{SECRET}@a,b:6379",
        f"user:{SECRET}@127.0.0.1",
        f"redis://user:{SECRET}#@127.0.0.1",
        f"redis://us/er:{SECRET}@127.0.0.1:x",
    ],
)
def test_a_url_that_cannot_be_used_is_not_quoted(address: str) -> None:
    def use() -> None:
        with quorumlock.connect(address, node_timeout=0.01) as locks:
            assert SECRET not in repr(locks)
            locks.lock("a", ttl=1).try_acquire()

    with pytest.raises(quorumlock.LockError) as wrong:
        use()
    assert SECRET not in shown(wrong.value)
