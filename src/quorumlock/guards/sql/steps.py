"""How the procedures of SQL guards speak: they yield a query, and are sent its answer.

A procedure does no I/O. Whoever performs it runs each `Query` on the user's connection and sends the `Answer`, or
throws what the driver raised. What the procedure returns is the result of the guard's method.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of the guard's own: parameters are written `:name`, whatever the driver wants."""

    sql: str
    parameters: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A statement of the user's, handed to the driver as it is."""

    statement: Any
    parameters: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, and how many it changed."""

    rows: list[tuple[Any, ...]]
    count: int


Steps: TypeAlias = Generator[Query | Foreign, Answer, T]
