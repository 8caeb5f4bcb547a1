"""A TCP proxy on loopback that delays, holds, loses and cuts what passes between a client and one server."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

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
        self.threads = [
            threading.Thread(target=self._requests, name="proxy-requests", daemon=True),
            threading.Thread(target=self._answers, name="proxy-answers", daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def _requests(self) -> None:
        with suppress(OSError):
            while data := self.client.recv(CHUNK):
                self.held = data
                self.requests_flow.wait()
                self.held = b""
                self.server.sendall(data)
        if not self.proxy.half_open:
            hang_up(self.server)

    def _answers(self) -> None:
        with suppress(OSError):
            while data := self.server.recv(CHUNK):
                if self.proxy.delay:
                    time.sleep(self.proxy.delay)
                self.answers_flow.wait()
                if self.proxy.lose_next_answer:
                    self.proxy.lose_next_answer = False
                    break
                with suppress(OSError):  # the client has gone; a half-open line swallows the answer
                    self.client.sendall(data)
        self.cut()

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
    """Stands in front of one server, at an address of its own.

    `delay`: seconds by which answers come late. `lose_next_answer`: the server executes the next request, and the
    connection is cut before its answer arrives. `half_open`: when the client hangs up, the server is not told.
    `refusing`: new connections end at once.
    """

    def __init__(self, server: Server) -> None:
        self.target = server
        self.refusing = False
        self.delay = 0.0
        self.half_open = False
        self.lose_next_answer = False
        self.lines: list[Line] = []
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

    def cut(self) -> None:
        """Ends all connections that stand; new ones can be made."""
        for line in self.lines:
            line.cut()

    def cut_clients(self) -> None:
        """The client sees its connections end; with `half_open` the server does not."""
        for line in self.lines:
            hang_up(line.client)

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
            self.lines.append(Line(self, client, server))


def hang_up(end: socket.socket) -> None:
    """Wakes whoever reads from it, too, which close() alone does not."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
