"""Every file: short enough to read, says what it is for, and knows nothing of the machine it was written on."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from .source import MODULES, ROOT

LINES_MOST = 400
FOLDERS = ("src", "tests", "docs", "bench", "scripts", "examples", ".ci")
NOT_OURS = {"LICENSE"}


def our_files() -> list[Path]:
    """What is or will be in the repository; without git, what lies in its folders."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    else:
        inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
        found = [path for path in (*ROOT.iterdir(), *inside) if "__pycache__" not in path.parts]
    return sorted(path for path in found if path.is_file() and path.name not in NOT_OURS)


FILES = our_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_files_are_found() -> None:
    assert set(MODULES.values()) <= set(PYTHON)
    assert Path(__file__) in PYTHON
    assert ROOT / "pyproject.toml" in FILES


@pytest.mark.parametrize(
    "path", [path for path in PYTHON if "src" in path.parts or "tests" in path.parts], ids=shown
)
def test_no_file_is_longer_than_one_idea(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LINES_MOST, f"{shown(path)} has {lines} lines: look for the second idea in it"


@pytest.mark.parametrize("path", PYTHON, ids=shown)
def test_the_first_line_of_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not text and path.name == "__init__.py" and "src" not in path.parts:
        return  # a folder of tests needs no words
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, f"{shown(path)} has no docstring"
    first = docstring.splitlines()[0]
    assert len(first) > 10, first
    assert text.lstrip().startswith(('"""', "#!", 'r"""'))


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".lua"], ids=shown)
def test_a_script_says_what_it_takes_and_what_it_answers(path: Path) -> None:
    head = path.read_text(encoding="utf-8").splitlines()[:3]
    assert all(line.startswith("--") for line in head[:2])
    if path.name not in (
        "standing.lua",
        "turn.lua",
        "slots.lua",
        "tell.lua",
        "journal.lua",
    ):  # parts of other scripts
        assert [line.split()[1] for line in head] == ["KEYS", "ARGV", "answers"]


# Written in pieces, or this file would find itself.
HOMES = ["wo" + "rk", "ho" + "me", "ro" + "ot", "Us" + "ers"]
HOSTS = ["py" + r"pi\.(?:org|python)", "python" + r"hosted\.org", "npm" + r"js\.(?:org|com)", "art" + "ifactory"]
FOLDERS_OF_A_MACHINE = re.compile(rf"(?<![\w.*}}/-])/(?:{'|'.join(HOMES)})/[\w.]")
REGISTRIES = re.compile("|".join([*HOSTS, "index" + "-url", "dev" + "pi"]), re.IGNORECASE)


def machine_traces(text: str) -> list[str]:
    """Absolute paths of somebody's machine, and hosts that packages come from."""
    return [found.group() for pattern in (FOLDERS_OF_A_MACHINE, REGISTRIES) for found in pattern.finditer(text)]


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_no_file_knows_the_machine_it_was_written_on(path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # a picture, not a text
    assert machine_traces(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "cd /wo" + "rk/main",
        "see '/ho" + "me/me/x'",
        "pip install --index" + "-url x",
        "https://files.python" + "hosted.org/x",
        "https://py" + "pi.org/simple",
        "open('/ro" + "ot/.ssh')",
    ],
)
def test_the_check_sees_a_trace_of_a_machine(text: str) -> None:
    assert machine_traces(text)


@pytest.mark.parametrize(
    "text", ["src/home/x", "the work/life", "unix:/run/redis.sock", "/tmp/x", "https://a.b/home/x"]
)
def test_the_check_lets_pass_what_belongs_to_no_machine(text: str) -> None:
    assert machine_traces(text) == []
