"""What `serve` was told, checked before anything listens."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ..errors import ConfigurationError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TOKEN_LEAST = 16
"""Characters of an access token; attempts are limited, and still a short one can be guessed."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Where the dashboard listens, who may see it, and what they may do."""

    host: str = "127.0.0.1"
    port: int = 8731
    token: str | None = None
    allow_break: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    root_path: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    """Who may say for whom it asks."""
    every: float = 1.0
    """Seconds between two samples while somebody looks."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < TOKEN_LEAST:
            raise ConfigurationError(
                f"the access token has {len(self.token)} characters; at least {TOKEN_LEAST} are needed "
                '(python -c "import secrets; print(secrets.token_urlsafe())" makes one)'
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigurationError("the access token must be printable ASCII: a header can have nothing else")
        if self.token is None and not loopback(self.host):
            raise ConfigurationError(
                f"without an access token the dashboard is for this machine alone, not for {self.host}: "
                "put a token into QUORUMLOCK_WEB_TOKEN or a --token-file, or leave --host out"
            )
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path, re.ASCII):
            raise ConfigurationError(f"--root-path {self.root_path!r} must look like /locks or /ops/locks")
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"--port {self.port} must be within 0 and 65535; 0 takes a free one")
        if not 0.1 <= self.every <= 3600:
            raise ConfigurationError(f"--every {self.every:g} must be within 0.1 and 3600 seconds")

    @property
    def exposed(self) -> bool:
        """Do others come, through a proxy, and nobody asks them for a token?"""
        return self.token is None and bool(self.allowed_hosts or self.root_path or self.trusted_proxies)

    @property
    def cookie(self) -> str:
        """Of sessions. Cookies know no ports: two dashboards of a machine are told apart by name."""
        return f"quorumlock-{self.port}"

    def knows(self, host: str) -> bool:
        """Is this a name that the dashboard has? `host` as it stands in the header Host.

        A page of a stranger can make its own name point to this machine (DNS rebinding), and is then of one
        origin with the dashboard. Its name still stands in the header.
        """
        name = bare(host)
        if name in self.allowed_hosts or name == bare(self.host) or loopback(name):
            return True
        return not loopback(self.host) and address(name) is not None  # nobody can rebind a number


def bare(host: str) -> str:
    """Without port and brackets."""
    found = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", host)
    return (found[1] or found[2]).lower() if found else host.lower()


def network(text: str) -> Network:
    """An address, or many of them, as `10.0.0.0/24`."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigurationError(f"--trusted-proxy {text!r} is no address: say 10.0.0.7 or 10.0.0.0/24") from None


def address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def loopback(name: str) -> bool:
    number = address(name)
    return name == "localhost" or (number is not None and number.is_loopback)
