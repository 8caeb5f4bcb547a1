"""`quorumlock lab`, as people use it: what it prints, writes, and its exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from quorumlock.cli import main

from ..cli import tools
from .played import NAMES
from .test_reading import GOOD

Done = CompletedProcess[str]
Command = Callable[..., Done]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def quorumlock(capsys: Capture) -> Command:
    """The command, without a process of its own."""

    def run(*arguments: str) -> Done:
        code = main(arguments)
        said = capsys.readouterr()
        return Done(arguments, code, said.out, said.err)

    return run


def test_list_names_every_story(quorumlock: Command) -> None:
    done = quorumlock("lab", "list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[: len(NAMES)]] == NAMES
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_show_tells_who_does_what(quorumlock: Command) -> None:
    done = quorumlock("lab", "show", "session-pause")
    assert done.returncode == 0
    assert "heartbeats" in done.stdout
    assert "told with a simulated session-based lock" in " ".join(done.stdout.split()).lower()
    assert re.search(r"2\.00 +A +pauses, for 12", done.stdout)
    assert "must be seen: overlap = 0" in " ".join(done.stdout.split())


def test_run_says_that_it_holds(quorumlock: Command) -> None:
    done = quorumlock("lab", "run", "pause-while-holding")
    assert done.returncode == 0
    assert re.search(r"storage +refuses A's write: fence 33 after 34", done.stdout)
    assert "HOLDS." in done.stdout
    assert done.stderr == ""


def test_run_naive_shows_the_failure_and_exits_1(quorumlock: Command) -> None:
    done = quorumlock("lab", "run", "pause-while-holding", "--naive")
    assert done.returncode == 1
    assert "which is lost" in " ".join(done.stdout.split())
    assert "FAILS." in done.stdout


def test_an_assumption_that_is_broken_is_said_openly(quorumlock: Command) -> None:
    done = quorumlock("lab", "run", "clock-jump")
    assert done.returncode == 0
    assert "Assumption broken here: the clock of a node stepped" in done.stdout


def test_pictures_and_pages_are_written(tmp_path: Path, quorumlock: Command) -> None:
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    assert quorumlock("lab", "run", "amnesia", "--svg", str(svg), "--html", str(html)).returncode == 0
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    page = html.read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "quarantined for one max_ttl" in page
    assert "Node 3 voted twice" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "a page that needs nothing else"


def test_a_run_that_is_not_as_told_exits_3(tmp_path: Path, quorumlock: Command) -> None:
    file = tmp_path / "two.toml"
    file.write_text(GOOD.replace("wait of B < 3", "leases of B = 7"), encoding="utf-8")
    done = quorumlock("lab", "run", str(file))
    assert done.returncode == 3
    assert "NOT AS TOLD: expected 'leases of B = 7'" in done.stdout
    assert done.stderr.startswith("quorumlock: two was not as told")
    assert quorumlock("lab", "run", str(file), "--naive").returncode == 3, "the naive design did not fail"


def test_one_of_ones_own_is_run(tmp_path: Path, quorumlock: Command) -> None:
    file = tmp_path / "two.toml"
    file.write_text(GOOD, encoding="utf-8")
    assert quorumlock("lab", "run", str(file)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "amnesa"], 2, "did you mean amnesia"),
        (["show", "qqq"], 2, "lab list"),
        (["run", "/nowhere/x.toml"], 2, "No such file"),
        (["run", "amnesia", "--svg", "/nowhere/x.svg"], 2, "No such file"),
        (["run"], 64, "NAME"),
        (["walk"], 64, "walk"),
        (["run", "amnesia", "--niave"], 64, "--niave"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: list[str], code: int, said: str, quorumlock: Command) -> None:
    done = quorumlock("lab", *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content", [b"title = ", b"\xff\xfe\x00", b"", b"[[steps]]\nat = 1\n", b"a = " + b"[" * 5000]
)
def test_a_file_that_is_no_story_is_refused(content: bytes, tmp_path: Path, quorumlock: Command) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    assert "bad.toml" in tools.complaint(quorumlock("lab", "run", str(file)), 2)


def test_it_is_a_command_of_its_own_process() -> None:
    assert tools.quorumlock("lab", "run", "delayed-write").returncode == 0
    assert tools.quorumlock("lab", "run", "delayed-write", "--naive").returncode == 1


def test_the_package_is_imported_without_its_lab() -> None:
    asked = "import sys, quorumlock, quorumlock.cli; print([one for one in sys.modules if '.lab' in one])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
