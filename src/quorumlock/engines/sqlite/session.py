"""One connection to the file, from opening to closing. Whatever goes wrong, it is closed and another opened."""

from __future__ import annotations

import os
import sqlite3

from ...core.requests import Request
from ...core.votes import Answer
from . import place as places
from . import schema
from .boot import this_boot
from .fences import Fences
from .leases import Leases
from .place import Place


class Session:
    """Not for two threads at a time."""

    def __init__(self, place: Place, prefix: str, max_ttl_ms: int) -> None:
        """Opens; raises EngineError, ConfigurationError or sqlite3.Error, and then leaves nothing open."""
        places.prepare(place)
        self._path = place.path
        self._pid = os.getpid()
        self.in_use = False
        """Between the first and the last statement of a request."""
        # SQLite's own waiting sleeps longer and longer, so that newcomers win: there is none (timeout=0).
        self._db = sqlite3.connect(place.path, timeout=0, isolation_level=None, check_same_thread=False)
        # One cursor for everything: what it executes ends what it executed before, an interrupted SELECT too.
        self._cursor = self._db.cursor()
        try:
            boot = this_boot()
            schema.prepare(self._db, self._cursor, place.text, boot)
            fences = Fences(self._db, self._cursor, place.text, boot)
            self._leases = Leases(self._cursor, fences, boot, prefix, max_ttl_ms)
            self._leases.prune()
            self._identity = _identity(place.path)
        except BaseException:
            self.close()
            raise

    @property
    def inherited(self) -> bool:
        """Was it opened before a fork?"""
        return self._pid != os.getpid()

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def answer(self, request: Request) -> Answer:
        self.in_use = True
        answer = self._leases.answer(request)
        self.in_use = False
        return answer

    def is_current(self) -> bool:
        """Is the file that is open still the one that the path names?

        If it was deleted or replaced (`rm`, a cleaner of /tmp, a restored backup), others lock in another file.
        """
        return _identity(self._path) == self._identity

    def close(self) -> None:
        """Closes, which undoes what was not committed.

        The cursor first: a connection is closed in name only, and keeps its transaction, while anybody refers to a
        statement of its own that is not over, and if only in the traceback of what interrupted it.
        """
        try:
            self._cursor.close()
        except sqlite3.Error:
            pass  # what it executed last had failed; that was told
        finally:
            self._db.close()


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)  # gone, or out of reach: opening it again will say so
    return found.st_dev, found.st_ino
