"""A guard of a service: the client sends its fence with every request, the service refuses those of the past.

    client.put(url, json=..., auth=FencingAuth(lease))                       # httpx, requests

    app = FencingMiddleware(app, resource=lambda scope: "report")            # any ASGI application

| answer | when | `type` of the problem |
|---|---|---|
| 412 | a newer holder was seen; the body says `fence` and `seen` | `urn:quorumlock:stale-fence` |
| 428 | the header is missing | `urn:quorumlock:fence-required` |
| 400 | the header is malformed, or there are two | `urn:quorumlock:fence-malformed` |
| 400 | the header names another resource than the one this request is about | `urn:quorumlock:fence-elsewhere` |

Bodies are `application/problem+json` (RFC 9457).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from ..errors import ConfigurationError, StaleFence
from .base import Claim
from .http_header import HEADER, FencingAuth, fencing_headers, parse_fencing_token
from .http_stores import Fences, MemoryFences, RedisFences, SQLFences, Unstorable

__all__ = [
    "CLAIM",
    "HEADER",
    "Fences",
    "FencingAuth",
    "FencingMiddleware",
    "MemoryFences",
    "RedisFences",
    "SQLFences",
    "fencing_headers",
    "parse_fencing_token",
]

CLAIM = "quorumlock.claim"
"""Where the application finds the claim of a request that was admitted: `scope["quorumlock.claim"]`."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_TITLES = {
    "stale-fence": (412, "A newer holder was seen"),
    "fence-required": (428, "A fencing token is required"),
    "fence-malformed": (400, "The fencing token is malformed"),
    "fence-elsewhere": (400, "The fencing token is of another resource"),
}


class FencingMiddleware:
    """Refuses requests with a fence of the past, for any ASGI application.

    `methods` are those that write. `required=False` lets requests without the header pass, unguarded.
    `resource(scope)` says which resource a request is about; None for one that needs no fence. Without it the
    header is believed: a client that names another resource is ordered with nobody.

    `store` remembers fences (default: MemoryFences, for a service of one process). It is held until the
    application has returned: after the last byte of a streamed response, and no longer than the application runs
    when the client goes away or the application fails. A mark that was raised stays.

    An application that raises StaleFence itself, out of a guard of its own, is answered for with 412 too, if it has
    not begun to answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        store: Fences | None = None,
        required: bool = True,
        methods: Iterable[str] = ("POST", "PUT", "PATCH", "DELETE"),
        resource: Callable[[Scope], str | None] | None = None,
    ) -> None:
        if isinstance(methods, str):
            raise ConfigurationError(f"methods is to be a list of methods, not {methods!r}")
        self._app = app
        self._store: Fences = MemoryFences() if store is None else store
        self._required = required
        self._methods = frozenset(method.upper() for method in methods)
        self._resource = resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"].upper() not in self._methods:
            return await self._app(scope, receive, send)
        about = self._resource(scope) if self._resource is not None else None
        if self._resource is not None and about is None:
            return await self._app(scope, receive, send)
        name = HEADER.lower().encode()
        values = [value for key, value in scope["headers"] if key.lower() == name]
        if not values and not self._required:
            return await self._app(scope, receive, send)
        if not values:
            return await _refuse(send, "fence-required", f"send {HEADER}: <resource>;<fence> of the lock you hold")
        if len(values) > 1:
            return await _refuse(send, "fence-malformed", f"{HEADER} was sent {len(values)} times")
        try:
            claim = parse_fencing_token(values[0].decode("latin-1"))
        except ConfigurationError as error:
            return await _refuse(send, "fence-malformed", str(error))
        if about is not None and claim.resource != about:
            return await _refuse(send, "fence-elsewhere", f"this is {about!r}, not {claim.resource!r}")
        return await self._admitted(claim, scope, receive, send)

    async def _admitted(self, claim: Claim, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with self._store.hold(claim):
                await self._app({**scope, CLAIM: claim}, receive, sending)
        except StaleFence as stale:
            if begun:
                raise
            await _refuse(send, "stale-fence", str(stale), fence=stale.fence, seen=stale.seen)
        except Unstorable as error:
            await _refuse(send, "fence-malformed", str(error))


async def _refuse(send: Send, kind: str, detail: str, **more: int) -> None:
    status, title = _TITLES[kind]
    problem = {"type": f"urn:quorumlock:{kind}", "title": title, "status": status, "detail": detail, **more}
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
