"""What an attempt leaves behind that was cancelled, interrupted or refused."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from quorumlock.aio.lease import AsyncLease
from quorumlock.aio.lock import AsyncLock
from quorumlock.core import redlock, renewal
from quorumlock.core.effects import Steps
from quorumlock.core.votes import Cause
from quorumlock.engines.redis.engine import RedisEngine
from quorumlock.engines.redis.link import Link
from quorumlock.process import Process
from quorumlock.runners import aio
from quorumlock.runners.aio import AioRunner
from quorumlock.runners.base import ended
from quorumlock.runners.cable import Cable
from quorumlock.runners.threads import ThreadRunner
from quorumlock.sync.lease import Lease

from ..canaries import canary, rewrite


@canary(
    "test_cancellation::test_acquire_cancelled_at_each_await_point[3-nodes]",
    "test_cancellation::test_the_first_acquire_of_a_client_cancelled_at_each_await_point[3-nodes]",
    "test_cancellation_scopes::test_wait_for_around_acquire_leaves_nothing[3-nodes]",
    "test_cancellation_scopes::test_gather_that_is_cancelled_leaves_nothing[3-nodes]",
    "test_cancellation_scopes::test_a_loop_that_ends_in_the_middle_leaves_nothing[3-nodes]",
    "test_interrupts::test_acquire_interrupted_everywhere_leaves_nothing[1-node]",
    "test_interrupts::test_signals_while_answers_are_late_leave_nothing[1-node]",
)
def an_interrupted_acquire_is_not_undone() -> None:
    """A cancellation or an interrupt leaves the acquire at once: nobody releases what nodes have granted."""
    rewrite(
        redlock.acquire,
        (
            "except BaseException:\n        yield from undo(fleet, kind.undoing(name, token), tally,",
            "except BaseException:\n        (fleet, kind.undoing(name, token), tally,",
        ),
    )


@canary("test_cancellation_scopes::test_a_task_group_that_fails_leaves_nothing[3-nodes]")
def nobody_waits_for_the_clean_up() -> None:
    """A cancelled task ends while its clean-up is still under way."""
    rewrite(AioRunner._clean_up, ("return await asyncio.shield(task)", "raise cancelled"))


@canary("test_cancellation::test_a_waiting_acquire_cancelled_at_each_await_point")
def who_is_cancelled_hangs_up() -> None:
    """A cancelled task closes the connections that owe it an answer, and that others use."""
    clean_up = AioRunner._clean_up

    async def hanging_up(self: AioRunner, steps: Steps[object], cancelled: BaseException) -> object:
        for strand in [strand for strand in self._board().strands if strand is not None]:  # type: ignore[union-attr]
            strand.abort(Cause.DISCONNECTED, "cancelled")
        return await clean_up(self, steps, cancelled)

    AioRunner._clean_up = hanging_up  # type: ignore[assignment]


@canary("test_cancellation_scopes::test_a_second_cancellation_does_not_stop_the_clean_up")
def the_clean_up_can_be_cancelled() -> None:
    """The clean-up starts a little later, in the task that was cancelled: a second cancellation ends it."""
    rewrite(
        AioRunner._clean_up,
        ("started = self._start(effect)", "await given_up(steps)\n    started = self._start(effect)"),
    )

    async def given_up(steps: Steps[object]) -> None:
        try:
            for _ in range(4):
                await asyncio.sleep(0.001)
        except asyncio.CancelledError as again:
            while not ended(steps):
                with suppress(asyncio.CancelledError):
                    steps.throw(again)
            raise

    aio.given_up = given_up  # type: ignore[attr-defined]


@canary("test_cancellation_scopes::test_closing_the_locker_waits_for_the_clean_up")
def closing_does_not_wait() -> None:
    """A Locker closes its connections under a clean-up that is about to be sent."""
    rewrite(AioRunner._settle, ("await asyncio.sleep(0)", "pass"))


@canary("test_cancellation_scopes::test_a_cancellation_is_one_also_where_the_locker_is_being_closed")
def a_cancellation_is_lost_in_a_closed_locker() -> None:
    """A procedure that answers a cancellation twice is left in the middle, and another error comes instead."""
    rewrite(
        AioRunner._clean_up, ("abandon(steps, cancelled)\n        raise cancelled", "advance(steps, cancelled)")
    )


@canary("test_cancellation_scopes::test_an_acquire_that_is_dropped_says_its_release")
def a_dropped_acquire_says_nothing() -> None:
    """An acquire whose coroutine is closed does not say that its lock is not wanted."""
    rewrite(AioRunner._drop, ("self._start(effect)", "pass"))


@canary("test_cancellation_scopes::test_closing_in_the_midst_of_connecting_leaves_no_connection")
def a_connection_is_lost_on_its_way() -> None:
    """A connection that was made for a Locker which is closed meanwhile is nobody's, and stays open."""
    real = RedisEngine.open_async

    async def careless(self: RedisEngine, index: int) -> object:
        connection = await real(self, index)
        await asyncio.sleep(0)
        return connection

    RedisEngine.open_async = careless  # type: ignore[method-assign, assignment]


