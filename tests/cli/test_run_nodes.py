"""`quorumlock run` on real nodes: what becomes of the command when they die."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import quorumlock as ql
from quorumlock.lab.servers import BINARIES, Server, Servers
from tests.support.processes import alive
from tests.support.waiting import eventually

from .jobs import family, pids, running
from .tools import complaint, forked

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.5)]

TTL = 3.0

Fleet = tuple[Servers, ql.Locker, str]


@pytest.fixture
def fleet(
    make_servers: Callable[..., Servers], connect: Callable[..., ql.Locker]
) -> tuple[Servers, ql.Locker, str]:
    """Three nodes, somebody else who looks at them, and what to call them."""
    servers = make_servers(3)
    locks = connect(servers, max_ttl=60.0, node_timeout=0.5)
    return servers, locks, ",".join(servers.urls)


def test_every_exit_code_on_nodes(fleet: Fleet) -> None:
    servers, locks, url = fleet

    def run(*arguments: str) -> int:
        return forked("run", "job", *arguments, env={"QUORUMLOCK_URL": url}).returncode

    assert run("-c", "exit 3") == 3
    assert run("-c", "kill -TERM $$") == 143
    assert run("--", "/dev/null") == 126
    assert run("--", "no-such-command") == 127
    assert run("--max-hold", "0", "--", "true") == 64
    with locks.lock("job", note="nightly"):
        held = complaint(forked("run", "job", "-n", "--", "true", env={"QUORUMLOCK_URL": url}), 75)
        assert "MainThread" in held
        assert "(nightly)" in held
    assert locks.inspect("job").state == "free"
    servers[0].kill()
    assert run("--", "true") == 0
    servers[1].kill()
    gone = complaint(forked("run", "job", "-n", "--", "true", env={"QUORUMLOCK_URL": url}), 69)
    assert servers[0].label in gone
    assert servers[1].label in gone


@pytest.mark.parametrize("kind", [next(iter(BINARIES))], indirect=True)
def test_a_job_outlives_a_minority_but_not_a_majority(fleet: Fleet, tmp_path: Path) -> None:
    servers, locks, url = fleet
    told = tmp_path / "pids"
    with running(f"--ttl={TTL}", *family(told, "hears"), url=url) as wrapper:
        members = pids(told, 3)
        servers[0].kill()
        first = locks.inspect("job").holders[0]
        for _ in range(2):  # its lease is renewed without that node, and nobody else could have it
            assert eventually(lambda: milliseconds_left(servers[2]) < 750 * TTL)
            assert eventually(lambda: milliseconds_left(servers[2]) > 750 * TTL)
        assert wrapper.poll() is None
        assert all(alive(pid) for pid in members)
        assert locks.inspect("job").holders[0].fence == first.fence
        servers[1].kill()
        assert eventually(lambda: servers[2].command("EXISTS", "job") == b":0\r\n")
        assert not any(alive(pid) for pid in members), "at work when another could have had it"
        assert wrapper.wait(timeout=30) == 76
        assert wrapper.stderr is not None
        assert "unreachable" in wrapper.stderr.read()


def milliseconds_left(server: Server) -> int:
    return int(server.command("PTTL", "job")[1:])
