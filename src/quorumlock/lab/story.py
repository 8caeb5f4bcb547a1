"""A scenario as data: what is in a file of `stories/`. (How it is read and checked: `story_reader.py`.)

A story has a cast, steps at times, and two tellings: *ours*, with every protection, and *naive*, with the design it
warns about. What must be seen is said as expectations about facts of the run (`story_facts.py`), such as
"lost updates = 0" or "wait of B < 11": the run is judged by them, nothing is believed because it is written here.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

ACTS: dict[str, set[str]] = {
    "acquires": {"patience"},
    "reads": set(),
    "checks": set(),
    "works": {"for"},
    "writes": {"delay"},
    "releases": set(),
}
"""What a client does of its own will, one thing after another, each with its options."""

FACTS = (
    "overlap",
    "lost updates",
    "refused",
    "leases",
    "losses told",
    "turned away",
    "no quorum",
    "misconfigured",
    "wait",
    "answer after",
    "orphaned",
    "keys without ttl",
    "disordered fences",
    "renewals",
    "healed",
)
"""What a run is judged by; see `story_facts.py`."""

SECONDS = {"overlap", "wait", "answer after", "orphaned"}
HARMS = ("overlap", "lost updates", "keys without ttl", "disordered fences")
"""Facts that must be 0 wherever we run, unless the story says openly which assumption it breaks."""
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
WHERE = "stories"


class BadStory(Exception):
    """A scenario file that cannot be used: which, where, and why."""


class UnknownStory(Exception):
    """No scenario has that name."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A sentence about a fact, such as "wait of B < 11"."""

    text: str
    fact: str
    who: str
    op: str
    value: float

    def met(self, measured: float) -> bool:
        return COMPARE[self.op](measured, self.value)


@dataclass(frozen=True, slots=True)
class Step:
    """Who does what, when; `line` is where that is written."""

    at: float
    who: str
    does: str
    line: int
    options: Mapping[str, Any] = field(default_factory=dict)
    because: str = ""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes that it is about, counted from 1."""
        return tuple(int(number) for number in re.findall(r"\d+", self.who))


@dataclass(frozen=True, slots=True)
class Cast:
    """Who plays, and by which terms."""

    clients: tuple[str, ...]
    nodes: int = 5
    ttl: float = 10.0
    max_ttl: float = 0.0
    """0: as the ttl."""
    node_timeout: float = 0.05
    latency: float = 0.001
    """One way, in seconds."""
    keep: bool = True
    max_hold: float = 86400.0
    quarantine: bool | None = None
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Clients that know other nodes than all of them."""


@dataclass(frozen=True, slots=True)
class Telling:
    """One of the two ways to run it: by which design, what must be seen, and what that means."""

    design: str
    expect: tuple[Expectation, ...]
    conclusion: str
    breaks: str = ""
    """Which declared assumption is broken: then leases may overlap, and it is said."""


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    title: str
    text: str
    told_by: str
    until: float
    cast: Cast
    steps: tuple[Step, ...]
    ours: Telling
    naive: Telling
    note: str = ""


def names() -> list[str]:
    """All scenarios, in the order in which they are told."""
    found = [entry.name for entry in resources.files(__package__).joinpath(WHERE).iterdir()]
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def load(name: str) -> Story:
    """Reads the scenario of that name."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), 3, 0.5) or [one for one in names() if name and name in one]
        hint = f"did you mean {', '.join(near)}?" if near else "see `quorumlock lab list`"
        raise UnknownStory(f"there is no scenario {name!r}: {hint}")
    from .story_reader import parse

    path = resources.files(__package__).joinpath(WHERE, f"{name}.toml")
    return parse(path.read_text(encoding="utf-8"), name)
