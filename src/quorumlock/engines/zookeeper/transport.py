"""kazoo, as far as we need it: it moves requests and answers, and keeps the session alive. It retries nothing.

Two things it does not tell, and we ask for by wrapping: what session timeout the server has granted (kazoo only
remembers what was asked for), and why a host could not be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.serialization import Connect  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]
from kazoo.security import CREATOR_ALL_ACL  # type: ignore[import-untyped]

from .address import Address

RECONNECT_FIRST = 0.02
RECONNECT_MOST = 0.5
PATIENCE_LEAST = 0.5
PATIENCE_MOST = 2.0
"""Seconds for one host, when a connection is made."""
OF_READ_TIMEOUT = 1.5
"""kazoo waits for two thirds of the session."""

# kazoo writes every request to its log, at the level DEBUG: tokens, and what is sent to authenticate, too.
_silent = logging.Logger("quorumlock.zookeeper.kazoo")
_silent.disabled = True


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Notes why hosts cannot be reached, and gives none of them the time that the others need."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self._most = most
        self.complaints: dict[str, str] = {}
        """By host: what the last attempt met."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs.get("timeout") or self._most, self._most)
        host, port = kwargs.get("hostname"), kwargs["address"][1]
        try:
            connection = super().create_connection(*args, **kwargs)
        except Exception as error:
            self.complaints[f"{host}:{port}"] = " ".join(str(error).split()) or type(error).__name__
            raise
        self.complaints.pop(f"{host}:{port}", None)
        return connection


def new_client(address: Address) -> KazooClient:
    """Not started."""
    patience = max(PATIENCE_LEAST, min(PATIENCE_MOST, address.session / 3 / len(address.hosts)))
    handler = Handler(patience)
    retry = KazooRetry(
        max_tries=-1, delay=RECONNECT_FIRST, max_delay=RECONNECT_MOST, backoff=2, sleep_func=handler.sleep_func
    )
    never = KazooRetry(max_tries=0, sleep_func=handler.sleep_func)
    client = KazooClient(
        hosts=",".join(address.hosts),
        timeout=address.session,
        handler=handler,
        default_acl=CREATOR_ALL_ACL if address.auth else None,
        auth_data=set(address.auth),
        connection_retry=retry,
        command_retry=never,
        logger=_silent,
        **address.tls,
    )
    _hurry(client, patience)
    return client


def _hurry(client: KazooClient, first: float) -> None:
    """kazoo waits for the first answer over a new connection as long as a session lasts, and from a server that is
    just starting none may come. We try again after a moment, and are more patient each time."""
    connection = client._connection
    invoke, patience = connection._invoke, first

    def hurried(timeout: float, request: Any, xid: Any = None) -> Any:
        nonlocal patience
        if type(request) is not Connect:
            return invoke(timeout, request, xid)
        try:
            answer = invoke(min(timeout, patience), request, xid)
        except Exception:
            patience = min(2 * patience, max(timeout, first))
            raise
        patience = first
        return answer

    connection._invoke = hurried


def on_hearing(client: KazooClient, hear: Callable[[float], None]) -> Callable[[], None]:
    """Has `hear` told the session timeout that the server granted, when anything is heard; gives what ends that."""
    connection = client._connection
    read = connection._read_socket

    def read_and_tell(read_timeout: float) -> Any:
        hear(read_timeout * OF_READ_TIMEOUT)
        return read(read_timeout)

    connection._read_socket = read_and_tell

    def end() -> None:
        if connection.__dict__.get("_read_socket") is read_and_tell:
            del connection._read_socket

    return end
