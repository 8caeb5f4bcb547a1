"""What PostgreSQL complains of, in words that say what to do."""

from __future__ import annotations

import re

from ..sql.batches import Again, Cut, Denied, NoTables, Trouble, Unsent

_AGAIN = {"40001", "40P01", "55P03", "23505"}
"""Serialisation, deadlock, a lock that was not available; and a row that two have made at once."""
_FAREWELL = {"57P01", "57P02", "57P03", "57P05", "25P03", "08000", "08003", "08006"}


def told(code: str, words: str) -> Trouble:
    """What a query came to."""
    if code in _AGAIN:
        return Again(words)
    if code in ("42P01", "3F000"):  # no such table, or no such schema
        return NoTables(f"the tables quorumlock_* are not there, and could not be made ({words})")
    if code in _FAREWELL:
        return Cut(words)
    if code == "42501":
        return Trouble(
            f"{words}; grant SELECT, INSERT, UPDATE and DELETE on the tables quorumlock_*, and have `quorumlock "
            "init` make them as a user who may"
        )
    if code == "25006":
        return Trouble(f"{words}: this server only reads; name the primary (target_session_attrs=read-write)")
    return Trouble(f"{words} ({code})")


def not_made(words: str) -> Unsent:
    """Why there is no connection."""
    words = plain(words)
    if re.search(r"password|authentication|does not exist|permission denied|pg_hba|no such user", words):
        return Denied(words)
    return Unsent(words)


def plain(words: str) -> str:
    """What libpq says, on one line; without the address, which is said anyway, unless there are several."""
    text = re.sub(r"\s*Is the server running on that host and accepting TCP/IP connections\?", "; ", words)
    text = " ".join(text.split()).rstrip("; ")
    if text.count("connection to server at ") == 1:
        text = re.sub(r"^connection to server at .*? failed: ", "", text)
    return text[:500]
