"""The command itself: what it says of itself, how it takes bad calls, what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quorumlock import __version__, cli

from .tools import SCRIPT, complaint, quorumlock

SOURCES = str(Path(cli.__file__).parents[2])


def test_version_as_module_and_as_script() -> None:
    assert quorumlock("--version").stdout == f"quorumlock {__version__}\n"
    told = subprocess.run([str(SCRIPT), "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"quorumlock {__version__}\n"


SLOW = {
    "asyncio", "bz2", "dataclasses", "hashlib", "hiredis", "inspect", "ipaddress", "json", "logging", "lzma",
    "pathlib", "redis", "rich", "secrets", "shutil", "socket", "sqlite3", "subprocess", "tomllib", "typing",
    "urllib.parse",
}  # fmt: skip
"""What takes long to import, as far as any command has a use for it."""


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["run", "job", "--", "true"], {"dataclasses", "inspect", "logging", "sqlite3", "typing"}),
    ],
)
def test_starts_without_what_it_does_not_need(arguments: list[str], needed: set[str], tmp_path: Path) -> None:
    program = (
        f"import sys; before = set(sys.modules); from quorumlock.cli import main; code = main({arguments!r});"
        f"slow = {SLOW!r} & (set(sys.modules) - before); sys.exit(code or ' '.join(sorted(slow)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES, "QUORUMLOCK_URL": f"sqlite:///{tmp_path}/locks.db"},
    )
    assert set(done.stderr.split()) <= needed


@pytest.mark.parametrize("argv", ["", "['--version']"])
def test_as_a_program_it_is_not_slowed_down_by_the_collector_of_garbage(argv: str) -> None:
    program = (
        "import atexit, gc, sys; from quorumlock.cli import main;"
        "before = gc.get_threshold()[0]; sys.argv[1:] = ['--version'];"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] > before));"
        f"main({argv})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ("False False" if argv else "True True"), "a guest leaves it alone"


@pytest.fixture
def helped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command says of itself on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def told(*words: str) -> str:
        assert cli.main([*words, "--help"]) == 0
        return capsys.readouterr().out

    return told


def test_help_has_examples_and_fits_a_terminal(helped: Callable[..., str]) -> None:
    assert "quorumlock init" in helped().partition("example")[2]
    for command in cli.COMMANDS:
        told = helped(command)
        assert "example" in told, command
        assert f"quorumlock {command}" in told.partition("example")[2] or command == "config"
        assert max(len(line) for line in told.splitlines()) < 80 + 10, command  # the longest URL list aside


def test_every_command_has_the_option_for_tracebacks(helped: Callable[..., str]) -> None:
    for words in (*((command,) for command in cli.COMMANDS if command != "lab"), ("lab", "list"), ("lab", "run")):
        told = helped(*words)
        assert "-v, --verbose" in told, words
        assert "-vv: with tracebacks" in " ".join(told.split()), words


@pytest.mark.parametrize(
    ("words", "code"), [(["init", "--url", "redis://127.0.0.1:1"], 69), (["lab", "show", "no-such-story"], 2)]
)
def test_a_traceback_is_shown_to_who_wants_it(words: list[str], code: int) -> None:
    complaint(quorumlock(*words, "-v"), code)
    assert "Traceback" in quorumlock(*words, "-vv").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["launch"], "launch"),
        (["--", "run"], "COMMAND"),
        (["init", "--colour"], "--colour"),
        (["init", "--max-ttl", "soon"], "soon"),
        (["demo", "--seconds", "-1"], "-1"),
        (["init"], "QUORUMLOCK_URL"),
        (["init", "--url", "redis://localhost", "--max-ttl", "nan"], "max_ttl=nan"),
        (["init", "--url", "redis://localhost", "--prefix", "a*"], "prefix='a*'"),
        (["init", "--url", "http://localhost"], "known: redis://"),
        (["init", "--url", "localhost:6379"], "without a scheme"),
        (["init", "--url", "redis://a,redis://a"], "one server"),
    ],
)
def test_a_bad_call_is_a_line_and_64(arguments: list[str], words: str) -> None:
    assert words in complaint(quorumlock(*arguments), 64)


@pytest.mark.parametrize(
    "arguments",
    [
        ["redis://:geheim@localhost"],
        ["init", "redis://user:geheim@localhost"],
        ["init", "--url=redis://:geheim@localhost", "--prefix", "a*"],
        ["init", "--url", "http://:geheim@localhost"],
        ["init", "--url", "redis://:geheim@localhost:port"],
        ["init", "--url", "redis://localhost:port?password=geheim"],
        ["init", "--url", "redis://:geheim@a,b"],
        ["init", "--url", "redis://:geheim@127.0.0.1:1"],
        ["init", "--max-ttl", "redis://localhost?password=geheim"],
    ],
)
@pytest.mark.parametrize("more", [[], ["-vv"]])
def test_no_password_is_shown(arguments: list[str], more: list[str]) -> None:
    done = quorumlock(*arguments, *more)
    assert done.returncode in (1, 64, 69)
    assert "geheim" not in done.stdout + done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_who_has_read_enough_is_no_mistake_of_the_call(tmp_path: Path, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "quorumlock", "ls", "--url", f"sqlite:///{tmp_path}/locks.db"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 141)


def test_main_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert cli.main(["launch"]) == 64
    assert __version__ in capsys.readouterr().out


def test_without_redis_py_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['redis'] = None; from quorumlock.cli import main;"
        "sys.exit(main(['init', '--url', 'redis://localhost']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'quorumlock[redis]'" in complaint(done, 64)