@canary("test_cancellation_scopes::test_a_cancelled_acquire_ends_soon_although_a_node_is_silent")
def the_clean_up_has_no_deadline_of_its_own() -> None:
    """A release waits for a silent node for as long as a ttl."""
    rewrite(redlock.release, ("timeout = fleet.timeout(ttl)", "timeout = ttl"))


@canary("test_cancellation::test_release_cancelled_at_each_await_point[3-nodes]")
def a_release_waits_before_it_is_sent() -> None:
    """Something is awaited between closing a lease and sending its release; a cancellation comes between."""
    rewrite(AsyncLease.release, ("tally = await", "await asyncio.sleep(0.001)\n            tally = await"))


@canary("test_cancellation::test_a_block_cancelled_at_each_await_point[3-nodes]")
def a_block_is_entered_late() -> None:
    """Something is awaited between getting a lease and entering its block; a cancellation comes between."""
    rewrite(
        AsyncLock.__aenter__,
        ("lease = await self.acquire()", "lease = await self.acquire()\n    await asyncio.sleep(0.001)"),
    )


OWED = """while len(self._pending) > 1 and getattr(getattr(self._pending[0], 'tally', None), 'closed', False):
            self._pending.popleft()
        out += self._pending.popleft()"""


@canary(
    "test_interrupts::test_an_interrupted_extend_does_not_hinder_the_release[3-nodes]",
    dies_of="NoQuorum",
)
def owed_answers_are_not_read() -> None:
    """What a connection still owes for a round that is over is taken for the answer to the next request."""
    rewrite(
        Link.receive,
        (
            "out += self._pending.popleft()",
            OWED,
        ),
    )


@canary("test_cancellation::test_release_cancelled_on_a_server_that_has_forgotten_the_scripts")
def a_late_release_is_given_up() -> None:
    """A server that has forgotten the release's script is not taught it once nobody waits, nor told again."""
    rewrite(Link.send_source, (" and not isinstance(call.request, _RELEASES)", ""))
    rewrite(
        redlock.release,
        (
            "            yield Round(requests, heard, timeout, route, everyone=True)\n            raise",
            "            raise",
        ),
        ("remember(fleet, requests, heard, ttl, expires_at, route, started_at, on_outcome)", "pass"),
    )


@canary("test_cancellation::test_acquire_cancelled_on_servers_that_have_forgotten_the_scripts[3-nodes]")
def a_late_acquire_is_sent_whole() -> None:
    """A server that asks for the acquire's script gets it although its release has gone ahead."""
    rewrite(
        Link.send_source, ("late = call.tally.closed and not isinstance(call.request, _RELEASES)", "late = False")
    )


@canary("test_interrupts::test_an_interrupted_release_can_be_repeated[1-node]")
def a_release_counts_as_done_when_it_begins() -> None:
    """A lease that was closed is never released again, also where the release was interrupted."""
    from quorumlock.leasing import LeaseBase

    rewrite(LeaseBase._close, ("if self._freed:", "if self._closed:"))


@canary("test_interrupts::test_a_waiting_acquire_is_interrupted_at_once", dies_of="AcquireTimeout")
def an_interrupt_is_slept_through() -> None:
    """An interrupt while waiting for the next attempt is not passed on."""
    rewrite(ThreadRunner.run, ("error = caught", "error = None if type(effect) is Wait else caught"))


@canary("test_interrupts::test_a_signal_handler_may_use_the_lease_and_the_locker[extend]")
def a_thread_waits_for_itself() -> None:
    """The locks that guard a lease are not for a thread that has them already."""
    Process.mutex = threading.Lock()  # type: ignore[assignment]
    setattr(Lease, "_new_lock", staticmethod(threading.Lock))  # noqa: B010


@canary("test_cancellation::test_extend_cancelled_at_each_await_point[3-nodes]", dies_of="LeaseLost")
def a_cancelled_extension_is_a_loss() -> None:
    """While an extension is under way, the lease is taken for over."""
    rewrite(renewal.extend, ("grant.extending = True", "grant.extending = True; grant.valid_until = started_at"))


@canary("test_cancellation::test_a_cancelled_extend_promises_no_more_than_the_nodes_keep")
def an_extension_counts_before_a_majority_agreed() -> None:
    """A lease is believed to be as long as was asked for."""
    rewrite(renewal.extend, ("grant.extending = True", "grant.extending = True; grant.valid_until = until"))


@canary("test_interrupts::test_a_first_acquire_interrupted_everywhere_leaves_a_locker_that_works")
def a_connection_that_was_not_begun_is_trusted() -> None:
    """One on which nothing was sent is kept, and asked: nothing is ever answered there."""
    rewrite(Cable._attach, ("self._strands[node] = strand", "strand.fragile = False; self._strands[node] = strand"))
