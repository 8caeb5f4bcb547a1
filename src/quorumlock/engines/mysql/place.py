"""Where a database is: what a mysql:// URL says."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import ConfigurationError

_HINT = "mysql://user:password@host:3306/database, with special characters percent-encoded"
_TEXTS = {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"}
_FLAGS = {"ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"}


class Place(NamedTuple):
    label: str
    host: str
    port: int
    user: str
    password: str
    database: str
    options: dict[str, str | bool]

    def for_pymysql(self) -> dict[str, Any]:
        return self._common() | self.options

    def for_asyncmy(self) -> dict[str, Any]:
        """It takes a context where the other takes words."""
        told = self._common()
        if "unix_socket" in self.options:
            told["unix_socket"] = self.options["unix_socket"]
        words = {name: value for name, value in self.options.items() if name.startswith("ssl_")}
        if words and not words.get("ssl_disabled"):
            told["ssl"] = _context(words)
        return told

    def _common(self) -> dict[str, Any]:
        # Of a password that is text they would take the bytes of latin-1, which servers do not.
        return {
            "host": self.host, "port": self.port, "user": self.user, "password": self.password.encode(),
            "database": self.database, "charset": "utf8mb4", "autocommit": True,
        }  # fmt: skip


def _context(words: dict[str, str | bool]) -> Any:
    import ssl

    ca = words.get("ssl_ca")
    context = ssl.create_default_context(cafile=str(ca) if ca else None)
    context.check_hostname = bool(words.get("ssl_verify_identity", False))
    verify = words.get("ssl_verify_cert", bool(ca))
    context.verify_mode = ssl.CERT_REQUIRED if verify or context.check_hostname else ssl.CERT_NONE
    if certificate := words.get("ssl_cert"):
        context.load_cert_chain(str(certificate), str(words.get("ssl_key") or "") or None)
    return context


def place_of(url: str) -> Place:
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:
        raise ConfigurationError(f"this mysql:// URL cannot be read: {_HINT}") from None
    database = unquote(parts.path.strip("/"))
    if not database or "/" in database:
        raise ConfigurationError(f"a mysql:// URL names one database, in which the tables are: {_HINT}")
    host = parts.hostname or "localhost"
    options = _options(parts.query)
    where = str(options["unix_socket"]) if "unix_socket" in options else f"{host}:{port}"
    label = f"mysql:{where}/{database}"
    return Place(label, host, port, unquote(parts.username or ""), unquote(parts.password or ""), database, options)


def _options(query: str) -> dict[str, str | bool]:
    options: dict[str, str | bool] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _TEXTS:
            options[name] = value
        elif name in _FLAGS and value.lower() in ("true", "1", "yes", "false", "0", "no"):
            options[name] = value.lower() in ("true", "1", "yes")
        else:
            known = ", ".join(sorted(_TEXTS | _FLAGS))
            raise ConfigurationError(
                f"mysql:// does not know the option {name[:20]!r} with this value; known: {known}"
            )
    return options
