"""The connections of one event loop, real or simulated: who is asked, who is waited for, who is connected to.

Everything here is callbacks: a loop calls, and is asked to call later. `aio.py` brings asyncio's loop and
sockets, `virtual.py` a simulated clock and network; what happens between is the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from ..core.effects import Round
from ..core.health import give_up, leave_out
from ..core.requests import Leave, Release, Request
from ..core.room import Room
from ..core.votes import Answer, Cause, Tally, unknown
from ..engines.base import EarLink, Link, WireEngine
from .base import Settled, Watch

PING_EVERY = 30.0
"""Seconds after which a subscription is asked whether it stands, and for which it may be silent then."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """What a board needs of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer: ...
    def call_soon(self, callback: Callable[[], object]) -> object: ...


class Strand:
    """One connection and its link. Who derives from it moves the bytes."""

    def __init__(self, node: int, link: Link, board: Board) -> None:
        self.node = node
        self.link = link
        self.board = board
        self._out: list[bytes] = []

    def transmit(self, data: bytes) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        raise NotImplementedError

    def ask(self, request: Request, packed: bytes, tally: Tally, now: float) -> None:
        if data := self.link.submit(request, packed, tally, now):
            self.write(data)

    def write(self, data: bytes) -> None:
        """Leaves with everything else of this tick."""
        if not self._out:
            self.board.will_flush(self)
        self._out.append(data)

    def flush(self) -> None:
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self.transmit(data)

    def received(self, data: bytes) -> None:
        try:
            out = self.link.receive(data)
        except Exception as error:  # whatever a server sends, its round must come to an end
            self.abort(Cause.DISCONNECTED, str(error))
            return
        if self.board.watch.failing:
            self.board.watch.answered(self.node)
        if out:
            self.write(out)

    def broken(self, detail: str) -> None:
        """The connection is gone."""
        self._forget(Cause.DISCONNECTED, detail)

    def abort(self, cause: Cause, detail: str) -> None:
        """The connection is to go, and nothing more is sent on it."""
        self._forget(cause, detail)
        self.hang_up()

    def _forget(self, cause: Cause, detail: str) -> None:
        self.board.forget(self)
        self._out.clear()
        self.link.fail(cause, detail)


class Pending:
    """A round that is under way."""

    __slots__ = ("_board", "due", "open_due", "round")

    def __init__(self, board: Board, round_: Round, now: float) -> None:
        self.round = round_
        self.due = self.open_due = now + round_.timeout
        self._board = board

    def end(self) -> None:
        """Nobody waits any more; what still comes is entered late."""
        self.round.tally.close()
        self._board.pendings.pop(self, None)


