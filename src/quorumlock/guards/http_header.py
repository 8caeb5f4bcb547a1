"""The header `Fencing-Token: <resource>;<fence>`: how it is written, sent and read.

The resource is percent-encoded (UTF-8) where a header, or the `;` behind it, would not allow its characters. The
fence is written in digits. A request carries exactly one.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote_to_bytes

from ..errors import ConfigurationError
from .base import Claim, Fenced, claim

HEADER = "Fencing-Token"
RESOURCE_LONGEST = 1100
"""Characters. A lock's name has up to 1024 bytes, and a semaphore puts `#slot` behind it."""
VALUE_LONGEST = 4096
"""Characters of the whole value: servers and proxies take 8 KB for all headers together."""

_PLAIN = "!#$&'*+-.^_`|~:/@()[]{}=?<>"
"""Beside letters and digits: what is visible in ASCII, but `;`, `%`, and what lists and quoting are made of."""
_VALUE = re.compile(rf"((?:[A-Za-z0-9{re.escape(_PLAIN)}]|%[0-9A-Fa-f]{{2}})+);([1-9][0-9]{{0,15}})", re.ASCII)


def fencing_headers(lease: Fenced) -> dict[str, str]:
    """The header that a guarded service asks for: `httpx.put(url, headers=fencing_headers(lease))`."""
    resource, fence = claim(lease, RESOURCE_LONGEST)
    try:
        value = f"{quote(resource, safe=_PLAIN)};{fence}"
    except UnicodeEncodeError:
        raise ConfigurationError(f"the resource {resource!r} is no text that UTF-8 can write") from None
    if len(value) > VALUE_LONGEST:
        raise ConfigurationError(
            f"the resource {resource[:40]!r}… takes {len(value)} characters in a header; {VALUE_LONGEST} are sent"
        )
    return {HEADER: value}


def parse_fencing_token(value: str) -> Claim:
    """Resource and fence of a header's value; ConfigurationError if it is anything but that."""
    if len(value) > VALUE_LONGEST:
        raise ConfigurationError(f"{HEADER} has {len(value)} characters; {VALUE_LONGEST} are read")
    found = _VALUE.fullmatch(value)
    if found is None:
        raise ConfigurationError(f"{HEADER} is to be <resource>;<fence>, the resource percent-encoded")
    try:
        resource = unquote_to_bytes(found[1]).decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"the resource in {HEADER} is not UTF-8") from None
    claimed = Claim(resource, int(found[2]))
    claim(claimed, RESOURCE_LONGEST)
    return claimed


class _Request(Protocol):
    @property
    def headers(self) -> Any: ...


_R = TypeVar("_R", bound=_Request)


class FencingAuth:
    """Puts the header on every request: `auth=FencingAuth(lease)`, for httpx (both clients) and requests.

    Where `auth` is needed for somebody's identity, give `headers=fencing_headers(lease)` instead.
    """

    def __init__(self, lease: Fenced) -> None:
        self._headers = fencing_headers(lease)

    def __call__(self, request: _R) -> _R:
        request.headers.update(self._headers)
        return request
