"""The ZooKeeper engine: one ensemble, one session for a Locker, kazoo as transport.

Promises. At most one valid lease of a name: what is valid ends, by this process's clock, before the session that
holds it can. Fences are numbers of transactions: one order for the whole ensemble. What was not answered is
UNKNOWN, and taken away later by its name, which only its maker knows.
"""

from __future__ import annotations

import asyncio
import os
import re
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import ConnectionClosedError  # type: ignore[import-untyped]

from ...clocks import boot_time
from ...core import requests as asked
from ...core.effects import Round
from ...core.requests import Extend, Join, Request
from ...core.room import Room
from ...core.states import DOWN, MISFIT, READY, NodeState, median
from ...core.votes import Answer, Cause, Tally, unknown
from ...errors import ConfigurationError, LockError, Unsupported
from ...options import Settings
from ..base import Node, renewal_patience
from . import troubles
from .address import Address, address_of
from .cells import Cells
from .janitor import Janitor
from .looking import NO_JOURNAL
from .paths import Paths
from .session import Session, Talk, Wrote
from .troubles import Late
from .visiting import described, described_async

PATIENCE = 10
"""Node timeouts for one request, which may be several steps."""
FIRST_PATIENCE = 20
"""The same for the first connection."""
CLOSING_WAIT = 1.0

NOT_BEGUN = unknown(Cause.UNREACHABLE, "nothing was executed")


class ZookeeperEngine:
    """One node: an ensemble."""

    name = "zookeeper"
    clock = staticmethod(boot_time)
    blocking = True
    nodes: tuple[Node, ...] = ()

    def __init__(self, source: Any, settings: Settings) -> None:
        """`source`: a URL, or a kazoo client, to be used as it is. Nothing is opened before the first request."""
        if settings.journal is not None:
            raise Unsupported(NO_JOURNAL)
        if isinstance(source, str):
            self._address, self._client = address_of(source), None
            hosts = self._address.hosts
        else:
            self._address, self._client = Address(), source
            hosts = tuple(f"{host}:{port}" for host, port in source.hosts)
        self._settings = settings
        self.labels = (f"zookeeper:{','.join(hosts)}",)
        self._pid = os.getpid()
        self._abandoned: list[Any] = []
        self._open()

    @property
    def ttl_most(self) -> float:
        """The longest ttl that the session carries: the one that was granted, or that will be asked for."""
        return self._session.ttl_most

    def __repr__(self) -> str:
        return f"<ZookeeperEngine {self.labels[0]}>"

    def _open(self) -> None:
        self._session = session = Session(self._address, self._client)
        paths = Paths(self._address.root, self._settings.prefix)
        self._cells = answering = Cells(session, paths)
        self._answers = _answers(answering)
        patience = PATIENCE * self._settings.node_timeout

        def leave(queue: str, member: str) -> None:
            drive(answering.dequeue(queue, member), boot_time() + patience, [])

        self._janitor = Janitor(session, leave)
        self._end = weakref.finalize(self, self._janitor.close)
        self._end.atexit = False

    # Asking.

    def perform(self, round_: Round) -> None:
        request = round_.requests[0]
        if request is None:
            return
        wrote: list[bool] = []
        within = self._within(request, round_.timeout)
        try:
            answer = drive(self._talk(request), boot_time() + within, wrote)
        except Exception as error:
            answer = self._told(error, request, round_.tally, wrote, within)
        round_.tally.cast(0, answer)

    async def perform_async(self, round_: Round) -> None:
        request = round_.requests[0]
        if request is None:
            return
        wrote: list[bool] = []
        within = self._within(request, round_.timeout)
        try:
            answer = await drive_async(self._talk(request), boot_time() + within, wrote)
        except Exception as error:
            answer = self._told(error, request, round_.tally, wrote, within)
        round_.tally.cast(0, answer)

    def _talk(self, request: Request) -> Talk[Answer]:
        """What there is to say, once there is a connection."""
        if self._pid != os.getpid():
            self.forget()
        answering = self._answers.get(type(request))
        if answering is None:
            raise Unsupported(f"{self.labels[0]}: this engine does not know the request {type(request).__name__}")
        session = self._session
        if type(request) is Extend and self._cells.ended(request):
            return (yield from self._cells.extend(request))
        if session.client is None:
            session.start()
            self._janitor.begin()
        if not session.connected:
            if session.stopped:
                raise ConnectionClosedError
            yield session.ready()
        if not session.checked:
            yield from self._cells.check()
        return (yield from answering(request))

    def _told(self, error: Exception, request: Request, tally: Tally, wrote: list[bool], within: float) -> Answer:
        if isinstance(error, LockError):
            if not wrote:
                tally.cast(0, NOT_BEGUN)
            raise error
        if isinstance(request, asked.Release):
            if not request.stay_ms:  # else it is to stay closed, and is sent again by `core/owed.py`
                self._session.expire(request.token)
        elif isinstance(request, asked.Leave):
            self._session.owe(self._cells._queues(request), request.ticket)
        return troubles.told(error, self._session, bool(wrote), within)

    def _within(self, request: Request, timeout: float) -> float:
        node_timeout = self._settings.node_timeout
        if not self._session.met:
            return FIRST_PATIENCE * node_timeout
        if not self._session.connected:
            return 2 * node_timeout  # nothing was sent: whoever wants it asks again, and what ends is not forgotten
        patience = max(PATIENCE * node_timeout, timeout)
        return renewal_patience(request, node_timeout, patience) if type(request) is Extend else patience

    # Looking after it.

    def states(self, samples: int) -> tuple[NodeState, ...]:
        took: list[float] = []
        for _ in range(samples):
            round_ = self._probe()
            started = boot_time()
            try:
                self.perform(round_)
            except LockError as error:
                return (self._down(error),)
            took.append(boot_time() - started)
            if (bad := self._bad(round_.tally)) is not None:
                return (bad,)
        return (self._up(took, described(self._where(), self._settings.node_timeout)),)

    async def states_async(self, samples: int) -> tuple[NodeState, ...]:
        took: list[float] = []
        for _ in range(samples):
            round_ = self._probe()
            started = boot_time()
            try:
                await self.perform_async(round_)
            except LockError as error:
                return (self._down(error),)
            took.append(boot_time() - started)
            if (bad := self._bad(round_.tally)) is not None:
                return (bad,)
        return (self._up(took, await described_async(self._where(), self._settings.node_timeout)),)

    def _probe(self) -> Round:
        from ...core.effects import Route

        return Round([Join()], Tally(self.labels, 1), self._settings.node_timeout, Route())

    def _where(self) -> tuple[str, int] | None:
        """The server that we are connected to, if it can be asked in plain text."""
        client = self._session.client
        if client is None or client.use_ssl:
            return None
        peer: Any = client._connection._socket
        with suppress(OSError, AttributeError):
            host, port, *_ = peer.getpeername()
            return host, port
        return None

    def _up(self, took: list[float], described: tuple[str | None, str | None]) -> NodeState:
        version, role = described
        offset = self._session.offset_ms / 1000 if self._session.offset_known else None
        return NodeState(self.labels[0], READY, "", role, self.name, version, median(took), offset, 0.0)

    def _bad(self, tally: Tally) -> NodeState | None:
        answer = tally.answers[0]
        if answer is not None and answer.cause is Cause.AGREED:
            return None
        why = "did not answer" if answer is None else f"{answer.cause.value} ({answer.detail})"
        return NodeState(self.labels[0], DOWN, why, None, self.name, None, None, None, 0.0)

    def _down(self, error: LockError) -> NodeState:
        state = MISFIT if isinstance(error, ConfigurationError) else DOWN
        detail = re.sub(r"^[: ]+", "", str(error).removeprefix(self.labels[0]))
        return NodeState(self.labels[0], state, detail, None, self.name, None, None, None, 0.0)

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        try:
            self._session.start()
        except LockError:
            done()  # whoever waits will be told when it asks
            return
        self._janitor.begin()
        self._session.listen(room, done)

    def close(self) -> None:
        """Ends the session as soon as no lease of it has time left; waits for that only if it is now."""
        session = self._session
        self._janitor.close()
        if not session.leases:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                session.closed.wait(CLOSING_WAIT)

    async def close_async(self) -> None:
        """The session is of no loop: `close` ends it."""

    def forget(self) -> None:
        """In a forked child: the connection, the session and its leases are the parent's."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._end.detach()
        self._abandoned.append((self._session, self._janitor))
        theirs = self._session
        self._open()
        self._session._pid = theirs._pid


def drive(talk: Talk[Any], until: float, wrote: list[bool]) -> Any:
    """Leads a talk in this thread; `wrote` is filled once something is sent that changes anything."""
    value: Any = None
    error: Exception | None = None
    while True:
        try:
            said = talk.send(value) if error is None else talk.throw(error)
        except StopIteration as done:
            return done.value
        if type(said) is Wrote:
            wrote.append(True)
            said = said.result
        heard = said.wait(max(0.0, until - boot_time()))
        value, error = _outcome(said, heard)


def _outcome(said: Any, heard: bool) -> tuple[Any, Exception | None]:
    if not heard:
        return None, Late()
    return (said.get_nowait(), None) if said.exception is None else (None, said.exception)


async def drive_async(talk: Talk[Any], until: float, wrote: list[bool]) -> Any:
    """The same on an event loop: kazoo's thread tells the loop."""
    loop = asyncio.get_running_loop()
    value: Any = None
    error: Exception | None = None
    while True:
        try:
            said = talk.send(value) if error is None else talk.throw(error)
        except StopIteration as done:
            return done.value
        if type(said) is Wrote:
            wrote.append(True)
            said = said.result
        heard = said.ready() or await _heard(loop, said, until)
        value, error = _outcome(said, heard)


