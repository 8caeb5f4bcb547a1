"""`connect` and `connect_async`: from a URL to a Locker."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import ConfigurationError
from .options import Settings
from .retry import DEFAULT_RETRY, Retry

if TYPE_CHECKING:
    from .aio.locker import AsyncLocker
    from .engines.base import Engine
    from .sync.locker import Locker

SERVERS = ("redis", "rediss", "unix", "valkey", "valkeys")
STORES = {
    "sqlite": ("sqlite", "SqliteEngine"),
    "memory": ("memory", "MemoryEngine"),
    "zookeeper": ("zookeeper", "ZookeeperEngine"),
    "etcd": ("etcd", "EtcdEngine"),
    "etcds": ("etcd", "EtcdEngine"),
    "postgresql": ("postgresql", "PostgresqlEngine"),
    "postgres": ("postgresql", "PostgresqlEngine"),
    "mysql": ("mysql", "MysqlEngine"),
    "mariadb": ("mysql", "MysqlEngine"),
}
"""By the scheme of their URL: the package, imported when it is asked for, and the engine in it."""


def connect(
    urls: str | Sequence[str] | None = None,
    *,
    prefix: str = "",
    node_timeout: float = 0.05,
    drift: float = 0.01,
    max_ttl: float = 60.0,
    quarantine: bool | None = None,
    durable: bool = False,
    fence_ttl: float = 86400.0,
    identify: bool = True,
    retry: Retry = DEFAULT_RETRY,
    patience: float = 5.0,
    group: str | None = None,
    clients: Sequence[Any] | None = None,
    fleet: str | None = None,
    journal: int | None = None,
) -> Locker:
    """A Locker on the nodes of `urls`; it connects on first use.

    `urls`: one URL, several separated by commas, or a list; None reads QUORUMLOCK_URL, and without it keeps the
    locks of this machine in a SQLite file of this user's. `clients`: redis-py
    clients to take the connection settings from, instead of URLs; or one SQLAlchemy Engine or AsyncEngine, or one
    kazoo client, which is then used as it is.
    `prefix`: put in front of every key. `node_timeout`: how long to wait for a node. `drift`: by how much clock
    rates may differ. `max_ttl`: the longest ttl, and how long a node that may have lost its memory votes for
    nobody (`quarantine`; on by default from three nodes). `durable`: nodes keep every write through a restart.
    `fence_ttl`: how long an unused fence is remembered. `identify`: put @host:pid behind tokens.
    `retry`: how long to stay away before asking again. `patience`: how long to wait for a majority to come back.
    `group`: a label for metrics. `fleet`: a name for the set of nodes, where clients spell addresses differently.
    `journal`: have nodes write down what happens to locks of this client, in about so many entries; None: nothing.
    """
    from .sync.locker import Locker

    settings = Settings(
        prefix,
        node_timeout,
        drift,
        max_ttl,
        quarantine,
        durable,
        fence_ttl,
        identify,
        retry,
        patience,
        group,
        fleet,
        journal,
    )
    return Locker(_engine(urls, clients, settings), settings)


def connect_async(
    urls: str | Sequence[str] | None = None,
    *,
    prefix: str = "",
    node_timeout: float = 0.05,
    drift: float = 0.01,
    max_ttl: float = 60.0,
    quarantine: bool | None = None,
    durable: bool = False,
    fence_ttl: float = 86400.0,
    identify: bool = True,
    retry: Retry = DEFAULT_RETRY,
    patience: float = 5.0,
    group: str | None = None,
    clients: Sequence[Any] | None = None,
    fleet: str | None = None,
    journal: int | None = None,
) -> AsyncLocker:
    """The same for asyncio: not awaitable itself, it connects on first use."""
    from .aio.locker import AsyncLocker

    settings = Settings(
        prefix,
        node_timeout,
        drift,
        max_ttl,
        quarantine,
        durable,
        fence_ttl,
        identify,
        retry,
        patience,
        group,
        fleet,
        journal,
    )
    return AsyncLocker(_engine(urls, clients, settings), settings)


def _engine(urls: str | Sequence[str] | None, clients: Sequence[Any] | None, settings: Settings) -> Engine:
    if clients is not None and urls is not None:
        raise ConfigurationError("give either urls or clients, not both")
    listed = [] if clients is not None else _listed(urls)
    for url in listed:
        scheme, mark, _ = url.partition("://")
        if not mark or (scheme not in SERVERS and scheme not in STORES):
            known = ", ".join(f"{one}://" for one in (*SERVERS, *STORES))
            what = f"unknown URL scheme {scheme[:20]!r}" if mark else "a URL without a scheme"
            raise ConfigurationError(f"{what}; known: {known}")
        if scheme in STORES and len(listed) > 1:
            raise ConfigurationError(
                f"{scheme}:// keeps the locks by itself: it cannot be one of several nodes. (Several hosts of one "
                f"store stand in one URL: {scheme}://host1,host2)"
            )
    alone = isinstance(clients, Sequence) and len(clients) == 1  # what is no list of clients is refused below
    source: Any = listed[0] if listed else clients[0] if clients is not None and alone else None
    package = type(source).__module__.partition(".")[0]
    if package == "sqlalchemy":
        from .engines.sql.pools import pooled

        return pooled(source, settings)
    scheme = listed[0].partition("://")[0] if listed else package
    if store := STORES.get("zookeeper" if scheme == "kazoo" else scheme):
        folder, engine = store
        module = importlib.import_module(f".engines.{folder}", __package__)
        return getattr(module, engine)(source, settings)  # type: ignore[no-any-return]
    from .engines.redis import RedisEngine

    return RedisEngine(listed, clients, settings)


def _listed(urls: str | Sequence[str] | None) -> list[str]:
    """One URL per node."""
    if urls is None:
        urls = os.environ.get("QUORUMLOCK_URL") or "sqlite://"
    if isinstance(urls, str):
        urls = re.split(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)", urls)
    if isinstance(urls, bytes) or not isinstance(urls, Sequence) or not urls:
        raise ConfigurationError("urls must be a URL, several separated by commas, or a list of them")
    for url in urls:
        if not isinstance(url, str):
            raise ConfigurationError(f"urls must hold URLs as str, not {type(url).__name__}")
        if not url.strip():
            raise ConfigurationError("urls holds an empty URL")
    return [url.strip() for url in urls]
