"""Trying again: until it is ours, until time is up, or until nobody can tell.

Held and broken are different things to wait for. With `timeout=None` a held lock is waited for as long as it
takes, but a fleet without a majority only for `patience` seconds.
"""

from __future__ import annotations

from ..errors import AcquireTimeout, LeaseLost, LockHeld, LossReason, NoQuorum, NotAcquired
from ..retry import Retry
from .effects import Sleep, Steps
from .fleet import Fleet
from .redlock import Grant, Refusal, acquire, release
from .renewal import Extension, extend, pause_before
from .votes import Cause, Tally


def acquire_within(
    fleet: Fleet, name: str, ttl: float, timeout: float | None, retry: Retry, patience: float
) -> Steps[Grant]:
    """Attempts until granted; raises LockHeld or AcquireTimeout when busy, NoQuorum when broken."""
    started_at = fleet.clock()
    broken_since: float | None = None
    attempt = 0
    while True:
        outcome = yield from acquire(fleet, name, ttl)
        if outcome.won:  # no call here: an interrupt would find a lock that nobody knows of
            outcome.asked_at = started_at
            return outcome
        attempt += 1
        now = fleet.clock()
        if outcome.busy:
            broken_since = None
        elif broken_since is None:
            broken_since = now
        delay = retry.delay(attempt, fleet.random)
        if delay is None:
            raise given_up(name, outcome, f"after {attempt} attempts", timeout)
        if timeout is not None:
            left = started_at + timeout - now
            if left <= 0:
                raise given_up(name, outcome, f"within {timeout:g} s", timeout)
            delay = min(delay, left)  # the last attempt is made when time is up, not before
        elif broken_since is not None and now - broken_since + delay >= patience:
            raise given_up(name, outcome, f"for {patience:g} s (patience)", timeout)
        yield Sleep(delay)


def try_acquire(fleet: Fleet, name: str, ttl: float) -> Steps[Grant | None]:
    """One attempt: None when it is held; NoQuorum when nobody can tell."""
    outcome = yield from acquire(fleet, name, ttl)
    if outcome.won:
        return outcome
    if outcome.busy:
        return None
    raise given_up(name, outcome, "at once", 0)


def given_up(name: str, outcome: Refusal, how: str, timeout: float | None) -> NotAcquired:
    """The error that says whether the lock was busy or the fleet broken."""
    if not outcome.busy:
        why = f"{outcome.why}; " if outcome.why else ""
        return NoQuorum(
            f"no majority could decide on {name!r} {how}: {why}{outcome.tally.describe()}{remedies(outcome.tally)}",
            outcome.tally,
            outcome.linger,
        )
    if timeout == 0:
        return LockHeld(f"{name!r} is held: {outcome.tally.describe()}", outcome.tally, outcome.linger)
    return AcquireTimeout(
        f"{name!r} was held, and not obtained {how}: {outcome.tally.describe()}",
        outcome.tally,
        outcome.linger,
    )


REMEDIES = {
    "Nodes in quarantine have restarted, lost their memory or changed their role, and come back by themselves; "
    "a fleet that was never in use is made ready at once by `quorumlock init`": {Cause.QUARANTINE},
    "See whether the nodes that do not answer run, and can be reached from here within node_timeout": {
        Cause.SILENT,
        Cause.UNREACHABLE,
        Cause.DISCONNECTED,
        Cause.LEFT_OUT,
    },
}


def remedies(tally: Tally) -> str:
    """What can be done about nodes that could not decide."""
    causes = {answer.cause for answer in tally.answers if answer is not None}
    return "".join(f". {remedy}" for remedy, against in REMEDIES.items() if causes & against)


def extend_or_lose(fleet: Fleet, grant: Grant, ttl: float) -> Steps[Extension]:
    """Rounds of renewal while validity lasts; raises LeaseLost, with the reason the nodes gave."""
    fate = LossReason.EXPIRED
    while True:
        extension = yield from extend(fleet, grant, ttl)
        if extension.valid_until is not None:
            return extension
        reason = extension.reason
        if reason is None:
            left = grant.valid_until - fleet.clock()
            pause = pause_before(fleet, fleet.node_timeout, left)
            fate = LossReason.UNREACHABLE
            if pause < left:
                yield Sleep(pause)
                continue
        if reason in (None, LossReason.EXPIRED):
            reason = fate
        grant.valid_until = min(grant.valid_until, fleet.clock())
        if any(extension.tally.granted()):
            # Some node has just renewed what is lost: better to free it than to let it run for a ttl.
            yield from release(fleet, grant.name, grant.token, ttl, grant.route)
        raise LeaseLost(f"{grant.name!r} is lost ({reason.value}): {extension.tally.describe()}", reason)
