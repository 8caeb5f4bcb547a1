"""The SQLite engine in forked children, and interrupted wherever an interrupt can strike."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sqlite3
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import quorumlock
from quorumlock import EngineError, LeaseLost, LossReason
from quorumlock.core.requests import Join, Look, Release
from quorumlock.core.votes import Answer, Cause
from quorumlock.engines.sqlite import SqliteEngine
from tests.hazards.striking import Strike
from tests.support.processes import in_child
from tests.support.waiting import eventually

from .test_sqlite import File, file, granted, make, open_files, refused
from .test_sqlite_processes import Start, locks, start, url

__all__ = ["file", "locks", "make", "start"]  # fixtures
pytestmark = pytest.mark.real_time(1)


# Forked.


def test_a_child_locks_for_itself_and_owns_nothing_of_its_parents(locks: quorumlock.Locker) -> None:
    lease = locks.lock("a", keep=False).acquire()

    def child() -> None:
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is LossReason.FORKED
        lease.release()
        assert locks.lock("a", keep=False).try_acquire() is None
        with locks.lock("b", keep=False) as mine:
            assert mine.fence > lease.fence
        locks.close()

    in_child(child)
    lease.extend()
    lease.release()


def test_what_a_child_locks_is_seen_after_its_parent_closed(
    tmp_path: Path, locks: quorumlock.Locker, start: Start
) -> None:
    """SQLite's own knowledge of the file is inherited: a parent that closes would take the WAL with it."""
    locks.lock("warm", keep=False).acquire().release()
    (closed, close), (locked, lock) = os.pipe(), os.pipe()

    def child() -> None:
        with locks.lock("b", keep=False):
            os.write(lock, b"x")
            os.read(closed, 1)
            lease = locks.lock("c", keep=False).acquire()
            program = (
                f"print(quorumlock.connect({url(tmp_path / 'locks.db')!r}).lock('c', keep=False).try_acquire())"
            )
            assert start(program).end().strip() == "None", "held, and seen by everybody"
            lease.release()

    def parent() -> None:
        os.read(locked, 1)
        locks.close()
        os.write(close, b"x")

    thread = threading.Thread(target=parent)
    thread.start()
    in_child(child)
    thread.join()


def test_nothing_is_open_in_a_child(file: File) -> None:
    file.acquire()
    assert open_files(file.path)
    in_child(lambda: None if open_files(file.path) == [] else pytest.fail("inherited"))
    refused(file.acquire(token="other"), Cause.HELD)


def test_forks_in_the_midst_of_other_threads_requests(file: File) -> None:
    """No child is born with SQLite in a state that only another thread could have ended."""
    stop = threading.Event()

    def work(who: int) -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            granted(file.acquire(f"name-{who}", f"token-{n}"))
            granted(file.ask(Release(f"name-{who}", f"token-{n}")))

    def child() -> None:
        granted(file.acquire(f"child-{os.getpid()}"))

    with ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work, who) for who in range(3)]
        for _ in range(10):
            in_child(child)
        stop.set()
        for one in working:
            one.result(10)
    assert file.sql("SELECT count(*) FROM leases WHERE name LIKE 'child-%'") == [(10,)]


def test_a_child_of_a_fork_that_could_not_be_foreseen_refuses(file: File) -> None:
    """A fork in C, or in a signal handler in the midst of a request: what was open is neither used nor closed."""
    file.acquire()
    assert file.engine._session is not None
    file.engine._session.in_use = True

    def child() -> None:
        assert file.engine._session is None
        with pytest.raises(EngineError, match="forked while the file was open"):
            file.acquire("b")
        assert len(open_files(file.path)) == 3
        gc.collect()
        assert len(open_files(file.path)) == 3

    in_child(child)
    file.engine._session.in_use = False
    granted(file.acquire("b"))


def test_what_is_forgotten_is_neither_used_nor_closed(file: File) -> None:
    file.acquire()
    assert file.engine._session is not None
    session = weakref.ref(file.engine._session)
    file.engine.forget()
    gc.collect()
    assert len(open_files(file.path)) == 3
    refused(file.acquire(token="other"), Cause.HELD)
    forgotten = session()
    assert forgotten is not None
    assert file.engine._session is not forgotten
    forgotten.close()


# Interrupted.


left_to_the_collector = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
"""An interrupt may strike when a connection was made and nobody has it yet. It ends there; 3.13 mentions it."""


def nothing_is_left(file: File, engine: SqliteEngine, where: str) -> None:
    """The write lock is free, the mutex is free, and no lease is held."""
    db = sqlite3.connect(file.path, isolation_level=None, timeout=0)
    try:
        db.execute("BEGIN IMMEDIATE")
        assert db.execute("SELECT * FROM leases").fetchall() == [], where
        db.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        pytest.fail(f"{error} after an interrupt at {where}")
    finally:
        db.close()
    free: list[bool] = []

    def another() -> None:
        free.append(engine._mutex.acquire(timeout=0.2))
        if free[0]:
            engine._mutex.release()

    thread = threading.Thread(target=another)
    thread.start()
    thread.join()
    assert free == [True], f"the mutex is held after an interrupt at {where}"