class Board:
    """One strand to each node, shared by all rounds of a loop."""

    def __init__(
        self,
        engine: WireEngine,
        watch: Watch,
        node_timeout: float,
        loop: Loop,
        connect: Callable[[Board, int], None],
    ) -> None:
        self.engine = engine
        self.watch = watch
        self.clock = engine.clock
        self.loop = loop
        self.strands: list[Strand | None] = [None] * len(engine.nodes)
        self._connect = connect
        self._node_timeout = node_timeout
        self._majority = len(engine.nodes) // 2 + 1
        self.pendings: dict[Pending, None] = {}
        """In the order they began: a set would be in another one in every process, and so a simulation."""
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._hoping: dict[int, list[Pending]] = {}
        self._dirty: list[Strand] = []
        self.ears: Ears | None = None

    def begin(self, round_: Round, done: Callable[[], None]) -> Pending:
        """Sends a round's requests, with this tick's write.

        `done` is called once, when the round is decided or time is up; not if it is decided on return.
        """
        now = self.clock()
        pending = Pending(self, round_, now)
        tally = round_.tally
        self._refresh(now)
        if self.watch.failing:
            leave_out(round_, self.watch.healths, self._majority, now)
        last: Request | None = None
        packed = b""
        for node, request in enumerate(round_.requests):
            if request is None or tally.answers[node] is not None:
                continue
            strand = self.strands[node]
            if strand is None:
                self._hope(node, pending, now)
                continue
            if request is not last:
                packed, last = self.engine.wire.encode(request), request
            strand.ask(request, packed, tally, now)
        if not tally.decided:
            tally.on_decided = done
            self.pendings[pending] = None
            if self._timer is None or pending.due < self._timer_at:
                self._set_timer(pending.due, now)
        return pending

    def _set_timer(self, at: float, now: float) -> None:
        """One timer serves all rounds: it is set for the first that may run out of time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_later(max(0.0, at - now), self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        self._timer = None
        now = self.clock()
        for pending in list(self.pendings):
            due = pending.open_due if self._hoping and self.opens_for(pending.round) else pending.due
            if due <= now:
                self.pendings.pop(pending, None)
                for node in give_up(pending.round):  # the last of these decides the tally, which calls `done`
                    self.watch.failed(node, Cause.SILENT.value)
            else:
                pending.due = due
        if self.pendings:
            self._set_timer(min(pending.due for pending in self.pendings), now)

    @property
    def releasing(self) -> bool:
        """Is any lock being given back?"""
        return any(isinstance(one, Release) for pending in self.pendings for one in pending.round.requests)

    def will_flush(self, strand: Strand) -> None:
        if not self._dirty:
            self.loop.call_soon(self.flush)
        self._dirty.append(strand)

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for strand in dirty:
            strand.flush()

    def opens_for(self, round_: Round) -> bool:
        """Does the round wait for a connection that is still being made?"""
        return any(
            round_.requests[node] is not None and round_.tally.answers[node] is None for node in self._hoping
        )

    def forget(self, strand: Strand) -> None:
        if self.strands[strand.node] is strand:
            self.strands[strand.node] = None
        elif self.ears is not None:
            self.ears.forget(strand)

    def connected(self, strand: Strand) -> None:
        """A connection was made: asks it what rounds still want to know."""
        self.strands[strand.node] = strand
        now = self.clock()
        strand.write(strand.link.begin(now))
        for pending, request in self._hopes(strand.node):
            pending.due = max(pending.due, now + pending.round.timeout)
            strand.ask(request, self.engine.wire.encode(request), pending.round.tally, now)

    def not_connected(self, node: int, answer: Answer) -> None:
        """A connection could not be made."""
        self.watch.failed(node, answer.detail)
        for pending, _ in self._hopes(node):
            pending.round.tally.cast(node, answer)

    def _hopes(self, node: int) -> list[tuple[Pending, Request]]:
        """Rounds, and their requests, that still wait for a connection to this node."""
        return [
            (pending, request)
            for pending in self._hoping.pop(node, [])
            if (request := pending.round.requests[node]) is not None
            and (isinstance(request, Leave) or not pending.round.tally.closed)
            and pending.round.tally.answers[node] is None
        ]

    def _hope(self, node: int, pending: Pending, now: float) -> None:
        """Starts connecting to a node without a strand, and keeps the round's request for it."""
        round_ = pending.round
        if request := round_.requests[node]:
            self.engine.nodes[node].missed(request)
        connecting = node in self._hoping
        if not connecting and isinstance(request, Release) and self.watch.healths[node].suspect(now):
            round_.tally.cast(node, unknown(Cause.UNREACHABLE, self.watch.healths[node].why))
            return
        allowed = 2 * round_.timeout if self.engine.nodes[node].met else self.engine.connect_timeout
        pending.open_due = max(pending.open_due, now + allowed + round_.timeout)
        self._hoping.setdefault(node, []).append(pending)
        if not connecting:
            self._connect(self, node)

    def _refresh(self, now: float) -> None:
        """Looks for strands that have been silent for too long."""
        for strand in self.strands:
            if strand is None:
                continue
            if strand.link.overfull(now, self._node_timeout):
                strand.abort(Cause.SILENT, "too many answers owed")
                self.watch.failed(strand.node, Cause.SILENT.value)  # or it would be connected to at once
            elif strand.link.stale(now, self._node_timeout):
                strand.abort(Cause.SILENT, "silent for too long")
            elif strand.link.overdue(now, self._node_timeout) and now >= self.watch.healths[strand.node].probe_at:
                self.watch.failed(strand.node, Cause.SILENT.value)


