"""What MySQL and MariaDB complain of, in words that say what to do."""

from __future__ import annotations

from ..sql.batches import Again, Cut, Denied, NoTables, Trouble, Unsent

_AGAIN = {1205, 1213, 1020, 3572}
"""A lock that was waited for too long, a deadlock, a row that changed meanwhile."""
_FAREWELL = {1053, 1077, 1079, 1152, 1317, 1927, 2006, 2013, 2055, 4031}
_DENIED = {1044, 1045, 1049, 1130, 1698, 1251, 2054, 2059}
_RIGHTS = {1142, 1143, 1227}


def told(error: Exception) -> Trouble:
    """What a query came to."""
    code, words = parts(error)
    if code in _AGAIN:
        return Again(words)
    if code == 1146:
        return NoTables(f"the tables quorumlock_* are not there, and could not be made ({words})")
    if code in _RIGHTS:
        return Trouble(
            f"{words}; grant SELECT, INSERT, UPDATE and DELETE on the tables quorumlock_*, and have `quorumlock "
            "init` make them as a user who may"
        )
    if code in _FAREWELL or not code:
        return Cut(words)
    if code in (1290, 1836, 3100):
        return Trouble(f"{words}: this server only reads; name the primary")
    return Trouble(f"{words} ({code})")


def not_made(error: Exception) -> Unsent:
    """Why there is no connection."""
    code, words = parts(error)
    # A RuntimeError names the library that this kind of login needs.
    return Denied(words) if code in _DENIED or isinstance(error, RuntimeError) else Unsent(words)


def parts(error: Exception) -> tuple[int, str]:
    """Number and text."""
    if len(error.args) > 1 and isinstance(error.args[0], int):
        return error.args[0], " ".join(str(error.args[1]).split())[:300]
    return 0, " ".join(str(error).split())[:300] or type(error).__name__
