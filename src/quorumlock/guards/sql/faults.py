"""What a driver's error means, by the number or the words that each database gives it."""

from __future__ import annotations

import re

_STATES = {"42P01": "no table", "3F000": "no table", "42703": "no column", "42701": "column is there"}
_NUMBERS = {1146: "no table", 1049: "no table", 1054: "no column", 1060: "column is there", 1050: "table is there"}
_WORDS = {
    "no such table": "no table",
    "unknown database": "no table",
    "no such column": "no column",
    "has no column named": "no column",
    "duplicate column name": "column is there",
}


def meaning(error: BaseException) -> str | None:
    """`no table`, `no column`, `table is there`, `column is there`; None for everything else."""
    origin = getattr(error, "orig", None) or error  # SQLAlchemy wraps what the driver raised
    first = origin.args[0] if origin.args else None
    if isinstance(first, int):
        return _NUMBERS.get(first)
    state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    if state is not None:
        return _STATES.get(state)
    if type(origin).__module__.startswith("sqlite3"):
        return next((meant for words, meant in _WORDS.items() if words in str(origin)), None)
    return None


def about(error: BaseException, name: str) -> bool:
    """Is it that name which the database complains of? PostgreSQL's further lines quote the whole statement."""
    first = str(getattr(error, "orig", None) or error).partition("\n")[0]
    return name.lower() in re.findall(r"[\w$]+", first.lower())
