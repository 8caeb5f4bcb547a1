"""Tests wait for an event, and not for a while: how long a machine needs is nothing that a test can know."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
PACE_MOST = 0.01
"""A loop that looks again and again may pause for so long, in seconds, between two looks."""

ALLOWED = {
    "observing/test_behind_rounds.py::slow": "it is to be slower than a node may be, and does nothing else",
    "live/test_owed_releases.py::test_close_sends_what_is_owed_once_more": (
        "a connection is replaced after it was silent for a while by the client's own clock, which nothing shows"
    ),
    "live/chaos/conditions.py::set_clocks": "a server looks at its clock every 100 ms, and tells nobody",
    "support/stalls.py::watch": "it takes samples, and how late it wakes is what it measures",
}
"""`file::function`, and why nothing can be waited for there."""


def constant(node: ast.expr) -> bool:
    """Whether an expression is made of numbers and CONSTANTS alone, and is not 0."""
    if isinstance(node, ast.Constant):
        return node.value != 0
    if isinstance(node, ast.Name):
        return node.id.isupper()
    if isinstance(node, ast.Attribute):
        return node.attr.isupper()
    if isinstance(node, ast.UnaryOp):
        return constant(node.operand)
    return isinstance(node, ast.BinOp) and all(
        constant(side) or (isinstance(side, ast.Constant)) for side in (node.left, node.right)
    )


def is_sleep(node: ast.AST) -> bool:
    """Whether it calls `sleep`, of whichever module."""
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return False
    called = node.func
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == "sleep"


def sleeps(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The function and the line of each constant sleep that is no loop's pace."""

    def walk(node: ast.AST, function: str, loop: bool) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, loop = node.name, False
        elif isinstance(node, ast.While | ast.For | ast.AsyncFor):
            loop = True
        if is_sleep(node):
            assert isinstance(node, ast.Call)
            (seconds,) = node.args
            value = seconds.value if isinstance(seconds, ast.Constant) else None
            paces = loop and isinstance(value, int | float) and value <= PACE_MOST
            if constant(seconds) and not paces:
                yield function, node.lineno
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, loop)

    yield from walk(tree, "", False)


@functools.cache
def found() -> dict[str, list[int]]:
    """By `file::function`, the lines of constant sleeps in our tests."""
    lines: dict[str, list[int]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for function, line in sleeps(ast.parse(path.read_text())):
            lines.setdefault(f"{path.relative_to(TESTS)}::{function}", []).append(line)
    return lines


def test_no_test_sleeps_for_a_constant_time() -> None:
    refused = {place: lines for place, lines in found().items() if place not in ALLOWED}
    assert not refused, f"wait for a condition (tests/support/waiting.py), or say in ALLOWED why not: {refused}"


def test_the_list_of_exceptions_is_short_and_true() -> None:
    assert ALLOWED.keys() <= found().keys(), "no longer needed: take it off the list"
    assert all(len(reason) > 20 for reason in ALLOWED.values())
    assert len(ALLOWED) <= 15


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("time.sleep(0.1)", True),
        ("time.sleep(TTL / 2)", True),
        ("await asyncio.sleep(1.5 * stage.TTL)", True),
        ("while True:\n  sleep(0.05)", True),
        ("while True:\n  sleep(0.005)", False),
        ("for _ in x:\n  def f():\n    time.sleep(0.005)", True),
        ("await asyncio.sleep(0)", False),
        ("time.sleep(random.random() / 10)", False),
        ("time.sleep(answer.wait_ms / 1000)", False),
    ],
)
def test_the_check_sees_a_constant_sleep(source: str, refused: bool) -> None:
    tree = ast.parse(f"async def f():\n{'  ' + source.replace(chr(10), chr(10) + '  ')}")
    assert bool(list(sleeps(tree))) is refused
