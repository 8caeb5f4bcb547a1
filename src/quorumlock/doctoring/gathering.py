"""Goes to every node and brings back facts. It changes nothing there."""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.requests import Survey
from ..engines.redis.engine import RedisEngine
from ..engines.redis.link import parse_hello
from ..engines.redis.node import Hello
from ..engines.redis.resp import ReplyError, pack
from ..engines.redis.states import readable
from ..engines.redis.visiting import Questions, Sighting, Trip, all_of, fields, in_bytes, server, time_of_day
from ..engines.redis.wire import Wire
from ..runners.visits import visit_all
from .facts import FleetFacts, NodeFacts, Transport
from .needs import needed, probes
from .versions import parsed

EVERY = 0.05
"""Seconds between two questions for the time."""
CONFIG = ("appendonly", "appendfsync", "stop-writes-on-bgsave-error")


@dataclass(frozen=True, slots=True)
class Examined:
    """What one server said."""

    sighting: Sighting
    config: dict[str, str]
    denied: tuple[str, ...]


def gather(engine: RedisEngine, seconds: float) -> FleetFacts:
    """Looks at all nodes of a fleet at a time, for so long."""
    seen = visit_all(engine, lambda: in_bytes(examine(engine.wire, seconds)))
    states = engine.judged([one if isinstance(one, str) else one.sighting for one in seen])
    nodes = []
    for index, (one, state) in enumerate(zip(seen, states, strict=True)):
        if isinstance(one, str):
            nodes.append(NodeFacts(state))
            continue
        hello = parse_hello(one.sighting.survey)
        marker = hello.marker if isinstance(hello, Hello) else b""
        nodes.append(
            NodeFacts(
                state,
                one.sighting.info,
                one.config,
                readable(marker),
                bool(marker),
                one.sighting.trips,
                one.denied,
                transport(engine, index),
            )
        )
    return FleetFacts(tuple(nodes), engine.terms, engine.node_timeout, engine.drift)


def examine(wire: Wire, seconds: float) -> Questions[Examined]:
    """What a server is asked."""
    survey = yield wire.encode(Survey(), source=True)
    info, *configs = yield from all_of([("INFO",), *(("CONFIG", "GET", name) for name in CONFIG)])
    config = {name: value for reply in configs for name, value in _pairs(reply).items()}
    trips = yield from _trips(seconds)
    asked = {name: words for name, words in probes(wire.prefix, wire.channel).items() if name in needed()}
    replies = yield from all_of(list(asked.values()))
    denied = tuple(name for name, reply in zip(asked, replies, strict=True) if _denies(reply))
    return Examined(Sighting(survey, fields(info), trips), config, denied)


def _trips(seconds: float) -> Questions[tuple[Trip, ...]]:
    found: list[Trip] = []
    until = time.monotonic() + seconds
    while True:
        trip = yield from time_of_day()
        if trip is None:
            break
        found.append(trip)
        if time.monotonic() + EVERY > until:
            break
        yield EVERY
    return tuple(found)


def _pairs(reply: Any) -> dict[str, str]:
    match reply:
        case [bytes(name), bytes(value)]:
            return {name.decode(): value.decode("utf-8", "replace")}
    return {}


def _denies(reply: Any) -> bool:
    """Is it the user, or the server, that cannot do this? Other errors are about the question."""
    return isinstance(reply, ReplyError) and str(reply).startswith(("NOPERM", "ERR unknown command"))


def transport(engine: RedisEngine, index: int) -> Transport | None:
    """How the bytes get to a node; None: not at all."""
    try:
        connection: Any = engine.open(index)
    except Exception:  # it has just gone; that it is unreachable is another's finding
        return None
    try:
        sock = connection._sock
        if not isinstance(sock, ssl.SSLSocket):
            return Transport(False, False, _local(sock.getpeername()))
        certificate = sock.getpeercert()  # empty, where it is not checked
        expires_in = None
        if certificate and isinstance(until := certificate.get("notAfter"), str):
            expires_in = ssl.cert_time_to_seconds(until) - time.time()
        return Transport(True, bool(certificate), _local(sock.getpeername()), expires_in)
    finally:
        connection.disconnect()


def _local(peer: str | bytes | Sequence[Any]) -> bool:
    """Does it not leave this machine? The name of a unix socket is a text."""
    if isinstance(peer, str | bytes):
        return True
    return ipaddress.ip_address(str(peer[0]).partition("%")[0]).is_loopback


def lacking(engine: RedisEngine) -> list[tuple[tuple[int, ...], frozenset[str]] | None]:
    """For each node its version, and the commands that it does not have; None: it does not tell."""

    def ask() -> Questions[tuple[tuple[int, ...], frozenset[str]] | None]:
        info = fields((yield pack(("INFO", "server"))))
        names = [one.split("|")[0] for one in needed()]
        known = yield pack(("COMMAND", "INFO", *names))
        version = parsed(server(info)[1])
        if not version or not isinstance(known, list) or len(known) != len(names):
            return None
        return version, frozenset(name for name, row in zip(names, known, strict=True) if row is None)

    return [None if isinstance(one, str) else one for one in visit_all(engine, lambda: in_bytes(ask()))]
