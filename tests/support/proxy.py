"""A TCP proxy on loopback, between clients and one server, that does to them what networks do.

| fault | how to ask for it |
|---|---|
| delay | `proxy.delay = 0.2`: answers come that much later |
| hold | `hold_requests()`, `hold_answers()`: they wait here until `let_go()` |
| drop an answer | `lose_next_answer = True`: executed, but the connection ends before the answer comes |
| cut | `cut()`: both ends see the connection end; `refusing = True`: new ones end at once |
| half-open | `half_open = True`: the server is not told that the client hung up; `go_silent()`: nobody is told |
| garbage | `garble(data)`: other bytes come instead of the next answer |
| split | `split_at = k`: every answer comes in two parts, of which the first has k bytes |

What comes out of the server in one piece counts as one answer, but for garbage. Faults apply to every connection
through the proxy; `hold_…` and `go_silent` only to those that stand, so that a client which connects anew finds
its way.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from quorumlock.engines.redis.resp import PlainReader
from quorumlock.lab.servers import Server

CHUNK = 65536


class Line:
    """One client's connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.held = b""
        self.requests_flow = threading.Event()
        self.answers_flow = threading.Event()
        self.let_go()
        self.known = threading.Event()
        """Nothing passes before the proxy can cut it."""
        self.threads = [
            threading.Thread(target=self._requests, name="proxy-requests", daemon=True),
            threading.Thread(target=self._answers, name="proxy-answers", daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def _requests(self) -> None:
        self.known.wait()
        with suppress(OSError):
            while data := self.client.recv(CHUNK):
                self.held = data
                self.requests_flow.wait()
                self.held = b""
                self.server.sendall(data)
        if not self.proxy.half_open:
            hang_up(self.server)

    def _answers(self) -> None:
        self.known.wait()
        with suppress(OSError):
            while data := self.server.recv(CHUNK):
                if self.proxy.delay:
                    time.sleep(self.proxy.delay)
                self.answers_flow.wait()
                if self.proxy.lose_next_answer:
                    self.proxy.lose_next_answer = False
                    break
                with suppress(OSError):  # the client has gone; a half-open line swallows the answer
                    self._pass_on(data)
        self.cut()

    def _pass_on(self, data: bytes) -> None:
        proxy = self.proxy
        proxy.last_answer = data
        if proxy.garbage is not None:
            change, proxy.garbage = proxy.garbage, None
            size = first_reply(data)
            data = change(data[:size]) + data[size:]
        if 0 < proxy.split_at < len(data):
            self.client.sendall(data[: proxy.split_at])
            time.sleep(proxy.split_pause)
            data = data[proxy.split_at :]
        self.client.sendall(data)

    @property
    def left(self) -> bool:
        """Has the client hung up?"""
        return not self.threads[0].is_alive()

    def let_go(self) -> None:
        self.requests_flow.set()
        self.answers_flow.set()

    def cut(self) -> None:
        hang_up(self.client)
        hang_up(self.server)

    def close(self) -> None:
        self.cut()
        for thread in self.threads:
            thread.join(timeout=5)
        self.client.close()
        self.server.close()


class Proxy:
    """Stands in front of one server, at an address of its own; the faults are listed above."""

    def __init__(self, server: Server) -> None:
        self.target = server
        """Where new connections go."""
        self.delay = 0.0
        self.lose_next_answer = False
        self.refusing = False
        self.refused = 0
        """Connections that ended at once."""
        self.half_open = False
        self.garbage: Callable[[bytes], bytes] | None = None
        self.split_at = 0
        self.split_pause = 0.003
        self.last_answer = b""
        """What the server answered last, before anything was done to it."""
        self.lines: list[Line] = []
        """Every connection that was made, in order."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="proxy-accept", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def label(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def holds(self) -> bool:
        """Has a request come that is held here?"""
        return any(line.held for line in self.lines)

    def hold_requests(self) -> None:
        """What the client sends waits here; connections made later are free."""
        for line in self.lines:
            line.requests_flow.clear()

    def hold_answers(self) -> None:
        """What the server answers waits here: executed, but nobody knows."""
        for line in self.lines:
            line.answers_flow.clear()

    def let_go(self) -> None:
        """Everything that was held goes on its way."""
        for line in self.lines:
            line.let_go()

    def garble(self, change: bytes | Callable[[bytes], bytes]) -> None:
        """These bytes come instead of the next answer, or what `change` makes of it."""
        self.garbage = (lambda _: change) if isinstance(change, bytes) else change

    def cut(self) -> None:
        """Ends all connections that stand; new ones can be made."""
        for line in self.lines:
            line.cut()

    def cut_clients(self) -> None:
        """The client sees its connections end; with `half_open` the server does not."""
        for line in self.lines:
            hang_up(line.client)

    def go_silent(self) -> None:
        """A router has forgotten the connections that stand: nothing passes, and neither end is told."""
        self.hold_requests()
        self.hold_answers()

    def close(self) -> None:
        self._closed = True
        self.half_open = False
        hang_up(self._listener)
        self._listener.close()
        self._thread.join(timeout=5)
        for line in self.lines:
            line.cut()
        self.let_go()
        for line in self.lines:
            line.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                self.refused += 1
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target.port), timeout=2)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = Line(self, client, server)
            self.lines.append(line)
            line.known.set()


def first_reply(data: bytes) -> int:
    """How many bytes the first reply has: several may come in one piece."""
    reader = PlainReader()
    reader.feed(data)
    reader.gets()
    return len(data) - len(reader._data)


def hang_up(end: socket.socket) -> None:
    """Wakes whoever reads from it, too, which close() alone does not."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
