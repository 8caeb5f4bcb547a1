"""Canaries: variants of the library, broken on purpose, and the hazard tests that must find each of them out.

A canary is a small function that breaks the package in the process it runs in:

    @canary("test_identity::test_a_late_release_leaves_the_next_holder_alone")
    def a_release_does_not_compare() -> None:
        '''Release deletes the lock, whoever holds it.'''
        rescript("RELEASE", "if holder == ARGV[1] then", "if holder then")

`pytest tests/hazards --canary a_release_does_not_compare` runs the tests it names, and nothing else, against it;
all of them must fail. `test_canaries.py` does so for every canary, and asks that every hazard test has one. They
live in `variants/`, by what they break.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
import pkgutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # programs that tests start import this module, too: it shall not cost them anything
    import pytest

    from quorumlock.lab.servers import Servers

VARIABLE = "QUORUMLOCK_CANARY"
"""By which programs that a test starts learn of the canary."""


@dataclass(frozen=True)
class Canary:
    """A broken variant: what is broken, and which tests must fail."""

    name: str
    broken: str
    caught_by: tuple[str, ...]
    """`file::function`, with `[part]` behind it where only some of its parameters can show it."""
    dies_of: tuple[str, ...] = field(default=())
    """Errors, besides failed assertions, by which a test may find it out."""
    apply: Callable[[], None] = field(repr=False, default=lambda: None)

    def names(self, file: str, function: str, identity: str) -> bool:
        """Is this test one of those that must fail?"""
        for one in self.caught_by:
            test, _, part = one.rstrip("]").partition("[")
            if test == f"{file}::{function}" and part in identity:
                return True
        return False

    def concerns(self, item: pytest.Item) -> bool:
        """Whether a collected test is one of those that must fail: on one kind of server, which is enough."""
        import pytest

        from quorumlock.lab.servers import kinds
        from tests.live.fixtures import kind_of

        if not isinstance(item, pytest.Function) or kind_of(item) not in (None, (kinds() or [""])[0]):
            return False
        return self.names(item.path.stem, item.originalname, item.name.partition("[")[2])

    def files(self) -> list[str]:
        return sorted({test.partition("::")[0] + ".py" for test in self.caught_by})


CANARIES: dict[str, Canary] = {}
lent_servers: Servers | None = None
"""Five servers of the first kind, where the process that runs a canary does not start its own; see `aviary.py`."""


def canary(*caught_by: str, dies_of: str = "") -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Registers a variant; `dies_of` names the errors, besides failed assertions, that show it.

    NoQuorum always does: on a busy machine a node may be slower than its timeout, and the test fails of that
    before it comes to what is broken.
    """

    def register(function: Callable[[], None]) -> Callable[[], None]:
        name, broken = function.__name__, inspect.getdoc(function) or ""
        assert broken, f"{name} does not say what is broken"
        assert name not in CANARIES, f"{name} is there twice"
        CANARIES[name] = Canary(name, broken, caught_by, ("NoQuorum", *dies_of.split()), function)
        return function

    return register


def load() -> dict[str, Canary]:
    """All canaries, by name."""
    package = importlib.import_module(".variants", __package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return CANARIES


def apply(name: str) -> None:
    """Breaks the library in this process, and in those it starts that call `apply_inherited`."""
    load()[name].apply()
    os.environ[VARIABLE] = name


def apply_inherited() -> None:
    """In a program that a test has started: breaks the library as it is broken there."""
    if name := os.environ.get(VARIABLE):
        load()[name].apply()


_rewritten: set[FunctionType] = set()


def rewrite(function: Any, *changes: tuple[str, str]) -> None:
    """Changes a function's source, in place: whoever has imported it gets the changed one.

    Every text to change must be there exactly once. A canary that does not fit the code any more says so.
    """
    function = getattr(function, "fget", None) or function  # a property
    assert isinstance(function, FunctionType), function
    assert function not in _rewritten, f"{function.__qualname__} was rewritten before: say all changes at once"
    _rewritten.add(function)
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    for old, new in changes:
        assert source.count(old) == 1, f"{function.__qualname__} has {source.count(old)} times {old!r}:\n{source}"
        source = source.replace(old, new)
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
    definition.decorator_list = []
    ast.increment_lineno(tree, first - 1)
    # Inside a function that has its free variables, which may be __class__, as for super().
    around = ast.parse(
        "def around():\n    " + "; ".join([f"{v} = None" for v in function.__code__.co_freevars] or ["0"])
    )
    assert isinstance(around.body[0], ast.FunctionDef)
    around.body[0].body.append(definition)
    flags = function.__code__.co_flags & 0x1000000  # annotations stay text, as they were
    code = compile(around, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    (made,) = [one for one in code.co_consts if isinstance(one, CodeType)]
    (changed,) = [one for one in made.co_consts if isinstance(one, CodeType)]
    function.__code__ = changed


def rescript(name: str, old: str, new: str) -> None:
    """Changes a Lua script, wherever it is known."""
    from quorumlock.engines.redis import link, scripts

    script = getattr(scripts, name)
    assert script.source.count(old) == 1, f"{name} has {script.source.count(old)} times {old!r}"
    source = script.source.replace(old, new)
    changed = scripts.Script(source, hashlib.sha1(source.encode()).hexdigest())
    for module in (scripts, link):
        if hasattr(module, name):
            setattr(module, name, changed)
    scripts.SOURCES[changed.sha] = source
