"""The Redis and Valkey engine: from URLs to nodes, and from nodes to connections.

Connection set-up, TLS, AUTH, credential providers and URL options are redis-py's. Its retries are switched off,
and once a connection stands, the bytes on it are ours: we need to know which answers are owed, which redis-py
does not tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...clocks import boot_time
from ...core.room import Room
from ...core.states import NodeState
from ...errors import ConfigurationError, Unsupported
from ...options import Settings
from ..base import Visit
from .ear import Ear
from .link import Link
from .node import Node, Terms
from .states import states
from .visiting import Sighting, in_bytes, look
from .wire import Wire

if TYPE_CHECKING:
    import redis.asyncio.connection
    import redis.connection

logger = logging.getLogger("quorumlock")

SCHEMES = {"redis": "redis", "rediss": "rediss", "unix": "unix", "valkey": "redis", "valkeys": "rediss"}

# Settings of redis-py's pools and clients that a single connection does not take, or that must not be the user's:
# a retried request would hide that its answer was lost.
_NOT_OURS = {
    "retry", "retry_on_timeout", "retry_on_error", "max_connections", "timeout", "decode_responses", "protocol",
    "health_check_interval", "parser_class", "connection_class", "single_connection_client", "connection_pool",
    "redis_connect_func", "maint_notifications_config", "maint_notifications_pool_handler", "event_dispatcher",
    "oss_cluster_maint_notifications_handler", "himport_registry", "cache", "cache_config", "legacy_responses",
    "lib_name", "lib_version", "driver_info", "command_packer",
}  # fmt: skip


def redacted(url: str) -> str:
    """`url` without user, password and query, for messages."""
    scheme, _, rest = url.partition("://")
    host, behind = _cut(rest)
    if "@" in behind:  # somebody's password may begin anywhere
        return f"{scheme}://***"
    _, at, place = host.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{place}{re.sub(r'[?#].*', '?…', behind, flags=re.DOTALL)}"


def _cut(rest: str) -> tuple[str, str]:
    """What stands before the first / ? or #, and the rest."""
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return host, rest[len(host) :]


class RedisEngine:
    """N independent masters, one lock."""

    name = "redis"
    clock = staticmethod(boot_time)

    def __init__(self, urls: Sequence[str], clients: Sequence[Any] | None, settings: Settings) -> None:
        redis_py = _redis_py()
        if clients is not None:
            if not isinstance(clients, (list, tuple)) or not clients:
                raise ConfigurationError("clients must be a list of one redis-py client per node")
            found = [_from_client(client) for client in clients]
        else:
            found = [_from_url(redis_py, url) for url in urls]
        count = len(found)
        labels = [_label(kind, kwargs) for kind, kwargs in found]
        _refuse_repeated([_label(kind, kwargs | {"db": 0}) for kind, kwargs in found], labels)
        quarantine = count >= 3 if settings.quarantine is None else settings.quarantine
        terms = Terms(
            _fleet_id(settings.fleet, labels),
            count,
            settings.max_ttl,
            settings.durable,
            quarantine,
            settings.fleet is not None,
        )
        self.wire = Wire(
            prefix=settings.prefix,
            fleet=terms.fleet,
            nodes=count,
            max_ttl=settings.max_ttl,
            fence_ttl=settings.fence_ttl,
            durable=settings.durable,
            quarantine=quarantine,
            node_timeout=settings.node_timeout,
            journal=settings.journal,
        )
        self.terms = terms
        self.node_timeout = settings.node_timeout
        self.drift = settings.drift
        self.connect_timeout = 10 * settings.node_timeout
        self.visit_timeout = max(1.0, self.connect_timeout)
        self.nodes = [Node(index, label, terms) for index, label in enumerate(labels)]
        for node in self.nodes:
            node.mates = self.nodes
        self._kinds = [kind for kind, _ in found]
        self._kwargs = [self._connection_kwargs(kwargs) for _, kwargs in found]
        if count % 2 == 0:
            logger.warning("%d nodes tolerate no more failures than %d: an odd number is better", count, count - 1)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(node.label for node in self.nodes)

    def __repr__(self) -> str:
        return f"<RedisEngine {', '.join(self.labels)}>"

    def new_link(self, index: int) -> Link:
        return Link(self.nodes[index], self.wire)

    def new_ear(self, index: int, room: Room) -> Ear:
        return Ear(index, room, self.wire.channel)

    def open(self, index: int) -> redis.connection.AbstractConnection:
        """A connected redis-py connection; raises what that raises, and PermissionError for a wrong password."""
        from redis import connection as module

        connection = _class(module, self._kinds[index])(**self._kwargs[index])
        with _denials():
            connection.connect()
        return connection  # type: ignore[no-any-return]

    def look(self, samples: int) -> Visit[Sighting]:
        """What to ask of a node to know how it is doing."""
        return in_bytes(look(self.wire, samples))

    def judged(self, seen: Sequence[Sighting | str]) -> tuple[NodeState, ...]:
        return states(self.nodes, seen)

    async def open_async(self, index: int) -> redis.asyncio.connection.AbstractConnection:
        """The same for asyncio."""
        from redis.asyncio import connection as module

        connection = _class(module, self._kinds[index])(**self._kwargs[index])
        try:
            with _denials():
                await asyncio.wait_for(connection.connect(), self.visit_timeout)
        except BaseException:  # a timeout, or a cancellation: it may stand all the same
            await connection.disconnect(nowait=True)
            raise
        return connection  # type: ignore[no-any-return]

    def _connection_kwargs(self, given: dict[str, Any]) -> dict[str, Any]:
        kwargs = {key: value for key, value in given.items() if key not in _NOT_OURS}
        for timeout in ("socket_timeout", "socket_connect_timeout"):
            kwargs[timeout] = min(kwargs.get(timeout) or self.visit_timeout, self.visit_timeout)
        kwargs["protocol"] = 2
        return kwargs | _quiet()


