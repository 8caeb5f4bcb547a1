"""Who holds a lock, and who may end it."""

from __future__ import annotations

import asyncio
import threading

from quorumlock import process
from quorumlock.aio.lock import AsyncLock
from quorumlock.core.room import Room
from quorumlock.sync.lock import Lock

from ..canaries import canary, rescript, rewrite


@canary(
    "test_identity::test_one_lock_object_keeps_threads_apart",
    "test_identity::test_one_lock_object_keeps_tasks_of_one_thread_apart",
    "test_identity::test_lockers_of_one_process_are_strangers",
    dies_of="NoQuorum",
)
def a_token_names_the_process() -> None:
    """Every attempt of a process has the same token, and all go to the nodes, which take one for another."""
    rewrite(process.token, ("start + _random_bytes(20).hex()[len(start) :]", "'me'"))
    rewrite(Room.contends, ("self._contenders.get(watch.name) is watch", "True"))
    rewrite(Room.holds, ("if grant is None:", "if True:"))


@canary(
    "test_identity::test_a_thread_that_leaves_its_block_late_ends_its_own_lease_only",
    "test_identity::test_a_task_that_leaves_its_block_late_ends_its_own_lease_only",
    dies_of="LeaseClosed LeaseLost KeyError IndexError",
)
def blocks_are_not_told_apart() -> None:
    """A Lock object remembers the leases of its blocks, but not whose block it was."""
    rewrite(Lock.__enter__, ("setdefault(threading.get_ident(), [])", "setdefault(0, [])"))
    rewrite(Lock.__exit__, ("self._innermost(threading.get_ident())", "self._innermost(0)"))
    rewrite(AsyncLock.__aenter__, ("setdefault(asyncio.current_task(), [])", "setdefault(None, [])"))
    rewrite(AsyncLock.__aexit__, ("self._innermost(asyncio.current_task())", "self._innermost(None)"))


@canary(
    "test_identity::test_a_lease_lives_on_after_the_thread_that_acquired_it",
    "test_identity::test_a_lease_lives_on_after_the_task_that_acquired_it",
    dies_of="LeaseLost",
)
def whoever_acquires_is_the_owner() -> None:
    """Renewal ends with the thread or task that has acquired, also outside of a block."""

    def gone_with_its_thread(lease: object) -> None:
        thread = threading.current_thread()
        lease._owner_gone = lambda: not thread.is_alive()  # type: ignore[attr-defined]

    def gone_with_its_task(lease: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        lease._owner_gone = task.done  # type: ignore[attr-defined]

    acquire, acquire_async = Lock.acquire, AsyncLock.acquire

    def owning(self: Lock, *args: object, **options: object) -> object:
        lease = acquire(self, *args, **options)  # type: ignore[arg-type]
        gone_with_its_thread(lease)
        return lease

    async def owning_async(self: AsyncLock, *args: object, **options: object) -> object:
        lease = await acquire_async(self, *args, **options)  # type: ignore[arg-type]
        gone_with_its_task(lease)
        return lease

    Lock.acquire, AsyncLock.acquire = owning, owning_async  # type: ignore[method-assign, assignment]


@canary("test_identity::test_a_late_release_leaves_the_next_holder_alone")
def a_release_does_not_compare() -> None:
    """Release deletes the lock, whoever holds it."""
    rescript("RELEASE", "local mine = holder == token", "local mine = holder")


@canary("test_identity::test_an_extension_leaves_the_next_holder_alone")
def an_extension_does_not_compare() -> None:
    """Extend renews the lock, whoever holds it."""
    rescript("EXTEND", "if seen[1] == token then", "if seen[1] then")
