"""Answers of the JSON API, and what goes wrong on the way to one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from . import patience

BODY_MOST = 16 * 1024


class Refusal(Exception):
    """A request that gets no answer but a reason."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, dict(headers or {})

    def response(self) -> Response:
        return answer({"error": self.reason}, self.status, self.headers)


def dumped(what: object) -> str:
    """JSON in ASCII: what a node calls a name need not be Unicode that can be sent."""
    return json.dumps(what, separators=(",", ":"), allow_nan=False)


def answer(what: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumped(what), status, {"cache-control": "no-store", **(headers or {})}, "application/json")


async def body(request: Request) -> bytes:
    """All of it, if it is small, and comes to an end."""
    read = b""
    try:
        async with asyncio.timeout(patience.ASKING):
            async for piece in request.stream():
                read += piece
                if len(read) > BODY_MOST:
                    raise Refusal(413, f"more than {BODY_MOST} bytes")
    except TimeoutError:
        late = f"the body did not come to an end within {patience.ASKING:g} seconds"
        raise Refusal(408, late, {"connection": "close"}) from None
    return read


async def json_body(request: Request) -> dict[str, Any]:
    """The object that a request brings. Only as JSON: no form of another site can send that unasked."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "the body must be application/json")
    try:
        said = json.loads(await body(request))
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is no JSON") from None
    if not isinstance(said, dict):
        raise Refusal(400, "the body must be a JSON object")
    return said