def _redis_py() -> Any:
    try:
        import redis
    except ImportError:
        raise ConfigurationError("the redis engine needs redis-py: pip install 'quorumlock[redis]'") from None
    return redis


@contextlib.contextmanager
def _denials() -> Iterator[None]:
    from redis.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise PermissionError(str(error)) from error


def _quiet() -> dict[str, Any]:
    """Keeps redis-py from announcing itself with CLIENT SETINFO: two round trips that nobody needs."""
    from redis.connection import AbstractConnection

    known = inspect.signature(AbstractConnection.__init__).parameters
    return {"driver_info": None} if "driver_info" in known else {"lib_name": None, "lib_version": None}


def _class(module: Any, kind: str) -> Callable[..., Any]:
    return getattr(module, kind)  # type: ignore[no-any-return]


def _from_url(redis_py: Any, url: str) -> tuple[str, dict[str, Any]]:
    """The name of redis-py's connection class, and its arguments."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise ConfigurationError(f"unknown URL scheme {scheme[:20]!r}; known: {known}")
    if scheme != "unix" and "@" in _cut(rest)[1]:
        raise ConfigurationError(
            f"the URL {redacted(url)} has an @ behind its host: in a user name or password write "
            "/ ? # @ as %2F %3F %23 %40"
        )
    try:
        kwargs = redis_py.connection.parse_url(f"{SCHEMES[scheme]}://{rest}")
    except ValueError:
        # redis-py's own words may quote parts of the URL, and with them a password.
        raise ConfigurationError(f"the URL {redacted(url)} cannot be read") from None
    if "," in str(kwargs.get("host", "")):
        raise ConfigurationError(
            f"the URL {redacted(url)} names several hosts: write a full URL for each, separated by commas"
        )
    kind = kwargs.pop("connection_class", redis_py.Connection)
    return kind.__name__, kwargs


def _from_client(client: Any) -> tuple[str, dict[str, Any]]:
    """The same from an existing client, for threads or asyncio."""
    kind = type(client).__name__
    if "Cluster" in kind:
        raise Unsupported("clients: Redis Cluster is not supported; use N independent masters")
    pool = getattr(client, "connection_pool", None)
    connection = getattr(pool, "connection_class", None)
    if pool is None or connection is None:
        raise ConfigurationError(f"clients must hold redis-py clients, not {kind}")
    name = connection.__name__
    if "Sentinel" in name:
        raise ConfigurationError(
            "clients: a master found through Sentinel may change without notice; list independent masters"
        )
    if name not in ("Connection", "SSLConnection", "UnixDomainSocketConnection"):
        raise ConfigurationError(f"clients: connections of class {name} are not known to this version")
    return name, dict(pool.connection_kwargs)


def _label(kind: str, kwargs: dict[str, Any]) -> str:
    """Where a node is, without any secret."""
    db = f"/{kwargs['db']}" if kwargs.get("db") else ""
    if kind == "UnixDomainSocketConnection":
        return f"unix:{kwargs.get('path', '')}{db}"
    host = kwargs.get("host", "localhost")
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{kwargs.get('port', 6379)}{db}"


def _refuse_repeated(servers: list[str], labels: list[str]) -> None:
    """A server is one server, whatever the number of the database."""
    seen: dict[str, str] = {}
    for server, label in zip(servers, labels, strict=True):
        if server in seen:
            raise ConfigurationError(
                f"{label} and {seen[server]} are one server: it would vote twice. List every server once"
            )
        seen[server] = label


def _fleet_id(name: str | None, labels: list[str]) -> str:
    """What tells fleets apart: a name, or the list of nodes. One node alone is always the same majority."""
    if name is None and len(labels) == 1:
        return "solo"
    told = [name] if name is not None else sorted(re.sub(r"^localhost:", "127.0.0.1:", one) for one in labels)
    return hashlib.sha1("\n".join(told).encode(), usedforsecurity=False).hexdigest()[:12]
