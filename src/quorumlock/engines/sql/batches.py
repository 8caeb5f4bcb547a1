"""What visits and drivers say to each other: queries, their results, and what went wrong with them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...core.votes import Cause

Value = int | str | bytes | None


class Query(NamedTuple):
    """`text` has a ? for each of the `values`."""

    text: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    rows: Sequence[tuple[Value, ...]]
    count: int
    """Rows that were changed, or found."""


class Batch(NamedTuple):
    """Queries that are sent together, and answered together.

    Each is a transaction of its own, or several are, which makes no difference to whoever asks. With `whole` all of
    them are one.
    """

    queries: tuple[Query, ...]
    whole: bool = False


T = TypeVar("T")
Visit = Generator[Batch, Sequence[Result], T]


class Trouble(Exception):
    """A driver could not say what was asked, or did not hear the answer."""

    cause = Cause.FAILED
    broken = False
    """Is the connection of no use any more?"""


class Unsent(Trouble):
    """Nothing was executed: there is no connection."""

    cause = Cause.UNREACHABLE


class Denied(Unsent):
    cause = Cause.DENIED


class Silent(Trouble):
    """It may have been executed, or may still be."""

    cause = Cause.SILENT
    broken = True


class Cut(Trouble):
    """Likewise."""

    cause = Cause.DISCONNECTED
    broken = True


class Again(Trouble):
    """Another transaction was in the way; nothing was executed."""


class NoTables(Trouble):
    """Ours are not there; nothing was executed."""


def ask(text: str, *values: Value) -> Visit[Result]:
    """One query by itself."""
    (result,) = yield Batch((Query(text, values),))
    return result
