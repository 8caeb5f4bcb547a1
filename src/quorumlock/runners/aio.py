"""Runs procedures on asyncio: one connection per node and event loop, shared by all tasks of that loop.

Requests of one loop tick leave in one write per node. A round waits on a single future, which its tally sets;
no task is started for a round. Tasks connect, in the background, to nodes that have no strand yet.

A cancelled procedure gets the cancellation thrown into it. Its clean-up is sent before anything else happens,
and then awaited in a task of its own, where a second cancellation does not reach it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.effects import Effect, Round, Sleep, Steps
from ..core.health import give_up, leave_out
from ..core.requests import Request
from ..core.votes import Cause, Tally, unknown
from ..engines.base import Engine, Link
from ..errors import ConfigurationError
from ..events import Bus
from .base import Watch, advance, ended

T = TypeVar("T")

CLOSING_WAIT = 0.5

_runners: weakref.WeakSet[AioRunner] = weakref.WeakSet()


class Strand(asyncio.Protocol):
    """One connection: asyncio's transport, and the link that knows what its bytes mean."""

    def __init__(self, node: int, connection: Any, link: Link, board: Board) -> None:
        self.node = node
        self.link = link
        self.closed = board.loop.create_future()
        self._board = board
        self._out: list[bytes] = []
        # redis-py has connected and authenticated; from here on the bytes are ours. Its stream writer is kept:
        # it closes the transport when it is collected.
        self._writer, connection._writer, connection._reader = connection._writer, None, None
        self.transport: asyncio.Transport = self._writer.transport
        self.transport.set_protocol(self)

    def ask(self, request: Request, packed: bytes, tally: Tally, now: float) -> None:
        self.write(self.link.submit(request, packed, tally, now))

    def write(self, data: bytes) -> None:
        """Leaves with everything else of this tick."""
        if data:
            if not self._out:
                self._board.will_flush(self)
            self._out.append(data)

    def flush(self) -> None:
        if self._out:
            self.transport.write(b"".join(self._out))
            self._out.clear()

    def data_received(self, data: bytes) -> None:
        try:
            out = self.link.receive(data)
        except ValueError as error:
            self.abort(Cause.DISCONNECTED, str(error))
            return
        self._board.watch.answered(self.node)
        self.write(out)

    def connection_lost(self, error: Exception | None) -> None:
        self._forget(Cause.DISCONNECTED, str(error or "closed by the server"))
        if not self.closed.done():
            self.closed.set_result(None)

    def abort(self, cause: Cause, detail: str) -> None:
        self._forget(cause, detail)
        self.transport.abort()

    def close(self) -> None:
        self.flush()
        self._forget(Cause.DISCONNECTED, "closed by this client")
        self.transport.close()

    def _forget(self, cause: Cause, detail: str) -> None:
        self._board.forget(self)
        self.link.fail(cause, detail)


class Pending:
    """A round that is under way."""

    __slots__ = ("board", "due", "future", "open_due", "round", "timer")

    def __init__(self, board: Board, round_: Round, now: float) -> None:
        self.board = board
        self.round = round_
        self.due = self.open_due = now + round_.timeout
        self.future: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Waits for the tally, or for time to be up."""
        self.future = self.board.loop.create_future()
        self.round.tally.on_decided = self._decided
        self._set_timer(self.due)

    async def wait(self) -> None:
        try:
            if self.future is not None:
                await self.future
        finally:
            self.round.tally.close()
            if self.timer is not None:
                self.timer.cancel()

    def _set_timer(self, due: float) -> None:
        self.timer = self.board.loop.call_later(max(0.0, due - self.board.clock()), self._time_is_up)

    def _decided(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def _time_is_up(self) -> None:
        now = self.board.clock()
        due = self.open_due if self.board.opens_for(self.round) else self.due
        if now < due:
            self._set_timer(due)
            return
        for node in give_up(self.round):
            self.board.watch.failed(node, Cause.SILENT.value)
        self._decided()


class Board:
    """The connections of one event loop."""

    def __init__(
        self,
        engine: Engine,
        watch: Watch,
        clock: Callable[[], float],
        node_timeout: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self.watch = watch
        self.clock = clock
        self._engine = engine
        self._node_timeout = node_timeout
        self._majority = len(engine.nodes) // 2 + 1
        self._strands: list[Strand | None] = [None] * len(engine.nodes)
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._hoping: dict[int, list[Pending]] = {}
        self._dirty: list[Strand] = []

    def begin(self, round_: Round) -> Pending:
        """Sends a round's requests (with this tick's write), and gives what to wait for."""
        now = self.clock()
        pending = Pending(self, round_, now)
        tally = round_.tally
        self._refresh(now)
        leave_out(round_, self.watch.healths, self._majority, now)
        last: Request | None = None
        packed = b""
        for node, request in enumerate(round_.requests):
            if request is None or tally.answers[node] is not None:
                continue
            strand = self._strands[node]
            if strand is None:
                self._open(node, pending, now)
                continue
            if request is not last:
                packed, last = self._engine.wire.encode(request), request
            strand.ask(request, packed, tally, now)
        if not tally.decided:
            pending.arm()
        return pending

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
            round_.requests[node] is not None and round_.tally.answers[node] is None for node in self._opening
        )

    def forget(self, strand: Strand) -> None:
        if self._strands[strand.node] is strand:
            self._strands[strand.node] = None

    def _refresh(self, now: float) -> None:
        for strand in self._strands:
            if strand is None:
                continue
            if strand.link.overfull:
                strand.abort(Cause.SILENT, "too many answers owed")
            elif strand.link.overdue(now, self._node_timeout) and now >= self.watch.healths[strand.node].probe_at:
                self.watch.failed(strand.node, Cause.SILENT.value)

    def _open(self, node: int, pending: Pending, now: float) -> None:
        """Starts connecting to a node without a strand, and keeps the round's request for it."""
        round_ = pending.round
        if round_.everyone and node not in self._opening and self.watch.healths[node].suspect(now):
            round_.tally.cast(node, unknown(Cause.UNREACHABLE, "tried a moment ago"))
            return
        if node not in self._opening:
            self._opening[node] = self.loop.create_task(self._connect(node))
        met = self._engine.nodes[node].met
        allowed = 2 * round_.timeout if met else self._engine.connect_timeout
        pending.open_due = max(pending.open_due, now + allowed + round_.timeout)
        self._hoping.setdefault(node, []).append(pending)

    async def _connect(self, node: int) -> None:
        answer = None
        try:
            connection = await self._engine.open_async(node)
        except Exception as error:
            text = str(error)[:160] or type(error).__name__
            answer = unknown(Cause.UNREACHABLE, text)
            self.watch.failed(node, text)
        else:
            strand = self._strands[node] = Strand(node, connection, self._engine.new_link(node), self)
            strand.write(strand.link.begin(self.clock()))
        finally:
            del self._opening[node]
            hoping = self._hoping.pop(node, [])
        for pending in hoping:
            round_ = pending.round
            request = round_.requests[node]
            if request is None or round_.tally.closed or round_.tally.answers[node] is not None:
                continue
            if answer is not None:
                round_.tally.cast(node, answer)
            else:
                now = self.clock()
                pending.due = max(pending.due, now + round_.timeout)
                strand.ask(request, self._engine.wire.encode(request), round_.tally, now)

    async def close(self) -> None:
        for task in list(self._opening.values()):
            task.cancel()
        strands = [strand for strand in self._strands if strand is not None]
        for strand in strands:
            strand.close()
        if strands:
            _, late = await asyncio.wait([strand.closed for strand in strands], timeout=CLOSING_WAIT)
            if late:
                for strand in strands:
                    strand.transport.abort()

    def bury(self) -> None:
        """The loop is closed: its connections are dead, and what they owed was lost."""
        for strand in self._strands:
            if strand is not None:
                strand.link.fail(Cause.DISCONNECTED, "its event loop was closed")


