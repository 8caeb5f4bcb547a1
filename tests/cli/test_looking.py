"""`ls`, `show`, `wait`, `break` and `elect`: what people and programs are told."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import quorumlock as ql
from quorumlock.lab.servers import Servers
from tests.support.processes import alive
from tests.support.waiting import eventually

from .jobs import family, pids, running
from .tools import complaint, quorumlock

pytestmark = pytest.mark.real_time
Connect = Callable[..., ql.Locker]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def locks(url: str) -> ql.Locker:
    return ql.connect(url)


def call(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return quorumlock(*arguments, env={"QUORUMLOCK_URL": url})


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_ls_shows_what_is_held(url: str, locks: ql.Locker) -> None:
    assert said(call(url, "ls")) == "no lock is held\n"
    assert json.loads(said(call(url, "ls", "--json"))) == []
    with locks.lock("orders:1", note="import") as lease, locks.lock("other"), locks.read_write("doc").read():
        lines = said(call(url, "ls")).splitlines()
        assert lines[0].split() == ["NAME", "STATE", "HOLDER", "FOR", "FENCE", "WAITING", "NOTE"]
        assert [line.split()[0] for line in lines[1:]] == ["doc", "orders:1", "other"]
        assert f":{os.getpid()} MainThread" in lines[2]
        assert str(lease.fence) in lines[2]
        assert lines[2].endswith("import")
        assert "shared (read)" in lines[1]
        only = json.loads(said(call(url, "ls", "orders:*", "--json")))
        assert [found["name"] for found in only] == ["orders:1"]
        assert lease.token not in call(url, "ls", "--json").stdout
        assert "no lock that matches x*" in said(call(url, "ls", "x*"))
    assert "limit" in complaint(call(url, "ls", "--limit", "0"), 64)
    assert "pattern" in complaint(call(url, "ls", "x" * 5000), 64)


def test_show_tells_who_and_what_each_node_thinks(servers: Servers, connect: Connect) -> None:
    mine = connect(servers.urls[:3])
    options = ("--max-ttl", "1", "--url", ",".join(servers.urls[:3]))
    with mine.lock("job", ttl=1, note="half way") as lease:
        told = said(quorumlock("show", "job", *options))
        assert told.startswith("job: held\n")
        assert f"fence {lease.fence}" in told
        assert "note: half way" in told
        assert all(server.label in told for server in servers.servers[:3])
        found = json.loads(said(quorumlock("show", "job", "--json", *options)))
        assert found["holders"][0]["pid"] == os.getpid()
        assert [node["says"] for node in found["nodes"]] == ["held"] * 3
        assert lease.token not in told
    assert said(quorumlock("show", "job", *options)).startswith("job: free\n")
    assert "name" in complaint(quorumlock("show", "j{b", *options), 64)


def test_wait_returns_when_it_is_free(url: str, locks: ql.Locker) -> None:
    assert said(call(url, "wait", "job")) == ""
    assert json.loads(said(call(url, "wait", "job", "--json")))["free"] is True
    with locks.lock("job"):
        assert "held" in complaint(call(url, "wait", "job", "-w", "0.1"), 75)
        waiting = subprocess.Popen(
            [sys.executable, "-m", "quorumlock", "wait", "job"], env=os.environ | {"QUORUMLOCK_URL": url}
        )
    assert waiting.wait(timeout=60) == 0
    assert locks.inspect("job").state == "free"


def test_wait_tells_programs_also_that_it_was_not_free(url: str, locks: ql.Locker) -> None:
    with locks.lock("job"):
        done = call(url, "wait", "job", "-w", "0.1", "--json")
    assert done.returncode == 75
    assert json.loads(done.stdout)["free"] is False


def test_a_semaphore_whose_slots_are_taken_is_not_just_free(url: str, locks: ql.Locker) -> None:
    with locks.semaphore("encoder", 1, note="a film") as lease, locks.lock("encoder#x"):
        told = said(call(url, "show", "encoder"))
        assert told.startswith("encoder: free\n")
        assert "one slot is held:\nencoder#" in told
        assert "note: a film" in told
        assert "encoder#x" not in told
        (slot,) = json.loads(said(call(url, "show", "encoder", "--json")))["slots"]
        assert slot["name"] == lease.resource
        assert f"Held are {lease.resource}: say which" in said(call(url, "break", "encoder", "--yes"))
        assert said(call(url, "wait", "encoder", "--slots", "2")) == ""
        assert "(a film)" in complaint(call(url, "wait", "encoder", "--slots", "1", "-w", "0.1"), 75)
    assert "of a semaphore" not in said(call(url, "show", "encoder"))


def test_break_asks_first(url: str, locks: ql.Locker) -> None:
    assert "nothing was broken" in said(call(url, "break", "job"))
    lease = locks.lock("job", note="stuck").acquire()
    assert "--yes" in complaint(call(url, "break", "job"), 1)
    assert _answered(url, "n") == 1
    lease.extend()
    done = json.loads(said(call(url, "break", "job", "--yes", "--json")))
    assert done["broken"] is True
    assert done["was"]["holders"][0]["note"] == "stuck"
    with pytest.raises(ql.LeaseLost):
        lease.extend()
    lease = locks.lock("job").acquire()
    assert _answered(url, "y") == 0
    with pytest.raises(ql.LeaseLost):
        lease.extend()


def test_break_leaves_alone_who_came_while_it_asked(url: str, locks: ql.Locker) -> None:
    first = locks.lock("job").acquire()
    second: list[ql.Lease] = []

    def change_hands() -> None:
        first.release()
        second.append(locks.lock("job").acquire())

    assert _answered(url, "y", change_hands) == 1
    second[0].extend()
    second[0].release()


def _answered(url: str, answer: str, meanwhile: Callable[[], None] = lambda: None) -> int:
    """`break` on a terminal, where somebody types."""
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [sys.executable, "-m", "quorumlock", "break", "job"],
        env=os.environ | {"QUORUMLOCK_URL": url}, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    assert b"Break it? [y/N]" in os.read(ours, 4096)
    meanwhile()
    os.write(ours, answer.encode() + b"\n")
    code = asked.wait(timeout=60)
    os.close(ours)
    return code


def test_a_candidate_runs_its_command_while_it_leads(url: str, locks: ql.Locker, tmp_path: Path) -> None:
    told, second = tmp_path / "pids", tmp_path / "second"
    with running("--ttl=4", *family(told), command="elect", name="boss", url=url) as one:
        members = pids(told, 3)
        leader = locks.election("boss").leader()
        assert leader is not None
        assert leader.pid == one.pid
        assert locks.inspect("boss").kind == "leader"
        with running("-c", f"touch {second}; exit 7", command="elect", name="boss", url=url) as other:
            assert eventually(lambda: len(locks.inspect("boss").waiters) == 1)
            assert not second.exists()
            one.kill()
            assert other.wait(timeout=60) == 7
            assert second.exists()
            assert not any(alive(pid) for pid in members), "two led at once"


def test_a_leader_that_is_deposed_stands_again(url: str, locks: ql.Locker, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    with running("--ttl=2", *family(told), command="elect", name="boss", url=url) as one:
        first = pids(told, 3)
        locks.break_("boss")
        again = pids(told, 6)
        assert not any(alive(pid) for pid in first)
        assert all(alive(pid) for pid in again[3:])
        assert one.poll() is None
