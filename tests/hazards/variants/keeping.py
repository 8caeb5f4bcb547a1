"""Renewal, and what is told of its end."""

from __future__ import annotations

import asyncio
import threading
import time

from quorumlock.aio.keeper import AsyncKeeper, LoopDesk
from quorumlock.aio.lease import AsyncLease
from quorumlock.core import keeper, renewal
from quorumlock.keeping import Hold
from quorumlock.leasing import LeaseBase
from quorumlock.sync.keeper import Keeper
from tests.support.waiting import forever

from ..canaries import canary, rewrite


@canary(
    "test_keeper::test_work_may_outlive_its_ttl",
    "test_keeper::test_blocks_and_decorated_functions_are_kept",
    dies_of="LeaseLost",
)
def nothing_is_renewed() -> None:
    """The keeper takes no lease for one that it should renew."""
    rewrite(Hold.renewable, ("return True", "return False"))


@canary("test_keeper::test_without_keep_it_ends_by_its_ttl_and_says_so")
def everything_is_renewed() -> None:
    """Leases with keep=False are renewed like the others."""
    rewrite(LeaseBase._held, ("if chosen.keep:", "if True:"))


@canary("test_keeper::test_there_is_one_keeper_for_all_leases_and_it_ends_with_its_locker")
def every_lease_has_a_keeper() -> None:
    """A thread, or a task that sleeps, is started for each lease."""
    watch, watch_async = Keeper.watch, AsyncKeeper.watch
    sleeping: list[asyncio.Task[None]] = []  # a task that nobody holds may be collected

    def with_a_thread(self: Keeper, hold: Hold) -> None:
        threading.Thread(target=time.sleep, args=(60,), name="quorumlock-keeper", daemon=True).start()
        watch(self, hold)

    def with_a_task(self: AsyncKeeper, hold: Hold) -> None:
        sleeping.append(asyncio.get_running_loop().create_task(forever()))
        watch_async(self, hold)

    Keeper.watch, AsyncKeeper.watch = with_a_thread, with_a_task  # type: ignore[method-assign]


@canary("test_keeper::test_a_transient_fault_does_not_end_renewal[lose]", dies_of="LeaseLost")
def one_failure_ends_renewal() -> None:
    """A round that nobody answered in time is the last one."""
    rewrite(keeper._later, ("charge.doubt()", "return charge.lost(LossReason.UNREACHABLE)"))


@canary(
    "test_keeper::test_a_bug_in_renewal_does_not_end_it",
    "test_keeper::test_a_bug_in_renewal_leaves_no_lease_that_looks_alive",
    dies_of="LeaseLost",
)
def an_error_ends_the_keeper() -> None:
    """What nobody expected ends the keeper, and nobody is told."""
    rewrite(Keeper._work, ("self._complain(error)", "return self._complain(error)"))
    rewrite(LoopDesk._tend, ("self._complain(error)", "self.set_timer = self._complain(error) or int"))


@canary("test_keeper::test_a_release_is_the_end_whatever_races")
def a_healing_outlives_its_release() -> None:
    """A node is given the lock again although it was released meanwhile, and nobody takes it back."""
    rewrite(renewal.heal, (" and not grant.over", ""), ("if grant.over and any(", "if False and any("))


@canary("test_keeper::test_a_lease_never_promises_more_than_a_majority_keeps", dies_of="LeaseLost")
def time_counts_from_the_answer() -> None:
    """A lease is valid for its ttl from the last answer, and not from before the request."""
    rewrite(renewal.renew, ("until = valid_until(started_at,", "until = valid_until(now,"))
    rewrite(renewal.judged, ("Extension(tally, valid_until=until)", "Extension(tally, valid_until=until + 0.025)"))


@canary("test_keeper::test_max_hold_ends_renewal")
def max_hold_is_ignored() -> None:
    """A hung holder keeps its lock for ever."""
    rewrite(Hold.renewable, ("if now >= self.keep_until:", "if now >= self.keep_until == NOT_KEPT:"))


