"""One database server of each kind for the whole run, for tests that do not disturb it.

    url = shared_server(PostgreSQL).create_database("contract")

A shared server asks other users than the first for passwords and rights (`grants`), which changes nothing for those
who come as the first one. Every folder of tests makes databases of its own there, under names of its own. Do not
kill, pause or reconfigure it: start a server of your own for that.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import TypeVar, cast

from tests.support.servers.databases import Database, needed

Kind = TypeVar("Kind", bound=Database)

_servers = ExitStack()


@functools.cache
def _started(kind: type[Database]) -> Database:
    return _servers.enter_context(kind(grants=True))


def shared_server(kind: type[Kind]) -> Kind:
    """The server of this kind, started when it is first asked for. Skips the test where it is not installed.

    Call it in the main thread (any fixture does): a server ends with the thread that started it.
    """
    needed(kind)
    return cast(Kind, _started(kind))


def stop_shared_servers() -> None:
    """Ends all of them; called when the session ends."""
    _servers.close()
    _started.cache_clear()
