"""Who asks, where a proxy brings the request. Anybody writes headers: only a proxy that was named is believed."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from .settings import Network, address, bare


def unveiled(scope: Scope, trusted: Sequence[Network]) -> Scope:
    """With the visitor's own address and scheme, if the peer is a proxy of ours and what it says makes sense."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not _one_of(peer, trusted):
        return scope
    headers = Headers(scope=scope)
    passed = [bare(one.strip()) for one in ",".join(headers.getlist("x-forwarded-for")).split(",")]
    # Each proxy writes behind the others: what stands in front of the last stranger, the stranger may have written.
    visitor = next((one for one in reversed(passed) if not _one_of(one, trusted)), "")
    found = {**scope, "via": peer, "client": (visitor, 0)} if address(visitor) else {**scope}
    scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip()
    return {**found, "scheme": scheme} if scheme in ("http", "https") else found


def client(request: Request) -> str:
    """The address of who asks."""
    return request.client.host if request.client else "?"


def _one_of(name: str, networks: Sequence[Network]) -> bool:
    number = address(name)
    return number is not None and any(number in one for one in networks)
