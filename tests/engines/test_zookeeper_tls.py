"""Locks in ZooKeeper over TLS. What ends it here is a door of our own in front of the server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from quorumlock import NoQuorum

from .zookeeper_tools import Connect, connect, needs_zookeeper, new_root, shared

__all__ = ["connect"]  # fixtures

pytestmark = needs_zookeeper()


@pytest.fixture
def door(certificate: tuple[Path, Path]) -> Iterator[int]:
    """The port of a door that speaks TLS, and passes on what it hears."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = [listener]

    def passed_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listener.accept()
                ends.append(plain)
                with suppress(OSError):
                    client = context.wrap_socket(plain, server_side=True)
                    server = socket.create_connection(("127.0.0.1", shared().port))
                    ends.extend((client, server))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=passed_on, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.close()


def test_who_trusts_the_certificate_locks(connect: Connect, door: int, certificate: tuple[Path, Path]) -> None:
    root = new_root()
    locks = connect(f"zookeeper://127.0.0.1:{door}{root}?tls=true&ca={certificate[0]}")
    with locks.lock("a") as lease:
        assert connect(f"{shared().url}{root}").lock("a").try_acquire() is None
        assert lease.fence
    (state,) = locks.nodes()
    assert (state.state, state.version) == ("ready", None), "nobody is asked in plain text"


# kazoo leaves it to the collector to close a socket whose handshake has failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_does_not_is_told_why(connect: Connect, door: int) -> None:
    locks = connect(f"zookeeper://127.0.0.1:{door}{new_root()}?tls=true", node_timeout=0.02, patience=0.1)
    with pytest.raises(NoQuorum, match=r"cannot be reached \(127\.0\.0\.1:\d+: .*CERTIFICATE_VERIFY_FAILED"):
        locks.lock("a").acquire()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_speaks_in_plain_text_is_not_heard(connect: Connect, door: int) -> None:
    locks = connect(f"zookeeper://127.0.0.1:{door}{new_root()}", node_timeout=0.02, patience=0.1)
    with pytest.raises(NoQuorum, match="cannot be reached"):
        locks.lock("a").acquire()
