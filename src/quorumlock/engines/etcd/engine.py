"""The engine on etcd: locks that a cluster keeps by consensus, so that no failing minority changes anything.

Promises. At most one valid lease of a name among all clients of a cluster that use the same root: a lock is a key
that hangs on a lease of etcd's own, made in a transaction that depends on its absence. A lease ends on the servers
after its holder has stopped counting on it, also if the holder was killed; fences grow, being revisions of the
whole store. What a majority of the cluster has confirmed is not lost with a minority. Limits: a cluster that was
restored from a backup goes back in time, and its revisions with it; and as everywhere, a holder that was stopped
for long learns of its loss only when it looks: guards are for that (`quorumlock.guards`).

etcd is asked through its JSON gateway, over HTTP: the same from threads and on event loops, where nothing blocks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from ...clocks import boot_time
from ...core.effects import Round
from ...core.requests import (
    READER,
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    CellGet,
    CellSwap,
    Close,
    Confirm,
    ConfirmAll,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Inspect,
    InspectMany,
    Join,
    Leave,
    Look,
    Past,
    Refused,
    Release,
    Request,
    Scan,
    Survey,
)
from ...core.room import Room
from ...core.states import READY, NodeState, down, median
from ...core.votes import Answer, Cause, unknown
from ...errors import Unsupported
from ...options import Settings
from ..base import Node, no_past, renewal_patience
from . import words
from .cells import Cells
from .client import AsyncClient, Client
from .ear import Ear
from .keys import Keys
from .leases import Leases
from .locks import AGREED
from .looking import Looking
from .place import place_of
from .queue import Queue, Watched
from .talk import Question, Refusal, Steps, Talk, Trouble

NO_JOURNAL = "the engine etcd keeps no journal: follow events with subscribe(), or use redis:// or sqlite://"

Answering = Callable[[Any, float], Steps[Answer]]


class EtcdEngine:
    """One node: a cluster."""

    name = "etcd"
    clock = staticmethod(boot_time)
    blocking = True
    nodes: tuple[Node, ...] = ()

    def __init__(self, source: str, settings: Settings) -> None:
        """Reads the URL; nothing is opened before the first request."""
        if settings.journal is not None:
            raise Unsupported(NO_JOURNAL)
        self.place = place_of(source)
        self.labels = (self.place.label,)
        self._node_timeout = settings.node_timeout
        self.talk = Talk(self.place, settings.node_timeout, boot_time)
        self.leases = Leases(self.talk, boot_time, settings.fence_ttl)
        self._keys = keys = Keys(self.place.root, settings.prefix)
        self._queue = Queue(keys, self.leases)
        self._queue.on_watch = self._watch
        self._answers = self._table(Looking(keys, self.talk, self.leases, self._queue), keys)
        self._mutex = threading.Lock()
        self._client: Client | None = None
        self._loops: dict[asyncio.AbstractEventLoop, AsyncClient] = {}
        self._ears: dict[str, Ear] = {}
        self._abandoned: list[object] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<EtcdEngine {', '.join(self.place.hosts)}>"

    def _table(self, locks: Looking, keys: Keys) -> dict[type[Request], Answering]:
        cells = Cells(keys, self.talk, self.leases)
        return {
            Join: self._meet,
            Acquire: locks.acquire,
            AcquireAny: locks.acquire_any,
            AcquireAll: locks.acquire_all,
            Confirm: locks.confirm,
            ConfirmAll: locks.confirm_all,
            Downgrade: locks.downgrade,
            Extend: locks.extend,
            Heal: locks.heal,
            Release: locks.release,
            Leave: locks.leave,
            Break: locks.break_,
            Look: locks.look,
            Inspect: locks.inspect,
            InspectMany: locks.inspect_many,
            Scan: locks.scan,
            CellGet: cells.get,
            CellSwap: cells.swap,
            Survey: self._meet,
            Close: self._meet,
            Initialise: self._meet,
        }

    def condition(self, lease: Any) -> list[dict[str, Any]]:
        """What makes a transaction of the user's own depend on a lease: for its `compare`, beside others.

        Such a transaction changes nothing unless the lease is in force in that very moment.
        """
        compare = []
        for name, fence in lease.fences.items():
            if lease.token.startswith(READER):
                compare.append(words.present(self._keys.reader(name, lease.token)))
            else:
                hold = self._keys.hold(name)
                compare += [words.created(hold, fence), words.valued(hold, lease.token.encode())]
        return compare

    # What a Locker and its runner call.

    def perform(self, round_: Round) -> None:
        request = round_.requests[0]
        if request is not None:
            client = self._here()
            try:
                round_.tally.cast(0, client.drive(self._answer(request)))
            finally:
                if self._closed:  # what comes late, of another thread, opens a connection for itself alone
                    client.close()

    async def perform_async(self, round_: Round) -> None:
        request = round_.requests[0]
        if request is not None:
            round_.tally.cast(0, await self._there().drive(self._answer(request)))

    def _answer(self, request: Request) -> Steps[Answer]:
        if isinstance(request, Past):
            return no_past()
        answering = self._answers.get(type(request))
        if answering is None:
            raise Unsupported(_instead(request))
        try:
            return (yield from answering(request, self._due(request)))
        except Trouble as trouble:
            return unknown(trouble.cause, trouble.detail)
        except Refusal as refusal:
            return unknown(Cause.FAILED, str(refusal))

    def _due(self, request: Request) -> float:
        """Until when a request is asked again."""
        if isinstance(request, Extend):
            return boot_time() + renewal_patience(request, self._node_timeout, self.talk.patience)
        return self.talk.until()

    def _meet(self, _: Request, until: float) -> Steps[Answer]:
        """Whoever can read can begin: there is nothing to prepare."""
        yield from self.talk.ask(
            Question("/v3/kv/range", words.get(self._keys.cell("ql:met"))["request_range"]), until
        )
        return AGREED

    def _here(self) -> Client:
        with self._mutex:
            if self._client is not None:
                return self._client
            client = Client(self.place, self.talk.connect_timeout)
            if not self._closed:
                self._client = client
            return client

    def _there(self) -> AsyncClient:
        """Of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._loops.get(loop)
        if client is None:
            for other in [one for one in self._loops if one.is_closed()]:
                self._abandoned.append(self._loops.pop(other))
            client = self._loops[loop] = AsyncClient(self.place, self.talk.connect_timeout)
        return client

    def listen(self, room: Room, done: Callable[[], None]) -> None:
        with self._mutex:
            ear = self._ears.get(room.id)
            if ear is None:
                self._ears = {id_: one for id_, one in self._ears.items() if one.alive}
                ear = self._ears[room.id] = Ear(self, room)
                ear.start()
        ear.listen(done)

    def _watch(self, locker: str, wanted: Watched) -> None:
        ear = self._ears.get(locker)
        if ear is not None:
            ear.watch(wanted)

    # How it is doing.

    def states(self, samples: int) -> tuple[NodeState, ...]:
        return self._here().drive(self._state(samples))

    async def states_async(self, samples: int) -> tuple[NodeState, ...]:
        return await self._there().drive(self._state(samples))

    def _state(self, samples: int) -> Steps[tuple[NodeState, ...]]:
        took = []
        label = self.labels[0]
        try:
            for _ in range(samples):
                started = boot_time()
                yield from self._meet(Join(), self.talk.until())
                took.append(boot_time() - started)
            told = yield from self.talk.ask(Question("/v3/maintenance/status", {}), self.talk.until())
        except (Trouble, Refusal) as error:
            return (down(label, str(error)),)
        version = str(told.get("version", "")) or None
        return (NodeState(label, READY, "", None, self.name, version, median(took), None, 0.0),)

    # The end.

    def close(self) -> None:
        """Lets go of what threads had open."""
        with self._mutex:
            self._closed = True
            client, self._client = self._client, None
            ears = [ear for ear in self._ears.values() if ear.in_a_thread]
            self._ears = {room: ear for room, ear in self._ears.items() if ear not in ears}
        for ear in ears:
            ear.stop()
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        loop = asyncio.get_running_loop()
        for room, ear in list(self._ears.items()):
            if ear.runs_on(loop):
                del self._ears[room]
                await ear.stopped()
        client = self._loops.pop(loop, None)
        if client is not None:
            await client.close()

    def forget(self) -> None:
        """In a forked child: connections are the parent's, and so are its leases and its ears."""
        self._abandoned += [self._client, *self._loops.values(), *self._ears.values()]
        self._mutex = threading.Lock()
        self._client, self._loops, self._ears = None, {}, {}
        self.leases.forget()
        self._queue.forget()


def _instead(request: Request) -> str:
    if isinstance(request, Refused):
        return NO_JOURNAL
    return f"the engine etcd does not know the request {type(request).__name__}"
