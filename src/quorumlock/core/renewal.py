"""Extend and heal: one lease for its holder, or many at once for the keeper.

Rules, beside those of `redlock.py`:

1. A majority must say yes before the old validity ends; the lease then lives `ttl` from before the request.
2. No request takes time away from a node: what is executed late, or twice, undoes nothing. A holder that wants its
   lease to be shorter counts on less; the nodes follow when the time they were told before is over.
3. The keeper stands back while the holder extends, and what it hears counts only if the holder has not begun to
   extend meanwhile.
4. Healing follows a successful extension and never counts towards it. What was released while it was being healed
   is released again, behind the healing.
5. Nor does it count towards the next one. The healing may have come late:

       nodes 1 and 2 renew, 0 has forgotten · the lock is deleted on 1 · node 0 is healed · 0 and 2 renew

   It was gone from a majority, and stays lost. So a node that was healed is on probation, until it is heard in a
   round in which a majority without it has renewed. (For a node in quarantine that is over long before it votes.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import LossReason
from .effects import Round, Route, Steps
from .fleet import Fleet
from .owed import remember
from .redlock import Grant
from .requests import Extend, Heal, Kept, Release, Request
from .validity import valid_until
from .votes import Answer, Cause, Tally


@dataclass(slots=True)
class Extension:
    """What one round of extending came to: `reason` set means lost; neither set means: nobody can tell."""

    tally: Tally
    valid_until: float | None = None
    reason: LossReason | None = None
    healed: tuple[str, ...] = ()
    outdated: bool = False
    """Is it about the lease as it was, before its holder began to extend it?"""


def extend(fleet: Fleet, grant: Grant, ttl: float) -> Steps[Extension]:
    """One round for its holder; heals nodes that have forgotten the lock if a majority still has it."""
    grant.extensions += 1  # first of all: from here on the keeper, in another thread, sets nothing
    started_at = fleet.clock()
    if started_at >= grant.valid_until:
        return Extension(fleet.tally(), reason=LossReason.EXPIRED)
    until = valid_until(started_at, ttl, fleet.drift)
    before = grant.valid_until
    request = Extend((kept(grant, ttl),))
    last, tally = grant.heard, Tally(fleet.nodes, fleet.majority, patient=bool(grant.on_probation))
    grant.heard = tally
    # Nodes do not shorten what they were told before, the last time perhaps by the keeper, a moment ago.
    longest = max(ttl, grant.ttl) + grant.lock_delay
    grant.expires_at = max(grant.expires_at, started_at + longest)
    grant.extending = True
    try:
        yield Round(fleet.to_all(request), tally, fleet.timeout(ttl), grant.route)
    finally:
        grant.extending = False
    extension = judged(fleet, tally, before, until, fleet.clock(), grant.on_probation)
    if extension.valid_until is not None:
        grant.valid_until = until
        grant.ttl = ttl
        if last is not None:
            _hear_the_last(tally, last)
        yield from heal(fleet, [grant], [extension], grant.route)
    return extension


def renew(fleet: Fleet, grants: Sequence[Grant]) -> Steps[list[Extension]]:
    """One round for many leases of a keeper: one message to each node, and a second one where some have to heal.

    It waits for every node that is not suspected to be down: nobody waits for the keeper, and a node that is only
    slow is healed like the others.
    """
    started_at = fleet.clock()
    befores = [grant.valid_until for grant in grants]
    begun = [grant.extensions for grant in grants]
    ttls = [grant.ttl for grant in grants]
    tally = Tally(fleet.nodes, fleet.majority, patient=True)
    request = Extend(tuple(kept(grant, grant.ttl) for grant in grants))
    route = Route()
    yield Round(fleet.to_all(request), tally, fleet.timeout(min(ttls)), route)
    tally.freeze()  # another thread may read late answers, while we judge those we have
    alike = not any(answer is not None and answer.each for answer in tally.answers)
    extensions = []
    now = fleet.clock()
    for i, (grant, before, ttl) in enumerate(zip(grants, befores, ttls, strict=True)):
        until = valid_until(started_at, ttl, fleet.drift)
        extension = judged(fleet, tally if alike else tally.part(i), before, until, now, grant.on_probation)
        if grant.extensions != begun[i]:
            # What was heard is not about the lease as it is now: it neither counts, nor is anything healed for it.
            extension = Extension(fleet.tally(), valid_until=grant.valid_until, outdated=True)
        elif extension.valid_until is not None:
            grant.valid_until = until
        extensions.append(extension)
    yield from heal(fleet, grants, extensions, route)
    return extensions


def pause_before(fleet: Fleet, usual: float, left: float) -> float:
    """How long to wait before asking again, about as `usual`; there must be time to do so more than once."""
    return min(usual * (0.5 + fleet.random()), max(left / 4, 0.002))


def kept(grant: Grant, ttl: float) -> Kept:
    return Kept(grant.name, grant.token, round((ttl + grant.lock_delay) * 1000), grant.fence)


def judged(
    fleet: Fleet, tally: Tally, before: float, until: float, now: float, on_probation: frozenset[int]
) -> Extension:
    """What the votes on one lease mean, if it was valid until `before` and would now be until `until`."""
    if now >= before:
        return Extension(tally, reason=LossReason.EXPIRED)
    granted = [node for node, _ in tally.granted()] if on_probation else []  # once: late votes may still come
    unsure = sum(node in on_probation for node in granted)
    if len(granted) - unsure >= tally.needed if on_probation else tally.won:
        return Extension(tally, valid_until=until)
    ended = tally.caused(Cause.ENDED)
    gone = len(tally.caused(Cause.HELD) + tally.caused(Cause.ABSENT) + tally.caused(Cause.OTHER_KIND) + ended)
    left = len(fleet.nodes) - gone - unsure
    if left < fleet.majority:
        if ended:
            return Extension(tally, reason=LossReason.SESSION_ENDED)
        # By our clock it had time left: if nobody has it now, somebody forced it open.
        return Extension(tally, reason=LossReason.TAKEN if tally.caused(Cause.HELD) else LossReason.BROKEN)
    closed = sum(_closed_until(answer, now) >= before for answer in tally.answers)
    if left - closed < fleet.majority:
        return Extension(tally, reason=LossReason.UNREACHABLE)
    return Extension(tally)


def _closed_until(answer: Answer | None, now: float) -> float:
    """Until when a node votes for nobody, if it is in quarantine."""
    if answer is None or answer.cause not in (Cause.QUARANTINE, Cause.FORGOTTEN):
        return now
    return now + answer.wait_ms / 1000


def heal(fleet: Fleet, grants: Sequence[Grant], extensions: Sequence[Extension], route: Route) -> Steps[None]:
    """Gives locks again to the nodes that said, in a round that succeeded, that they do not have them."""
    forgotten: list[list[int]] = [[] for _ in fleet.nodes]
    """For each node, the leases it has forgotten."""
    for i, (grant, extension) in enumerate(zip(grants, extensions, strict=True)):
        if extension.valid_until is not None and not grant.over and fleet.clock() < grant.valid_until:
            tally = extension.tally
            absent = _absent(tally)
            if absent or grant.on_probation:
                sure = {node for node, _ in tally.granted()}.union(tally.caused(Cause.QUARANTINE))
                grant.on_probation = (grant.on_probation - sure) | frozenset(absent)
            for node in absent:
                forgotten[node].append(i)
                grant.healed = True
    if not any(forgotten):
        return
    requests: list[Request | None] = [
        Heal(tuple(kept(grants[i], grants[i].ttl) for i in mine)) if mine else None for mine in forgotten
    ]
    tally = _of_some(fleet, requests)
    timeout = fleet.timeout(min(grant.ttl for grant in grants))
    yield Round(requests, tally, timeout, route, everyone=True)
    for node, mine in enumerate(forgotten):
        answer = tally.answers[node]
        for place, i in enumerate(mine):
            if route.taken is not None:
                grants[i].route = route  # its release has to travel behind the healing
            if answer is not None and answer.of(place) is Cause.AGREED:
                extensions[i].healed += (fleet.nodes[node],)
    for i, grant in enumerate(grants):
        if grant.over and any(i in mine for mine in forgotten):
            release = Release(grant.name, grant.token)
            requests = [release if i in mine else None for mine in forgotten]
            started_at, longest = fleet.clock(), grant.ttl + grant.lock_delay
            heard = _of_some(fleet, requests)
            try:
                yield Round(requests, heard, timeout, route, everyone=True)
            finally:
                remember(fleet, requests, heard, longest, grant.expires_at, route, started_at)


def _hear_the_last(tally: Tally, last: Tally) -> None:
    """A node that always is the last to answer is heard one round later: else it would never be healed."""
    for node in _absent(last):
        answer = last.answers[node]
        if tally.answers[node] is None and answer is not None:
            tally.cast(node, answer)


def _absent(tally: Tally) -> list[int]:
    """Nodes that do not have the lock, and may be given it."""
    return tally.caused(Cause.ABSENT) + tally.caused(Cause.FORGOTTEN)


def _of_some(fleet: Fleet, requests: Sequence[Request | None]) -> Tally:
    """A tally that waits for all nodes that are asked."""
    asked = sum(request is not None for request in requests)
    return Tally(fleet.nodes, asked, asked=asked, patient=True)
