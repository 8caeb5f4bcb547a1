"""What a node can be asked. Each is plain data; an engine knows how to say it to its nodes."""

from __future__ import annotations

from typing import NamedTuple

READER = "r:"
"""How the tokens of those begin who share a lock."""


class Join(NamedTuple):
    """Make sure that the node knows my fleet, and I the node. One that belongs to none is taken by `enter` only."""

    enter: bool = False


class Ticket(NamedTuple):
    """A place in the queue of a lock: the same on all nodes, and through all attempts of one wait.

    `locker` says where its turn is to be announced; without it nobody listens, and the waiter asks by itself.
    """

    id: str
    locker: str
    order_us: int
    """The waiter's wall clock when it came."""
    patience_ms: int
    """For how long it is good unless it is shown again."""
    again: bool = False
    """Was it shown before?"""

    @property
    def member(self) -> str:
        """What stands in the queue."""
        return f"{self.locker}:{self.id}"


class Acquire(NamedTuple):
    """Set the lock if it is free, and raise the fence; `candidate_us` is the client's wall clock.

    With a `ticket` a node that refuses puts it into the queue. `strict`: a free lock is the head's of the queue.
    `card` says, for people, who asks. `shared`: beside others who share it; the fence is not raised.
    """

    name: str
    token: str
    ttl_ms: int
    candidate_us: int
    ticket: Ticket | None = None
    strict: bool = False
    card: str = ""
    shared: bool = False


class AcquireAny(NamedTuple):
    """Set the first of these locks that is free; they have one queue, that of `line`."""

    names: tuple[str, ...]
    line: str
    token: str
    ttl_ms: int
    candidate_us: int
    ticket: Ticket | None = None
    strict: bool = False
    card: str = ""


class AcquireAll(NamedTuple):
    """Set all of these locks if all are free; else wait in the queue of one that is not."""

    names: tuple[str, ...]
    token: str
    ttl_ms: int
    candidate_us: int
    ticket: Ticket | None = None
    card: str = ""


class Confirm(NamedTuple):
    """Raise the fence from what was `granted` to `fence`, if the lock is still mine."""

    name: str
    token: str
    granted: int
    fence: int


class ConfirmAll(NamedTuple):
    """The same for several locks, all or none."""

    names: tuple[str, ...]
    token: str
    granted: tuple[int, ...]
    fences: tuple[int, ...]


class Downgrade(NamedTuple):
    """Share a lock that is mine alone; from now on it is `reader`'s."""

    name: str
    token: str
    ttl_ms: int
    reader: str
    ticket: str = ""


class Kept(NamedTuple):
    """One lease, in a request that may be about many."""

    name: str
    token: str
    ttl_ms: int
    fence: int


class Extend(NamedTuple):
    """Renew each of these locks where it is still mine.

    A lock that has more time left keeps it: what arrives late, or twice, undoes nothing.
    """

    leases: tuple[Kept, ...]


class Heal(NamedTuple):
    """Store these locks again on a node that has forgotten them."""

    leases: tuple[Kept, ...]


class Release(NamedTuple):
    """Delete the lock if it is still mine.

    With `wake` the head of the queue is told; `ticket` is what the holder itself had there. A head that waits in
    this `locker` needs no telling. The lock stays closed for `stay_ms` more. `names`: of all these locks; their
    queue is that of `line`, or each has its own.
    """

    name: str
    token: str
    wake: bool = False
    ticket: str = ""
    locker: str = ""
    stay_ms: int = 0
    names: tuple[str, ...] = ()
    line: str = ""


class Leave(NamedTuple):
    """Take a ticket out of the queue; if the lock is free, tell the head. `names` and `line`: as for Release."""

    name: str
    ticket: str
    names: tuple[str, ...] = ()
    line: str = ""


class Break(NamedTuple):
    """Delete the lock whoever holds it, and raise the fence: above its own, and above `fence`.

    `by`: a token of whoever wants that, for the journal. `only`: leave it alone where it was granted with a higher
    fence than that; 0: whoever holds it.
    """

    name: str
    fence: int = 0
    by: str = ""
    only: int = 0


class Look(NamedTuple):
    """Is it free, to be shared or alone?"""

    name: str
    shared: bool = False


class Inspect(NamedTuple):
    """Who holds it, and who waits for it?"""

    name: str


class InspectMany(NamedTuple):
    """The same of several locks. A node may tell only of the first of them, where there is much to tell."""

    names: tuple[str, ...]


class Scan(NamedTuple):
    """Which locks are held? One step of a search, from `cursor` on."""

    pattern: str
    cursor: str
    size: int


class Past(NamedTuple):
    """What was written down behind `after`, an id of this node's; '' for the newest."""

    after: str
    limit: int


class Refused(NamedTuple):
    """Write down that a guard has refused a fence; `by` is a token of whoever reports it."""

    name: str
    fence: int
    by: str
    detail: str


class CellGet(NamedTuple):
    """What is in a cell?"""

    name: str


class CellEnter(NamedTuple):
    """What is in a cell? From now on it is set only by whoever has this fence, or a higher one."""

    name: str
    fence: int
    ttl_ms: int


class CellSwap(NamedTuple):
    """Set a cell if it has this version, and give it a new one."""

    name: str
    value: bytes
    version: int
    ttl_ms: int


class CellPut(NamedTuple):
    """Set a cell to this version, which is a fence, unless somebody with a higher one has entered."""

    name: str
    value: bytes
    version: int
    ttl_ms: int


class Survey(NamedTuple):
    """Has the node a marker? Changes nothing."""


class Close(NamedTuple):
    """Write the marker of a new fleet over whatever is there, and grant nothing until Initialise(force=True)."""


class Initialise(NamedTuple):
    """Write the marker of a new fleet: ready at once, or with `force`, on closed nodes, after `wait_ms`."""

    force: bool
    wait_ms: int = 0


Request = (
    Join | Acquire | AcquireAny | AcquireAll | Confirm | ConfirmAll | Downgrade | Extend | Heal | Release | Leave
    | Break | Look | Inspect | InspectMany | Scan | CellGet | CellEnter | CellSwap | CellPut | Survey | Close
    | Initialise | Past | Refused
)  # fmt: skip
