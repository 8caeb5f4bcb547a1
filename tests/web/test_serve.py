"""`quorumlock serve` as a process: what it refuses, what it says, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

import quorumlock as ql
from quorumlock.cli.serve import token
from quorumlock.lab.servers import Servers
from tests.support.servers.databases import PostgreSQL, needed

from ..cli.tools import complaint, quorumlock
from .site import TOKEN

pytestmark = pytest.mark.real_time


@contextmanager
def serving(*arguments: str, url: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "quorumlock", "serve", "--port", "0", *arguments],
        env=os.environ | {"QUORUMLOCK_URL": url} | env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        said = process.stdout.readline()
        assert said.startswith("http://"), said
        yield process, said.split()[0]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_without_a_token_it_is_for_this_machine_alone(host: str) -> None:
    said = complaint(quorumlock("serve", "--host", host), 64)
    assert "QUORUMLOCK_WEB_TOKEN" in said
    assert "--token-file" in said


def test_a_short_token_is_refused_and_not_repeated() -> None:
    said = complaint(quorumlock("serve", env={"QUORUMLOCK_WEB_TOKEN": "hunter2"}), 64)
    assert "16" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("given", ["", " \n"])
def test_a_token_that_was_not_filled_in_is_refused(given: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(given)
    for path in (None, str(tmp_path / "token")):
        with pytest.raises(ql.ConfigurationError, match="is empty"):
            token(path, {"QUORUMLOCK_WEB_TOKEN": given})
    assert token(None, {}) is None
    assert token(None, {"QUORUMLOCK_WEB_TOKEN": f"{TOKEN}\n"}) == TOKEN, "an end of line is no part of it"


def test_a_token_that_no_header_can_have_is_refused() -> None:
    assert "ASCII" in complaint(quorumlock("serve", env={"QUORUMLOCK_WEB_TOKEN": "zwölf Boxkämpfer jagen"}), 64)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--host", f"{'a' * 70}.x"),
        ("--token", TOKEN),
        ("--token-file", "/nowhere/token"),
        ("--root-path", "locks"),
        ("--port", "70000"),
        ("--every", "0"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...]) -> None:
    complaint(quorumlock("serve", *arguments, env={"QUORUMLOCK_WEB_TOKEN": TOKEN}), 64)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ear:
        port = ear.getsockname()[1]
        assert f"127.0.0.1:{port}" in complaint(quorumlock("serve", "--port", str(port)), 64)


def test_it_shows_the_locks_of_others_and_ends_when_told(url: str) -> None:
    with serving(url=url) as (process, address), ql.connect(url) as locks, locks.lock("orders:1"):
        assert httpx.get(f"{address}api/v1/lock", params={"name": "orders:1"}).json()["lock"]["state"] == "held"
        with httpx.stream("GET", f"{address}api/v1/stream", timeout=30) as answer:
            assert next(answer.iter_lines()).startswith("data: ")
            process.send_signal(signal.SIGTERM)  # with a page open
            assert process.wait(30) == 0
        assert process.stderr
        assert process.stderr.read() == ""


def test_a_fleet_that_is_down_is_told_before_anybody_opens_the_page() -> None:
    with serving(url="redis://127.0.0.1:1") as (process, address):
        assert httpx.get(f"{address}api/v1/nodes").json()["nodes"][0]["state"] == "down"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    assert told.startswith("quorumlock: 0 of 1 nodes are ready: 127.0.0.1:1 is down (Connection refused)\n")


def test_the_token_comes_from_a_file_and_is_told_to_nobody(url: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    with serving("--token-file", str(path), "--host", "0.0.0.0", "--allow-break", url=url) as (process, address):
        port = address.rstrip("/").rpartition(":")[2]
        here = f"http://127.0.0.1:{port}/"
        assert httpx.get(f"{here}api/v1/locks").status_code == 401
        program = httpx.Client(base_url=here, headers={"authorization": f"Bearer {TOKEN}"})
        with program, ql.connect(url) as locks:
            lease = locks.lock("a", keep=False).acquire()
            assert program.post("api/v1/lock/break", json={"name": "a"}).json()["broken"]
            assert locks.inspect("a").state == "free"
            lease.release()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0
        assert TOKEN not in out + err
        assert "'a', held by" in err, "who broke what is told in any case"
        assert "dashboard@127.0.0.1" in err


@pytest.mark.live
def test_a_break_does_not_cut_a_journal_that_others_keep_longer() -> None:
    with Servers(1) as servers, redis.Redis.from_url(servers.urls[0]) as client, client.pipeline() as many:
        for n in range(10_500):
            noted = {"what": "acquired", "name": "other", "fence": n, "by": f"{n:014}@host:1", "detail": "mutex - "}
            many.xadd("ql:journal", noted)
        many.execute()
        with (
            serving("--allow-break", url=servers.urls[0], QUORUMLOCK_WEB_TOKEN=TOKEN) as (_, address),
            ql.connect(servers.urls) as locks,
        ):
            lease = locks.lock("stuck", keep=False).acquire()
            with httpx.Client(base_url=address, headers={"authorization": f"Bearer {TOKEN}"}) as program:
                assert program.get("api/v1/overview").json()["journal"]
                assert program.post("api/v1/lock/break", json={"name": "stuck"}).json()["broken"]
            lease.release()
        assert client.xlen("ql:journal") == 10_501


def test_it_warns_where_others_come_and_no_token_is_asked_for(url: str) -> None:
    with serving("--root-path", "/locks", "--allow-break", url=url) as (process, _):
        process.terminate()
        assert "no access token" in process.communicate(timeout=30)[1]


def test_commands_that_do_not_serve_import_nothing_of_it() -> None:
    program = (
        "import sys, quorumlock.cli; quorumlock.cli.main(['--version']); "
        "print([name for name in sys.modules if name.startswith(('starlette', 'uvicorn', 'quorumlock.web'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('no starlette', name='starlette')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert "quorumlock[web]" in complaint(quorumlock("serve", env={"PYTHONPATH": path}), 64)


def test_an_engine_without_a_journal() -> None:
    """It looks for itself, and nothing is wrong."""
    needed(PostgreSQL)
    with (
        PostgreSQL() as server,
        ql.connect(server.url) as locks,
        locks.lock("orders", ttl=20) as lease,
        serving("--allow-break", url=server.url) as (_, address),
    ):
        told = httpx.get(f"{address}api/v1/locks", timeout=20).json()
        assert (told["problem"], told["journal"]) == ("", False)
        assert [(one["name"], one["fence"]) for one in told["locks"]] == [("orders", lease.fence)]
