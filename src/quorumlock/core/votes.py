"""Votes, and the tally that decides as early as arithmetic allows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


class Vote(enum.Enum):
    GRANTED = "granted"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # a timeout, an error: it may have been executed


GRANTED, REFUSED, UNKNOWN = Vote  # names that cost one look-up where a vote is cast


class Cause(enum.Enum):
    """Why a node voted as it did. The text completes the sentence 'node X …'."""

    AGREED = "agreed"
    HELD = "says it is held"
    ABSENT = "does not have the lock"
    CHANGED = "has granted it again since"
    ENDED = "has ended the session of this client"
    QUARANTINE = "is in quarantine"
    FORGOTTEN = "has forgotten the lock, and is in quarantine"
    MISFIT = "does not fit this client"
    UNSUPPORTED = "cannot be used"
    STRANGER = "does not know this client's fleet"
    OTHER_KIND = "has a key of another kind under this name"
    SILENT = "did not answer in time"
    UNREACHABLE = "cannot be reached"
    DENIED = "does not let us in"
    DISCONNECTED = "closed the connection"
    FAILED = "answered with an error"
    LEFT_OUT = "was left out, having failed a moment ago"


UNABLE = frozenset(
    {
        Cause.QUARANTINE,
        Cause.FORGOTTEN,
        Cause.MISFIT,
        Cause.UNSUPPORTED,
        Cause.OTHER_KIND,
        Cause.STRANGER,
        Cause.SILENT,
        Cause.UNREACHABLE,
        Cause.DENIED,
        Cause.DISCONNECTED,
        Cause.FAILED,
        Cause.LEFT_OUT,
    }
)
"""Causes that say nothing about the lock: the node was not able to decide."""

UNSENT = frozenset({Cause.LEFT_OUT, Cause.UNREACHABLE, Cause.DENIED})
"""Causes that say that the request never left, or was not even looked at."""


class Member(NamedTuple):
    """The fleet that a node is taken from, if it is given to the one that asks.

    `mine`: it belongs to the one that asks already; then `fleet` is what it was taken from before, if it is closed.
    """

    fleet: str
    nodes: int
    mine: bool = False
    closed: bool = False


class Sight(NamedTuple):
    """What a node holds under a name."""

    value: str
    left_ms: int
    fence: int
    since_us: int
    start: str
    """Of the token that the rest is about."""
    card: str
    readers: tuple[tuple[str, int], ...]
    """Tokens of those who share it, each with the ms that are left."""
    waiters: tuple[str, ...]


class Noted(NamedTuple):
    """Something that a node has written down."""

    id: str
    at_us: int
    what: str
    name: str
    fence: int
    by: str
    detail: str


class History(NamedTuple):
    """What a node has written down, the newest last."""

    now_us: int
    oldest_us: int
    """What happened before that is forgotten; 0: there is nothing at all."""
    rows: tuple[Noted, ...]


class Answer(NamedTuple):
    """One node's vote. `wait_ms` is what is left of the holder's time, or of the quarantine.

    To a request about many leases it is GRANTED if all of them are; `each` says why for each lease, where they
    differ.
    """

    vote: Vote
    cause: Cause
    fence: int = 0
    wait_ms: int = 0
    detail: str = ""
    each: tuple[Cause, ...] = ()
    member: Member | None = None
    place: int = 0
    """To a request that was refused: how many wait in front. To a release: 1, if somebody elsewhere is next."""
    choice: int = 0
    """Which of several locks was granted."""
    fences: tuple[int, ...] = ()
    """Of several locks that were granted."""
    sight: Sight | None = None
    parts: tuple[Answer, ...] = ()
    """To a request about several locks that is no vote: what is said of each, of the first few at least."""
    value: bytes = b""
    """What is in a cell, whose version is `fence`."""
    history: History | None = None
    names: tuple[str, ...] | None = None
    """A cursor to go on from, and names that were found."""

    def of(self, lease: int) -> Cause:
        """What it says of one lease, if it was asked about many."""
        return self.each[lease] if self.each else self.cause


def of_each(causes: Sequence[Cause]) -> Answer:
    """The answer to a request about many leases: AGREED grants, everything else refuses."""
    told = next((cause for cause in causes if cause is not Cause.AGREED), Cause.AGREED)
    vote = Vote.GRANTED if told is Cause.AGREED else Vote.REFUSED
    return Answer(vote, told, each=() if all(cause is told for cause in causes) else tuple(causes))


def unknown(cause: Cause, detail: str = "") -> Answer:
    return Answer(Vote.UNKNOWN, cause, detail=detail)


class Tally:
    """The votes of one round.

    `needed` grants win. With `any_answer` a refusal counts like a grant: a release only wants to be heard.
    A `patient` tally is decided when everybody who was asked has answered, not before. A `reasoned` one is lost
    only for a reason that is known: a majority was able to decide, and did, or nobody is left to answer. So it
    can be said whether the lock was busy or the fleet broken.
    A node votes once; only an UNKNOWN can still be replaced, by the answer that came late.
    """

    # What most tallies never change is said once, for all of them: a tally is made for every round.
    heard = 0
    against = 0
    top = 0
    """The highest fence granted."""
    at_top = 0
    """How many granted exactly that."""
    decided = False
    closed = False
    on_decided: Callable[[], None] | None = None
    whole: Tally | None = None
    """Of whose votes these are a part."""
    _any_answer = False
    _patient = False
    _reasoned = False
    _frozen = False

    def __init__(
        self,
        nodes: tuple[str, ...],
        needed: int,
        *,
        asked: int | None = None,
        any_answer: bool = False,
        patient: bool = False,
        reasoned: bool = False,
    ) -> None:
        self.nodes = nodes
        self.needed = needed
        self.answers: list[Answer | None] = [None] * len(nodes)
        self.missing = len(nodes) if asked is None else asked
        """How many have not answered."""
        if any_answer:
            self._any_answer = True
        if patient:
            self._patient = True
        if reasoned:
            self._reasoned = True

    @classmethod
    def said(cls, nodes: tuple[str, ...]) -> Tally:
        """Of a round that nobody waits for: what is to be said is said, and that is all."""
        tally = cls(nodes, 0, any_answer=True)
        tally.decided = True
        return tally

    def cast(self, node: int, answer: Answer) -> None:
        """Enters a vote; the first one of a node that says something counts."""
        before = self.answers[node]
        if before is not None or self._frozen:
            if self._frozen or before is None or before.vote is not UNKNOWN:
                return
            self.against -= 1
        else:
            self.missing -= 1
        self.answers[node] = answer
        vote = answer.vote
        if vote is GRANTED:
            self.heard += 1
            if answer.fence > self.top:
                self.top, self.at_top = answer.fence, 1
            elif answer.fence == self.top:
                self.at_top += 1
        elif vote is REFUSED and self._any_answer:
            self.heard += 1
        else:
            self.against += 1
        if not self.decided and self._can_be_decided():
            self.decided = True
            if self.on_decided is not None:
                self.on_decided()

    def _can_be_decided(self) -> bool:
        if self._patient:
            return self.missing == 0
        if self.heard >= self.needed:
            return True
        if self.heard + self.missing >= self.needed:
            return False
        return not self._reasoned or self.missing == 0 or self.able

    def freeze(self) -> None:
        """Judgement is passed: an answer that comes during the clean-up must not change the reasons given."""
        self._frozen = True

    def close(self) -> None:
        """The round is over. Votes that still come are entered, but nobody waits for them."""
        self.closed = True
        self.on_decided = None

    @property
    def won(self) -> bool:
        return self.heard >= self.needed

    @property
    def able(self) -> bool:
        """Have enough nodes answered that were able to decide, one way or the other?"""
        return sum(answer is not None and answer.cause not in UNABLE for answer in self.answers) >= self.needed

    def granted(self) -> Iterator[tuple[int, int]]:
        """Nodes that granted, each with its fence."""
        for node, answer in enumerate(self.answers):
            if answer is not None and answer.vote is Vote.GRANTED:
                yield node, answer.fence

    def caused(self, cause: Cause) -> list[int]:
        """Nodes that voted for this cause."""
        return [i for i, a in enumerate(self.answers) if a is not None and a.cause is cause]

    def part(self, lease: int) -> Tally:
        """The votes on one lease, of a round about many."""
        part = Tally(self.nodes, self.needed, patient=True)
        part.whole = self
        for node, answer in enumerate(self.answers):
            if answer is not None:
                one = of_each([answer.of(lease)])._replace(wait_ms=answer.wait_ms)
                part.cast(node, one if answer.each else answer)
        return part

    def all_refused(self) -> bool:
        """Every node has answered, and none has or may have granted."""
        return all(a is not None and a.vote is Vote.REFUSED for a in self.answers)

    def describe(self) -> str:
        """Who said what, for people."""
        parts = []
        for node, answer in zip(self.nodes, self.answers, strict=True):
            if answer is None or answer.cause is Cause.AGREED:
                continue
            part = f"{node} {answer.cause.value}"
            if answer.cause in (Cause.QUARANTINE, Cause.FORGOTTEN) and answer.wait_ms:
                part += f" for {answer.wait_ms / 1000:.1f} s more"
            if answer.detail:
                part += f" ({answer.detail})"
            parts.append(part)
        counted = f"{self.heard} of {len(self.nodes)} agreed, {self.needed} needed"
        return "; ".join([counted, *parts])

    def __repr__(self) -> str:
        return f"<Tally {self.describe()}>"