class AioRunner:
    """Performs effects in the running event loop."""

    def __init__(self, engine: Engine, clock: Callable[[], float], node_timeout: float, bus: Bus) -> None:
        self._engine = engine
        self._clock = clock
        self._node_timeout = node_timeout
        self._watch = Watch(engine, clock, bus)
        self._boards: dict[asyncio.AbstractEventLoop, Board] = {}
        self._buried: list[object] = []
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._closed = False
        _runners.add(self)

    async def run(self, steps: Steps[T]) -> T:
        """Drives a procedure to its end. A cancellation is thrown into it, so that it can clean up."""
        error: BaseException | None = None
        while True:
            try:
                effect = advance(steps, error)
                error = None
                if type(effect) is Sleep:
                    await asyncio.sleep(effect.seconds)
                elif isinstance(effect, Round):
                    await self._board().begin(effect).wait()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except asyncio.CancelledError as cancelled:
                if ended(steps):
                    raise
                return await self._clean_up(steps, cancelled)
            except GeneratorExit as closing:
                # The loop is gone and nothing can be awaited: what can be sent is sent, and that is all.
                if not ended(steps):
                    self._begin(advance(steps, closing))
                raise
            except BaseException as caught:
                if ended(steps):
                    raise
                error = caught

    async def _clean_up(self, steps: Steps[T], cancelled: BaseException) -> T:
        effect = advance(steps, cancelled)  # raises `cancelled` again where there is nothing to clean up
        pending = self._begin(effect)
        task = asyncio.get_running_loop().create_task(self._finish(steps, pending))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        return await asyncio.shield(task)

    async def _finish(self, steps: Steps[T], pending: Pending | None) -> T:
        if pending is not None:
            await pending.wait()
        return await self.run(steps)

    def _begin(self, effect: Effect) -> Pending | None:
        """Starts a clean-up round so that it is on its way whatever happens to its task."""
        if not isinstance(effect, Round):
            return None
        board = self._board()
        pending = board.begin(effect)
        board.flush()
        return pending

    def _board(self) -> Board:
        if self._closed:
            raise ConfigurationError("this Locker is closed")
        loop = asyncio.get_running_loop()
        board = self._boards.get(loop)
        if board is None:
            for other in [one for one in self._boards if one.is_closed()]:
                self._boards.pop(other).bury()
            board = Board(self._engine, self._watch, self._clock, self._node_timeout, loop)
            self._boards[loop] = board
        return board

    async def close(self) -> None:
        """Closes the connections of the running loop, after clean-up that is under way."""
        if self._cleaning:
            await asyncio.wait(self._cleaning, timeout=CLOSING_WAIT)
        self._closed = True
        board = self._boards.pop(asyncio.get_running_loop(), None)
        if board is not None:
            await board.close()

    def forget(self) -> None:
        """In a forked child: the connections are the parent's, and so is what its selector knows of them.

        They are kept from being collected, since closing them here would take them out of that selector.
        """
        self._buried.append(self._boards)
        self._boards = {}


def _after_fork_in_child() -> None:
    for runner in list(_runners):
        runner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