async def _heard(loop: asyncio.AbstractEventLoop, said: Any, until: float) -> bool:
    future: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def told(_: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left there to be told
            loop.call_soon_threadsafe(settle)

    said.rawlink(told)
    done, _ = await asyncio.wait([future], timeout=max(0.0, until - boot_time()))
    return bool(done)


def _answers(cells: Cells) -> dict[type[Request], Callable[[Any], Talk[Answer]]]:
    """Who answers what."""
    return {
        asked.Join: cells.nothing,
        asked.Acquire: cells.acquire,
        asked.AcquireAny: cells.acquire_any,
        asked.AcquireAll: cells.acquire_all,
        asked.Confirm: cells.confirm,
        asked.ConfirmAll: cells.confirm_all,
        asked.Downgrade: cells.downgrade,
        asked.Extend: cells.extend,
        asked.Heal: cells.heal,
        asked.Release: cells.release,
        asked.Leave: cells.leave,
        asked.Break: cells.break_,
        asked.Look: cells.look,
        asked.Inspect: cells.inspect,
        asked.InspectMany: cells.inspect_many,
        asked.Scan: cells.scan,
        asked.Past: cells.past,
        asked.Refused: cells.refused,
        asked.CellGet: cells.cell_get,
        asked.CellSwap: cells.cell_swap,
        asked.Survey: cells.nothing,
        asked.Close: cells.nothing,
        asked.Initialise: cells.initialise,
    }
