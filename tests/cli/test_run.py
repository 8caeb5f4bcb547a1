"""`quorumlock run`: what the command gets and gives, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import quorumlock as ql
from tests.support.processes import alive
from tests.support.waiting import eventually

from .jobs import family, pids, running
from .tools import Completed, complaint, forked, forking, process

pytestmark = pytest.mark.real_time


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def run(url: str, *arguments: str) -> Completed:
    """While a Locker of this process may be open on the same file."""
    return process("run", *arguments, env={"QUORUMLOCK_URL": url})


def run_alone(url: str, *arguments: str) -> Completed:
    """While none is."""
    return forked("run", *arguments, env={"QUORUMLOCK_URL": url})


def free(url: str, name: str = "job") -> bool:
    with ql.connect(url) as locks:
        return locks.inspect(name).state == "free"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["--", "true"], 0),
        (["--", "sh", "-c", "exit 3"], 3),
        (["-c", "exit 4"], 4),
        (["-c", "kill -9 $$"], 137),
        (["-c", "kill -TERM $$"], 143),
        (["--", "sh", "-c", "exit 255"], 255),
    ],
)
def test_the_exit_code_is_the_commands(url: str, command: list[str], code: int) -> None:
    done = run_alone(url, "job", *command)
    assert done.returncode == code
    assert done.stdout + done.stderr == ""
    assert free(url)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 64, "NAME"),
        (["job"], 64, "say what to run"),
        (["job", "--"], 64, "say what to run"),
        (["job", "-c", "true", "--", "true"], 64, "not both"),
        (["job", "--slots", "0", "--", "true"], 64, "whole number of 1 to 1000"),
        (["job", "-n", "-w", "3", "--", "true"], 64, "not allowed with"),
        (["job", "--slots", "2", "--shared", "--", "true"], 64, "choose one"),
        (["job", "--ttl", "0", "--", "true"], 64, "ttl"),
        (["job", "--ttl", "-1", "--", "true"], 64, "-1"),
        (["job", "--ttl", "10", "--kill-after", "6", "--", "true"], 64, "half of --ttl"),
        (["job", "-E", "256", "--", "true"], 64, "256"),
        (["job", "--on-lost", "cry", "--", "true"], 64, "cry"),
        (["jo*b", "--", "true"], 64, "jo*b"),
        (["job", "--", "no-such-command"], 127, "no such command"),
        (["job", "--", "/no/such/command"], 127, "no such command"),
        (["job", "--", __file__], 126, "cannot be run"),
        (["job", "--url", "redis://127.0.0.1:1", "-w", "0.2", "--", "true"], 69, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_run_is_a_line_and_a_code(url: str, arguments: list[str], code: int, words: str) -> None:
    assert words in complaint(run_alone(url, *arguments), code)


def test_a_held_lock_is_75_or_whatever_is_wanted(url: str) -> None:
    with ql.connect(url) as locks, locks.lock("job", note="nightly"):
        assert "'job' is held" in complaint(run(url, "job", "-n", "--", "true"), 75)
        assert "held" in complaint(run(url, "job", "-w", "0.1", "--", "true"), 75)
        assert run(url, "job", "-n", "-E", "9", "--", "true").returncode == 9
        skipped = run(url, "job", "-n", "--skip-ok", "--", "echo", "hello")
        assert (skipped.returncode, skipped.stdout, skipped.stderr) == (0, "", "")


def test_the_command_knows_its_lock_but_not_the_token(url: str) -> None:
    done = run_alone(url, "job", "--ttl", "20", "--", "env")
    told = dict(line.partition("=")[::2] for line in done.stdout.splitlines() if line.startswith("QUORUMLOCK_"))
    assert told["QUORUMLOCK_NAME"] == told["QUORUMLOCK_RESOURCE"] == "job"
    assert int(told["QUORUMLOCK_FENCE"]) > 0
    assert 10 < float(told["QUORUMLOCK_REMAINING"]) <= 20
    assert set(told) == {f"QUORUMLOCK_{what}" for what in ("NAME", "RESOURCE", "FENCE", "REMAINING", "URL")}
    slot = run_alone(url, "pool", "--slots", "2", "-c", "echo $QUORUMLOCK_NAME $QUORUMLOCK_RESOURCE")
    assert slot.stdout in ("pool pool#0\n", "pool pool#1\n")


def test_stdin_stdout_and_stderr_are_the_commands(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quorumlock", "run", "job", "-c", "cat; echo oops >&2"],
        env=os.environ | {"QUORUMLOCK_URL": url}, input=b"\0bytes" * 100_000, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == b"\0bytes" * 100_000
    assert done.stderr == b"oops\n"


def test_it_tells_what_happened_if_asked(url: str) -> None:
    done = run_alone(url, "job", "--json", "-v", "-c", "exit 3")
    first, second, told = done.stderr.splitlines()
    assert "acquired" in first
    assert "exit code 3" in second
    assert {"name": "job", "exit_code": 3, "lost": None}.items() <= json.loads(told).items()
    assert json.loads(told)["fence"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-n", "--", "true"], 75, f":{os.getpid()} MainThread"),
        (["-w", "0.1", "--", "true"], 75, "within 0.1 s: by "),
        (["-n", "--skip-ok", "--", "true"], 0, "is held: by "),
        (["--", "no-such-command"], 127, "no such command"),
        (["--", __file__], 126, "cannot be run"),
        ([], 64, "say what to run"),
        (["--ttl", "0.001", "--", "true"], 64, "ttl"),
        (["--url", "redis://127.0.0.1:1", "-n", "--", "true"], 69, "127.0.0.1:1"),
    ],
)
def test_it_tells_also_why_nothing_was_run(url: str, arguments: list[str], code: int, words: str) -> None:
    with ql.connect(url) as locks, locks.lock("job"):
        done = run(url, "job", "--json", *arguments)
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["exit_code"] == done.returncode == code
    assert words in told["error"]
    assert (told["name"], told["fence"], told["lost"]) == ("job", None, None)


def test_who_holds_it_is_said_first(url: str) -> None:
    with ql.connect(url) as locks, locks.lock("job", note="by hand"):
        said = complaint(run(url, "job", "-n", "--", "true"), 75)
        assert said.startswith("quorumlock: 'job' is held: by ")
        assert "(by hand)" in said
    with ql.connect(url) as locks, locks.semaphore("encoder", 1, note="a film"):
        said = complaint(run(url, "encoder", "--slots", "1", "-w", "0.1", "--", "true"), 75)
        assert "(a film)" in said


def test_kinds_of_lock(url: str) -> None:
    with ql.connect(url) as locks:
        with locks.read_write("doc").read():
            assert run(url, "doc", "-n", "-s", "--", "true").returncode == 0
            assert run(url, "doc", "-n", "--", "true").returncode == 75
        with locks.semaphore("pool", 2):
            assert run(url, "pool", "-n", "--slots", "2", "--", "true").returncode == 0
        assert run(url, "job", "--at-least", "20", "--fair", "--note", "once", "--", "true").returncode == 0
        assert locks.inspect("job").state == "closed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_are_passed_on_to_all_of_the_group(url: str, tmp_path: Path, number: signal.Signals) -> None:
    told = tmp_path / "pids"
    with running(*family(told, "hears"), url=url) as wrapper:
        members = pids(told, 3)
        wrapper.send_signal(number)
        assert wrapper.wait(timeout=30) == 128 + number
        assert eventually(lambda: not any(alive(pid) for pid in members))
    assert free(url)


def test_who_is_ended_while_waiting_leaves_nothing(url: str) -> None:
    with ql.connect(url) as locks, locks.lock("job"):
        with running("--fair", "--", "true", url=url) as wrapper:
            assert eventually(lambda: len(locks.inspect("job").waiters) == 1)
            wrapper.terminate()
            assert wrapper.wait(timeout=30) == 143
        assert locks.inspect("job").waiters == ()


def test_a_killed_wrapper_takes_its_whole_family_along(url: str, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    with running(*family(told), url=url) as wrapper:
        members = pids(told, 3)
        wrapper.kill()
        assert eventually(lambda: not any(alive(pid) for pid in members)), "a grandchild works on without a lock"


def test_a_wrapper_that_is_stopped_does_not_let_the_job_outlive_its_lock(url: str, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    with ql.connect(url) as locks, running("--ttl", "4", *family(told), url=url) as wrapper:
        members = pids(told, 3)
        wrapper.send_signal(signal.SIGSTOP)
        with locks.lock("job", timeout=30):
            assert not any(alive(pid) for pid in members), "two of them at work"
        wrapper.send_signal(signal.SIGCONT)
        assert wrapper.wait(timeout=30) == 76


@pytest.mark.real_time(0.5)
def test_what_was_stopped_with_its_leash_does_not_outlive_its_lock_by_that_time(url: str, tmp_path: Path) -> None:
    """A container that is paused, and goes on when the lock is over: the leash may not sleep the rest."""
    told = tmp_path / "pids"
    with running("--ttl", "3", *family(told), url=url) as wrapper:
        members = pids(told, 3)
        leash = os.getpgid(members[0])
        assert leash not in {wrapper.pid, *members}
        for pid in (wrapper.pid, leash):
            os.kill(pid, signal.SIGSTOP)
        with ql.connect(url) as locks:
            locks.lock("job", timeout=30).acquire().release()
        os.kill(leash, signal.SIGCONT)
        assert eventually(lambda: not any(alive(pid) for pid in members), 1.5), "it sleeps on"
        wrapper.send_signal(signal.SIGCONT)
        assert wrapper.wait(timeout=30) == 76


@pytest.mark.parametrize(("on_lost", "how"), [("term", "hears"), ("term", "deaf"), ("kill", "hears")])
def test_a_broken_lock_ends_the_job(url: str, tmp_path: Path, on_lost: str, how: str) -> None:
    told = tmp_path / "pids"
    with (
        ql.connect(url) as locks,
        running("--ttl=2", f"--on-lost={on_lost}", *family(told, how), url=url) as one,
    ):
        members = pids(told, 3)
        locks.break_("job")
        assert one.wait(timeout=30) == 76
        assert not any(alive(pid) for pid in members)
        assert one.stderr is not None
        assert "broken" in one.stderr.read()


def test_a_loss_may_be_ignored(url: str, tmp_path: Path) -> None:
    told, go_on = tmp_path / "started", tmp_path / "go-on"
    os.mkfifo(go_on)
    with ql.connect(url) as locks:
        job = f"touch {told}; read _ < {go_on}; exit 5"
        with running("--ttl=0.9", "--on-lost=ignore", "-c", job, url=url) as wrapper:
            assert eventually(told.exists)
            locks.break_("job")
            as_long = locks.lock("as long", ttl=0.9, keep=False).acquire()
            assert eventually(lambda: not as_long.held)
            go_on.write_text("\n")
            assert wrapper.wait(timeout=30) == 5
            assert wrapper.stderr is not None
            assert "lost while" in wrapper.stderr.read()


def test_the_longest_hold_ends_the_job(url: str) -> None:
    done = run_alone(url, "job", "--ttl", "1", "--max-hold", "0.5", "--", "sleep", "60")
    assert ql.LossReason.MAX_HOLD.value in complaint(done, 76)


def test_what_the_job_leaves_in_the_background_stays(url: str, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    done = run_alone(url, "job", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {told}")
    assert done.returncode == 0
    left = int(told.read_text())
    try:
        assert alive(left)
        assert free(url)
    finally:
        os.kill(left, signal.SIGKILL)


@pytest.mark.timeout(600)
def test_eighty_at_once_run_one_at_a_time(url: str, tmp_path: Path) -> None:
    """Each reads a number and writes it back; the file knows the fence of the last, too."""
    count = tmp_path / "count"
    count.write_text("0 0\n")
    job = f"""
        read n fence < {count}
        [ "$QUORUMLOCK_FENCE" -gt "$fence" ] || echo "fence $QUORUMLOCK_FENCE after $fence"
        mkdir {tmp_path}/inside || echo "two at once"
        echo "$((n + 1)) $QUORUMLOCK_FENCE" > {count}
        rmdir {tmp_path}/inside
    """
    started = [forking("run", "job", "-c", job, env={"QUORUMLOCK_URL": url}) for _ in range(80)]
    ended = [end() for end in started]
    assert {one.stdout + one.stderr for one in ended} == {""}
    assert [one.returncode for one in ended] == [0] * 80
    assert count.read_text().split()[0] == "80"
