"""What threads send through: a strand to each node, bundled into cables.

A *strand* is a connection with its link. A *cable* is one strand per node; one thread at a time uses a cable,
for one round. A round writes to every strand, then polls them all, and returns at the decision: the answers
that are still owed stay with their strands and are read, and entered, when the cable is used again.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from ..core.effects import Round
from ..core.health import give_up, leave_out
from ..core.requests import Release, Request
from ..core.votes import Cause, Tally, unknown
from ..engines.base import Link, WireEngine
from .base import Watch, not_made
from .connecting import Bell, connect

READ_SIZE = 8192
CLOGGED_AFTER = 0.1
"""Seconds in which a socket takes nothing more."""
TRUSTED = 0.05
"""A strand that was read from a moment ago is written to without a look whether it was closed meanwhile."""
LONG_AGO = float("-inf")


class Strand:
    """One connection: a socket, and the link that knows what its bytes mean.

    Nothing blocks, save for reading with `patience`: where there is one node only, the reading itself is the
    waiting, and a poll before it would cost a system call for nothing.

    `fragile` is set while bytes and bookkeeping may disagree, from its beginning on. If an interrupt strikes then,
    the strand cannot be trusted any more: the next answer might be taken for another, or nothing was asked.
    """

    __slots__ = ("_patience", "connection", "fd", "fragile", "link", "node", "read_at", "sock", "tls")

    def __init__(self, node: int, connection: Any, link: Link, now: float) -> None:
        self.node = node
        self.connection = connection
        self.link = link
        self.sock: socket.socket = connection._sock
        self.fd = self.sock.fileno()
        self.tls = isinstance(self.sock, ssl.SSLSocket)
        # A TLS socket takes no flags; any other is left blocking, and told not to block call by call.
        self.sock.settimeout(0 if self.tls else None)
        self.fragile = True
        self.read_at = now
        self._patience = 0.0

    def send(self, data: bytes) -> None:
        """Raises OSError where the socket does not take it all, soon: a request cut in two cannot be mended."""
        try:
            sent = self.sock.send(data) if self.tls else self.sock.send(data, socket.MSG_DONTWAIT)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        if sent != len(data):
            self._send_rest(data[sent:])

    def _send_rest(self, data: bytes) -> None:
        """A message about many leases may be larger than what the socket takes at once."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        while data:
            if not poll.poll(CLOGGED_AFTER * 1000):
                raise OSError("the connection is clogged")
            try:
                data = data[self.sock.send(data) if self.tls else self.sock.send(data, socket.MSG_DONTWAIT) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                continue

    def read(self, patience: float = 0.0) -> bool:
        """Reads what is there, or what comes within `patience` seconds; True if there was anything.

        Raises OSError or ProtocolError (a ValueError).
        """
        if self.tls:
            return self._read_all()
        if patience and patience != self._patience:
            self._be_patient(patience)
        return self._read_once(0 if patience else socket.MSG_DONTWAIT)

    def _read_once(self, flags: int) -> bool:
        self.fragile = True
        try:
            data = self.sock.recv(READ_SIZE, flags)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.fragile = False
            return False
        if not data:
            raise OSError("closed by the server")
        if out := self.link.receive(data):
            self.send(out)
        self.fragile = False
        return True

    def _read_all(self) -> bool:
        """Decrypted bytes may lie behind a TLS socket without poll seeing them."""
        heard = False
        while self._read_once(0):
            heard = True
        return heard

    def _be_patient(self, seconds: float) -> None:
        """Lets reading block for so long."""
        self._patience = seconds
        whole = int(seconds)
        interval = struct.pack("ll", whole, max(1, int((seconds - whole) * 1_000_000)))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)

    def close(self, cause: Cause, detail: str) -> None:
        self.link.fail(cause, detail)
        self.connection.disconnect()


