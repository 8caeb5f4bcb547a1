"""One connection to one node, without the socket: what to send, and whose answer the next reply is.

Rules:

1. Replies come in the order of requests. The head of `_pending` owns the next reply, whether or not anybody
   still waits for it: an answer that came too late is read and entered late, never taken for another.
2. A link joins its node before the first request that needs the marker; what comes meanwhile waits, in order.
3. A request is sent again only by the reply that asks for it (NOSCRIPT, a marker that has changed), and only
   while its round is open: behind a release it would leave an orphan. A release itself is never too late.
4. A link that breaks while replies are owed leaves its name with the node. Whatever is sent to that node
   next, on any link, goes behind a CLIENT KILL of that client, so that nothing is executed after its own undoing.
   Releases that were lost with the connection are then said again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ...core.requests import (
    AcquireAll,
    Close,
    Extend,
    Heal,
    Initialise,
    Inspect,
    InspectMany,
    Join,
    Leave,
    Past,
    Release,
    Request,
    Scan,
    Survey,
)
from ...core.votes import Answer, Cause, Tally, Vote, unknown
from .answers import decode, decode_all, decode_history, decode_many, decode_names, decode_release, decode_sight
from .entries import Entry, Farewell, Ignored, Kill, WhoAmI
from .node import Client, Hello, Node
from .resp import ProtocolError, ReplyError, new_reader, pack
from .wire import FREE, Wire

_SURVEYS = (Survey, Close, Initialise)
_MANY = (Extend, Heal)
_RELEASES = (Release, Leave)
_LOOKS: dict[type[Any], Callable[[Any], Answer]] = {
    Inspect: decode_sight,
    InspectMany: decode_sight,
    Past: decode_history,
    Scan: decode_names,
}
STALE_AFTER = 3
"""Node timeouts, after which a silent connection is replaced."""
UNANSWERED_AFTER = 20
"""The same for one that never was answered; each time twice as long."""
UNANSWERED_MOST = 30.0
"""Seconds, no more than that."""
OWED_MOST = 512
"""A link that owes more answers than this is replaced as soon as the oldest of them is late."""


class Call:
    """A request of a round, under way to one node."""

    sourced = False
    """Was its script sent whole?"""
    rejoined = False
    """Was the node joined again for it?"""

    def __init__(self, request: Request, tally: Tally, index: int, sent_at: float) -> None:
        self.request = request
        self.tally = tally
        self.index = index
        self.sent_at = sent_at

    def take(self, link: Link, reply: Any) -> bytes:
        if type(reply) is ReplyError:
            text = str(reply)
            if link.complaint:
                self.drop(link, unknown(Cause.DENIED, link.complaint))
                return b""
            if text.startswith("NOSCRIPT"):
                return link.send_source(self)
            if text.startswith("READONLY"):
                link.doubt()
        if type(self.request) in _RELEASES:
            answer = decode_release(reply)
        elif isinstance(self.request, _SURVEYS):
            answer = link.surveyed(reply)
        else:
            if isinstance(self.request, _MANY):
                answer = decode_many(reply, len(self.request.leases))
            elif isinstance(self.request, AcquireAll):
                answer = decode_all(reply, len(self.request.names))
            elif type(self.request) in _LOOKS:
                answer = _LOOKS[type(self.request)](reply)
            else:
                answer = decode(reply)
            if answer.cause is Cause.STRANGER:
                if not self.rejoined and not self.tally.closed:
                    self.rejoined = True
                    return link.join_again(self)
            elif answer.vote is not Vote.UNKNOWN and type(self.request) not in FREE:
                link.node.confirmed_at = self.sent_at
        self.tally.cast(self.index, answer)
        return b""

    def drop(self, link: Link, answer: Answer) -> None:
        link.node.missed(self.request)
        self.tally.cast(self.index, answer)


class Joining:
    """The link's own question: what does the node's marker say?"""

    __slots__ = ("looks", "request", "sent_at", "sourced")

    def __init__(self, request: Join, sent_at: float, looks: int = 1) -> None:
        self.request = request
        self.sent_at = sent_at
        self.looks = looks
        self.sourced = False

    def take(self, link: Link, reply: Any) -> bytes:
        if type(reply) is ReplyError and str(reply).startswith("NOSCRIPT") and not self.sourced:
            self.sourced = True
            return link.send_own(self, link.wire.encode(self.request, source=True))
        if (
            type(reply) is list
            and reply[0] == b"free"
            and (more := link.node.next_join(self.request, self.looks, self.sent_at))
        ):
            return link.send_own(Joining(more, self.sent_at, self.looks + 1), link.wire.encode(more))
        return link.joined(reply, self.sent_at)

    def drop(self, link: Link, answer: Answer) -> None:
        """Those who wait for the marker are dropped by the link itself."""


class Link:
    """The state of one connection; a runner moves the bytes."""

    __slots__ = (
        "_joining",
        "_pending",
        "_reader",
        "_tail",
        "_waiting",
        "client",
        "complaint",
        "dead",
        "node",
        "wire",
    )

    def __init__(self, node: Node, wire: Wire) -> None:
        self.node = node
        self.wire = wire
        self.dead = False
        self.client: Client | None = None
        self.complaint = ""
        """Why the server does not let us in, if it said so."""
        self._pending: deque[Entry] = deque()
        self._waiting: deque[Call] = deque()
        self._tail: bytes | None = None
        self._joining = False
        self._reader = new_reader()

    # What a runner calls.

    def begin(self, now: float) -> bytes:
        """The first bytes of a new connection.

        The scripts of every pair are loaded ahead. A node that does not know one answers NOSCRIPT, perhaps when
        the round is over: it would then miss the lock, or its release.
        """
        data = self.send_own(WhoAmI(now), pack(("CLIENT", "INFO")))
        for script in self.wire.pair:
            data += self.send_own(Ignored(now), pack(("SCRIPT", "LOAD", script.source)))
        data += self._kills(now)
        while self.node.farewells:
            release = self.node.farewells.popleft()
            data += self.send_own(Farewell(release, now), self.wire.encode(release))
        return data

    def submit(self, request: Request, packed: bytes, tally: Tally, now: float) -> bytes:
        """The bytes to send for `request`, whose common part is `packed`; none yet while the link is joining."""
        tail = self._tail
        if tail is None or self.node.orphans or type(request) is Join:
            return self._submit_slowly(request, packed, tally, now)
        self._pending.append(Call(request, tally, self.node.index, now))
        return packed if type(request) in FREE else packed + tail

    def _submit_slowly(self, request: Request, packed: bytes, tally: Tally, now: float) -> bytes:
        """The same where there is more to do: a node to join, old connections to end."""
        if self._tail is not None and isinstance(request, Join):
            tally.cast(self.node.index, Answer(Vote.GRANTED, Cause.AGREED))
            return b""
        call = Call(request, tally, self.node.index, now)
        if self._joining:
            self._waiting.append(call)
            return b""
        kills = self._kills(now)
        if isinstance(request, FREE):
            data = packed
        elif self._tail is None:
            self._waiting.append(call)
            return kills + self._join(now)
        else:
            data = packed + self._tail
        self._pending.append(call)
        return kills + data

    def receive(self, data: bytes) -> bytes:
        """Takes in what the socket gave; returns what has to be sent in turn. Raises ProtocolError."""
        reader = self._reader
        reader.feed(data)
        out = b""
        while (reply := reader.gets()) is not False:
            if not self._pending:
                raise ProtocolError("an answer nobody asked for")
            out += self._pending.popleft().take(self, reply)
        return out

    def fail(self, cause: Cause, detail: str) -> None:
        """The connection is gone: what was under way is UNKNOWN, what was not sent yet cannot be."""
        if self.dead:
            return
        self.dead = True
        if self._pending and self.client is not None:
            self.node.orphans.append(self.client)
        elif cause is Cause.SILENT and self.client is None:
            self.node.unanswered = min(10, self.node.unanswered + 1)
        answer = unknown(Cause.DENIED, self.complaint) if self.complaint else unknown(cause, detail)
        for entry in self._pending:
            entry.drop(self, answer)
        for call in self._waiting:
            call.drop(self, answer)
        self._pending.clear()
        self._waiting.clear()

    @property
    def owes(self) -> bool:
        """Are there requests that the node has not answered?"""
        return bool(self._pending) or bool(self._waiting)

    def overfull(self, now: float, timeout: float) -> bool:
        """Are too many answers owed? A burst of requests that are being answered is not too much."""
        return len(self._pending) + len(self._waiting) > OWED_MOST and self.overdue(now, timeout)

    def overdue(self, now: float, timeout: float) -> bool:
        """Has the node been silent for longer than `timeout`?"""
        return bool(self._pending) and now - self._pending[0].sent_at > timeout

    def stale(self, now: float, timeout: float) -> bool:
        """Is a new connection worth a try? This one may be dead although nobody was told.

        Much later if this one never was answered: a server that hangs is not connected to again and again.
        """
        if self.client is not None:
            return self.overdue(now, STALE_AFTER * timeout)
        return self.overdue(now, min(UNANSWERED_MOST, UNANSWERED_AFTER * timeout * 2**self.node.unanswered))

    # What replies lead to.

    def send_own(self, entry: Entry, data: bytes) -> bytes:
        self._pending.append(entry)
        return data

    def send_source(self, call: Call) -> bytes:
        """The server has forgotten, or never seen, the script: send it whole, in the same round."""
        late = call.tally.closed and not isinstance(call.request, _RELEASES)
        if late or call.sourced:
            call.drop(self, unknown(Cause.FAILED, "NOSCRIPT"))
            # A node that is always the last to answer would never learn it.
            return self.send_own(Ignored(call.sent_at), self.wire.load(call.request)) if late else b""
        call.sourced = True
        data = self.wire.encode(call.request, source=True)
        if isinstance(call.request, FREE):
            return self.send_own(call, data)
        if self._tail is None:
            return self.join_again(call)
        return self.send_own(call, data + self._tail)

    def doubt(self) -> None:
        """The server has changed its role, and with it its identity: join again before the next request."""
        if not self._joining:
            self._tail = None

    def join_again(self, call: Call) -> bytes:
        """The node's marker is not what we knew: join, then ask again."""
        self._waiting.append(call)
        if self._joining:
            return b""
        self._tail = None
        return self._join(call.sent_at)

    def joined(self, reply: Any, now: float) -> bytes:
        """The marker is known: send what has waited for it, or refuse it for the reason given."""
        self._joining = False
        refusal = self._meet(reply)
        waiting, self._waiting = self._waiting, deque()
        out = self._kills(now)
        for call in waiting:
            data = self.wire.encode(call.request, source=call.sourced)
            if isinstance(call.request, FREE):
                out += self.send_own(call, data)
            elif refusal is not None:
                call.drop(self, refusal)
            elif isinstance(call.request, Join):
                call.drop(self, Answer(Vote.GRANTED, Cause.AGREED))
            elif not call.tally.closed:
                assert self._tail is not None
                out += self.send_own(call, data + self._tail)
        return out

    def surveyed(self, reply: Any) -> Answer:
        """The answer to Survey, Close and Initialise."""
        hello = parse_hello(reply)
        if isinstance(hello, Answer):
            return hello
        refusal = self.node.judge(hello)
        if refusal is not None:
            return refusal
        self.node.run_id = hello.run_id
        if hello.status == "marked":
            return self.node.marked(hello)
        member = self.node.marked(hello).member if hello.status == "closed" else None
        return Answer(Vote.GRANTED, Cause.AGREED, wait_ms=hello.quarantine_ms(), member=member)

    def _join(self, now: float) -> bytes:
        self._joining = True
        return self.send_own(Joining(Join(), now), self.wire.encode(Join()))

    def _meet(self, reply: Any) -> Answer | None:
        hello = parse_hello(reply)
        if isinstance(hello, Answer):
            return unknown(Cause.DENIED, self.complaint) if self.complaint else hello
        self.complaint = ""  # it lets us in now, and what is lost from here on may have been executed
        refusal = self.node.meet(hello)
        if refusal is None:
            self._tail = self.wire.tail(hello.marker)
        return refusal

    def _kills(self, now: float) -> bytes:
        """Ends old connections to this node, in front of what is sent next."""
        data = b""
        while self.node.orphans:
            client = self.node.orphans.popleft()
            data += self.send_own(
                Kill(client, now), pack(("CLIENT", "KILL", "ID", client.id, "ADDR", client.address))
            )
        return data


def parse_hello(reply: Any) -> Hello | Answer:
    """What join.lua answered; or what to make of an answer that is none of its own."""
    if isinstance(reply, ReplyError):
        text = str(reply)[:160]
        if text.startswith(("MOVED", "CROSSSLOT", "CLUSTERDOWN")):
            return Answer(Vote.REFUSED, Cause.UNSUPPORTED, detail=f"Redis Cluster is not supported: {text}")
        return unknown(Cause.FAILED, text)
    try:
        return Hello.parse(reply)
    except (TypeError, ValueError, AttributeError):
        return unknown(Cause.FAILED, "unexpected answer to join")