def sweep(path: Path, once: Callable[[quorumlock.Locker, Strike], None], *, fresh: bool = False) -> int:
    """Strikes `once` at every place inside the library; gives how many there are."""
    file = File(path)
    file.ask(Join())
    locks = quorumlock.connect(url(path), identify=False)
    gc.disable()  # to strike in a finaliser is to strike nothing: what it raises is dropped
    try:
        for k in itertools.count(1):
            if fresh:
                locks.close()
                locks = quorumlock.connect(url(path), identify=False)
            strike = Strike(k)
            once(locks, strike)
            assert isinstance(locks.engine, SqliteEngine)
            nothing_is_left(file, locks.engine, strike.where)
            if not strike.struck:
                break
        locks.lock("a", keep=False).acquire(timeout=0).release()
        return k
    finally:
        gc.enable()
        locks.close()
        file.engine.close()


def strike_acquire(locks: quorumlock.Locker, strike: Strike) -> None:
    lease = strike.run(locks.lock("a", keep=False).acquire)
    if lease is not None:
        lease.release()


@left_to_the_collector
@pytest.mark.parametrize("fresh", [False, True], ids=["open", "opening"])
def test_acquire_interrupted_everywhere_leaves_nothing(tmp_path: Path, fresh: bool) -> None:
    assert sweep(tmp_path / "locks.db", strike_acquire, fresh=fresh) > 40


@left_to_the_collector
def test_release_and_extend_interrupted_everywhere_can_be_repeated(tmp_path: Path) -> None:
    def once(locks: quorumlock.Locker, strike: Strike) -> None:
        lease = locks.lock("a", keep=False).acquire(timeout=0)
        strike.run(lease.extend)
        if not strike.struck:
            strike.run(lease.release)
        lease.release()

    assert sweep(tmp_path / "locks.db", once) > 40


@left_to_the_collector
def test_an_interrupt_while_fences_are_reserved(tmp_path: Path) -> None:
    file = File(tmp_path / "locks.db")

    def once(locks: quorumlock.Locker, strike: Strike) -> None:
        file.sql("UPDATE meta SET boot = 'another'")
        strike_acquire(locks, strike)

    assert sweep(file.path, once) > 40


@left_to_the_collector
def test_an_interrupt_that_somebody_keeps_keeps_no_lock(file: File) -> None:
    """Its traceback refers to everything that was in the midst of something."""
    file.ask(Join())
    kept: list[KeyboardInterrupt] = []
    for k in itertools.count(1):
        strike = Strike(k)
        sys.setprofile(strike._event)
        try:
            file.acquire()
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            sys.setprofile(None)
        file.ask(Release("a", "mine"))
        nothing_is_left(file, file.engine, strike.where)
        if not strike.struck:
            break
    assert len(kept) > 20


def functions_of(thread: int) -> set[str]:
    """The names of all that a thread is in the midst of."""
    return {frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._current_frames()[thread])}


def test_a_signal_while_the_database_is_locked(file: File) -> None:
    """Where a program really waits."""
    file.ask(Join())
    writer = sqlite3.connect(file.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    main = threading.main_thread().ident
    assert main is not None

    def interrupt_when_it_waits() -> None:
        assert eventually(lambda: "_insist" in functions_of(main))
        signal.pthread_kill(main, signal.SIGUSR1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Thread(target=interrupt_when_it_waits).start()
        with pytest.raises(KeyboardInterrupt):
            file.acquire()
    finally:
        signal.signal(signal.SIGUSR1, before)
        writer.close()
    nothing_is_left(file, file.engine, "the wait for the write lock")
    granted(file.acquire())


def test_a_request_in_the_midst_of_another_one_of_its_thread(file: File) -> None:
    """A finaliser that releases a lease, a signal handler that looks: each gets a connection of its own."""
    file.acquire()
    session = file.engine._session
    assert session is not None
    said: list[Answer] = []
    statements: list[str] = []

    def in_the_midst(statement: str) -> None:
        statements.append(statement)
        if len(statements) == 1:
            said.append(file.acquire(token="other"))
            said.append(file.ask(Release("a", "mine")))

    session._db.set_trace_callback(in_the_midst)
    granted(file.ask(Look("b")))
    session._db.set_trace_callback(None)
    refused(said[0], Cause.HELD)
    granted(said[1])
    assert file.engine._session is session
    assert len(open_files(file.path)) <= 4
    granted(file.acquire(token="other"))
