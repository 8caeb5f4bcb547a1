"""Parameters, blocks and programs that end, and secrets."""

from __future__ import annotations

from typing import Any

from quorumlock import keeping, options
from quorumlock.aio.keeper import LoopDesk
from quorumlock.aio.lease import AsyncLease
from quorumlock.engines.redis import engine
from quorumlock.engines.redis.engine import RedisEngine
from quorumlock.engines.redis.entries import WhoAmI
from quorumlock.leasing import LeaseBase
from quorumlock.sync.keeper import Keeper
from quorumlock.sync.lease import Lease

from ..canaries import canary, rewrite


@canary(
    "test_parameters::test_a_bad_ttl_is_refused_at_the_call",
    "test_parameters::test_a_bad_extension_is_refused_and_changes_nothing",
    "test_parameters::test_a_bad_option_is_refused_at_the_call",
    dies_of="ValueError",
)
def not_a_number_passes() -> None:
    """NaN is neither below the least nor above the most."""
    rewrite(options.real, ("if not least <= value <= most:", "if value < least or value > most:"))


@canary("test_parameters::test_a_bad_name_is_refused_at_the_call")
def names_are_not_looked_at() -> None:
    """Any text is a name."""
    rewrite(options.text, ("if found := _FORBIDDEN.search(value):", "if False:"))


@canary("test_parameters::test_an_odd_name_is_a_name_like_any_other", dies_of="AcquireTimeout")
def names_are_made_alike() -> None:
    """Names that look alike are taken for the same."""
    rewrite(
        options.name, ('value = text("name", value)', 'value = unicodedata.normalize("NFKC", text("name", value))')
    )


@canary(
    "test_exit::test_the_bodys_own_error_wins[lost]",
    "test_exit::test_the_bodys_own_error_wins[over]",
    dies_of="LeaseLost",
)
def a_loss_masks_the_bodys_error() -> None:
    """A block whose lease is lost raises LeaseLost, whatever its body has raised."""
    rewrite(Lease.__exit__, ("if lost is not None and error is None:", "if lost is not None:"))
    rewrite(AsyncLease.__aexit__, ("if lost is not None and (mine or error is None):", "if lost is not None:"))


@canary("test_exit::test_the_bodys_own_error_wins[closed]", dies_of="ConfigurationError")
def a_failed_release_masks_the_bodys_error() -> None:
    """What the release raises at the end of a block goes further."""
    for leave in (Lease.__exit__, AsyncLease.__aexit__):
        rewrite(leave, ("if lost is None and error is None:", "if True:"))


@canary("test_exit::test_a_lost_lease_after_a_successful_body_raises")
def a_loss_is_not_told_at_the_end() -> None:
    """A block whose lease is lost ends as if nothing had happened."""
    rewrite(LeaseBase._loss_on_exit, ("self._notice()", "return None"))


@canary("test_exit::test_a_block_ends_quietly_and_soon_where_nobody_hears_its_release", dies_of="LeaseClosed")
def a_release_must_be_heard() -> None:
    """A release that no majority has answered is an error."""
    rewrite(LeaseBase._released, ("self._freed = True", "if not tally.won: raise LeaseClosed('not released')"))


@canary("test_exit::test_a_program_that_ends_with_a_held_lease_ends_at_once")
def the_keeper_outlives_the_program() -> None:
    """The keeper's thread keeps the interpreter from ending."""
    rewrite(Keeper._started, ("daemon=True", "daemon=False"))


@canary("test_exit::test_a_program_that_ends_inside_a_block_releases")
def a_failed_block_is_not_released() -> None:
    """Only a block that ends well releases its lock."""
    rewrite(Lease.__exit__, ("exit()\n        self.release()", "exit()\n        error is None and self.release()"))


@canary("test_exit::test_a_lease_outlives_its_event_loop_without_harm", dies_of="RuntimeError")
def a_closed_loop_is_called() -> None:
    """The loss of a lease is told to its event loop, also where that is closed."""
    rewrite(LoopDesk.in_loop, ("except RuntimeError:", "except KeyError:"))


@canary("test_exit::test_collecting_a_lease_sends_nothing_and_takes_no_time")
def collecting_a_lease_releases_it() -> None:
    """A lease that is garbage is given back, in whatever thread it is collected."""

    def release(lease: Any) -> None:
        lease.release()

    Lease.__del__ = release  # type: ignore[attr-defined]


@canary("test_exit::test_a_released_or_lost_lease_is_collected_in_silence")
def every_collection_is_warned_of() -> None:
    """Leases that were released are warned of, too."""
    rewrite(keeping.collected, ("if not grant.over:", "if True:"), ("if hold.keep_until != NOT_KEPT:", "if True:"))


@canary("test_secrets::test_a_password_is_used_and_never_shown")
def a_password_is_in_the_repr() -> None:
    """A Locker shows how it connects."""
    rewrite(RedisEngine.__repr__, ("{', '.join(self.labels)}", "{self._kwargs}"))


@canary("test_secrets::test_a_password_is_used_and_never_shown")
def a_token_is_shown_whole() -> None:
    """A lease shows by which token the nodes know it."""
    rewrite(LeaseBase.__repr__, ("token={self.token[:6]}…", "token={self.token}"))


@canary("test_secrets::test_a_password_that_was_forgotten_is_asked_for")
def a_server_that_wants_a_password_is_not_understood() -> None:
    """What it says before it hangs up is taken for an error like any other."""
    rewrite(WhoAmI.take, ('startswith("NOAUTH")', 'startswith("WHATEVER")'))


@canary(
    "test_secrets::test_a_wrong_password_is_never_shown",
    "test_secrets::test_a_wrong_password_is_never_shown_with_asyncio",
)
def an_error_shows_the_settings() -> None:
    """A connection that fails tells how it was tried."""
    from redis.exceptions import RedisError

    real, real_async = RedisEngine.open, RedisEngine.open_async

    def open_(self: RedisEngine, index: int) -> object:
        try:
            return real(self, index)
        except (RedisError, PermissionError) as error:
            raise RedisError(f"{error} {self._kwargs[index]}") from error

    async def open_async(self: RedisEngine, index: int) -> object:
        try:
            return await real_async(self, index)
        except (RedisError, PermissionError) as error:
            raise RedisError(f"{error} {self._kwargs[index]}") from error

    RedisEngine.open, RedisEngine.open_async = open_, open_async  # type: ignore[method-assign, assignment]


@canary("test_secrets::test_a_url_that_cannot_be_used_is_not_quoted[notaport]")
def a_url_is_quoted() -> None:
    """A URL that cannot be read is shown as it is."""
    rewrite(engine.redacted, ('scheme, _, rest = url.partition("://")', "return url"))