class Cable:
    """One strand to each node, used by one thread at a time."""

    def __init__(self, engine: WireEngine, watch: Watch, node_timeout: float) -> None:
        self._engine = engine
        self._encode = engine.wire.encode
        self._watch = watch
        self._clock = engine.clock
        self._node_timeout = node_timeout
        self._trusted = min(node_timeout, TRUSTED)
        self._majority = len(engine.nodes) // 2 + 1
        self._strands: list[Strand | None] = [None] * len(engine.nodes)
        self._sole: Strand | None = None
        """The only strand of a fleet of one."""
        self._by_fd: dict[int, Strand] = {}
        self._poll = select.poll()
        self._opening: dict[int, threading.Thread] = {}
        self._opened: deque[tuple[int, Any]] = deque()
        self._bell: Bell | None = None
        self.missing = False
        """A round waited for this cable in vain: an interrupt has lost it. Other rounds do not wait for it."""

    @property
    def owes(self) -> bool:
        for strand in self._strands:  # noqa: SIM110 - a generator would cost more than the loop
            if strand is not None and strand.link.owes:
                return True
        return False

    @property
    def unread(self) -> bool:
        """May there be something to read, or a connection to take in?"""
        return bool(self._opened) or self.owes

    def read_late(self) -> None:
        """Reads what has come when no round was waiting, and drops connections that have ended or stay silent."""
        try:
            now = self._clock()
            if self._opened:
                self._attach(None, now)
            self._refresh(now)
        except BaseException:
            self._drop_fragile()
            raise

    def perform(self, round_: Round) -> None:
        """Asks, and waits until the tally is decided or time is up."""
        tally = round_.tally
        try:
            now = self._clock()
            sole, request = self._sole, round_.requests[0]
            if sole is not None and request is not None and now - sole.read_at <= self._trusted:
                # One node, well and connected: nothing to choose, nothing to poll.
                due = now + round_.timeout
                self._ask(sole, request, self._encode(request), tally, now)
                if not sole.link.dead:
                    self._read(sole, round_.timeout)
            else:
                due = self._begin(round_, now)
            if not tally.decided:
                self._wait(round_, due)
        except BaseException:
            tally.close()
            self._drop_fragile()
            raise
        if tally.decided:
            tally.close()
            return
        for node in give_up(round_):
            self._watch.failed(node, Cause.SILENT.value)

    def _drop_fragile(self) -> None:
        """After an interrupt."""
        for strand in self._strands:
            if strand is not None and strand.fragile:
                self._drop(strand, Cause.DISCONNECTED, "interrupted")

    def _begin(self, round_: Round, now: float) -> float:
        """Chooses whom to ask, and asks; gives the time until which to wait."""
        if self._opened:
            self._attach(None, now)
        if self._watch.failing:
            self._refresh(now)
            leave_out(round_, self._watch.healths, self._majority, now)
        return self._burst(round_, now)

    def finish(self, round_: Round) -> None:
        """Before it is closed: who is just being connected to is asked, too, and all that is owed is read."""
        self._wait(round_, self._clock() + self._node_timeout, all_of_it=True)

    def _wait(self, round_: Round, due: float, all_of_it: bool = False) -> None:
        """Reads from whoever answers, and connects whoever was opened, until the round is decided or due."""
        tally = round_.tally
        while (self._opening or self.owes) if all_of_it else not tally.decided:
            if (left := due - self._clock()) <= 0:
                return
            for fd, _ in self._poll.poll(left * 1000):
                strand = self._by_fd.get(fd)
                if strand is not None:
                    self._read(strand)
                elif self._bell is not None and fd == self._bell.fd:
                    self._bell.hear()
                    now = self._clock()
                    self._attach(round_, now)
                    due = self._due(round_, now)

    def _burst(self, round_: Round, now: float) -> float:
        """Writes the round's requests to all nodes; gives the time until which to wait."""
        tally = round_.tally
        last: Request | None = None
        packed = b""
        waits = False
        for node, request in enumerate(round_.requests):
            if request is None or tally.answers[node] is not None:
                continue
            strand = self._strands[node]
            if strand is not None and now - strand.read_at > self._trusted:
                strand = self._looked_after(strand, now)
            if strand is None:
                waits |= self._open(node, round_, now)
                continue
            if request is not last:
                packed, last = self._encode(request), request
            self._ask(strand, request, packed, tally, now)
        return self._due(round_, now) if waits else now + round_.timeout

    def _due(self, round_: Round, now: float) -> float:
        """When to stop waiting: later, where a connection is still being made."""
        due = now + round_.timeout
        for node in self._opening:
            if round_.requests[node] is not None and round_.tally.answers[node] is None:
                met = self._engine.nodes[node].met
                due = max(due, now + (2 * round_.timeout if met else self._engine.connect_timeout))
        return due

    def _ask(self, strand: Strand, request: Request, packed: bytes, tally: Tally, now: float) -> None:
        strand.fragile = True
        try:
            data = strand.link.submit(request, packed, tally, now)
            if data:
                strand.send(data)
        except (OSError, ValueError) as error:
            self._drop(strand, Cause.DISCONNECTED, str(error))
        strand.fragile = False

    def _read(self, strand: Strand, patience: float = 0.0) -> bool:
        """Reads what is there, or what comes within `patience` seconds; there may be more if that was anything."""
        try:
            heard = strand.read(patience)
        except Exception as error:  # a broken connection, or whatever a server may send
            self._drop(strand, Cause.DISCONNECTED, str(error))
            return False
        if heard:
            strand.read_at = self._clock()
            if self._watch.failing:
                self._watch.answered(strand.node)
        return heard

    def _refresh(self, now: float) -> None:
        """Looks at every strand that was not read for a while."""
        for strand in self._strands:
            if strand is not None and now - strand.read_at > self._trusted:
                self._looked_after(strand, now)

    def _looked_after(self, strand: Strand, now: float) -> Strand | None:
        """A strand that was not read for a while: closed meanwhile, answered late, or still silent?"""
        while self._read(strand):  # behind a late answer there may be the end
            pass
        if strand.link.overfull(now, self._node_timeout):
            self._drop(strand, Cause.SILENT, "too many answers owed")
            self._watch.failed(strand.node, Cause.SILENT.value)  # or it would be connected to at once
        elif strand.link.stale(now, self._node_timeout):
            self._drop(strand, Cause.SILENT, "silent for too long")
        elif strand.link.overdue(now, self._node_timeout) and now >= self._watch.healths[strand.node].probe_at:
            self._watch.failed(strand.node, Cause.SILENT.value)
        return self._strands[strand.node]

    def _open(self, node: int, round_: Round, now: float) -> bool:
        """Starts connecting to a node without a strand; False if that is pointless now."""
        if request := round_.requests[node]:
            self._engine.nodes[node].missed(request)
        thread = self._opening.get(node)
        if thread is not None and (thread.is_alive() or self._opened):
            return True  # else an interrupt struck before it was started
        if isinstance(request, Release) and self._watch.healths[node].suspect(now):
            round_.tally.cast(node, unknown(Cause.UNREACHABLE, self._watch.healths[node].why))
            return False
        if self._bell is None:
            self._bell = Bell()
            self._poll.register(self._bell.fd, select.POLLIN)
        self._opening[node] = thread = threading.Thread(
            target=connect,
            args=(self._engine, node, self._opened, self._bell),
            name=f"quorumlock-connect-{node}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter is shutting down
            del self._opening[node]
            round_.tally.cast(node, unknown(Cause.UNREACHABLE, str(error)))
            return False
        return True

    def _attach(self, round_: Round | None, now: float) -> None:
        """Takes in the connections that were made meanwhile, and asks them what the round still wants to know."""
        while self._opened:
            node, made = self._opened[0]  # and taken out below: an interrupt must not lose it
            request = None if round_ is None else round_.requests[node]
            waited_for = round_ is not None and request is not None and round_.tally.answers[node] is None
            if isinstance(made, Exception):
                answer = not_made(made)
                self._watch.failed(node, answer.detail)
                if round_ is not None and waited_for:
                    round_.tally.cast(node, answer)
                self._opening.pop(node, None)
                self._opened.popleft()
                continue
            # One that has lain here may have ended meanwhile: it is looked at before it is used.
            strand = Strand(node, made, self._engine.new_link(node), LONG_AGO if round_ is None else now)
            self._opening.pop(node, None)
            self._strands[node] = strand
            self._opened.popleft()
            self._sole = strand if len(self._strands) == 1 and not strand.tls else None
            self._by_fd[strand.fd] = strand
            self._poll.register(strand.fd, select.POLLIN)
            try:
                strand.send(strand.link.begin(now))
            except OSError as error:
                self._drop(strand, Cause.DISCONNECTED, str(error))
                continue
            strand.fragile = False
            if round_ is not None and request is not None and waited_for:
                self._ask(strand, request, self._encode(request), round_.tally, now)

    def _drop(self, strand: Strand, cause: Cause, detail: str) -> None:
        self._strands[strand.node] = self._sole = None
        if self._by_fd.pop(strand.fd, None) is not None:
            with suppress(KeyError):  # an interrupt struck just before
                self._poll.unregister(strand.fd)
        strand.close(cause, detail)

    def close(self) -> None:
        for strand in self._strands:
            if strand is not None:
                self._drop(strand, Cause.DISCONNECTED, "closed by this client")
        if self._bell is not None:
            self._poll.unregister(self._bell.fd)
            self._bell.close()
            self._bell = None
