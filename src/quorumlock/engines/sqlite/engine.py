"""The embedded engine: the locks of one machine in one SQLite file, for threads and processes.

Promises. At most one valid lease of a name among all processes of this machine that use the file; leases end by
the boot clock, also those of processes that were killed; fences grow (`fences.py`, with the limits). No lock is
handed out unless its row was committed. The file must be on a local file system: WAL needs memory that all its
users share. Who can read the file can read tokens; who can write it can do anything.

A request is one short transaction on one connection of this process, which a mutex guards. When another process
writes, the mutex is given back and we try again, after a moment that is random. When anything else goes wrong, the
connection is closed, which undoes what was not committed; the next request opens another.

**fork.** SQLite forbids to take an open connection into a child, and not only to use it there: what SQLite knows of
a file is shared by all connections of a process, and inherited with one.

    parent: opens (locks the file: "in use") ─ fork ─────────────────────── closes: nobody else uses it,
    child:                                      └ opens: inherits "locked",   deletes the WAL … commits into the
                                                  and so locks nothing                          deleted WAL: lost

So connections are closed before a fork, and parent and child open their own. Where that was not possible (a fork
in C; a fork by a signal handler in the midst of a request), the child refuses to lock.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import threading
import time
import weakref

from ...clocks import boot_time
from ...core.effects import Round
from ...core.requests import Extend, Join, Leave, Request
from ...core.states import DOWN, MISFIT, READY, NodeState, median
from ...core.votes import Answer, Cause, Tally, unknown
from ...errors import ConfigurationError, EngineError, LockError
from ...options import Settings
from ...retry import Retry
from ..base import Node
from . import troubles
from .place import place_of
from .polling import Polling
from .session import Session

PATIENCE = 5.0
"""Seconds, or more, for which another process may be writing: two hundred that start at once take turns."""
RENEWAL_PATIENCE = 1.0
"""The same for a renewal: whoever wants it asks again, and should know soon that it fails."""
PAUSE = 0.0001
PAUSE_MOST = 0.005

NOT_BEGUN = unknown(Cause.UNREACHABLE, "nothing was executed")
"""Said before an error is raised, where that is certain: then nothing needs to be undone, in vain and slowly."""


class SqliteEngine:
    """One node: a file."""

    name = "sqlite"
    clock = staticmethod(boot_time)
    blocking = True
    nodes: tuple[Node, ...] = ()

    def __init__(self, url: str, settings: Settings) -> None:
        """Reads the URL; nothing is opened before the first request."""
        self._place = place_of(url)
        self._path = self._place.text
        self._prefix = settings.prefix
        self._max_ttl_ms = round(settings.max_ttl * 1000)
        self._journal = settings.journal
        self._patience = max(PATIENCE, 20 * settings.node_timeout)
        self.labels = (f"sqlite:{self._path}",)
        self.polling: Retry = Polling()
        """How to wait for a lock, where the user did not say."""
        # Reentrant: a finaliser may release a lease in the midst of another request of its thread.
        self._mutex = threading.RLock()
        self._session: Session | None = None
        self._closed = False
        self._tainted = False
        self._abandoned: list[Session] = []
        _engines[weakref.ref(self, _engines.pop)] = None

    def __repr__(self) -> str:
        return f"<SqliteEngine {self._path}>"

    @property
    def path(self) -> str:
        return self._place.path

    def perform(self, round_: Round) -> None:
        """Casts the file's vote; raises EngineError or ConfigurationError instead."""
        request = round_.requests[0]
        if request is None:
            return
        try:
            answer = self._insist(request, round_.tally)
        except LockError as error:
            # A ticket dies by itself, too: that it was not taken away is no reason to hide why its owner leaves.
            if not isinstance(request, Leave):
                raise
            answer = unknown(Cause.FAILED, str(error))
        round_.tally.cast(0, answer)

    def _insist(self, request: Request, tally: Tally) -> Answer:
        give_up_at = 0.0
        pause = PAUSE
        while (answer := self._attempt(request, tally)) is None:
            now = boot_time()
            patience = min(self._patience, RENEWAL_PATIENCE) if type(request) is Extend else self._patience
            give_up_at = give_up_at or now + patience
            if now >= give_up_at:
                tally.cast(0, NOT_BEGUN)
                raise troubles.locked(self._path, patience)
            time.sleep(pause * (0.5 + random.random()))
            pause = min(1.5 * pause, PAUSE_MOST)
        return answer

    def states(self, samples: int) -> tuple[NodeState, ...]:
        """How the file is doing: it answers, or it is said why not."""
        took = []
        try:
            for _ in range(samples):
                started = boot_time()
                self._insist(Join(), Tally(self.labels, 1))
                took.append(boot_time() - started)
        except LockError as error:
            state = MISFIT if isinstance(error, ConfigurationError) else DOWN
            detail = re.sub(r"^[: ]+", "", str(error).removeprefix(self.labels[0]))
            return (NodeState(self.labels[0], state, detail, None, self.name, None, None, None, 0.0),)
        latency, version = median(took), sqlite3.sqlite_version
        return (NodeState(self.labels[0], READY, "", None, self.name, version, latency, 0.0, 0.0),)

    def close(self) -> None:
        """Closes the connection. A request of another thread that comes late opens one for itself alone."""
        with self._mutex:
            self._closed = True
            if self._session is not None and not self._session.in_use:
                self._drop(self._session)

    def forget(self) -> None:
        """In a forked child: drops what the parent opened, and keeps it from being closed by the collector."""
        self._mutex = threading.RLock()
        session, self._session = self._session, None
        if session is not None:
            self._abandoned.append(session)
            self._tainted = self._tainted or session.inherited

    def _attempt(self, request: Request, tally: Tally) -> Answer | None:
        """None: another process is writing."""
        with self._mutex:
            session = self._ready(tally)
            if session is None:
                return None
            try:
                return session.answer(request)
            except sqlite3.Error as error:
                # If this was a commit that failed, the lock may have been set all the same: the caller undoes it.
                if not troubles.momentary(error):
                    raise troubles.told(error, self._path) from None
                session.in_use = session.in_transaction
                return None  # to ask again does no harm: the file knows the token
            finally:
                if session.in_use or self._closed or session is not self._session:
                    self._drop(session)

    def _ready(self, tally: Tally) -> Session | None:
        """A connection for one request: the one that is open, if it can be used, or another; None: not now."""
        session = self._session
        if session is not None and not session.in_use:
            if session.is_current():
                return session
            self._drop(session)
        try:
            if self._tainted:
                raise EngineError(
                    f"sqlite:{self._path}: this process was forked while the file was open, and SQLite cannot open "
                    "it again; fork with os.fork or multiprocessing, outside of signal handlers, or before the "
                    "first lock",
                    self._path,
                )
            fresh = Session(self._place, self._prefix, self._max_ttl_ms, self._journal)
        except sqlite3.Error as error:
            if troubles.momentary(error):
                return None
            tally.cast(0, NOT_BEGUN)
            raise troubles.told(error, self._path) from None
        except LockError:
            tally.cast(0, NOT_BEGUN)
            raise
        if self._session is None:
            self._session = fresh
        return fresh

    def _drop(self, session: Session) -> None:
        if self._session is session:
            self._session = None
        session.close()

    def _before_fork(self) -> None:
        self._mutex.acquire()
        if self._session is not None and not self._session.in_use:
            self._drop(self._session)

    def _after_fork_in_parent(self) -> None:
        try:
            self._mutex.release()
        except RuntimeError:
            pass  # it was made, by another thread, since the fork began


_engines: dict[weakref.ref[SqliteEngine], None] = {}
"""In one order for all: two threads that fork at a time take the mutexes one after the other."""


def _all_engines() -> list[SqliteEngine]:
    return [engine for reference in list(_engines) if (engine := reference()) is not None]


def _before_fork() -> None:
    for engine in _all_engines():
        engine._before_fork()


def _after_fork_in_parent() -> None:
    for engine in _all_engines():
        engine._after_fork_in_parent()


def _after_fork_in_child() -> None:
    for engine in _all_engines():
        engine.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
