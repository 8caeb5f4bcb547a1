"""The connections of one event loop, real or simulated: who is asked, who is waited for, who is connected to.

Everything here is callbacks: a loop calls, and is asked to call later. `aio.py` brings asyncio's loop and
sockets, `virtual.py` a simulated clock and network; what happens between is the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core.effects import Round
from ..core.health import give_up, leave_out
from ..core.requests import Release, Request
from ..core.votes import Cause, Tally, unknown
from ..engines.base import Link, WireEngine
from .base import Watch


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
        self._board.pendings.discard(self)


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
        self.pendings: set[Pending] = set()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._hoping: dict[int, list[Pending]] = {}
        self._dirty: list[Strand] = []

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
            self.pendings.add(pending)
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
                self.pendings.discard(pending)
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

    def connected(self, strand: Strand) -> None:
        """A connection was made: asks it what rounds still want to know."""
        self.strands[strand.node] = strand
        now = self.clock()
        strand.write(strand.link.begin(now))
        for pending, request in self._hopes(strand.node):
            pending.due = max(pending.due, now + pending.round.timeout)
            strand.ask(request, self.engine.wire.encode(request), pending.round.tally, now)

    def not_connected(self, node: int, detail: str) -> None:
        """A connection could not be made."""
        self.watch.failed(node, detail)
        answer = unknown(Cause.UNREACHABLE, detail)
        for pending, _ in self._hopes(node):
            pending.round.tally.cast(node, answer)

    def _hopes(self, node: int) -> list[tuple[Pending, Request]]:
        """Rounds, and their requests, that still wait for a connection to this node."""
        return [
            (pending, request)
            for pending in self._hoping.pop(node, [])
            if (request := pending.round.requests[node]) is not None
            and not pending.round.tally.closed
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
            if strand.link.overfull:
                strand.abort(Cause.SILENT, "too many answers owed")
                self.watch.failed(strand.node, Cause.SILENT.value)  # or it would be connected to at once
            elif strand.link.stale(now, self._node_timeout):
                strand.abort(Cause.SILENT, "silent for too long")
            elif strand.link.overdue(now, self._node_timeout) and now >= self.watch.healths[strand.node].probe_at:
                self.watch.failed(strand.node, Cause.SILENT.value)
