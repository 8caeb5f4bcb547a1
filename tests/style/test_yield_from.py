"""A procedure that is called inside another is always `yield from`-ed: forgotten, it would silently do nothing."""

from __future__ import annotations

import ast

import pytest

from .source import MODULES, tree

CORE = [module for module in MODULES if module.startswith("quorumlock.core")]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def procedures(*trees: ast.Module) -> set[str]:
    """The names of functions that say they return Steps."""
    return {
        node.name
        for parsed in trees
        for node in ast.walk(parsed)
        if isinstance(node, Function) and node.returns and ast.unparse(node.returns).startswith("Steps[")
    }


def forgotten(parsed: ast.Module, names: set[str]) -> list[str]:
    """Calls of procedures that are neither performed by `yield from` nor handed on by `return`."""
    right = {
        id(node.value) for node in ast.walk(parsed) if isinstance(node, ast.YieldFrom | ast.Return) and node.value
    }
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parsed)
        if isinstance(node, ast.Call) and called(node) in names and id(node) not in right
    ]


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def unannounced(parsed: ast.Module) -> list[str]:
    """Generators that do not say in their annotation what they are."""
    found = []
    for function in ast.walk(parsed):
        if not isinstance(function, Function):
            continue
        inner = {id(node) for one in ast.walk(function) if isinstance(one, Function) and one is not function
                 for node in ast.walk(one)}  # fmt: skip
        yields = any(
            isinstance(node, ast.Yield | ast.YieldFrom) and id(node) not in inner for node in ast.walk(function)
        )
        says = ast.unparse(function.returns) if function.returns else ""
        if yields and not says.startswith(("Steps[", "Iterator[")):
            found.append(function.name)
    return found


ALL = procedures(*map(tree, CORE))


def test_the_procedures_are_found() -> None:
    known = {"acquire", "confirm", "undo", "release", "extend", "heal", "break_", "look", "muster", "initialise"}
    assert known | {"acquire_within", "try_acquire", "extend_or_lose"} <= ALL


@pytest.mark.parametrize("module", CORE)
def test_every_procedure_that_is_called_is_performed(module: str) -> None:
    assert forgotten(tree(module), ALL) == []


@pytest.mark.parametrize("module", CORE)
def test_every_generator_says_what_it_is(module: str) -> None:
    assert unannounced(tree(module)) == []


BROKEN = {
    "called and dropped": "def f(fleet) -> Steps[None]:\n    release(fleet)\n    yield x",
    "taken for its result": "def f(fleet) -> Steps[int]:\n    tally = release(fleet)\n    return tally.heard",
    "yielded as a whole": "def f(fleet) -> Steps[None]:\n    yield release(fleet)",
    "part of a condition": "def f(fleet) -> Steps[None]:\n    if look(fleet):\n        yield x",
    "through its module": "def f(fleet) -> Steps[None]:\n    redlock.release(fleet)\n    yield x",
    "an argument": "def f(fleet) -> Steps[None]:\n    yield from perform(release(fleet))",
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_sees_a_procedure_that_was_forgotten(name: str) -> None:
    assert forgotten(ast.parse(BROKEN[name]), ALL)


@pytest.mark.parametrize(
    "snippet",
    [
        "def f(fleet) -> Steps[None]:\n    yield from release(fleet)",
        "def f(fleet) -> Steps[None]:\n    tally = yield from redlock.release(fleet)",
        "def f(fleet) -> Steps[Tally]:\n    return (yield from look(fleet))",
        "def f(fleet) -> Steps[Tally]:\n    return look(fleet)",
        "def f(fleet) -> None:\n    fleet.clock()",
    ],
)
def test_the_check_lets_pass_what_is_performed(snippet: str) -> None:
    assert forgotten(ast.parse(snippet), ALL) == []


def test_the_check_sees_a_generator_without_a_name() -> None:
    assert unannounced(ast.parse("def f() -> Generator[int]:\n    yield 1")) == ["f"]
    assert unannounced(ast.parse("def f() -> Steps[int]:\n    yield 1\ndef g() -> int:\n    return 1")) == []
