"""Waiting for a lock: until it is ours, until time is up, or until nobody can tell.

Held and broken are different things to wait for. With `timeout=None` a held lock is waited for as long as it
takes, but a fleet without a majority only for `patience` seconds.

Nothing is polled that can be announced:

1. The first attempt is a plain one. Who is refused lets the nodes announce to its room (once for all waits of a
   process), makes a ticket, and asks again: whoever refuses from then on has its ticket in the queue.
2. The watch is armed before every attempt, so what is announced during it counts.
3. Who is announced by a majority asks at once, and by fewer nodes a moment later.
4. An expiry is announced by nobody. Nodes say what is left of the holder's time: the first in the queue asks when
   it is over, the others stand back by their place.
5. Announcements can be lost. So everybody asks now and then (the *poll*), the first in the queue most often; that
   also keeps its ticket good.
6. A split vote is announced by nobody: those who took part ask again after a short, random time.
7. Who leaves takes its ticket off all nodes, and they tell the next if the lock is free. Who has obtained the lock
   keeps its ticket until the release. Who cannot reach a majority withdraws, too: it would keep others waiting.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import AcquireTimeout, LeaseLost, LockHeld, LossReason, NoQuorum, NotAcquired
from ..retry import Retry
from .effects import Listen, Round, Route, Sleep, Steps, Wait
from .fleet import Fleet
from .redlock import ALONE, Grant, Kind, Refusal, acquire, release_grant
from .renewal import Extension, extend, pause_before
from .requests import Ticket
from .room import Room, Watch
from .votes import Cause, Tally

LINGER = 0.003
"""How long a majority of announcements is waited for after the first of them."""
POLL_FIRST = 1.0
POLL_MOST = 20.0
TICKET_LASTS = 3 * POLL_MOST
SPLIT_FIRST = 0.002
SPLIT_MOST = 0.2
YIELDS = 0.3
"""How likely it is that somebody who is the first for some nodes, and not for others, gives up its place."""
STAND_BACK = 0.02
"""How much later each of the queue asks for a lock whose time is over than the one in front of it."""
NAP = 60.0
"""Nobody sleeps longer without looking at the clock."""


class Wish:
    """What somebody wants, and how long to wait for it."""

    __slots__ = (
        "adaptive", "card", "fair", "kind", "lock_delay", "name", "on_wait", "patience", "retry", "serial",
        "timeout", "ttl",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        ttl: float,
        timeout: float | None,
        retry: Retry,
        patience: float,
        *,
        fair: bool = False,
        lock_delay: float = 0.0,
        adaptive: bool = False,
        kind: Kind = ALONE,
        card: str = "",
        on_wait: Callable[[float | None, int | None, int], object] | None = None,
        serial: int = 0,
    ) -> None:
        self.name = name
        self.ttl = ttl
        self.timeout = timeout
        self.retry = retry
        self.patience = patience
        self.fair = fair
        """Never overtake who came before."""
        self.lock_delay = lock_delay
        self.kind = kind
        self.card = card
        self.adaptive = adaptive
        """Poll a lock that is held as seldom as seems right, instead of as `retry` says."""
        self.on_wait = on_wait
        """Called once, if it has to wait: the seconds left to the holder, its fence, and how many are ahead."""
        self.serial = serial

    def waits(self, remaining: float | None, fence: int | None, ahead: int) -> None:
        """It has to wait: tells whoever wants to know, once."""
        tell, self.on_wait = self.on_wait, None
        if tell is not None:
            tell(remaining, fence, ahead)

    @property
    def alone(self) -> bool:
        """Does it go to the nodes by itself, whoever else of this process does?"""
        return self.fair or self.timeout == 0


def acquire_within(
    fleet: Fleet, name: str, ttl: float, timeout: float | None, retry: Retry, patience: float
) -> Steps[Grant]:
    """As `obtain`, for somebody who is alone in the world."""
    room = Room()
    room.deaf = True
    return (yield from obtain(fleet, room, Wish(name, ttl, timeout, retry, patience)))


def obtain(fleet: Fleet, room: Room, wish: Wish) -> Steps[Grant]:
    """Attempts until granted; raises LockHeld or AcquireTimeout when busy, NoQuorum when broken."""
    watch = Watch(wish.name)
    grant: Grant | None = None
    try:
        if not wish.alone:
            room.enter(watch)
        grant = yield from _insist(fleet, room, wish, watch)
        grant.room = room
        room.granted(grant)
        room.leave(watch)
        return grant
    except BaseException:
        room.leave(watch)
        if grant is not None:
            grant.over = True
            room.forget(grant)
            undoing = wish.kind.undoing(wish.name, grant.token)._replace(wake=True, ticket=grant.ticket)
            yield from release_grant(fleet, grant, undoing)
        if watch.queued:
            yield from _withdraw(fleet, wish, watch)
        raise


def _insist(fleet: Fleet, room: Room, wish: Wish, watch: Watch) -> Steps[Grant]:
    name, timeout, retry = wish.name, wish.timeout, wish.retry
    started_at = fleet.clock()
    until = None if timeout is None else started_at + timeout
    ticket: Ticket | None = None
    broken_since: float | None = None
    attempt = polls = splits = 0
    while True:
        watch.arm()
        if not wish.alone and (not room.contends(watch) or name in room.held):
            yield from _stand_in_line(fleet, room, wish, watch, started_at, until)
            broken_since = room.broken.get(name)
        attempt += 1
        pause = retry.delay(attempt, fleet.random)
        strict = wish.fair or room.polite(name)
        if ticket is None and strict and (room.ears or room.deaf):
            ticket = _ticket(fleet, room, wish, watch, started_at, pause)
        shown = ticket if broken_since is None else None
        watch.queued = watch.queued or (shown is not None and (room.deaf or bool(room.ears)))
        watch.route = Route()
        outcome = yield from acquire(
            fleet, name, wish.ttl, lock_delay=wish.lock_delay, ticket=shown, strict=strict, route=watch.route,
            kind=wish.kind, card=wish.card,
            ears=range(len(fleet.nodes)) if room.deaf else room.ears,
        )  # fmt: skip
        if outcome.won:  # no call here: an interrupt would find a lock that nobody knows of
            outcome.asked_at = started_at
            outcome.serial = wish.serial
            return outcome
        if shown is not None:
            ticket = shown._replace(again=True)
            if strict:
                room.stood_back(name)
        now = fleet.clock()
        if outcome.busy:
            broken_since = None
            room.broken.pop(name, None)
        else:
            broken_since = _broken(room, wish, broken_since, now)
            if watch.queued:
                yield from _withdraw(fleet, wish, watch)
        if pause is None:
            raise given_up(name, outcome, f"after {attempt} attempts", timeout)
        if until is not None and until <= now:
            raise given_up(name, outcome, f"within {timeout:g} s" if timeout else "at once", timeout)
        if outcome.busy:
            if wish.on_wait is not None:
                wish.waits(outcome.wait_ms / 1000 or None, outcome.holder, outcome.place)
            if not room.deaf and (ticket is None or not (watch.queued or room.ears)):  # nobody would tell us
                # First: who waits has subscriptions made, and is called by those that come too late for this.
                ticket = ticket or _ticket(fleet, room, wish, watch, started_at, pause)
                yield Listen(
                    room, min(fleet.node_timeout if room.ears else 10 * fleet.node_timeout, _left(until, now))
                )
                if room.ears:
                    attempt -= 1
                    continue
            if shown is None and ticket is not None and room.ears:  # a majority is back, and does not know of us
                attempt -= 1
                continue
            if wish.adaptive and watch.queued:
                pause = _poll(polls, outcome.place, fleet)
                polls += 1
            if strict and watch.queued and _disputed(fleet, outcome) and fleet.random() < YIELDS:
                yield from _withdraw(fleet, wish, watch)
                pause = min(pause, SPLIT_MOST * (0.5 + fleet.random()))
            if outcome.split:
                pause = min(pause, min(SPLIT_MOST, SPLIT_FIRST * 2**splits) * (0.5 + fleet.random()))
                splits = min(splits + 1, 10)
            elif watch.queued:
                splits = 0
                pause = min(pause, outcome.wait_ms / 1000 + 0.002 + STAND_BACK * (outcome.place + fleet.random()))
        elif until is None and broken_since is not None and now - broken_since + pause >= wish.patience:
            raise given_up(name, outcome, f"for {wish.patience:g} s (patience)", timeout)
        if wish.on_wait is not None:
            wish.waits(None, None, 0)
        yield Wait(watch, min(pause, _left(until, now), NAP))
        if watch.rung and not watch.called:
            yield Wait(watch, LINGER, fleet.majority)


def _stand_in_line(
    fleet: Fleet, room: Room, wish: Wish, watch: Watch, started_at: float, until: float | None
) -> Steps[None]:
    """Waits while others of this room are before us, or have the lock."""
    while True:
        now = fleet.clock()
        contends = room.contends(watch)
        held_until = room.holds(wish.name, now)
        since = None if held_until else room.broken.get(wish.name)
        if since is not None and until is None and now - max(since, started_at) >= wish.patience:
            # Whoever stood before us has tried all the while: if each tried once more, the last would be told late.
            outcome = Refusal(fleet.tally(), busy=False, linger=False, why=f"no majority for {now - since:.1f} s")
            raise given_up(wish.name, outcome, f"for {wish.patience:g} s (patience)", None)
        if contends and not held_until:
            return
        if until is not None and now >= until:
            why = "" if since is None else f"no majority for {now - since:.1f} s"
            outcome = Refusal(fleet.tally(), busy=since is None, linger=False, why=why)
            how = f"within {wish.timeout:g} s (this process has it, or others of it wait before us)"
            raise given_up(wish.name, outcome, how, wish.timeout)
        if wish.on_wait is not None:
            held = room.held.get(wish.name) if held_until else None
            wish.waits(held_until - now if held_until else None, None if held is None else held.fence, 0)
        yield Wait(watch, min(held_until - now if contends else NAP, _left(until, now), NAP))
        watch.arm()


def _ticket(fleet: Fleet, room: Room, wish: Wish, watch: Watch, started_at: float, pause: float | None) -> Ticket:
    """A place in the queue, by when we came."""
    who, at, where = fleet.new_token("").partition("@")
    id_ = f"{who[:16]}{at}{where}{'~r' if wish.kind.word == 'read' else ''}"
    order_us = int((fleet.wall() - (fleet.clock() - started_at)) * 1_000_000)
    room.expect(watch, id_)
    watch.member = f"{room.id}:{id_}"
    return Ticket(id_, room.id, order_us, round(max(TICKET_LASTS, 2 * (pause or 0.0)) * 1000))


def _withdraw(fleet: Fleet, wish: Wish, watch: Watch) -> Steps[None]:
    """Takes our ticket off all nodes; returns when a majority has answered.

    To go without an answer would be to leave it where a connection has ended meanwhile, and is made anew.
    """
    requests, route = fleet.to_all(wish.kind.leaving(watch.name, watch.member)), watch.route or Route()
    try:
        yield Round(requests, _any_answer(fleet), fleet.node_timeout, route, everyone=True)
    except BaseException:
        # Interrupted before all of it was sent, perhaps. Saying it twice does no harm.
        yield Round(requests, _any_answer(fleet), fleet.node_timeout, route, everyone=True)
        raise
    finally:
        watch.queued = False


def _any_answer(fleet: Fleet) -> Tally:
    return Tally(fleet.nodes, fleet.majority, any_answer=True)


def _broken(room: Room, wish: Wish, since: float | None, now: float) -> float:
    if since is None:
        since = now if wish.alone else room.broken.setdefault(wish.name, now)
    return since


def _disputed(fleet: Fleet, outcome: Refusal) -> bool:
    """Is it free, but do nodes not agree on whose turn it is?

    A ticket that was lost and shown again, long after it was made, does not stand at the same place everywhere.
    Each node then keeps the lock for its own head, and nobody could have a majority.
    """
    return any(outcome.tally.granted()) and outcome.wait_ms <= fleet.node_timeout * 1000


def _left(until: float | None, now: float) -> float:
    return NAP if until is None else until - now


def _poll(polls: int, place: int, fleet: Fleet) -> float:
    """How long to trust in announcements: the longer, the more wait in front, and the longer we have waited.

    At most 3 s for the first of the queue: they are those who notice that one in front of them does not come.
    """
    usual = POLL_FIRST * (1 + max(0, place - 2)) * min(3.0, 1.25 ** min(polls, 10))
    return min(POLL_MOST, usual) * (0.75 + 0.25 * fleet.random())


def try_acquire(
    fleet: Fleet,
    name: str,
    ttl: float,
    room: Room | None = None,
    *,
    fair: bool = False,
    lock_delay: float = 0.0,
    kind: Kind = ALONE,
    card: str = "",
) -> Steps[Grant | None]:
    """One attempt: None when it is held; NoQuorum when nobody can tell."""
    if room is not None and room.holds(name, fleet.clock()):
        return None
    outcome = yield from acquire(fleet, name, ttl, strict=fair, lock_delay=lock_delay, kind=kind, card=card)
    if outcome.won:
        if room is not None:
            try:
                outcome.room = room
                room.granted(outcome)
            except BaseException:  # an interrupt, before anybody could have released it
                outcome.over = True
                room.forget(outcome)
                undoing = kind.undoing(name, outcome.token)._replace(wake=True)
                yield from release_grant(fleet, outcome, undoing)
                raise
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
    "Correct the user or the password in the URL": {Cause.DENIED},
}


def remedies(tally: Tally) -> str:
    """What can be done about nodes that could not decide."""
    causes = {answer.cause for answer in tally.answers if answer is not None}
    return "".join(f". {remedy}" for remedy, against in REMEDIES.items() if causes & against)


def extend_or_lose(
    fleet: Fleet, grant: Grant, ttl: float, on_doubt: Callable[[Tally], object] | None = None
) -> Steps[Extension]:
    """Rounds of renewal while validity lasts; raises LeaseLost, with the reason the nodes gave.

    `on_doubt` is called after each round in which nobody could tell.
    """
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
                if on_doubt is not None:
                    on_doubt(extension.tally)
                yield Sleep(pause)
                continue
        if reason in (None, LossReason.EXPIRED):
            reason = fate
        grant.valid_until = min(grant.valid_until, fleet.clock())
        if any(extension.tally.granted()):
            # Some node has just renewed what is lost: better to free it than to let it run for a ttl.
            yield from release_grant(fleet, grant)
        raise LeaseLost(f"{grant.name!r} is lost ({reason.value}): {extension.tally.describe()}", reason)
