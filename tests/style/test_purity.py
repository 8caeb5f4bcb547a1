"""The core does no I/O and reads no clock: that is what lets the simulator run the production code."""

from __future__ import annotations

import ast

import pytest

from .source import MODULES, imported_modules, imports, running, tree

CORE = [module for module in MODULES if module.startswith("quorumlock.core")]

HARMLESS = {
    "__future__",
    "collections",
    "collections.abc",
    "contextlib",
    "dataclasses",
    "enum",
    "heapq",
    "math",
    "re",
    "typing",
    "unicodedata",
}
"""The parts of the standard library that neither wait, nor look at the world, nor remember."""

FRIENDS = {"quorumlock.errors", "quorumlock.retry", "quorumlock.options"}
"""What else of the package the core may use: as pure as itself."""

WORLDLY = {"open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint", "globals"}


def impurities(parsed: ast.Module, module: str) -> list[str]:
    """Imports and calls that reach out of the program."""
    outside = {name for name in imports(parsed, module) if not name.startswith("quorumlock")}
    found = [name for name in outside if name not in HARMLESS and name.rpartition(".")[0] not in HARMLESS]
    called = [node.id for node in running(parsed) if isinstance(node, ast.Name) and node.id in WORLDLY]
    return found + called


def reachable() -> set[str]:
    """The core, and everything of the package that it imports, however far away."""
    seen: set[str] = set()
    todo = list(CORE)
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += [name for name in imported_modules(module) if name in MODULES]
    return seen


def test_the_core_is_where_we_look_for_it() -> None:
    assert {"quorumlock.core.redlock", "quorumlock.core.votes", "quorumlock.core.waiting"} <= set(CORE)
    assert reachable() >= FRIENDS


@pytest.mark.parametrize("module", sorted(reachable()))
def test_nothing_the_core_uses_reaches_out_of_the_program(module: str) -> None:
    assert impurities(tree(module), module) == []


def test_the_core_uses_nothing_of_the_package_but_its_friends() -> None:
    assert reachable() - set(CORE) <= FRIENDS


@pytest.mark.parametrize(
    "snippet",
    [
        "import time",
        "import socket as s",
        "from time import monotonic",
        "from asyncio import sleep",
        "import os.path",
        "def f():\n    import random\n    return random.random()",
        "try:\n    import select\nexcept ImportError:\n    pass",
        "from threading import *",
        "data = open('x').read()",
        "t = __import__('time')",
    ],
)
def test_the_check_sees_what_is_impure(snippet: str) -> None:
    assert impurities(ast.parse(snippet), "quorumlock.core.snippet")


@pytest.mark.parametrize(
    "snippet",
    [
        "from __future__ import annotations\nfrom collections.abc import Callable\nimport math",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket",
        "from ..errors import LockError\nfrom .votes import Tally",
    ],
)
def test_the_check_lets_pass_what_is_pure(snippet: str) -> None:
    assert impurities(ast.parse(snippet), "quorumlock.core.snippet") == []
