"""`quorumlock watch`: the journal as it grows, or what can be seen without one; ends when nobody looks any more."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quorumlock as ql
from quorumlock.lab.servers import Servers
from tests.cli.tools import complaint, quorumlock
from tests.support.waiting import eventually

pytestmark = pytest.mark.real_time(0.3)
SOON = 60.0


class Watch:
    """The command as a process, and what it says line by line."""

    def __init__(self, url: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quorumlock", "watch", *arguments, "--url", url, "--every", "0.1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.errors: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._threads = [threading.Thread(target=self._hear), threading.Thread(target=self._overhear)]
        for thread in self._threads:
            thread.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def _overhear(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def line(self) -> str:
        return self._lines.get(timeout=SOON)

    def until(self, words: str) -> list[str]:
        """What it says up to a line with these words."""
        said = [self.line()]
        while words not in said[-1]:
            said.append(self.line())
        return said

    def ends(self) -> int:
        code = self.process.wait(SOON)
        for thread in self._threads:
            thread.join(SOON)
        assert "Traceback" not in "".join(self.errors), self.errors
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SOON)
        for thread in self._threads:
            thread.join(SOON)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    made: list[Watch] = []

    def start(url: str, *arguments: str) -> Watch:
        made.append(Watch(url, *arguments))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def test_it_shows_the_journal_as_it_grows(url: str, watch: Callable[..., Watch]) -> None:
    with ql.connect(url, journal=1000) as locks:
        for index in range(20):
            locks.lock(f"before:{index}").acquire().release()
        watching = watch(url, "--last", "3")
        assert [line.split()[1:3] for line in (watching.line(), watching.line(), watching.line())] == [
            ["released", "before:18"], ["acquired", "before:19"], ["released", "before:19"],
        ]  # fmt: skip
        with locks.lock("orders:1", note="nightly") as lease:
            line = watching.line()
        assert line.split()[1:] == ["acquired", "orders:1", line.split()[3], "fence", str(lease.fence), "nightly"]
        assert line.split()[3].endswith(f":{os.getpid()}")
        assert watching.line().split()[1:3] == ["released", "orders:1"]
    watching.process.send_signal(signal.SIGINT)
    assert watching.ends() == 0
    assert watching.errors == []


def test_for_programs_it_is_a_line_of_json_each(url: str, watch: Callable[..., Watch]) -> None:
    with ql.connect(url, journal=1000) as locks:
        locks.lock("orders:0").acquire().release()
        locks.lock("a").acquire().release()
        watching = watch(url, "ord*", "--json", "--last", "1")
        assert json.loads(watching.line())["name"] == "orders:0"
        locks.lock("b").acquire().release()
        with locks.lock("orders:1", note="x") as lease:
            told = json.loads(watching.line())
        assert told.keys() == {"at", "what", "name", "fence", "who", "detail"}
        assert (told["what"], told["name"], told["fence"], told["detail"]) == (
            "acquired",
            "orders:1",
            lease.fence,
            "x",
        )
        assert json.loads(watching.line())["what"] == "released"
        assert lease.token[:20] not in str(told)


def test_without_a_journal_it_shows_what_it_sees_and_says_so(url: str, watch: Callable[..., Watch]) -> None:
    with ql.connect(url) as locks, locks.lock("before", note="n"):
        watching = watch(url)
        assert watching.line().split()[1:3] == ["held", "before"]
        assert eventually(lambda: watching.errors, SOON)
        assert "no client keeps a journal" in watching.errors[0]
        assert "missing" in watching.errors[0]
        with locks.lock("a"):
            assert watching.line().split()[1:3] == ["acquired", "a"]
        assert watching.line().split()[1:3] == ["ended", "a"]
        with ql.connect(url, journal=100) as others:  # from now on somebody writes it down
            others.lock("b").acquire().release()
            watching.until("released  b")
        assert eventually(lambda: any("keeps a journal now" in line for line in watching.errors), SOON)


def test_it_ends_when_nobody_reads_also_where_nothing_happens(url: str) -> None:
    with ql.connect(url, journal=100) as locks:
        locks.lock("a").acquire().release()
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "quorumlock", "watch", "--url", url]
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as watching:
        os.close(writer)
        said = b""
        while b"released" not in said or not said.endswith(b"\n"):  # and nothing is to be said any more
            said += os.read(reader, 1000)
        os.close(reader)
        assert watching.wait(SOON) == 0
        assert watching.stderr is not None
        assert watching.stderr.read() == ""


def test_nothing_of_what_others_wrote_reaches_the_terminal_raw(
    servers: Servers, connect: Callable[..., ql.Locker], watch: Callable[..., Watch]
) -> None:
    connect(servers.urls[:1])
    servers[0].command(
        "XADD", "ql:journal", "*", "what", "broken", "name", "\x1b[31mred\n", "fence", "x", "by", "1@\x07:1",
        "detail", "a\x00b@\x1b]0;",
    )  # fmt: skip
    line = watch(servers.urls[0], "--max-ttl", "1").line()
    assert line.split()[1:3] == ["broken", r"\x1b[31mred\n"]
    assert line.isprintable()


def test_it_outlives_nodes_that_are_away(
    make_servers: Callable[..., Servers], connect: Callable[..., ql.Locker], watch: Callable[..., Watch]
) -> None:
    own = make_servers(3)
    locks = connect(own, journal=100, max_ttl=1, node_timeout=0.5)
    locks.lock("a", ttl=1).acquire().release()
    watching = watch(",".join(own.urls), "--max-ttl", "1")
    watching.until("released  a")
    for server in own.servers:
        server.pause()
    assert eventually(lambda: watching.errors, SOON)
    for server in own.servers:
        server.resume()
    assert eventually(lambda: _taken(locks), SOON)
    watching.until("released  b")
    assert len(watching.errors) == 1, "told once"
    assert "going on" in watching.errors[0]


def _taken(locks: ql.Locker) -> bool:
    try:
        locks.lock("b", ttl=1).acquire(timeout=1).release()
    except ql.NotAcquired:
        return False
    return True


@pytest.mark.parametrize(
    "wrong", [("--every", "0"), ("--every", "x"), ("--last", "-1"), ("x" * 5000,), ("--url", "nowhere://")]
)
def test_mistakes_are_told(wrong: tuple[str, ...], url: str) -> None:
    complaint(quorumlock("watch", *wrong, env={"QUORUMLOCK_URL": url}), 64)


def test_without_a_fleet_it_says_so() -> None:
    done = quorumlock("watch", "--url", "redis://127.0.0.1:1")
    assert "written down" in complaint(done, 69)
