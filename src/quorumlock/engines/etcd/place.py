"""What an etcd:// URL says: hosts, who we are, how to trust them, and where our keys are."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from ... import options
from ...errors import ConfigurationError

PORT = 2379
ROOT = "quorumlock/"
_HINT = "write etcd://host1:2379,host2:2379, or etcds:// for TLS"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_FILES = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster."""

    hosts: tuple[str, ...]
    secure: bool
    root: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def label(self) -> str:
        return "etcd:" + ",".join(self.hosts)

    def address(self, host: int) -> str:
        return f"{'https' if self.secure else 'http'}://{self.hosts[host]}"

    def trust(self) -> ssl.SSLContext | bool:
        """How servers are verified; raises ConfigurationError if the files cannot be used."""
        if not self.secure:
            return False  # there is no TLS; to load certificates takes longer than many a lock is held
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(f"{name}={value}" for name in _FILES if (value := getattr(self, name)))
            raise ConfigurationError(f"etcds://: the files of {named} cannot be used: {error}") from None
        return context


def place_of(url: str) -> Place:
    """Reads a URL; raises ConfigurationError, which never shows a password."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    who, at, listed = authority.rpartition("@")
    user, colon, password = who.partition(":")
    if at and not (user and colon):
        raise ConfigurationError(f"an etcd URL names a user and a password, or nobody: {_HINT}")
    hosts = tuple(_host(one) for one in listed.split(","))
    if len(set(hosts)) < len(hosts):
        raise ConfigurationError("an etcd URL names a host twice")
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _FILES or name in given:
            raise ConfigurationError(
                f"an etcd URL does not know the option {name[:20]!r}, or not twice: it has ca=, cert=, key="
            )
        if not Path(value).is_file():
            raise ConfigurationError(f"etcds://: {name}={options.shown(value)} is not a file")
        given[name] = value
    secure = scheme == "etcds"
    if given and not secure:
        raise ConfigurationError("ca=, cert= and key= are for etcds://")
    if "key" in given and "cert" not in given:
        raise ConfigurationError("etcds://: key= goes with cert=")
    root = unquote(path).strip("/")
    options.text("the path of an etcd URL", root, empty=True)
    return Place(hosts, secure, f"{root}/" if root else ROOT, unquote(user), unquote(password), **given)


def _host(text: str) -> str:
    found = _HOST.fullmatch(text.strip())
    port = int(found.group(2) or PORT) if found else 0
    if not found or not 0 < port < 65536:
        raise ConfigurationError(f"a host in an etcd URL cannot be read ({len(text)} characters): {_HINT}")
    return f"{found.group(1)}:{port}"
