"""What SQLite complains of, in words that say which file and what to do. No error of sqlite3 goes further."""

from __future__ import annotations

import sqlite3

from ...errors import ConfigurationError, EngineError, EngineTimeout, LockError

# Another connection is in the way for a moment. PROTOCOL is a lost race for the locks of the WAL.
_MOMENTARY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_WORDS = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_READONLY: "is read-only for this user; whoever locks needs to write the file and its folder",
    sqlite3.SQLITE_PERM: "access is denied; whoever locks needs to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; whoever locks needs to write the file, its -wal and -shm, and "
    "their folder",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written; is it full, over quota, or failing?",
    sqlite3.SQLITE_NOMEM: "SQLite is out of memory",
    sqlite3.SQLITE_CORRUPT: "is damaged; stop whoever uses it, move it away together with its -wal and -shm, and a "
    "new one is made",
    sqlite3.SQLITE_NOTADB: "is not an SQLite database; correct the URL, or move the file away",
}


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for complaints of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def momentary(error: sqlite3.Error) -> bool:
    """Is it worth trying again in a moment?"""
    return code_of(error) in _MOMENTARY


def told(error: sqlite3.Error, path: str) -> EngineError:
    """The same complaint as an error of this library."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    words = _WORDS.get(code_of(error), "failed")
    return EngineError(f"sqlite:{path}: {words} ({name}: {error})", path)


def locked(path: str, seconds: float) -> EngineTimeout:
    return EngineTimeout(
        f"sqlite:{path}: the database is locked by another process, for more than {seconds:g} s; look for one that "
        "hangs, a backup, or a shell with an open transaction",
        path,
    )


def newer(path: str, found: int, known: int) -> LockError:
    return ConfigurationError(
        f"sqlite:{path} was written by a newer quorumlock (format {found}, this one knows {known}); upgrade, or "
        "use another file"
    )


def foreign(path: str) -> LockError:
    return ConfigurationError(f"sqlite:{path} is the database of another application; use a file of its own")


def no_wal(path: str, mode: object) -> EngineError:
    return EngineError(
        f"sqlite:{path}: SQLite cannot keep a write-ahead log there (journal mode {mode}); use a local file system",
        path,
    )


def used_up(path: str) -> EngineError:
    return EngineError(f"sqlite:{path}: its fences are used up (2**53); use a new file, and reset the guards", path)
