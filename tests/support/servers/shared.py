"""One database server of each kind for the whole run, for tests that do not disturb it.

    url = shared_server(PostgreSQL).create_database("contract")

A shared server asks other users than the first for passwords and rights (`grants`), which changes nothing for those
who come as the first one. Every folder of tests makes databases of its own there, under names of its own. Do not
kill, pause or reconfigure it: start a server of your own for that.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TypeVar, cast

from tests.support.servers.databases import Database, needed

Kind = TypeVar("Kind", bound=Database)

_servers = ExitStack()
_running: dict[type[Database], Database] = {}


def shared_server(kind: type[Kind]) -> Kind:
    """The server of this kind, started when it is first asked for. Skips the test where it is not installed.

    Call it in the main thread (any fixture does): a server ends with the thread that started it.
    """
    needed(kind)
    if kind not in _running:
        _running[kind] = _servers.enter_context(kind(grants=True))
    return cast(Kind, _running[kind])


def stop_shared_servers() -> None:
    """Ends all of them; called when the session ends."""
    _servers.close()
    _running.clear()