class Ears:
    """A subscription to each node; they are kept once they are made, and made again while anybody waits."""

    def __init__(self, on: Board, room: Room, connect: Callable[[Ears, int], None]) -> None:
        self.room = room
        self.strands: list[Strand | None] = [None] * len(on.engine.nodes)
        self._board = on
        self._connect = connect
        self._connecting: set[int] = set()
        self._settled = Settled(len(self.strands), on.clock)
        self._listeners: list[Callable[[], None]] = []
        self._reviving = False
        self._pinging = False
        self.closed = False
        on.ears = self

    def listen(self, done: Callable[[], None]) -> None:
        """Calls `done` once, perhaps at once: every node is heard, or cannot be."""
        self._make()
        self._listeners.append(done)
        self._tell()
        if self._overdue():  # it failed when nobody waited, and its time has not come yet
            self._revive_later()

    def connected(self, strand: Strand) -> None:
        """A connection was made: subscribes."""
        self._connecting.discard(strand.node)
        self.strands[strand.node] = strand
        ear = cast(EarLink, strand.link)
        ear.on_up = lambda: self._up(strand.node)
        strand.write(ear.begin(self._board.clock()))

    def not_connected(self, node: int) -> None:
        self._connecting.discard(node)
        self._settled.failed(node)
        self._tell()
        self._revive_later()

    def forget(self, strand: Strand) -> None:
        """The connection is gone."""
        if self.strands[strand.node] is strand:
            self.strands[strand.node] = None
            if cast(EarLink, strand.link).refused:
                self._settled.refused(strand.node)
            else:
                self._settled.failed(strand.node)
            self._tell()
            self._revive_later()

    def new_ear(self, node: int) -> EarLink:
        return self._board.engine.new_ear(node, self.room)

    def _make(self) -> None:
        now = self._board.clock()
        for node, strand in enumerate(self.strands):
            if strand is None and node not in self._connecting and self._settled.due(node, now) and not self.closed:
                self._connecting.add(node)
                self._connect(self, node)
        if not self._pinging and not self.closed:
            self._pinging = True
            self._board.loop.call_later(PING_EVERY, self._ping)

    def _up(self, node: int) -> None:
        self._settled.succeeded(node)
        self._tell()

    def _tell(self) -> None:
        now = self._board.clock()
        if any(node not in self.room.ears and self._settled.hope(node, now) for node in range(len(self.strands))):
            return
        listeners, self._listeners = self._listeners, []
        for done in listeners:
            done()

    def _revive_later(self) -> None:
        if self.room.waiting and not self._reviving and not self.closed:
            self._reviving = True
            now = self._board.clock()
            waits = [
                self._settled.wait(node, now)
                for node, strand in enumerate(self.strands)
                if strand is None and node not in self._connecting
            ]
            self._board.loop.call_later(min(waits, default=0.0), self._revive)

    def _revive(self) -> None:
        self._reviving = False
        if self.room.waiting:
            self._make()
            if self._overdue():
                self._revive_later()

    def _overdue(self) -> bool:
        return any(strand is None and node not in self._connecting for node, strand in enumerate(self.strands))

    def _ping(self) -> None:
        """Subscriptions that nobody answers for are dead, although nobody was told."""
        self._pinging = False
        if not self.room.waiting or self.closed:
            return
        now = self._board.clock()
        for strand in self.strands:
            if strand is not None:
                ear = cast(EarLink, strand.link)
                if ear.overdue(now, PING_EVERY / 2):
                    strand.abort(Cause.SILENT, "silent for too long")
                else:
                    strand.write(ear.ping(now))
        self._make()
