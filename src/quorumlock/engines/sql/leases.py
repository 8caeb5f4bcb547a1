"""What a database answers to requests for one lock, and to renewals of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.requests import (
    READER,
    Acquire,
    Break,
    Confirm,
    Downgrade,
    Extend,
    Heal,
    Kept,
    Leave,
    Look,
    Release,
)
from ...core.votes import GRANTED, Answer, Cause, of_each
from .batches import Batch, Query, Visit
from .dialect import LOCKS
from .lock import AGREED, CHANGED, CLOSED, READERS, Lock, Waiter
from .rows import AT_ONCE, Decide, Rows

CHANNEL = "ql_"
"""What a Locker listens to begins with it."""
_TELL = "SELECT pg_notify(?, ?), pg_try_advisory_xact_lock_shared(CAST(? AS BIGINT))"
"""Who listens holds that lock alone, as a sign of life: nobody hears it if the lock can be had."""


class Leases:
    """The leases of one client in a database."""

    def __init__(self, rows: Rows, prefix: str, grace_ms: int) -> None:
        self._rows = rows
        self._dialect = rows.dialect
        self._prefix = prefix
        self._grace_ms = grace_ms
        self.deaf = not rows.dialect.announces
        """Does nobody tell us anything?"""
        now, big = self._dialect.now, self._dialect.big
        if self._dialect.announces:
            self._renew = f"""UPDATE {LOCKS} AS l
                SET until_us = GREATEST(l.until_us, {now} + v.ttl_us), version = l.version + 1, touched_us = {now}
                FROM (VALUES %s) AS v (name, token, ttl_us)
                WHERE l.name = v.name AND l.token = v.token AND l.until_us > {now} RETURNING l.name, l.version"""
            self._lease = f"(?, ?, CAST(? AS {big}))"
        else:
            self._renew = f"""UPDATE (%s) AS v STRAIGHT_JOIN {LOCKS} AS l ON l.name = v.name
                SET l.until_us = GREATEST(l.until_us, {now} + v.ttl_us), l.version = l.version + 1,
                    l.touched_us = {now}
                WHERE l.token = v.token AND l.until_us > {now}"""
            self._lease = f"SELECT CAST(? AS BINARY) AS name, ? AS token, CAST(? AS {big}) AS ttl_us"

    def acquire(self, request: Acquire) -> Visit[Answer]:
        def decide(lock: Lock) -> Answer:
            return lock.acquire(request, self.deaf, self._grace_ms)

        # A free lock that is refused is somebody's who was told, and may not have heard it.
        return (yield from self._changed(self._prefix + request.name, decide, None, guess=not request.shared))

    def _changed(self, name: str, decide: Decide, locker: str | None, *, guess: bool = False) -> Visit[Answer]:
        """Changes a lock, and tells whose turn it is then; those of this `locker` know by themselves.

        None: only if it was refused. Who is told and does not live is taken away, and the next is told.
        """
        answer = AGREED

        def deciding(lock: Lock) -> Answer:
            nonlocal answer
            answer = decide(lock)
            return answer

        def told_to(lock: Lock) -> list[Waiter]:
            silent = locker is None and (answer.vote is GRANTED or lock.token == CLOSED)
            return [] if silent else self._told(lock.next(), locker or "")

        _, lock, told = yield from self._rows.change(
            name, deciding, lambda lock: self._telling(told_to(lock)), guess=guess
        )
        given = answer
        while dead := [one.member for one, said in zip(told_to(lock), told, strict=False) if said.rows[0][1]]:
            _, lock, told = yield from self._rows.change(
                name, without(dead), lambda lock: self._telling(told_to(lock))
            )
        if locker and given is AGREED and any(one.locker != locker for one in lock.next()):
            return given._replace(place=1)
        return given

    def _told(self, waiters: Iterable[Waiter], locker: str) -> list[Waiter]:
        """Those of them who are told."""
        if not self._dialect.announces:
            return []
        return [one for one in waiters if not one.deaf and one.locker != locker]

    def _telling(self, waiters: Sequence[Waiter]) -> tuple[Query, ...]:
        told = []
        for one in waiters:
            locker, _, ticket = one.member.partition(":")
            told.append(Query(_TELL, (CHANNEL + locker, ticket, sign_of_life(locker))))
        return tuple(told)

    def confirm(self, request: Confirm) -> Visit[Answer]:
        """One node always agrees with itself: there is nothing to raise."""
        (row,) = yield from self._rows.read([self._prefix + request.name])
        lock = Lock(row)
        if not lock.has(request.token) or not request.fence <= request.granted == lock.fence:
            return CHANGED
        return Answer(GRANTED, Cause.AGREED, lock.fence)

    def extend(self, request: Extend) -> Visit[Answer]:
        """Those that are somebody's alone all at once; the others, and those that are gone, one by one."""
        alone = sorted({self._prefix + kept.name: kept for kept in request.leases if not reads(kept)}.items())
        renewed: set[tuple[str, str]] = set()
        for start in range(0, len(alone), AT_ONCE):
            renewed |= yield from self._renewed(alone[start : start + AT_ONCE])
        causes = []
        for kept in request.leases:
            if (kept.name, kept.token) in renewed:
                causes.append(Cause.AGREED)
            else:
                causes.append((yield from self._renew_one(kept)))
        return of_each(causes)

    def _renewed(self, leases: Sequence[tuple[str, Kept]]) -> Visit[set[tuple[str, str]]]:
        """Renews what is ours; gives what certainly was."""
        joint = ", " if self._dialect.announces else " UNION ALL "
        values = []
        for name, kept in leases:
            values += [self._dialect.key(name), kept.token, kept.ttl_ms * 1000]
        text = self._renew % joint.join([self._lease] * len(leases))
        (result,) = yield Batch((Query(text, tuple(values)),))
        if self._dialect.announces:
            versions = {str(name): version for name, version in result.rows}
            for name, kept in leases:
                if isinstance(version := versions.get(name), int):
                    self._rows.renewed(name, kept.token, version)
            return {(kept.name, kept.token) for name, kept in leases if name in versions}
        for name, _ in leases:
            self._rows.forget(name)
        return {(kept.name, kept.token) for _, kept in leases} if result.count == len(leases) else set()

    def _renew_one(self, kept: Kept) -> Visit[Cause]:
        causes: list[Cause] = []

        def decide(lock: Lock) -> Answer:
            causes[:] = [lock.renew(kept)]
            return AGREED

        yield from self._rows.change(self._prefix + kept.name, decide)
        return causes[0]

    def heal(self, request: Heal) -> Visit[Answer]:
        """Here no node forgets: what is absent was released, broken or is over, and stays so."""
        return (yield from self.extend(Extend(request.leases)))

    def release(self, request: Release) -> Visit[Answer]:
        name = self._prefix + request.name
        guess = not request.stay_ms  # one that is over stays open, and memory does not know that it is
        if not request.wake:
            answer, *_ = yield from self._rows.change(name, lambda lock: lock.release(request), guess=guess)
            return answer
        return (yield from self._changed(name, lambda lock: lock.release(request), request.locker, guess=guess))

    def leave(self, request: Leave) -> Visit[Answer]:
        def decide(lock: Lock) -> Answer:
            lock.leave(request.ticket)
            return AGREED

        return (yield from self._changed(self._prefix + request.name, decide, ""))

    def downgrade(self, request: Downgrade) -> Visit[Answer]:
        def decide(lock: Lock) -> Answer:
            return lock.downgrade(request.token, request.reader, request.ttl_ms, request.ticket)

        return (yield from self._changed(self._prefix + request.name, decide, ""))

    def break_(self, request: Break) -> Visit[Answer]:
        return (
            yield from self._changed(
                self._prefix + request.name, lambda lock: lock.break_(request.fence, request.only), ""
            )
        )

    def look(self, request: Look) -> Visit[Answer]:
        (row,) = yield from self._rows.read([self._prefix + request.name])
        lock = Lock(row)
        if lock.token and not (request.shared and lock.token == READERS):
            return lock.held()
        return Answer(GRANTED, Cause.AGREED, lock.fence)


def without(members: Sequence[str]) -> Decide:
    """Takes the tickets of those away who do not hear us."""

    def decide(lock: Lock) -> Answer:
        for member in members:
            lock.leave(member)
        return AGREED

    return decide


def sign_of_life(locker: str) -> int:
    """The key of the lock that a Locker holds while it listens: 64 bits, with a sign."""
    return int.from_bytes(bytes.fromhex(locker.ljust(16, "0")[:16]), signed=True)


def reads(kept: Kept) -> bool:
    return kept.token.startswith(READER)
