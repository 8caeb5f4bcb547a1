"""One connection to the file, from opening to closing. Whatever goes wrong, it is closed and another opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any

from ...core.requests import (
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    CellEnter,
    CellGet,
    CellPut,
    CellSwap,
    Close,
    Confirm,
    ConfirmAll,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Inspect,
    InspectMany,
    Join,
    Leave,
    Look,
    Past,
    Refused,
    Release,
    Request,
    Scan,
    Survey,
)
from ...core.votes import Answer
from ...errors import Unsupported
from . import place as places
from . import schema
from .boot import Boot, this_boot
from .cells import Cells
from .fences import Fences
from .journal import Journal
from .looking import Looking
from .place import Place
from .pruning import Pruning
from .tickets import Tickets


class Session:
    """Not for two threads at a time."""

    def __init__(self, place: Place, prefix: str, max_ttl_ms: int, journal: int | None = None) -> None:
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
            self._answers = self._prepared(place, boot, prefix, max_ttl_ms, Journal(self._cursor, prefix, journal))
            self._identity = _identity(place.path)
        except BaseException:
            self.close()
            raise

    def _prepared(
        self, place: Place, boot: Boot, prefix: str, max_ttl_ms: int, journal: Journal
    ) -> dict[type[Request], Callable[[Any], Answer]]:
        """Prunes the file; gives who answers what."""
        cursor, fences = self._cursor, Fences(self._db, self._cursor, place.text, boot)
        tickets = Tickets(cursor, boot)
        pruning = Pruning(cursor, tickets, max_ttl_ms, journal.kept)
        locks = Looking(cursor, fences, tickets, pruning, boot, prefix, max_ttl_ms, journal)
        cells = Cells(cursor, fences, pruning, boot, prefix)
        pruning.now()
        return {
            Join: locks.nothing,
            Acquire: locks.acquire,
            AcquireAny: locks.acquire_any,
            AcquireAll: locks.acquire_all,
            Confirm: locks.confirm,
            ConfirmAll: locks.confirm_all,
            Downgrade: locks.downgrade,
            Extend: locks.extend,
            Heal: locks.heal,
            Release: locks.release,
            Leave: locks.leave,
            Break: locks.break_,
            Look: locks.look,
            Inspect: locks.inspect,
            InspectMany: locks.inspect_many,
            Scan: locks.scan,
            Past: journal.past,
            Refused: journal.refused,
            CellGet: cells.get,
            CellEnter: cells.enter,
            CellSwap: cells.swap,
            CellPut: cells.put,
            Survey: locks.nothing,
            Close: locks.nothing,
            Initialise: locks.nothing,
        }

    @property
    def inherited(self) -> bool:
        """Was it opened before a fork?"""
        return self._pid != os.getpid()

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def answer(self, request: Request) -> Answer:
        answering = self._answers.get(type(request))
        if answering is None:
            raise Unsupported(
                f"sqlite:{self._path}: this engine does not know the request {type(request).__name__}"
            )
        self.in_use = True
        answer = answering(request)
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
