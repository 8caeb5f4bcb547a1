"""Where an ensemble is, and how to get in: the URL zookeeper://[user:password@]host[:port],…/path?options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from ...errors import ConfigurationError

PORT = 2181
ROOT = "/quorumlock"
SESSION = 20.0
"""Seconds that a session is asked for: enough for a ttl of 12 s. What a killed client held is held for so long."""
FORM = "zookeeper://[user:password@]host[:port],host[:port]/path?session_timeout=20"

_HOST = re.compile(r"(?P<name>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    hosts: tuple[str, ...] = ()
    root: str = ROOT
    session: float = SESSION
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: dict[str, Any] = field(default_factory=dict, repr=False)


def address_of(url: str) -> Address:
    """What a URL says; its password never appears in an error."""
    rest, _, query = url.partition("://")[2].partition("?")
    place, slash, path = rest.partition("/")
    login, at, listed = place.rpartition("@")
    auth: tuple[tuple[str, str], ...] = ()
    if at:
        user, colon, password = login.partition(":")
        if not user or not colon:
            raise ConfigurationError(f"before the @ a user and a password are expected: {FORM}")
        auth = (("digest", f"{unquote(user)}:{unquote(password)}"),)
    hosts = tuple(_host(one) for one in listed.split(","))
    options = dict(parse_qsl(query, keep_blank_values=True))
    session = _number("session_timeout", options.pop("session_timeout", str(SESSION)))
    return Address(hosts, _root(slash + unquote(path)), session, auth, _tls(options))


def _host(text: str) -> str:
    found = _HOST.fullmatch(text.strip())
    port = int(found["port"] or PORT) if found else 0
    if found is None or not 0 < port < 65536:
        raise ConfigurationError(f"{text[:40]!r} is no host, or host:port: {FORM}")
    return f"{found['name']}:{port}"


def _root(path: str) -> str:
    path = path.rstrip("/")
    if not path:
        return ROOT
    parts = path[1:].split("/")
    if any(part in ("", ".", "..", "zookeeper") or not part.isprintable() for part in parts):
        raise ConfigurationError(
            f"the path {path[:60]!r} cannot be a ZooKeeper path for locks; use one like {ROOT}"
        )
    return path


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86400:
        raise ConfigurationError(f"{name}={text[:20]!r} must be a number of seconds, from 0.1 to 86400")
    return value


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", ""):
        return True
    if text.lower() in ("0", "false", "no"):
        return False
    raise ConfigurationError(f"{text[:20]!r} is neither true nor false")


_TLS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "tls": ("use_ssl", _flag),
    "ca": ("ca", str),
    "certfile": ("certfile", str),
    "keyfile": ("keyfile", str),
    "keyfile_password": ("keyfile_password", str),
    "verify_certs": ("verify_certs", _flag),
    "check_hostname": ("check_hostname", _flag),
}
"""Options of a URL, and what kazoo calls them."""


def _tls(options: dict[str, str]) -> dict[str, Any]:
    unknown = sorted(set(options) - set(_TLS))
    if unknown:
        known = ", ".join(["session_timeout", *_TLS])
        raise ConfigurationError(f"unknown option {unknown[0][:40]!r} in the URL; known: {known}")
    given = {_TLS[name][0]: _TLS[name][1](text) for name, text in options.items()}
    if given and "use_ssl" not in given:
        raise ConfigurationError("options for TLS, but not tls=true, in the URL")
    return given
