"""Parameters that make no sense, or nearly none: an error at the call, nothing sent, and never an immortal key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError
from quorumlock.lab.servers import Server, Servers
from tests.live.tools import get, keys, pttl

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time]

Connect = Callable[..., quorumlock.Locker]

NAN, INF = float("nan"), float("inf")
BAD_TTLS: list[Any] = [0, 0.0, -0.0, -1, NAN, -NAN, INF, -INF, 1e-9, 0.0009, 0.00999, 1.001, 60, 1e308, 10**400]
NO_NUMBERS: list[Any] = [None, True, False, "1", b"1", [1], 1 + 0j, float, object()]
BAD_NAMES: list[Any] = [
    "", b"a", None, 1, "x" * 1025, "ü" * 600, "{a}", "a}", "a*", "a?", "[a", "a]", "a\\b", "a\nb", "a\r", "a\0b",
    "\x7f", "\u2028", "\ud800", "ql:", "ql:node", "ql:fence:{a}",
]  # fmt: skip
ODD_NAMES = [
    "a",
    "a b",
    " ",
    "a:b:c",
    "ümläut",
    "日本語",
    "😀",
    "x" * 1024,
    "QL:x",
    "'; DROP",
    "a\u00a0b",
    "-1",
    "$5",
    "+OK",
]


def immortal(servers: list[Server]) -> set[str]:
    """Keys without a time to live, but for the markers."""
    return {
        key for server in servers for key in keys(server) if pttl(server, key) == -1 and not key.endswith("ql:node")
    }


def commands(server: Server) -> int:
    """How many commands the server has executed, but for the one that asks."""
    text = server.command("INFO", "stats").decode()
    return int(text.partition("total_commands_processed:")[2].partition("\r")[0])


@pytest.fixture(params=["threads", "asyncio"])
def locker(request: pytest.FixtureRequest, servers: Servers, connect: Connect) -> Any:
    connect(servers.urls[:3]).lock("warm", ttl=1).acquire().release()
    return (
        connect(servers.urls[:3])
        if request.param == "threads"
        else quorumlock.connect_async(servers.urls[:3], max_ttl=1)
    )


def refused(parameter: str, value: Any, call: Callable[..., object], *args: Any, **options: Any) -> None:
    try:
        call(*args, **options)
    except ConfigurationError as error:
        assert str(error).startswith(f"{parameter}="), error  # noqa: PT017
    else:
        pytest.fail(f"{parameter}={value!r:.40} was accepted")


def test_a_bad_ttl_is_refused_at_the_call(locker: Any, servers: Servers) -> None:
    """By lock and by the decorator; nothing is sent."""
    before = commands(servers[0])
    for ttl in BAD_TTLS + NO_NUMBERS:
        for call in (locker.lock, locker.locked):
            refused("ttl", ttl, call, "a", ttl=ttl)
    assert commands(servers[0]) == before + 1, "something was sent"


def test_a_bad_extension_is_refused_and_changes_nothing(servers: Servers, connect: Connect) -> None:
    locks = connect(servers.urls[:1], max_ttl=1)
    for ttl in BAD_TTLS + NO_NUMBERS:
        if ttl is not None:
            lease = locks.lock("a", ttl=1, keep=False).acquire()
            before = commands(servers[0])
            refused("ttl", ttl, lease.extend, ttl)
            assert commands(servers[0]) == before + 1, "something was sent"
            lease.check()
            assert 0 < pttl(servers[0], "a") <= 1000
            lease.release()


BAD_OPTIONS: dict[str, list[Any]] = {
    "timeout": [-1, NAN, INF, "1", True],
    "max_hold": [0, -1, NAN, INF, None, "1", True],
    "keep": [0, 1, None, "yes"],
    "on_lost": [1, "x"],
    "note": [b"x", "", "a\nb", 1],
}


def test_a_bad_option_is_refused_at_the_call(locker: Any, servers: Servers) -> None:
    before = commands(servers[0])
    for option, values in BAD_OPTIONS.items():
        for value in values:
            for call in (locker.lock, locker.locked):
                refused(option, value, call, "a", **{option: value}, ttl=1)
    assert commands(servers[0]) == before + 1, "something was sent"


def decorated(locker: Any, name: Any) -> object:
    """A name with braces is a template, which is looked at when it is known what is to be filled in."""

    def function() -> None: ...

    async def coroutine() -> None: ...

    return locker.locked(name, ttl=1)(function if isinstance(locker, quorumlock.Locker) else coroutine)


def test_a_bad_name_is_refused_at_the_call(locker: Any, servers: Servers) -> None:
    before = commands(servers[0])
    for name in BAD_NAMES:
        refused("name", name, locker.lock, name, ttl=1)
        if name is not None and not callable(name):
            refused("name", name, decorated, locker, name)
    assert commands(servers[0]) == before + 1, "something was sent"


def test_an_odd_name_is_a_name_like_any_other(servers: Servers, connect: Connect) -> None:
    """All of them at a time: each excludes itself and nobody else, under exactly its own key."""
    locks = connect(servers.urls[:3], prefix="pre:", identify=False)
    leases = [locks.lock(name, ttl=1).acquire(timeout=1) for name in ODD_NAMES]
    for lease in leases:
        lease.extend()
        assert locks.lock(lease.name, ttl=1).try_acquire() is None
        assert get(servers[0], f"pre:{lease.name}") == lease.token
    assert immortal(servers.servers[:3]) == set()
    for lease in leases:
        lease.release()
    assert not [key for key in keys(servers[0]) if "ql:" not in key]


@pytest.mark.parametrize("ttl", [0.01, 0.0104, 0.0109, 0.1, 0.1234567, 0.9999999, 1, 1.0])
def test_no_key_is_immortal_whatever_its_ttl(servers: Servers, connect: Connect, ttl: float) -> None:
    """Through everything that writes: acquire, confirm, extend, heal, release and break."""
    nodes = servers.servers[:3]
    locks = connect(servers.urls[:3], node_timeout=0.2)
    nodes[0].command("SET", "ql:fence:{a}", "4000000000000000", "PX", "60000")  # so that a confirm round is needed
    for turn in range(3):
        try:
            lease = locks.lock("a", ttl=ttl, keep=bool(turn)).acquire(timeout=1)
        except quorumlock.NotAcquired:
            assert ttl < 0.05, "too short a time for a round on a busy machine"
            continue
        assert immortal(nodes) == set()
        assert all(pttl(node, "a") <= ttl * 1000 + 1 for node in nodes)
        nodes[2].command("DEL", "a")
        try:
            lease.extend()
            lease.extend(max(0.01, ttl / 2))
        except quorumlock.LeaseLost:
            assert ttl < 0.2
        assert immortal(nodes) == set()
        assert all(pttl(node, "a") <= ttl * 1000 + 1 for node in nodes)
        lease.release()
    locks.break_("a")
    assert immortal(nodes) == set()