@canary("test_keeper::test_a_lease_that_is_garbage_is_not_renewed")
def the_keeper_keeps_leases_alive() -> None:
    """The keeper holds on to the lease itself: what nobody can release is renewed for ever."""
    rewrite(
        Keeper.watch,
        ("hold.desk = self", "hold.desk = self\n    self.__dict__.setdefault('all', []).append(hold())"),
    )
    rewrite(
        AsyncKeeper.watch,
        ("hold.desk = desk", "hold.desk = desk\n    desk.__dict__.setdefault('all', []).append(hold())"),
    )


@canary(
    "test_keeper_loss::test_a_loss_is_told_by_all_means_and_once",
    "test_keeper_loss::test_no_majority_until_the_end_is_told_as_unreachable",
)
def the_flag_is_not_set() -> None:
    """A loss does not set `lease.lost`."""
    rewrite(LeaseBase._announce, ("self._event.set()", "pass"))


@canary("test_keeper_loss::test_a_callback_may_end_everything[threads]")
def closing_waits_for_the_keeper() -> None:
    """on_lost is called by the keeper itself, for which close() waits."""
    rewrite(Keeper.call, ("if threading.current_thread() is not self._thread:", "if True:"))
    rewrite(
        Keeper.join,
        ("if thread is not None and thread is not threading.current_thread():", "if thread is not None:"),
        ("if not self.roster.charges() and thread.is_alive():", "if True:"),
    )


@canary("test_keeper_loss::test_a_callback_may_block_or_fail", dies_of="LeaseLost")
def callbacks_run_in_the_keeper() -> None:
    """on_lost is called by the keeper itself, and what it raises goes further."""
    rewrite(Keeper.call, ("if threading.current_thread() is not self._thread:", "if True:"))
    rewrite(LeaseBase._call_back, ("except Exception:", "except KeyError:"))


@canary("test_keeper_loss::test_the_body_of_a_block_is_cancelled_and_the_block_raises", dies_of="TimeoutError")
def the_body_goes_on() -> None:
    """The body of a block is not told that its lease is lost."""
    AsyncLease._interrupt = lambda self, task: None  # type: ignore[method-assign]


@canary("test_keeper_loss::test_the_callers_own_cancellation_is_not_mistaken_for_a_loss", dies_of="LeaseLost")
def every_cancellation_is_a_loss() -> None:
    """A block that is cancelled raises LeaseLost, whoever has cancelled it."""
    rewrite(
        AsyncLease.__aexit__,
        ("mine = False", "mine = isinstance(error, asyncio.CancelledError)"),
        ("lost = self._loss_on_exit()", "lost = self._loss_on_exit() or LeaseLost('a guess', LossReason.EXPIRED)"),
    )


@canary("test_keeper_loss::test_a_cancellation_that_comes_with_the_loss_goes_on", dies_of="LeaseLost")
def a_loss_swallows_other_cancellations() -> None:
    """Where the lease is lost, a cancellation by the caller is not counted."""
    rewrite(AsyncLease.__aexit__, ("task.uncancel() <= self._cancellations and ", "(task.uncancel() + 1) and "))


@canary(
    "test_keeper_loss::test_check_never_says_yes_past_the_deadline_in_a_blocked_loop",
    "test_keeper_loss::test_check_never_says_yes_past_the_deadline_while_the_keeper_starves",
    "test_keeper_loss::test_check_never_says_yes_after_a_stop",
)
def check_ignores_the_deadline() -> None:
    """check() believes what the keeper has found out, and looks at no clock."""
    rewrite(LeaseBase._notice, ("elif self._locker._fleet.clock() >= self._valid_until():", "elif False:"))


@canary(
    "test_keeper_loss::test_renewal_ends_with_the_thread_that_is_inside_a_block",
    "test_keeper_loss::test_renewal_ends_with_the_task_that_is_inside_a_block",
)
def renewal_outlives_its_owner() -> None:
    """The keeper does not ask whether anybody is left inside the block."""
    rewrite(Hold.renewable, ("if lease._owner_gone is not None and", "if False and"))
