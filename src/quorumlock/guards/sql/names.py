"""Names of tables and columns: checked, then quoted the way a database wants them."""

from __future__ import annotations

import re

from ...errors import ConfigurationError

LONGEST = 63
"""PostgreSQL would cut off the rest, and meet another table."""
_WORD = re.compile(r"[^\W\d]\w*")


def column(what: str, name: object) -> str:
    """A name that can be quoted without being changed."""
    if not isinstance(name, str) or not _WORD.fullmatch(name) or len(name.encode()) > LONGEST:
        raise ConfigurationError(
            f"{what} is to be a name of letters, digits and _, of at most {LONGEST} bytes, not {name!r:.80}"
        )
    return name


def table(name: object) -> str:
    """`table`, or `schema.table`."""
    if isinstance(name, str) and name.count(".") == 1:
        for part in name.split("."):
            column("each part of the table's name", part)
        return name
    return column("the table", name)


def split(name: str) -> tuple[str | None, str]:
    """Schema, if there is one, and table."""
    schema, _, last = name.rpartition(".")
    return schema or None, last


def quoted(name: str, dialect: str) -> str:
    """As part of a statement. Never in double quotes for SQLite, which takes an unknown name in them for a text."""
    mark = '"' if dialect == "postgresql" else "`"
    return ".".join(f"{mark}{part}{mark}" for part in name.split("."))
