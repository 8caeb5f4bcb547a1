"""What a forked child takes for its own, and what a loop takes from another."""

from __future__ import annotations

from quorumlock.process import Process
from quorumlock.runners.aio import AioRunner
from quorumlock.runners.cables import CableRunner
from quorumlock.sync.keeper import Keeper

from ..canaries import canary, rescript, rewrite


@canary("test_fork::test_a_child_does_not_own_its_parents_lease", "test_fork::test_a_child_of_an_asyncio_program")
def a_fork_is_not_noticed() -> None:
    """A child takes the leases of its parent for its own."""
    rewrite(Process.forked.__func__, ("cls.generation += 1", "pass"))  # type: ignore[attr-defined]


@canary(
    "test_fork::test_a_childs_own_locks_use_its_own_connections",
    "test_fork::test_parent_and_child_lock_at_the_same_time",
    dies_of="NoQuorum",
)
def a_child_uses_its_parents_connections() -> None:
    """Both speak on the same sockets, and each reads what the other was told."""
    rewrite(CableRunner.forget, ("self._free = deque()", "pass"))


@canary(
    "test_fork::test_a_child_does_not_renew_what_its_parent_held", "test_fork::test_a_fork_in_the_midst_of_renewal"
)
def a_child_renews_what_its_parent_held() -> None:
    """The child's keeper goes on with the leases of the parent's."""
    rewrite(
        Keeper.forget,
        ("self.roster.forget()", "old = self.roster"),
        ("self._begin()", "self._begin()\n    self.roster = old\n    old.wake_at = NEVER"),
    )


@canary(
    "test_fork::test_a_lease_of_the_child_dies_with_it",
    "test_parameters::test_no_key_is_immortal_whatever_its_ttl[0.1]",
    dies_of="AcquireTimeout",
)
def keys_are_immortal() -> None:
    """The lock is set without a time to live: it stays if its holder dies."""
    rescript("ACQUIRE", "'NX', 'PX', ARGV[2])", "'NX')")


@canary(
    "test_fork::test_a_locker_serves_one_loop_after_another",
    "test_identity::test_one_async_locker_serves_two_loops_at_a_time",
    dies_of="NoQuorum RuntimeError BrokenBarrierError",
)
def connections_outlive_their_loop() -> None:
    """A new event loop uses the connections of the old one."""
    rewrite(AioRunner._board, ("self._boards.get(loop)", "next(iter(self._boards.values()), None)"))
